"""The report of a simulation: one HTML page that people read, and the table that the terminal prints."""

from gpuyard.sim.report.page import render
from gpuyard.sim.report.table import make_size_table, make_terminal_table

__all__ = ["make_size_table", "make_terminal_table", "render"]
