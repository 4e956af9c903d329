"""Results as tables and documents."""
