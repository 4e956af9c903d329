"""Who may take room from whom. Whom it then takes is decided in the core: whoever destroys the least work."""
