"""Text on its way to a person: streams, control sequences, progress."""
