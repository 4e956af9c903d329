"""One attempt on any machine: its runner, the tasks of a node, how a process becomes one, and the fence around them."""
