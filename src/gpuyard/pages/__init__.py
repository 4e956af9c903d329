"""Pages that people read and mail: one HTML file each, with charts and tables. One kit for simulations and for money.

The console draws its curves live in a browser (`console/src`), and `cli.terminal.curves` draws those of a terminal.
"""
