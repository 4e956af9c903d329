"""What the code for the nodes asks of the kernel: processes, and the terminals that they have."""
