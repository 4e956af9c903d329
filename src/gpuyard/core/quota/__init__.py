"""Quotas: the tree of tenants with what each may use and uses, and what is charged over time."""
