"""A kind of engine from outside: a world of its own, which is spoken to over a socket and has no processes of ours."""
