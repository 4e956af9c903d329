"""Which jobs may take room from which. The core decides from which it is taken: where the least work is destroyed."""
