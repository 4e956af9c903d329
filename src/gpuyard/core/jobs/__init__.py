"""Jobs that live: their records, and the waiting ones in order."""
