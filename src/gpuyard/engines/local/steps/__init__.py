"""Steps: what `srun` starts inside a job, on a part of the job's room that no other live step holds.

The command reads its options and calls these; they run inside the job, beside its tasks.
"""
