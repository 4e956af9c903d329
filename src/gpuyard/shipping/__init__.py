"""Logs on their way out: lines cut from what attempts wrote, and the receivers that take them."""
