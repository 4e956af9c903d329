"""Inside a running job: its terminal, a shell beside it, its ports and its files."""
