"""GPUs for containers, by the Container Device Interface: what a container gets along with a GPU.

Where NVIDIA's toolkit has written its specification, that one counts. Where it has not, a yard of root writes one, and
a yard of an ordinary user hands the same to podman word by word. An emulated GPU is a device that does nothing.
"""

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from gpuyard.engines.local.gpus import stand_in
from gpuyard.engines.machine import nvml
from gpuyard.engines.machine.nvml import GpuReading
from gpuyard.engines.node.attempt.fence import CAPS
from gpuyard.engines.node.containers.devices import (
    FOLDERS,
    TOOLKIT,
    Edits,
    common_edits,
    read_toolkit,
    words_of,
)

OURS = "gpuyard.local/gpu"
DEVICES = "devices"
"""In the engine's folder: the devices of emulated GPUs and slices, by their UUIDs."""
_VERSION = "0.5.0"


class Devices:
    """The GPUs of this machine, in words for podman."""

    def __init__(
        self,
        root: str,
        *,
        emulated: bool,
        folders: Sequence[str] = FOLDERS,
        libraries: dict[str, str] | None = None,
    ) -> None:
        """`folders`: where podman looks for specifications. `libraries`: the driver's; None: those that are found."""
        self._emulated = emulated
        self._folders, self._libraries = folders, libraries
        self._root = root
        self._devices = os.path.join(root, DEVICES)
        self._path = f"{folders[1]}/gpuyard-{root.strip('/').replace('/', '-')[-100:]}.json"
        self._written = ""

    def words(self, nodes: Sequence[Sequence[GpuReading]]) -> dict[str, list[str]]:
        """Words for podman, by the UUIDs of the GPUs of all nodes."""
        if self._emulated:
            return {
                each.uuid: words_of(self._pretended(gpu, each.uuid))
                for readings in nodes
                for gpu, each in enumerate(readings)
            }
        readings = [each for node in nodes for each in node]
        given = read_toolkit(self._folders)
        if given:
            return {
                each.uuid: ["--device", f"{TOOLKIT}={each.uuid if each.uuid in given else place}"]
                for place, each in enumerate(readings)
            }
        found = specification(readings, self._libraries)
        if os.geteuid() == 0 and self._put(json.dumps(found)):
            return {each.uuid: ["--device", f"{OURS}={each.uuid}"] for each in readings}
        common = words_of(found["containerEdits"])
        return {each["name"]: words_of(each["containerEdits"]) + common for each in found["devices"]}

    def _pretended(self, gpu: int, uuid: str) -> Edits:
        """What a container gets with an emulated GPU: the device that its fence knows, or one that does nothing."""
        # A yard that can raise no fences makes no devices.
        fenced = os.path.isdir(self._devices)
        host, seen = os.path.join(self._devices, uuid) if fenced else os.devnull, f"/dev/nvidia{gpu}"
        smi = os.path.join(self._root, stand_in.FOLDER, stand_in.PROGRAM)
        mounts = [{"hostPath": smi, "containerPath": stand_in.INSIDE}] if os.path.exists(smi) else []
        if fenced and os.geteuid() != 0:
            # Only root makes devices: with an ordinary user's yard it is a file, which a container sees in that place.
            return {"mounts": [{"hostPath": host, "containerPath": seen}, *mounts]}
        return {"deviceNodes": [{"path": seen, "hostPath": host}], "mounts": mounts}

    def of_slice(self, uuid: str, readings: Sequence[GpuReading], gpus: Sequence[int]) -> list[str]:
        """Words for podman for a slice that lies on one of these GPUs."""
        if self._emulated:
            return words_of(self._pretended(gpus[0], uuid))
        nodes = [_node(readings[gpu], gpu) for gpu in dict.fromkeys(gpus)]
        nodes += [f"{CAPS}/nvidia-cap{minor}" for minor in nvml.find_capabilities([uuid])]
        return words_of({"deviceNodes": [{"path": path} for path in nodes]}) + words_of(
            common_edits(self._libraries)
        )

    def _put(self, text: str) -> bool:
        """Write the specification where podman looks for it; whether that went well."""
        if text == self._written:
            return True
        with suppress(OSError):
            os.makedirs(self._folders[1], exist_ok=True)
            draft = f"{self._path}.new"
            with open(draft, "w", encoding="utf-8") as file:
                file.write(text)
            os.rename(draft, self._path)
            self._written = text
        return self._written == text


def specification(readings: list[GpuReading], libraries: dict[str, str] | None = None) -> dict[str, Any]:
    """The GPUs of this machine, each with its device; with all of them, the driver's own devices and libraries."""
    devices = [
        {"name": each.uuid, "containerEdits": {"deviceNodes": [{"path": _node(each, place)}]}}
        for place, each in enumerate(readings)
    ]
    return {
        "cdiVersion": _VERSION,
        "kind": OURS,
        "devices": devices,
        "containerEdits": common_edits(libraries),
    }


def _node(reading: GpuReading, place: int) -> str:
    return f"/dev/nvidia{place if reading.minor < 0 else reading.minor}"
