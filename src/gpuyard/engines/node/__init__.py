"""The code that runs on the nodes of a Slurm cluster. It is copied there, without the rest of gpuyard."""
