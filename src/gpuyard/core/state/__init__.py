"""The state: what the log amounts to, how each event changes it, and its dump."""
