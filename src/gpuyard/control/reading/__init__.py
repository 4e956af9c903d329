"""What is published of the replica for readers: reasons, rows, their order, and what changes."""
