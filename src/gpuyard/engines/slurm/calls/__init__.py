"""The two ways to speak to Slurm: its commands and slurmrestd."""
