"""What names look like: of clusters, pools, tenants, classes and policies."""

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"
"""The same in yard.yaml, in requests, and for what is made of a site of another scheduler."""
