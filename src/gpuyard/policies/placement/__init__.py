"""Which node a task goes on. Gangs are placed by a common rule: fewest nodes, then fewest switches."""
