"""How a command is declared, found, read, called and complained about."""
