"""What is published of the books for readers: reasons, rows, their order, and what changes."""
