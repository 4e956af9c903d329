"""What runs on the nodes of a Slurm cluster. Copied there, so nothing else of gpuyard is at hand."""
