"""Real Slurm daemons: packages, configuration, a cluster, and what is seen of it."""
