"""On which node a task goes. Gangs are placed by a common rule: fewest nodes, then fewest switches."""
