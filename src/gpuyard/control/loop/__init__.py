"""The loop that observes, decides, commits and acts, and the election of its leader."""
