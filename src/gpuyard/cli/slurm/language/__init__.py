"""What Slurm's commands share: options, ids, names, times and columns as Slurm has them."""
