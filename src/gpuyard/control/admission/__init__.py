"""Whether the yard takes a job, and as what: one judgement for submissions, dry runs and rehearsals."""
