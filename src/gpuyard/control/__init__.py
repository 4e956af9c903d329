"""The control loop: observe, decide, commit, act."""
