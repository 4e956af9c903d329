"""The report of a simulation: one HTML page that people read, and the table that the terminal prints."""

from gpuyard.sim.report.page import render
from gpuyard.sim.report.table import Column, PolicyTable, terminal_table

__all__ = ["Column", "PolicyTable", "render", "terminal_table"]
