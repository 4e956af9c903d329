"""What takes thought: when a job starts, what would become of one, what a configuration would have done, and why.

Nothing here is worked out in the server's replica: a question gets a state of its own, or a process of its own.
"""
