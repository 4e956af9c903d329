"""The yard that a command speaks with, what it tells of changes, and a person's defaults."""
