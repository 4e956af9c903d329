"""When a job could start by what is known, and which jobs stand between it and its room."""
