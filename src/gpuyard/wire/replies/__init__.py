"""What the API answers, each form once: the description of the API and the types of the client are made from these."""
