"""The server process: sockets, the application, its log."""
