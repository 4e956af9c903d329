"""Simulation: a virtual clock around the same `decide` that runs live, traces in, results out."""
