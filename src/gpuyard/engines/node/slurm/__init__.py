"""An attempt inside a job of Slurm: its runner there, tasks on several nodes, what Slurm has allotted, images."""
