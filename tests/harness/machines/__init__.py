"""State machines for Hypothesis: everything that can happen to a yard, checked after every step."""
