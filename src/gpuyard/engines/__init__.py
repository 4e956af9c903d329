"""Engines run what was decided. They talk, translate and promise; they do not decide."""
