"""Which jobs may take room from which. The core chooses the victims: where the least work is lost."""
