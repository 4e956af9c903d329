"""GPUs of this machine made ready for an attempt: whole, cut into MIG slices, or shared through MPS.

What live attempts hold is read from their plans on disk, never remembered, so a server that comes back knows it. What
has not been used for a while is put back: slices are removed, MIG is switched off, daemons are ended. Until then they
stay, because the next job is likely to want the same.
"""

import os
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuyard.core.fleet.mig_geometry import PlacedSlice
from gpuyard.engines.contract import Answer, Part, Permanent, Reply, Transient
from gpuyard.engines.local.gpus.mig import FILE, Cutter, FoundSlices, Slices, own_slices
from gpuyard.engines.local.gpus.mps import CONTROL, THROUGH, Daemon, Mps, share_limits
from gpuyard.engines.machine import files
from gpuyard.engines.machine.launches import UnixAccount
from gpuyard.engines.machine.nvml import GpuReading
from gpuyard.model.gpu_names import recognise_model
from gpuyard.model.mig import MIG_MODELS, MigGeometry, Slice
from gpuyard.model.units import MILLI

PINS = "pins.json"
PIN_S_MAX = 5.0
"""How long one call may cut GPUs; the next call gets the rest."""
_LATER = Reply(Answer.UNSURE, "other GPUs are cut before it")
IDLE_S = 60.0
"""How long slices and daemons outlive their last user."""


@dataclass(frozen=True, slots=True)
class PreparedGpus:
    """What an attempt gets on one node."""

    devices: tuple[str, ...]
    """The names by which it sees its GPUs or slices, and nothing else."""
    environment: dict[str, str] = field(default_factory=dict)
    held: dict[str, Any] = field(default_factory=dict)
    """For its plan: what it holds, so that other attempts leave it alone."""


def list_held(ready: Sequence[PreparedGpus]) -> dict[str, Any]:
    """What an attempt holds on all its nodes."""
    held: dict[str, Any] = {}
    for each in ready:
        for how, what in each.held.items():
            held[how] = [*held.get(how, ()), *what]
    return held


class Sharing:
    """The hand that makes GPUs ready."""

    def __init__(
        self,
        folder: str,
        cutter: Callable[[MigGeometry], Cutter],
        mps: Mps,
        plans: Callable[[], Iterator[dict[str, Any]]],
        clock_s: Callable[[], float] = time.monotonic,
        *,
        hands_off: bool = False,
    ) -> None:
        self._folder = folder
        self._cutter = cutter
        self._hands_off = hands_off
        self._mps = mps
        self._through_daemons = False
        self._plans = plans
        self._clock_s = clock_s
        self._idle_since: dict[str, float] = {}

    def _slices(self, geometry: MigGeometry) -> Slices:
        kind = FoundSlices if self._hands_off else Slices
        return kind(self._folder, self._cutter(geometry))

    def prepare(self, part: Part, readings: list[GpuReading], account: UnixAccount) -> PreparedGpus:
        """Make the GPUs of an attempt on one node ready; `Transient` if that must be tried again."""
        uuids = [readings[gpu].uuid for gpu in part.gpus]
        if not uuids:
            return PreparedGpus(())
        if part.slices:
            return self._cut(part, readings)
        if not self._hands_off and os.path.exists(os.path.join(self._folder, FILE)):
            self._make_whole(uuids, readings[0])
        if part.milli == MILLI:
            return PreparedGpus(tuple(uuids), held={"gpus": uuids})
        if len(uuids) > 1:
            raise Permanent("a share is of one GPU here")
        if not self._mps.available():
            return PreparedGpus(tuple(uuids), {THROUGH: "time-slicing"}, {"turns": uuids})
        self._idle_since.pop("mps", None)
        daemon = self._mps.ensure(uuids[0], account)
        reading = readings[part.gpus[0]]
        environment = daemon.environment() | share_limits(part.milli, reading.memory_mib) | {THROUGH: "mps"}
        return PreparedGpus(tuple(uuids), environment, {"mps": [[uuids[0], account.uid]]})

    def _make_whole(self, uuids: Sequence[str], reading: GpuReading) -> None:
        """Make GPUs whole that the yard has cut."""
        geometry = MIG_MODELS.get(recognise_model(reading.name, reading.memory_mib))
        if geometry is None:
            return
        slices = self._slices(geometry)
        own = slices.own()
        for uuid in uuids:
            if uuid in own:
                slices.whole(uuid, self._cuts().get(uuid, set()))

    def _cut(self, part: Part, readings: list[GpuReading]) -> PreparedGpus:
        geometry = MIG_MODELS.get(recognise_model(readings[0].name, readings[0].memory_mib))
        if geometry is None:
            raise Permanent(f"{readings[0].name} cannot be cut: it has no MIG")
        slices, used = self._slices(geometry), self._cuts()
        for gpu in part.gpus:
            # A short job may come and go between two looks, and then the slices were not idle.
            self._idle_since.pop(readings[gpu].uuid, None)
        new = any([readings[gpu].uuid not in slices.own() for gpu, _profile, _start in part.slices])
        if new and not self._hands_off:
            # An unused daemon still has the GPU open, and then MIG cannot be switched on.
            self._mps.stop_unused(self._shared())
        devices, held = [], []
        for gpu, profile, start in part.slices:
            uuid = readings[gpu].uuid
            devices.append(slices.ensure(geometry, uuid, PlacedSlice(profile, start), used.get(uuid, set())))
            used.setdefault(uuid, set()).add(PlacedSlice(profile, start))
            held.append([uuid, profile, start])
        return PreparedGpus(tuple(devices), held={"slices": held})

    def _cuts(self) -> dict[str, set[PlacedSlice]]:
        """Slices that live attempts hold, by GPU."""
        found: dict[str, set[PlacedSlice]] = {}
        for plan in self._plans():
            for uuid, profile, start in plan.get("held", {}).get("slices", ()):
                found.setdefault(uuid, set()).add(PlacedSlice(profile, start))
        return found

    def _shared(self) -> set[tuple[str, int]]:
        """GPUs that live attempts share through MPS, with their user."""
        return {(uuid, uid) for plan in self._plans() for uuid, uid in plan.get("held", {}).get("mps", ())}

    # ---- layouts that are kept

    def pinned(self) -> dict[str, tuple[PlacedSlice, ...]]:
        """Layouts that GPUs keep until the next call; none: it stays whole. On disk, as a server may come back."""
        kept: dict[str, Any] = files.read(os.path.join(self._folder, PINS)) or {}
        return {uuid: tuple([PlacedSlice(*place) for place in places]) for uuid, places in kept.items()}

    def pin(
        self,
        readings: Sequence[GpuReading],
        layouts: Mapping[int, tuple[Slice, ...]],
        elsewhere: Container[str] = (),
    ) -> dict[int, Reply]:
        """Keep these layouts on the GPUs of one node, and no others there; gives a reply for each.

        `elsewhere` are the GPUs of other nodes: what they keep stays.
        """
        kept = {
            uuid: [list(place) for place in places]
            for uuid, places in self.pinned().items()
            if uuid in elsewhere
        }
        kept |= {
            readings[gpu].uuid: [[piece.profile, piece.start] for piece in pieces]
            for gpu, pieces in sorted(layouts.items())
        }
        if kept or self.pinned():
            files.replace(os.path.join(self._folder, PINS), kept, durable=True)
        replies: dict[int, Reply] = {}
        until_s = self._clock_s() + PIN_S_MAX
        for gpu in sorted(layouts):
            late = self._clock_s() > until_s
            replies[gpu] = _LATER if late else self._keep(readings[gpu])
        return replies

    def _keep(self, reading: GpuReading) -> Reply:
        """Make a GPU as it is pinned."""
        geometry = MIG_MODELS.get(recognise_model(reading.name, reading.memory_mib))
        if geometry is None:
            return Reply(Answer.REFUSED, f"{reading.name} cannot be cut: it has no MIG")
        slices, used = self._slices(geometry), self._cuts().get(reading.uuid, set())
        try:
            if not self._hands_off and reading.uuid not in slices.own():
                # An unused daemon still has the GPU open, and then MIG cannot be switched on.
                self._mps.stop_unused(self._shared())
            slices.keep(geometry, reading.uuid, self.pinned()[reading.uuid], used)
        except Permanent as error:
            return Reply(Answer.REFUSED, str(error))
        except Transient as error:
            return Reply(Answer.UNSURE, str(error))
        return Reply(Answer.DONE)

    def there(self, readings: Sequence[GpuReading]) -> tuple[Slice, ...]:
        """The yard's own slices, in use or not."""
        found: list[Slice] = []
        for gpu, reading in enumerate(readings):
            geometry = MIG_MODELS.get(recognise_model(reading.name, reading.memory_mib))
            if geometry is not None:
                found += [Slice(gpu, *place) for place in self._slices(geometry).there(reading.uuid)]
        return tuple(found)

    def notes(self, readings: Sequence[GpuReading]) -> list[str]:
        """What people should know about settings of these GPUs, and about shares of them; none: nothing."""
        told = []
        able = [each for each in readings if recognise_model(each.name, each.memory_mib) in MIG_MODELS]
        if readings and self._hands_off:
            told.append("`card_settings: leave`: MIG and persistence mode of the GPUs stay as they are")
        elif able and os.geteuid() == 0:
            told.append(
                "MIG is switched on at a GPU when a job asks for a slice, and off again afterwards; "
                "`card_settings: leave` in yard.yaml keeps the yard from it"
            )
        if readings and not self._mps.available():
            told.append(
                f"shares of GPUs take turns and are not capped in memory or compute: {CONTROL} is not installed"
            )
        return told

    def foreign(self, geometry: MigGeometry, uuid: str) -> bool:
        """Whether this GPU was cut from outside, and is of no use to the yard."""
        if self._hands_off:
            return self._cutter(geometry).places(uuid) == ()
        slices = self._slices(geometry)
        if uuid in slices.own():
            return bool(slices.foreign(uuid))
        return self._cutter(geometry).places(uuid) is not None

    def daemon(self, gpu: str, uid: int) -> Daemon:
        """Where the MPS daemon for a GPU and a user is."""
        return self._mps.daemon(gpu, uid)

    def through_daemons(self, look: Callable[[], bool]) -> bool:
        """Whether there are MPS daemons, by a look at them; none is needed while there are none."""
        self._through_daemons = (self._through_daemons or os.path.lexists(self._mps.root)) and look()
        return self._through_daemons

    def daemons(self) -> list[Daemon]:
        """Every MPS daemon of this yard that may be there."""
        return self._mps.all()

    def daemon_pids(self) -> set[int]:
        """Processes below which what computes is ours."""
        return self._mps.pids()

    def tidy(self, geometry_of: Callable[[str], MigGeometry | None], *, now: bool = False) -> list[str]:
        """Put back what has not been used for a while; gives what could not be, in words. GPUs are named by UUID."""
        troubles: list[str] = []
        used = self._shared()
        if self._rests("mps", bool(used), now):
            self._mps.stop_unused(used)
        troubles += self._revive()
        own = {} if self._hands_off else own_slices(self._folder)
        cuts, pins = (self._cuts(), self.pinned()) if own else ({}, {})
        for uuid in sorted(own):
            geometry = geometry_of(uuid)
            if geometry is None:
                continue
            slices = self._slices(geometry)
            if pins.get(uuid):
                # A restart of the machine removes slices: pinned ones are made again.
                try:
                    slices.keep(geometry, uuid, pins[uuid], cuts.get(uuid, set()))
                except (Transient, Permanent) as error:
                    troubles.append(str(error))
            elif self._rests(uuid, bool(cuts.get(uuid)), now):
                try:
                    slices.whole(uuid, cuts.get(uuid, set()))
                except (Transient, Permanent) as error:
                    troubles.append(str(error))
        return troubles

    def _revive(self) -> list[str]:
        """Start daemons again that have died under their users: without one, a program computes beyond its caps."""
        dead = {daemon.folder for daemon in self._mps.all() if self._mps.dead(daemon)}
        troubles: list[str] = []
        for plan in self._plans() if dead else ():
            for gpu, uid in plan.get("held", {}).get("mps", ()):
                if self._mps.daemon(gpu, uid).folder in dead:
                    dead.discard(self._mps.daemon(gpu, uid).folder)
                    try:
                        self._mps.ensure(gpu, UnixAccount(uid, plan["gid"], "", "", ""))
                    except Transient as error:
                        troubles.append(str(error))
        return troubles

    def _rests(self, name: str, used: bool, now: bool) -> bool:
        """Whether something has been idle long enough."""
        if used:
            self._idle_since.pop(name, None)
            return False
        since_s = self._idle_since.setdefault(name, self._clock_s())
        return now or self._clock_s() - since_s >= IDLE_S
