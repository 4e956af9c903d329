"""Cutting real GPUs through NVIDIA's driver, with explicit placements: the driver is never left to choose."""

import ctypes
import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

from gpuyard.core.fleet.mig_geometry import PlacedSlice
from gpuyard.engines.contract import Transient
from gpuyard.model.mig import MigGeometry, Profile

_log = logging.getLogger(__name__)
_OFF, _ON = 0, 1


class NvmlCutter:
    """The driver. Needs root."""

    def __init__(self, geometry: MigGeometry) -> None:
        self._geometry = geometry
        self._by_number = {profile.number: profile for profile in geometry.profiles}

    def at_work(self) -> AbstractContextManager[object]:
        """Keeps the driver open: opening it takes longer than most calls."""
        return _driver("cutting GPUs")

    def places(self, gpu: str) -> tuple[PlacedSlice, ...] | None:
        """The slices of a GPU by first slot; None: MIG is off there."""
        with _driver(f"reading the slices of {gpu}") as nvml:
            handle = nvml.nvmlDeviceGetHandleByUUID(gpu)
            if nvml.nvmlDeviceGetMigMode(handle)[0] == _OFF:
                return None
            found = [self._place(info) for _instance, info in self._all(nvml, handle)]
        return tuple(sorted(found, key=lambda place: place.start))

    def _place(self, info: Any) -> PlacedSlice:
        return PlacedSlice(self._by_number[info.profileId].name, info.placement.start)

    def uuid(self, gpu: str, place: PlacedSlice) -> str:
        """The name of the MIG device on a slice."""
        with _driver(f"reading the name of {place.profile} at slot {place.start} of {gpu}") as nvml:
            handle = nvml.nvmlDeviceGetHandleByUUID(gpu)
            for instance, info in self._all(nvml, handle):
                if self._place(info) == place:
                    if not _uuid(nvml, handle, info.id):
                        # The process that made it died half-way: it has no compute instance yet.
                        _fill(nvml, instance, self._by_number[info.profileId])
                    return _uuid(nvml, handle, info.id)
        raise Transient(f"{gpu} has no {place.profile} at slot {place.start}")

    def switch(self, gpu: str, on: bool) -> None:
        """Switch MIG on or off."""
        with _driver(f"switching MIG {'on' if on else 'off'} at {gpu}") as nvml:
            handle = nvml.nvmlDeviceGetHandleByUUID(gpu)
            if nvml.nvmlDeviceGetMigMode(handle)[0] == (_ON if on else _OFF):
                return
            status = nvml.nvmlDeviceSetMigMode(handle, _ON if on else _OFF)
            if status != nvml.NVML_SUCCESS or nvml.nvmlDeviceGetMigMode(handle)[0] != (_ON if on else _OFF):
                # Before Hopper the switch needs a reset of the GPU, which is not ours to give.
                raise Transient(
                    f"{gpu} needs a reset before MIG is {'on' if on else 'off'} (`nvidia-smi --gpu-reset`)"
                )
            _log.info("MIG switched %s at %s", "on" if on else "off", gpu)

    def make(self, gpu: str, place: PlacedSlice) -> None:
        """Make a slice exactly there, with one compute instance over all of it."""
        size = self._geometry.profile(place.profile)
        assert size is not None, f"{self._geometry.model} has no {place.profile}"
        with _driver(f"making {place.profile} at slot {place.start} of {gpu}") as nvml:
            handle = nvml.nvmlDeviceGetHandleByUUID(gpu)
            spot = nvml.c_nvmlGpuInstancePlacement_t(place.start, size.memory)
            instance = nvml.nvmlDeviceCreateGpuInstanceWithPlacement(handle, size.number, ctypes.byref(spot))
            try:
                _fill(nvml, instance, size)
            except BaseException:
                # Half a slice is of no use.
                _drain(nvml, instance)
                nvml.nvmlGpuInstanceDestroy(instance)
                raise

    def destroy(self, gpu: str, place: PlacedSlice) -> None:
        """Take this slice away."""
        with _driver(f"taking away {place.profile} at slot {place.start} of {gpu}") as nvml:
            handle = nvml.nvmlDeviceGetHandleByUUID(gpu)
            for instance, info in self._all(nvml, handle):
                if self._place(info) == place:
                    _drain(nvml, instance)
                    nvml.nvmlGpuInstanceDestroy(instance)
                    return

    def _all(self, nvml: Any, handle: Any) -> Iterator[tuple[Any, Any]]:
        """Every instance with what the driver says of it."""
        for profile in self._geometry.profiles:
            room = (nvml.c_nvmlGpuInstance_t * profile.count_max)()
            count = ctypes.c_uint(0)
            nvml.nvmlDeviceGetGpuInstances(handle, profile.number, room, ctypes.byref(count))
            for place in range(count.value):
                yield room[place], nvml.nvmlGpuInstanceGetInfo(room[place])

    def placements(self, gpu: str) -> dict[str, tuple[int, ...]]:
        """First slots of every profile as the driver has them, to be compared with ours."""
        found = {}
        with _driver(f"reading the placements of {gpu}") as nvml:
            handle = nvml.nvmlDeviceGetHandleByUUID(gpu)
            for profile in self._geometry.profiles:
                room = (nvml.c_nvmlGpuInstancePlacement_t * 16)()
                count = ctypes.c_uint(16)
                nvml.nvmlDeviceGetGpuInstancePossiblePlacements(
                    handle, profile.number, ctypes.byref(room), ctypes.byref(count)
                )
                found[profile.name] = tuple(sorted([room[place].start for place in range(count.value)]))
        return found


def _fill(nvml: Any, instance: Any, size: Profile) -> None:
    """The compute instance that spans a whole GPU instance: the one with as many slices."""
    for info in _compute_profiles(nvml, instance):
        if info.sliceCount == size.compute:
            nvml.nvmlGpuInstanceCreateComputeInstance(instance, info.id)
            return
    raise Transient(f"the driver has no compute instance of {size.compute} slices for {size.name}")


def _drain(nvml: Any, instance: Any) -> None:
    """Destroy the compute instances of a GPU instance."""
    for info in _compute_profiles(nvml, instance):
        room = (nvml.c_nvmlComputeInstance_t * max(1, info.instanceCount))()
        count = ctypes.c_uint(0)
        nvml.nvmlGpuInstanceGetComputeInstances(instance, info.id, room, ctypes.byref(count))
        for place in range(count.value):
            nvml.nvmlComputeInstanceDestroy(room[place])


def _uuid(nvml: Any, handle: Any, instance_id: int) -> str:
    """The UUID of the MIG device on a GPU instance; empty: there is none. The driver must be asked one by one."""
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            device = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
        except nvml.NVMLError_NotFound:
            continue
        if nvml.nvmlDeviceGetGpuInstanceId(device) == instance_id:
            found: str = nvml.nvmlDeviceGetUUID(device)
            return found
    return ""


@contextmanager
def _driver(what: str) -> Iterator[Any]:
    """The driver, and its errors as ours."""
    import pynvml  # type: ignore[import-untyped]  # noqa: PLC0415  # only where there are GPUs

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise Transient(f"{what}: {error}") from error
    try:
        yield pynvml
    except pynvml.NVMLError as error:
        raise Transient(f"{what}: {error}") from error
    finally:
        pynvml.nvmlShutdown()


def same_geometry(cutter: NvmlCutter, gpu: str, geometry: MigGeometry) -> list[str]:
    """Where the driver's placements differ from ours, in words; empty: nowhere."""
    theirs = cutter.placements(gpu)
    return [
        f"{profile.name}: the driver has {theirs[profile.name]}, we have {profile.starts}"
        for profile in geometry.profiles
        if theirs.get(profile.name) != profile.starts
    ]


def _compute_profiles(nvml: Any, instance: Any) -> Iterator[Any]:
    """The sizes of compute instances that a GPU instance can have: not every GPU has every size."""
    for number in range(nvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        with suppress(nvml.NVMLError):
            yield nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(
                instance, number, nvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED, version=1
            )
