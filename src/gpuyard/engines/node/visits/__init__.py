"""Clients inside a running job: the keeper of its terminals, shells, commands, ports, copied files."""
