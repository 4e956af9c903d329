"""Packing: where a task leaves the most that later tasks can use. Prices, values of what is idle, and the kernel.

`prices` says what each size of task is worth, `values` turns that into tables for what a node has idle, and both the
live placement `pack` and the `kernel` read the same tables. All of it is integers once the prices are known.
"""
