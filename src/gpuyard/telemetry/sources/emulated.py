"""Emulated GPUs do what jobs say that they do: a script in the job's environment, so that yards can be rehearsed.

`YARD_EMULATED_LOAD="95% 40GiB 60s, 5% 40GiB"`: busy for a minute, then hardly, with memory held all the time. A GPU on
which a job without a script runs tells nothing: nobody knows what the job would have done.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gpuyard.telemetry.attribution import FULL
from gpuyard.telemetry.sources import AttemptPlace, GpuLook, ProcessOnGpu

_STEP = re.compile(r"\s*(\d{1,3})%\s+(\d+(?:\.\d+)?)\s*(MiB|GiB|M|G)(?:\s+(\d+)\s*s)?\s*")
_IDLE_W, _FULL_W = 70, 700
_IDLE_C, _FULL_C = 34, 74


@dataclass(frozen=True, slots=True)
class Step:
    """What an attempt does on each of its GPUs for a while."""

    busy: int
    memory_mib: int
    until_s: int
    """Seconds after its start; the last step never ends."""


def read_script(text: str) -> tuple[Step, ...]:
    """The steps of a script; none: it is no script."""
    steps, until_s = [], 0
    parts = text.split(",") if text.strip() else []
    for place, part in enumerate(parts):
        found = _STEP.fullmatch(part)
        if found is None or int(found[1]) > 100 or (found[4] is None and place < len(parts) - 1):
            return ()
        until_s += int(found[4] or 0)
        factor = 1024 if found[3].startswith("G") else 1
        steps.append(Step(int(found[1]) * 10, round(float(found[2]) * factor), until_s))
    return tuple(steps)


def at(steps: Sequence[Step], since_s: float) -> Step:
    """The step of a moment."""
    return next((step for step in steps[:-1] if since_s < step.until_s), steps[-1])


class EmulatedSource:
    """GPUs that are only pretended to be there."""

    def __init__(
        self,
        gpus: Callable[[], Mapping[str, int]],
        places: Callable[[], Sequence[AttemptPlace]],
        model: str = "",
    ) -> None:
        """`gpus`: the memory of each GPU in MiB by UUID, in the order of the node."""
        self._gpus = gpus
        self._places = places
        self._model = model
        self._energy_mj: dict[str, tuple[int, int]] = {}
        """When each GPU was last looked at, and the energy that it had used."""

    def look(self, now_ms: int) -> list[GpuLook]:
        """Every GPU, as the scripts have it at this moment."""
        places, gpus = self._places(), self._gpus()
        # A GPU that is cut does not say how busy it is.
        cut = {number for each in places for number in each.cut}
        return [
            self._look_at(number, uuid, memory_mib, places, now_ms, number in cut)
            for number, (uuid, memory_mib) in enumerate(gpus.items())
        ]

    def close(self) -> None:
        """Nothing is held."""

    def _look_at(
        self, number: int, uuid: str, memory_mib: int, places: Sequence[AttemptPlace], now_ms: int, cut: bool
    ) -> GpuLook:
        scripts = [(each, read_script(each.script)) for each in places if uuid in each.devices]
        if not all([steps for _each, steps in scripts]) or cut:
            return GpuLook(number, uuid, {}, model=self._model)
        now = [(each, at(steps, (now_ms - each.started_ms) / 1000)) for each, steps in scripts]
        wanted = sum([step.busy * each.milli // FULL for each, step in now])
        busy = min(FULL, wanted)
        used = min(memory_mib, sum([step.memory_mib for _each, step in now]))
        processes = [
            ProcessOnGpu(
                0,
                min(memory_mib, step.memory_mib),
                # Those that want more than there is get less, all in the same measure.
                accounted=step.busy * each.milli // FULL * busy // max(1, wanted),
                attempt=each.key,
            )
            for each, step in now
        ]
        power = _IDLE_W + (_FULL_W - _IDLE_W) * busy // FULL
        last_ms, energy_mj = self._energy_mj.get(uuid, (now_ms, 0))
        energy_mj += power * max(0, now_ms - last_ms)
        self._energy_mj[uuid] = (now_ms, energy_mj)
        values = {
            "busy": busy,
            "memory_used": used,
            "memory_free": memory_mib - used,
            "power": power,
            "energy": energy_mj // 1000,
            "temperature": _IDLE_C + (_FULL_C - _IDLE_C) * busy // FULL,
        }
        return GpuLook(number, uuid, values, tuple(processes), model=self._model)
