"""A whole Slurm site as typed rows: nodes, partitions, accounts, jobs that ended."""
