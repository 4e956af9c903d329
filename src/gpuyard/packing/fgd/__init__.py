"""Fragmentation Gradient Descent (ATC'23): the measure, and the nodes by the score that a task gives them."""
