"""Live jobs: their records, and the waiting ones in order."""
