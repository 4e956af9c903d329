"""Commands that run the yard and look after its nodes and its store."""
