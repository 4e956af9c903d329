"""When a job is expected to start, and which jobs stand between it and its room."""
