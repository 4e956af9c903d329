"""Where the processes of attempts are on this machine, for the eyes that watch them: groups, supervisors, GPUs."""

import os
import threading

from gpuyard.engines.contract import Whereabouts
from gpuyard.engines.local.client import Data
from gpuyard.engines.machine import files

LOAD_VARIABLE = "YARD_EMULATED_LOAD"
"""What a job on emulated GPUs pretends to do there."""

MIG = "MIG-"
"""How UUIDs of slices begin."""


class Tracker:
    """Reads the plan of each attempt once: nothing of it changes while the attempt runs."""

    def __init__(self, data: Data) -> None:
        self._data = data
        self._known: dict[str, Whereabouts] = {}
        self._lock = threading.Lock()

    def look(self) -> list[Whereabouts]:
        """The attempts that have a supervisor and have not ended, by key. Any thread may ask."""
        with self._lock:
            return self._look()

    def _look(self) -> list[Whereabouts]:
        keys = self._data.attempts()
        for gone in self._known.keys() - set(keys):
            del self._known[gone]
        found = []
        for key in keys:
            if os.path.exists(os.path.join(self._data.attempt(key), files.END)):
                self._known.pop(key, None)
                continue
            each = self._known.get(key) or self._read(key)
            if each is not None:
                self._known[key] = each
                found.append(each)
        return found

    def _read(self, key: str) -> Whereabouts | None:
        folder = self._data.attempt(key)
        launch = os.path.join(folder, files.LAUNCH)
        plan, work, claim = (
            files.read(os.path.join(folder, name)) for name in (files.LAUNCH, files.WORK, files.CLAIM)
        )
        if plan is None or work is None or not claim or not claim.get("pid"):
            # It has no supervisor yet, or is about to go.
            return None
        try:
            started_ms = os.stat(launch).st_mtime_ns // 1_000_000
        except FileNotFoundError:
            return None
        nodes = (work.get("room") or {}).get("nodes", ())
        environment: dict[str, str] = next(iter(work.get("envs") or ()), {})
        return Whereabouts(
            key=key,
            devices={node["name"]: tuple([gpu["device"] for gpu in node["gpus"]]) for node in nodes},
            cut={
                node["name"]: tuple([gpu["index"] for gpu in node["gpus"] if gpu["device"].startswith(MIG)])
                for node in nodes
            },
            group=plan.get("cgroup") or "",
            groups_v1=plan.get("v1") or {},
            pids=(claim["pid"],),
            milli=plan.get("milli", 1000),
            started_ms=started_ms,
            load=environment.get(LOAD_VARIABLE, ""),
        )
