"""One machine: real processes under supervisors that outlive the server. `engine.LocalEngine` is the way in.

This file stays empty: a supervisor is forked from a process that imports this package, and what would be imported here
would be held in memory by every running job.
"""
