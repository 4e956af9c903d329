"""The HTTP API and its Python client. Imports nothing by itself: `client` is light, the server is not."""
