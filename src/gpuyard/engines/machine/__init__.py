"""What every engine uses of the machine it runs on: files, processes, users, GPUs."""
