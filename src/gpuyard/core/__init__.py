"""The scheduler's core: `apply` folds events into a state, `decide` makes a plan of it, `explain` and `explain_why` say
why.

Pure: no clock, no randomness, no files. Everything comes in as arguments and goes out as values.
"""

from gpuyard.core.explain.explain import Explanation, explain
from gpuyard.core.explain.why import explain_why
from gpuyard.core.schedule.decide import decide
from gpuyard.core.schedule.policy import Policy
from gpuyard.core.state.dump import dump, load
from gpuyard.core.state.fold import apply
from gpuyard.core.state.state import InvalidEvent, State

__all__ = [
    "Explanation",
    "InvalidEvent",
    "Policy",
    "State",
    "apply",
    "decide",
    "dump",
    "explain",
    "explain_why",
    "load",
]
