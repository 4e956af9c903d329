"""What is wrong with a Slurm site, or could be better: what was seen, why it matters, and the line to change.

`examine` asks the site; `setup` and `work` are pure rules over what it said. A rule that lacks its evidence says
nothing: that the evidence is missing is a finding of its own.
"""
