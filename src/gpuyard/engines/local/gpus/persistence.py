"""Persistence mode: the driver keeps a GPU awake between jobs, which saves each of them seconds at its start.

It is switched on where the yard may and it is off; that is noted on disk first, and undone when the yard goes down. A
GPU that keeps a pinned layout stays awake: once it is idle, the driver may forget its slices.
"""

import os
from collections.abc import Container
from contextlib import suppress
from typing import Any

from gpuyard.engines.machine import files

FILE = "persistence.json"
_OFF, _ON = 0, 1


def switch_on(folder: str) -> tuple[str, ...]:
    """Keep all GPUs awake from now on; what people should know about it, in sentences."""
    nvml = _driver()
    if nvml is None:
        return ()
    refused = ""
    woken: list[int] = []
    try:
        for index in range(nvml.nvmlDeviceGetCount()):
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            try:
                uuid = nvml.nvmlDeviceGetUUID(handle)
                if nvml.nvmlDeviceGetPersistenceMode(handle) == _ON:
                    # A GPU that an earlier server of this yard switched on is still this yard's to put back.
                    woken += [index] if uuid in _noted(folder) else []
                    continue
                _note(folder, {*_noted(folder), uuid})
                nvml.nvmlDeviceSetPersistenceMode(handle, _ON)
                woken.append(index)
            except nvml.NVMLError as error:
                _note(folder, _noted(folder) - {nvml.nvmlDeviceGetUUID(handle)})
                refused = f"persistence mode cannot be switched on, so jobs start more slowly: {error}"
    except nvml.NVMLError as error:
        refused = f"persistence mode cannot be read: {error}"
    finally:
        with suppress(nvml.NVMLError):
            nvml.nvmlShutdown()
    told = []
    if woken:
        which = f"GPU{'s' if len(woken) > 1 else ''} {', '.join(map(str, woken))}"
        told.append(f"persistence mode of {which} switched on; put back by `yard down`")
    return (*told, *([refused] if refused else []))


def put_back(folder: str, but: Container[str]) -> None:
    """Let GPUs that the yard has kept awake sleep, but for some."""
    mine = {uuid for uuid in _noted(folder) if uuid not in but}
    nvml = _driver() if mine else None
    if nvml is None:
        return
    try:
        for uuid in sorted(mine):
            # A GPU that is gone, or that another program manages by now, is not ours to set.
            with suppress(nvml.NVMLError):
                nvml.nvmlDeviceSetPersistenceMode(nvml.nvmlDeviceGetHandleByUUID(uuid), _OFF)
            _note(folder, _noted(folder) - {uuid})
    finally:
        with suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


def _driver() -> Any:
    """NVIDIA's library, ready; None where there is no driver."""
    try:
        import pynvml  # type: ignore[import-untyped]  # noqa: PLC0415  # only where there are GPUs
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml


def _noted(folder: str) -> set[str]:
    return set((files.read(os.path.join(folder, FILE)) or {}).get("gpus", ()))


def _note(folder: str, uuids: set[str]) -> None:
    files.replace(os.path.join(folder, FILE), {"gpus": sorted(uuids)}, durable=True)
