"""The containers of tasks: what runs them, the images that they start from, and the GPUs in them."""
