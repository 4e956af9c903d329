"""What runs on the nodes by itself: on this machine, and as a copy on those of a Slurm cluster.

`files` has the names by which an engine and the nodes speak. Imports here are relative: in a copy this folder is a
package of its own.
"""
