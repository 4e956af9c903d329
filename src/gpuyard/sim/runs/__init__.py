"""Many simulations: at once, kept from one time to the next, and several seeds taken together."""
