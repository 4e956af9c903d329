"""One attempt on this machine, from claim to end: the supervisor and what it works with."""
