"""What may start past a job that cannot."""
