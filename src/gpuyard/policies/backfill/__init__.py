"""Which jobs may start past a job that cannot."""
