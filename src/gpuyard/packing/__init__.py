"""Packing: where a task leaves the most that later tasks can use. Prices, and values of what is idle.

`prices` says what each size of task is worth, `values` turns that into tables for what a node has idle, and the live
placement `pack` reads them, as does the kernel of `benchmarks/placing`. All is integers once the prices are known.
"""
