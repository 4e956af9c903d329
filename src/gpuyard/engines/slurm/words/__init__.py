"""How Slurm writes things down, and what its words mean here."""
