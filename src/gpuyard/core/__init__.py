"""The scheduler's core: `apply` folds events into a state, `decide` makes a plan of it, `explain` and `why` say why.

Pure: no clock, no randomness, no files. What it knows comes in as arguments, what it thinks goes out as values.
"""

from gpuyard.core.decide import decide
from gpuyard.core.dump import dump, load
from gpuyard.core.explain import Explanation, explain
from gpuyard.core.fold import apply
from gpuyard.core.policy import Policy
from gpuyard.core.state import InvalidEvent, State
from gpuyard.core.why import why

__all__ = [
    "Explanation",
    "InvalidEvent",
    "Policy",
    "State",
    "apply",
    "decide",
    "dump",
    "explain",
    "load",
    "why",
]
