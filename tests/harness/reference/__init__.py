"""A second scheduler from the model alone, slow and obvious: books, room, quota, MIG, lifts, and what must be true."""
