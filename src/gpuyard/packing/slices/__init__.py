"""MIG slices: what a GPU with certain slices is worth, and the cheapest place for a new slice."""
