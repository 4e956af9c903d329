"""Every change of the tables, one file each, in order. A released one is never edited."""
