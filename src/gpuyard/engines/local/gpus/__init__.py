"""The GPUs of this machine: made ready for attempts, cut, shared, measured, kept awake."""
