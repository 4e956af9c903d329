"""The steps. A file is named for its number, and its number is its revision."""
