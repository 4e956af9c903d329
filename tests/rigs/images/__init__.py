"""Real images, made and kept on loopback."""
