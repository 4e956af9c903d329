"""A stand-in for NVIDIA's driver that cuts emulated GPUs, by the same geometry.

Its slices are kept in a file: a server that comes back finds them as it would find real ones.
"""

import hashlib
import os
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from gpuyard.core.fleet.mig_geometry import PlacedSlice, find_flaw
from gpuyard.engines.contract import Permanent, Transient
from gpuyard.engines.machine import files
from gpuyard.model.mig import MigGeometry

FILE = "emulated-mig.json"


class EmulatedCutter:
    """GPUs on paper."""

    def __init__(self, folder: str, geometry: MigGeometry | None) -> None:
        self._path = os.path.join(folder, FILE)
        self._geometry = geometry

    def at_work(self) -> AbstractContextManager[object]:
        """Nothing to open."""
        return nullcontext()

    def _kept(self) -> dict[str, list[list[Any]]]:
        return files.read(self._path) or {}

    def places(self, gpu: str) -> tuple[PlacedSlice, ...] | None:
        """The slices of a GPU by first slot; None: MIG is off there."""
        kept = self._kept().get(gpu)
        if kept is None:
            return None
        return tuple(sorted([PlacedSlice(*each) for each in kept], key=lambda place: place.start))

    def uuid(self, gpu: str, place: PlacedSlice) -> str:
        """A UUID that no other slice has."""
        if place not in (self.places(gpu) or ()):
            raise Transient(f"{gpu} has no {place.profile} at slot {place.start}")
        digest = hashlib.sha256(f"{gpu}/{place.profile}/{place.start}".encode()).hexdigest()
        return f"MIG-{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"

    def switch(self, gpu: str, on: bool) -> None:
        """Switch MIG on or off."""
        kept = self._kept()
        if on == (gpu in kept):
            return
        if on and self._geometry is None:
            raise Permanent(f"{gpu} cannot be cut: its model has no MIG")
        if not on and kept[gpu]:
            raise Transient(f"{gpu} is still cut into {len(kept[gpu])} slices")
        if on:
            kept[gpu] = []
        else:
            del kept[gpu]
        files.replace(self._path, kept)

    def make(self, gpu: str, place: PlacedSlice) -> None:
        """Make a slice exactly there."""
        kept = self._kept()
        if gpu not in kept or self._geometry is None:
            raise Transient(f"MIG is off at {gpu}")
        if wrong := find_flaw(self._geometry, [*[PlacedSlice(*each) for each in kept[gpu]], place]):
            raise Transient(f"{gpu}: {wrong}")
        kept[gpu].append(list(place))
        files.replace(self._path, kept)

    def destroy(self, gpu: str, place: PlacedSlice) -> None:
        """Take this slice away."""
        kept = self._kept()
        if list(place) in kept.get(gpu, []):
            kept[gpu].remove(list(place))
            files.replace(self._path, kept)
