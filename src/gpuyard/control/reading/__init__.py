"""What is published of the books for whoever reads them: reasons, rows, their order, and what changes."""
