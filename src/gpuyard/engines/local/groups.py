"""The yard's cgroups on this machine: one of v2 that holds attempts together, and those of v1 that v2 does not replace.

The kernel has each controller in one of the two. Limits are set where it is.
"""

import hashlib
import os
from contextlib import suppress
from typing import Any

from gpuyard.engines.local.attempt import cgroups, v1


class Groups:
    """The groups of one yard, below which its attempts have theirs."""

    def __init__(self, root: str, *, wanted: bool) -> None:
        self._name = f"gpuyard-{hashlib.sha256(root.encode()).hexdigest()[:12]}"
        self.base, self.v2, why = cgroups.found(self._name, wanted=wanted)
        """The group of v2 (empty: none), and the controllers in it."""
        self._held = -1
        if self.base:
            self._held = cgroups.take(self.base)
            cgroups.sweep(self.base)
        self.v1: dict[str, str] = {}
        """The groups of v1, by controller."""
        if wanted:
            lacking = [name for name in v1.CONTROLLERS if name not in self.v2]
            self.v1 = v1.bases(self._name, lacking=lacking, root=os.geteuid() == 0)
        lack = " and ".join(sorted(cgroups.CONTROLLERS - self.controllers))
        self.limits = not lack
        """Whether limits on memory and cores can be set."""
        self.note = f"jobs may use more memory and CPU than they ask for: {why}" if lack else ""
        """What people should know about limits; empty: nothing."""

    @property
    def controllers(self) -> frozenset[str]:
        """What can be limited."""
        return self.v2 | frozenset(self.v1)

    @property
    def supervisors(self) -> str:
        """The group of the supervisors; empty: none."""
        return os.path.join(self.base, cgroups.SUPERVISORS) if self.base else ""

    def of(self, key: str) -> str:
        """The group of v2 of an attempt; empty: none."""
        return os.path.join(self.base, key) if self.base else ""

    def add_to(self, plan: dict[str, Any]) -> None:
        """Name the groups of v1 that a plan makes use of."""
        wanted = {"memory": True, "cpu": plan["cpu_milli"] > 0, "cpuset": bool(plan.get("cpus"))}
        wanted["devices"] = (plan.get("fence") or {}).get("devices") == "v1"
        plan["bound"] = bool(plan.get("cpus")) and "cpuset" in self.v2
        plan["v1"] = {name: os.path.join(base, plan["key"]) for name, base in self.v1.items() if wanted[name]}

    def hold(self) -> None:
        """Make the yard's group again if another engine over the same data has closed and removed it."""
        if self.base and not os.path.isdir(self.base):
            os.close(self._held)
            self._held = cgroups.take(self.base)

    def let_go(self) -> None:
        """Only an empty group can be removed, so one with jobs in it stays."""
        v1.let_go(self.v1)
        if self.base:
            with suppress(OSError):
                cgroups.let_go(self.base, self._held)
