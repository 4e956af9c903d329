"""People: their rights, their tokens, and how a request is known to be theirs."""
