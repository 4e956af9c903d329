"""Slurm's commands over the yard's API, one file for each."""
