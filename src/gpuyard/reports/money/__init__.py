"""Reports about money that are pages too: a statement for a tenant, costs over time, what other hardware would cost."""
