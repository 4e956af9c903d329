"""MIG slices of this machine's GPUs: made where the scheduler says, kept while used, taken away when in the way.

A cutter does the work on the hardware: NVIDIA's driver, or a stand-in for emulated GPUs. Both obey the same geometry.
`Slices` notes on disk, before it calls the cutter, which slices are the yard's own, so that after any crash no slice
of ours is left behind and no other slice is touched.
"""

import os
import threading
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from gpuyard.core.fleet.mig_geometry import PlacedSlice, find_flaw
from gpuyard.engines.contract import Permanent, Transient
from gpuyard.engines.machine import files
from gpuyard.errors import error_text
from gpuyard.model.mig import MigGeometry

FILE = "mig.json"
LEFT_ALONE = "`card_settings: leave` keeps the yard from cutting it"


class Cutter(Protocol):
    """The hand on the hardware. GPUs are named by UUID."""

    def at_work(self) -> AbstractContextManager[object]:
        """Several calls in a row are quicker within."""
        ...

    def places(self, gpu: str) -> tuple[PlacedSlice, ...] | None:
        """The slices of a GPU by first slot; None: MIG is off there."""
        ...

    def uuid(self, gpu: str, place: PlacedSlice) -> str:
        """The name by which a program sees this slice and nothing else. Takes longer to find than the slice."""
        ...

    def switch(self, gpu: str, on: bool) -> None:
        """Switch MIG on or off. A GPU in use, or still cut, cannot be switched: `Transient`."""
        ...

    def make(self, gpu: str, place: PlacedSlice) -> None:
        """Make a slice exactly there."""
        ...

    def destroy(self, gpu: str, place: PlacedSlice) -> None:
        """Remove this slice; if it is not there, do nothing. A slice in use cannot be removed: `Transient`."""
        ...


def own_slices(folder: str) -> dict[str, set[PlacedSlice]]:
    """The yard's slices, by GPU, as noted in a folder."""
    kept: dict[str, Any] = files.read(os.path.join(folder, FILE)) or {}
    return {gpu: {PlacedSlice(*place) for place in places} for gpu, places in kept.items()}


class Slices:
    """The yard's own slices."""

    def __init__(self, folder: str, cutter: Cutter) -> None:
        self._path = os.path.join(folder, FILE)
        self._cutter = cutter
        self._mutex = threading.Lock()

    def own(self) -> dict[str, set[PlacedSlice]]:
        """The yard's slices, by GPU: made, or about to be made when the server died."""
        return own_slices(os.path.dirname(self._path))

    def foreign(self, gpu: str) -> tuple[PlacedSlice, ...]:
        """Slices that the yard did not make."""
        mine = self.own().get(gpu, set())
        return tuple([place for place in self._cutter.places(gpu) or () if place not in mine])

    def ensure(
        self, geometry: MigGeometry, gpu: str, wanted: PlacedSlice, in_use: Iterable[PlacedSlice]
    ) -> str:
        """The UUID of this slice, made now if it is not there. Idle slices in its way are removed first.

        `in_use` are the places on this GPU that live attempts hold: they are never touched.
        """
        with self._mutex, self._cutter.at_work():
            held = set(in_use)
            there = self._cutter.places(gpu)
            if there is not None and gpu not in self.own():
                raise Permanent(f"MIG is on at {gpu}, and not by this yard")
            if wanted not in (there or ()):
                self._note(gpu, wanted)
                if there is None:
                    self._cutter.switch(gpu, True)
                left = self._make_room(geometry, gpu, wanted, set(there or ()), held)
                if _crowded(geometry, held | left, wanted):
                    # No two overlap, but together they are too many: remove all that are not in use.
                    for place in sorted(left - held):
                        self._take_away(gpu, place)
                self._cutter.make(gpu, wanted)
            return self._cutter.uuid(gpu, wanted)

    def _make_room(
        self,
        geometry: MigGeometry,
        gpu: str,
        wanted: PlacedSlice,
        there: set[PlacedSlice],
        held: set[PlacedSlice],
    ) -> set[PlacedSlice]:
        """Remove idle slices where a slice is to be; gives the rest."""
        for place in sorted(there - held):
            if find_flaw(geometry, [place, wanted]):
                self._take_away(gpu, place)
                there.discard(place)
        return there

    def keep(
        self, geometry: MigGeometry, gpu: str, layout: Iterable[PlacedSlice], in_use: Iterable[PlacedSlice]
    ) -> None:
        """Cut a GPU to exactly this layout. Slices of it that exist stay; idle ones that are not in it are removed.

        Every slice is noted before it is made, so that a server that starts after a crash goes on from there.
        """
        wanted, held = sorted(set(layout)), set(in_use)
        if not wanted:
            self.whole(gpu, held)
            return
        with self._mutex, self._cutter.at_work():
            there = self._cutter.places(gpu)
            if there is not None and gpu not in self.own():
                raise Permanent(f"MIG is on at {gpu}, and not by this yard")
            found = set(there or ())
            if found == set(wanted):
                return
            for place in sorted(found - set(wanted)):
                if place in held:
                    raise Transient(f"{place.profile} at slot {place.start} of {gpu} is in use")
                self._take_away(gpu, place)
            if there is None:
                self._note(gpu, wanted[0])
                self._cutter.switch(gpu, True)
            for place in wanted:
                if place not in found:
                    self._note(gpu, place)
                    self._cutter.make(gpu, place)

    def there(self, gpu: str) -> tuple[PlacedSlice, ...]:
        """The yard's own slices that are on a GPU now."""
        own = self.own().get(gpu, set())
        found = self._cutter.places(gpu) if own else ()
        return tuple([place for place in found or () if place in own])

    def whole(self, gpu: str, in_use: Iterable[PlacedSlice]) -> None:
        """Make a GPU whole again for a job that takes all of it."""
        with self._mutex, self._cutter.at_work():
            if self._cutter.places(gpu) is None:
                return
            if held := set(in_use):
                raise Transient(f"{gpu} is cut, and {len(held)} of its slices are in use")
            if self.foreign(gpu):
                raise Permanent(f"{gpu} is cut into slices that are not this yard's")
            if gpu not in self.own():
                # MIG was switched on from outside and nothing made yet: it is not ours to switch off.
                raise Permanent(f"MIG is on at {gpu}, and not by this yard")
            for place in sorted(self.own()[gpu]):
                self._take_away(gpu, place)
            self._cutter.switch(gpu, False)
            self._forget(gpu)

    def sweep(self, in_use: dict[str, set[PlacedSlice]]) -> None:
        """Remove slices that are not in use, and switch MIG off where none is left: at the end, or on request."""
        for gpu in sorted(self.own()):
            held = in_use.get(gpu, set())
            with self._mutex, self._cutter.at_work():
                for place in sorted(self.own().get(gpu, ())):
                    if place not in held:
                        self._take_away(gpu, place)
            if not held:
                self.whole(gpu, ())

    def _take_away(self, gpu: str, place: PlacedSlice) -> None:
        if place not in self.own().get(gpu, ()):
            raise Permanent(f"{place.profile} at slot {place.start} of {gpu} is not this yard's")
        self._cutter.destroy(gpu, place)
        # Only now: a note without a slice does no harm, a slice without a note would stay forever.
        kept = self.own()
        kept[gpu].discard(place)
        self._write(kept)

    def _note(self, gpu: str, place: PlacedSlice) -> None:
        kept = self.own()
        kept.setdefault(gpu, set()).add(place)
        self._write(kept)

    def _forget(self, gpu: str) -> None:
        kept = self.own()
        kept.pop(gpu, None)
        self._write(kept)

    def _write(self, kept: dict[str, set[PlacedSlice]]) -> None:
        try:
            files.replace(
                self._path, {gpu: sorted(places) for gpu, places in sorted(kept.items())}, durable=True
            )
        except OSError as error:
            raise Transient(f"what is the yard's own cannot be written down: {error_text(error)}") from error


class FoundSlices(Slices):
    """Slices as the owner of the machine has cut them: served, and never changed (`card_settings: leave`)."""

    def own(self) -> dict[str, set[PlacedSlice]]:
        """Nothing: all slices are the owner's."""
        return {}

    def foreign(self, gpu: str) -> tuple[PlacedSlice, ...]:
        """Nothing: no slice is in the way."""
        return ()

    def there(self, gpu: str) -> tuple[PlacedSlice, ...]:
        """All slices of a GPU."""
        return self._cutter.places(gpu) or ()

    def ensure(
        self, geometry: MigGeometry, gpu: str, wanted: PlacedSlice, in_use: Iterable[PlacedSlice]
    ) -> str:
        """The UUID of a slice that is there."""
        if wanted not in self.there(gpu):
            raise Permanent(f"{gpu} has no {wanted.profile} at slot {wanted.start}, and {LEFT_ALONE}")
        return self._cutter.uuid(gpu, wanted)

    def keep(
        self, geometry: MigGeometry, gpu: str, layout: Iterable[PlacedSlice], in_use: Iterable[PlacedSlice]
    ) -> None:
        """See that a GPU is cut like this."""
        if set(layout) != set(self.there(gpu)):
            raise Transient(f"{gpu} is cut in another way, and {LEFT_ALONE}")

    def whole(self, gpu: str, in_use: Iterable[PlacedSlice]) -> None:
        """See that a GPU is whole."""
        if self._cutter.places(gpu) is not None:
            raise Transient(f"MIG is on at {gpu}, and {LEFT_ALONE}")

    def sweep(self, in_use: dict[str, set[PlacedSlice]]) -> None:
        """Nothing is taken away."""


def _crowded(geometry: MigGeometry, there: set[PlacedSlice], wanted: PlacedSlice) -> bool:
    """Whether the slices that are there leave too little compute for the wanted one."""
    places = sorted(there - {wanted}, key=lambda place: place.start)
    return bool(find_flaw(geometry, [*places, wanted]))
