"""Where the yard's own code lies on this machine: what supervisors are started from, and what jobs are shown of it."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import gpuyard
from gpuyard.engines.node.attempt import fence


@dataclass(frozen=True, slots=True)
class OwnCode:
    """The code of a yard."""

    above: str
    """The folder in which Python finds the package."""
    folders: tuple[str, ...]
    """The package, its environment and its Python: programs of the yard need them inside jobs, `srun` among them."""

    def hidden(self) -> tuple[str, ...]:
        """Those of its folders in whose place a job sees files of its own, unless it is shown them."""
        found = [path for path in self.folders if fence.is_temporary(path) or fence.is_shared(path)]
        return tuple([path for path in found if not any([path.startswith(f"{each}/") for each in found])])


def own_code() -> OwnCode:
    """The code that runs here. A folder counts by its name and by where that leads."""
    package = os.path.dirname(os.path.abspath(gpuyard.__file__))
    named = [package, sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix]
    folders = {os.path.normpath(path) for path in named} | {os.path.realpath(path) for path in named}
    return OwnCode(str(Path(package).resolve().parent), tuple(sorted(folders)))
