"""Commands about people and tenants: logins, tokens, shares, the audit."""
