"""Room: nodes, kinds of node, asks as shapes, MIG slices, and where a task goes."""
