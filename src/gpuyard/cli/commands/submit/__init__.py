"""Commands that hand in jobs, and the options that say what a job needs."""
