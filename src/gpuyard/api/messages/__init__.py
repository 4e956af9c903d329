"""What goes over the wire: bodies, the fields in them, and problems."""
