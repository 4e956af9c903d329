"""The databases: what the store asks of both, and SQLite and PostgreSQL, each with its turns, bells and leases."""
