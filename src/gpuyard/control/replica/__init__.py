"""The log folded into a state, one for each process: read, written, and worked with beside the server."""
