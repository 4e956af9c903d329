"""Two books over the log, in integers: where every GPU-millisecond went, and what each job owes for it.

`books` folds events; `prices` says what an hour costs on a day; `accounts` sums both up by dimensions. All of it is
pure: events and rows in, rows and values out.
"""
