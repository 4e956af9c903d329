"""Commands that measure the speed of this machine."""
