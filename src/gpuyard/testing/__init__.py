"""What you need to test your own policy, engine or projection: a scheduler, a control
loop, an engine that fails, a store in memory.

* `Yard`: the scheduler alone, with values made by `node`, `nodes`, `ask`, `share`, `quota` and `tenant`.
* `LiveYard`: the control loop over any engine, with its log in a `MemoryStore`.
* `projected`: the rows that a projection makes of events.
* `SimEngine`: an engine on a virtual clock. `Life` says how a job lives, `Faults` what goes wrong, `World` what ran.

Time passes when a test says so, and chance comes from a seed: a test gives the same result every time.
"""

from gpuyard.testing.engine import Faults, Life, Misfortune, Run, SimEngine, World
from gpuyard.testing.live import LiveYard
from gpuyard.testing.memory_store import MemoryStore
from gpuyard.testing.values import BATCH, URGENT, ask, node, nodes, projected, quota, share, tenant
from gpuyard.testing.yard import Yard

__all__ = [
    "BATCH",
    "URGENT",
    "Faults",
    "Life",
    "LiveYard",
    "MemoryStore",
    "Misfortune",
    "Run",
    "SimEngine",
    "World",
    "Yard",
    "ask",
    "node",
    "nodes",
    "projected",
    "quota",
    "share",
    "tenant",
]
