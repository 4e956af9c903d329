"""What one node tells at one moment: its sources asked, and what they saw put down to attempts."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from gpuyard.telemetry.attribution import Busy, OnGpu, average_gpus, divide_work
from gpuyard.telemetry.samples import KernelLine
from gpuyard.telemetry.signals import NODE_SUBJECT, attempt_subject, gpu_subject
from gpuyard.telemetry.sources import AttemptPlace, GpuLook, GpuSource, MachineSource
from gpuyard.telemetry.sources.kernel_log import KernelLog

PAUSE_S = 10.0
"""Between two looks."""
LINES_KEPT = 200
_MPS = "nvidia-cuda-mps"
"""How the names of MPS's own processes begin: their work is that of their clients."""

Told = dict[str, int | float | None]


class Collector:
    """The eyes of one node. It changes nothing that it sees."""

    def __init__(
        self,
        node: str,
        gpus: GpuSource,
        places: Callable[[], Sequence[AttemptPlace]],
        kernel: MachineSource,
        *,
        machine: bool = True,
        log: KernelLog | None = None,
    ) -> None:
        """`machine`: whether the node is this machine, and what the kernel counts, and its log, are the node's."""
        self.node = node
        self._gpus = gpus
        self._places = places
        self._kernel = kernel
        self._machine = machine
        self._log = log
        self._lines: list[KernelLine] = []
        self._joules: dict[str, int] = {}
        """What the counters of GPUs had when they were last read, by UUID."""
        self._energy: dict[str, int] = {}
        """Energy of attempts in mJ, since each was first seen."""
        self.looks: Sequence[GpuLook] = ()
        """The GPUs as they were seen last."""
        self.on_gpus: dict[int, set[str]] = {}
        """The attempts that had each GPU then, by their keys: those that were given it, and those with memory on it."""
        self.spent_s = 0.0
        """CPU time that looking took, in all."""

    def take(self, now_ms: int) -> Told:
        """The values of all series of this node, now."""
        began_s = time.thread_time()
        places = self._places()
        self.looks = self._gpus.look(now_ms)
        told: Told = {}
        if self._machine:
            told |= {f"{NODE_SUBJECT}/{name}": value for name, value in self._kernel.node().items()}
        for look in self.looks:
            told |= {f"{gpu_subject(look.gpu)}/{name}": value for name, value in look.values.items()}
        told |= self._of_attempts(places)
        if self._log is not None and self._log.readable:
            gpus = {look.pci: self.on_gpus.get(look.gpu, set()) for look in self.looks if look.pci}
            self._lines = [*self._lines, *self._log.new(now_ms, places, gpus)][-LINES_KEPT:]
            told[f"{NODE_SUBJECT}/kernel_faults"] = self._log.faults
        self.spent_s += time.thread_time() - began_s
        return told

    def lines(self) -> list[KernelLine]:
        """Faults that the kernel wrote since the last question."""
        lines, self._lines = self._lines, []
        return lines

    def close(self) -> None:
        """Let the GPUs go."""
        self._gpus.close()
        if self._log is not None:
            self._log.close()

    def _of_attempts(self, places: Sequence[AttemptPlace]) -> Told:
        told: Told = {}
        on = self._on_gpus(places)
        self.on_gpus = {
            look.gpu: {each.attempt for each in on[look.gpu][0]}
            | {place.key for place in places if {look.uuid, *(look.slices_busy or ())} & set(place.devices)}
            for look in self.looks
        }
        energy = self._energies(places)
        for place in places:
            subject = attempt_subject(place.key)
            told |= {f"{subject}/{name}": value for name, value in self._kernel.attempt(place).items()}
            if place.devices:
                told |= {f"{subject}/{name}": value for name, value in _work(place, on, self.looks).items()}
            if place.key in energy:
                told[f"{subject}/energy"] = energy[place.key]
        return told

    def _energies(self, places: Sequence[AttemptPlace]) -> dict[str, int]:
        """The energy of attempts so far: that of their GPUs while they had them, of a shared one by its share."""
        rose: dict[str, int] = {}
        for look in self.looks:
            now = look.values.get("energy")
            if now is None:
                continue
            before, after = self._joules.get(look.uuid), round(now)
            if before is not None:
                # A counter that went back began anew at 0.
                rose[look.uuid] = after - before if after >= before else after
            self._joules[look.uuid] = after
            rose |= dict.fromkeys(look.slices_busy or (), rose.get(look.uuid, 0))
        found = {}
        for place in places:
            known = [rose[device] for device in place.devices if device in rose]
            if known and len(known) == len(place.devices):
                # Of the time before its first look nobody knows how much was its own.
                first = place.key not in self._energy
                found[place.key] = 0 if first else self._energy[place.key] + sum(known) * place.milli
        self._energy = found
        return found

    def _on_gpus(self, places: Sequence[AttemptPlace]) -> dict[int, tuple[list[OnGpu], bool]]:
        """The attempts that have memory on each GPU, and whether processes of no attempt have, too."""
        whose = self._kernel.attempt_of(places)
        shares = {place.key: place.milli for place in places}
        found = {}
        for look in self.looks:
            keys = {process: process.attempt or whose(process.pid) for process in look.processes}
            strangers = any(
                [
                    not key and not self._kernel.name_of(process.pid).startswith(_MPS)
                    for process, key in keys.items()
                ]
            )
            present = []
            for key in sorted({key for key in keys.values() if key}):
                mine = [process for process, owner in keys.items() if owner == key]
                present.append(
                    OnGpu(
                        attempt=key,
                        memory_mib=sum([process.memory_mib or 0 for process in mine]),
                        accounted=_sum([process.accounted for process in mine]),
                        slice_busy=_slice_busy(look, [process.instance for process in mine]),
                        milli=shares.get(key, 1),
                    )
                )
            found[look.gpu] = (present, strangers)
        return found


def _work(
    place: AttemptPlace, on: Mapping[int, tuple[list[OnGpu], bool]], looks: Iterable[GpuLook]
) -> dict[str, int | float | None]:
    """The GPU memory and the work of one attempt on all its GPUs of a node."""
    memory_mib, known = 0, False
    parts: list[Busy | None] = []
    devices = set(place.devices)
    for look in looks:
        present, strangers = on[look.gpu]
        mine = [each for each in present if each.attempt == place.key]
        slices = devices & (look.slices_busy or {}).keys()
        if look.uuid not in devices and not slices and not mine:
            continue
        known = known or bool(look.values)
        memory_mib += sum([each.memory_mib for each in mine])
        if mine:
            busy = look.values.get("busy")
            work = divide_work(None if busy is None else round(busy), present, strangers, look.mps)
            parts.append(work.get(place.key))
        elif slices:
            parts += [Busy((look.slices_busy or {})[uuid], measured=True) for uuid in sorted(slices)]
        elif look.values.get("busy") is not None:
            # It has the GPU and no process on it: none of the GPU's work is its own.
            parts.append(Busy(0, measured=True))
    told: dict[str, int | float | None] = {"gpu_memory": memory_mib} if known else {}
    if (work_of_all := average_gpus(parts)) is not None:
        told["gpu_busy" if work_of_all.measured else "gpu_busy_estimated"] = work_of_all.permille
    return told


def _sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _slice_busy(look: GpuLook, instances: Sequence[str]) -> int | None:
    """How busy the slices were that these processes are on; None: they are on none, or it is not known."""
    told = [(look.slices_busy or {}).get(uuid) for uuid in sorted(set(instances))]
    known = [busy for busy in told if busy is not None]
    return sum(known) // len(known) if known and len(known) == len(told) else None
