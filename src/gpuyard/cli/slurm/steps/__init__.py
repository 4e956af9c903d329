"""Steps: what `srun` starts inside a job, on a part of the job's room that no other live step holds."""
