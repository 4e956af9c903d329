"""What every request passes: the gate, rates, turns, and how a route is added."""
