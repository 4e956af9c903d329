"""Commands about jobs that are there: lists, stories, reasons, verbs."""
