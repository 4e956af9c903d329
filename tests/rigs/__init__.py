"""Real parts of the world for tests: servers, mounts, processes."""
