"""The state: what the log adds up to, how each event changes it, and its dump."""
