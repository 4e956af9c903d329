"""Slurm's commands over the yard's API: `sbatch squeue scancel sinfo sacct srun scontrol sshare`.

For people and scripts that know Slurm: the same columns, the same format strings, the same messages and exit codes, as
Slurm 22.05 has them. A pool is a partition, a tenant an account, a class a QOS. What a yard does not have is reported
on standard error, never passed over. They start without the option parser of `yard`, which takes longer to import than
most of them run.
"""
