"""Work beside the loop: what is removed, what is kept free, what is filled again."""
