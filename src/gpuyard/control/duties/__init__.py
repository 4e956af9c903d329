"""What a server does by itself, again and again: the list of it, the one way to run it, and a file for each duty."""
