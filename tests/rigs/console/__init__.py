"""The console in a browser, and what is put into it."""
