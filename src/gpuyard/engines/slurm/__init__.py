"""Jobs on a Slurm cluster.

This file stays empty: every supervisor, and every node of a cluster, imports this package.
"""
