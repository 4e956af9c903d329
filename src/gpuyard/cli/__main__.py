"""`python -m gpuyard.cli`, for when the command `yard` is not on the path."""

from gpuyard.cli import main

main()
