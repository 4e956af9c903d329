"""MIG slices: what a GPU is worth that is cut in a certain way, and the cheapest place for a slice."""
