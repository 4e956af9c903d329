"""A stand-in for NVIDIA's driver that cuts GPUs which are only pretended to be there, by the same geometry.

Its slices are kept in a file: a server that comes back finds them as it would find real ones.
"""

import hashlib
import os
from typing import Any

from gpuyard.core.geometry import Place, flaw
from gpuyard.engines.contract import Permanent, Transient
from gpuyard.engines.local import files
from gpuyard.engines.local.mig import Instance
from gpuyard.model.mig import Mold

FILE = "emulated-mig.json"


class EmulatedCutter:
    """GPUs on paper."""

    def __init__(self, folder: str, mold: Mold | None) -> None:
        self._path = os.path.join(folder, FILE)
        self._mold = mold

    def _kept(self) -> dict[str, list[list[Any]]]:
        return files.read(self._path) or {}

    def instances(self, gpu: str) -> tuple[Instance, ...] | None:
        """The slices of a GPU by first slot; None: MIG is off there."""
        places = self._kept().get(gpu)
        if places is None:
            return None
        return tuple(
            [
                Instance(profile, start, _uuid(gpu, profile, start))
                for profile, start in sorted(places, key=lambda p: p[1])
            ]
        )

    def switch(self, gpu: str, on: bool) -> None:
        """Switch MIG on or off."""
        kept = self._kept()
        if on == (gpu in kept):
            return
        if on and self._mold is None:
            raise Permanent(f"{gpu} cannot be cut: its model has no MIG")
        if not on and kept[gpu]:
            raise Transient(f"{gpu} is still cut into {len(kept[gpu])} slices")
        if on:
            kept[gpu] = []
        else:
            del kept[gpu]
        files.replace(self._path, kept)

    def make(self, gpu: str, profile: str, start: int) -> str:
        """Make a slice exactly there."""
        kept = self._kept()
        if gpu not in kept or self._mold is None:
            raise Transient(f"MIG is off at {gpu}")
        if wrong := flaw(self._mold, [*[Place(*each) for each in kept[gpu]], Place(profile, start)]):
            raise Transient(f"{gpu}: {wrong}")
        kept[gpu].append([profile, start])
        files.replace(self._path, kept)
        return _uuid(gpu, profile, start)

    def destroy(self, gpu: str, start: int) -> None:
        """Take the slice away that begins there."""
        kept = self._kept()
        left = [each for each in kept.get(gpu, []) if each[1] != start]
        if len(left) == len(kept.get(gpu, [])):
            raise Transient(f"{gpu} has no slice at slot {start}")
        kept[gpu] = left
        files.replace(self._path, kept)


def _uuid(gpu: str, profile: str, start: int) -> str:
    digest = hashlib.sha256(f"{gpu}/{profile}/{start}".encode()).hexdigest()
    return f"MIG-{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"
