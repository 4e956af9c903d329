"""The commands of `yard`, by theme."""
