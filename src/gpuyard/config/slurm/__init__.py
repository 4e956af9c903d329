"""The same policy in two languages: `yard.yaml`, and what Slurm has in slurm.conf, gres.conf and its accounting."""
