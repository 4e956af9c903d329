"""A real OpenID Connect provider, and a browser that logs in to it."""
