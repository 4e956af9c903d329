"""The databases: what both are asked for, and SQLite and PostgreSQL, each with its turns, bells and leases."""
