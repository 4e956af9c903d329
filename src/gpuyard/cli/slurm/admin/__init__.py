"""`yard slurm doctor`, `import` and `export`: commands for the admin of a Slurm site."""
