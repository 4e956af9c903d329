"""Reports: one file each, and by that a command, a route, a call of the client and a form in the API's description."""
