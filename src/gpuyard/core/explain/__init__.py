"""Why a job waits, what would help, what a tenant has, and what can never run."""
