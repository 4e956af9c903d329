"""GPUs as NVIDIA's driver tells of them. It is asked only: no mode, clock or limit of a card is set here.

Accounts of processes are read where somebody has switched them on. GPM tells of the time between two looks; it is kept
for each GPU, and for each GPU instance of one that is cut. What a card does not support is left out.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gpuyard.telemetry.attribution import recent_busy
from gpuyard.telemetry.sources import GpuLook, ProcessOnGpu

_ALL_LINKS = 0xFFFFFFFF
_MIB_BITS = 20
_HISTORY = 400
"""Accounts of a process that are remembered."""
_ERRORS_MAX = 1000
"""Errors that are taken at one look."""

_FIELDS: tuple[tuple[str, str, int], ...] = (
    ("memory_temperature", "NVML_FI_DEV_MEMORY_TEMP", 1),
    ("energy", "NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 1000),
    ("pcie_replays", "NVML_FI_DEV_PCIE_REPLAY_COUNTER", 1),
    ("ecc_corrected", "NVML_FI_DEV_ECC_SBE_VOL_TOTAL", 1),
    ("ecc_uncorrected", "NVML_FI_DEV_ECC_DBE_VOL_TOTAL", 1),
    ("rows_remapped", "NVML_FI_DEV_REMAPPED_COR", 1),
    ("rows_remapped_hard", "NVML_FI_DEV_REMAPPED_UNC", 1),
    ("row_remap_failed", "NVML_FI_DEV_REMAPPED_FAILURE", 1),
    ("nvlink_sent", "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX", 1),
    ("nvlink_received", "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX", 1),
    ("pcie_sent", "NVML_FI_DEV_PCIE_COUNT_TX_BYTES", 1024),
    ("pcie_received", "NVML_FI_DEV_PCIE_COUNT_RX_BYTES", 1024),
)
"""Signals that are fields of NVML, all asked for in one call, and by what the field is divided."""
_RATES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("pcie_send_rate", ("pcie_sent",)),
    ("pcie_receive_rate", ("pcie_received",)),
    ("nvlink_rate", ("nvlink_sent", "nvlink_received")),
)
"""What counters in KiB rose by, in kB a second. NVML's own figure for PCIe holds each call up for 20 ms."""
_KINDS = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}
_GPM: tuple[tuple[str, str], ...] = (
    ("engine_active", "NVML_GPM_METRIC_GRAPHICS_UTIL"),
    ("sm_active", "NVML_GPM_METRIC_SM_UTIL"),
    ("sm_occupancy", "NVML_GPM_METRIC_SM_OCCUPANCY"),
    ("tensor_active", "NVML_GPM_METRIC_ANY_TENSOR_UTIL"),
    ("dram_active", "NVML_GPM_METRIC_DRAM_BW_UTIL"),
)


class _Card:
    """What is remembered of a GPU between two looks."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self.uuid = self.model = self.pci = ""
        self.gpm: bool | None = None
        self.samples: dict[int, Any] = {}
        """The last GPM sample of the GPU (-1) or of a GPU instance."""
        self.accounts: dict[int, list[tuple[int, int]]] = {}
        self.counted: tuple[int, dict[str, int]] = (0, {})
        """When counters that make rates were read last, and what they had."""
        self.xid = 0
        """The last error of the GPU; 0: none since we look."""


class NvmlSource:
    """The GPUs that the driver shows, in its order or in that of the given UUIDs."""

    def __init__(self, nvml: Any = None, order: Callable[[], Sequence[str]] | None = None) -> None:
        """`nvml`: the module, None: the real one; `order`: UUIDs by their places on the node."""
        if nvml is None:
            import pynvml  # type: ignore[import-untyped]  # noqa: PLC0415  # only where there are GPUs

            nvml = pynvml
        self._nvml = nvml
        self._order = order
        self._cards: list[_Card] | None = None
        self._events: Any = None
        """The driver's list of errors to come; None: it has none."""
        self._driver = ""

    def close(self) -> None:
        """Let the driver go."""
        if self._cards is not None:
            for card in self._cards:
                for sample in card.samples.values():
                    with self._unsupported():
                        self._nvml.nvmlGpmSampleFree(sample)
            self._cards = None
            if self._events is not None:
                with self._unsupported():
                    self._nvml.nvmlEventSetFree(self._events)
                self._events = None
            with self._unsupported():
                self._nvml.nvmlShutdown()

    def look(self, now_ms: int) -> list[GpuLook]:
        """Every GPU now. One that does not answer is left out, and all of them are looked for anew next time."""
        if self._cards is None and not self._open():
            return []
        assert self._cards is not None, "they are open"
        self._hear_errors()
        places = {uuid: place for place, uuid in enumerate(self._order())} if self._order else None
        found, lost = [], False
        for number, card in enumerate(self._cards):
            place = number if places is None else places.get(card.uuid, -1)
            if place < 0:
                continue
            try:
                found.append(self._look_at(card, place, now_ms))
            except self._nvml.NVMLError:
                # It has fallen off the bus, or the driver was loaded anew.
                lost = True
        if lost:
            self.close()
        return found

    def _open(self) -> bool:
        nvml = self._nvml
        try:
            nvml.nvmlInit()
        except nvml.NVMLError:
            return False
        try:
            self._driver = _text(nvml.nvmlSystemGetDriverVersion())
            self._cards = []
            for index in range(nvml.nvmlDeviceGetCount()):
                card = _Card(nvml.nvmlDeviceGetHandleByIndex(index))
                card.uuid = _text(nvml.nvmlDeviceGetUUID(card.handle))
                card.model = _text(nvml.nvmlDeviceGetName(card.handle))
                card.pci = _text(nvml.nvmlDeviceGetPciInfo(card.handle).busId)
                self._cards.append(card)
        except nvml.NVMLError:
            self._cards = self._cards or []
            self.close()
            return False
        with self._unsupported():
            self._events = nvml.nvmlEventSetCreate()
            for card in self._cards:
                with self._unsupported():
                    nvml.nvmlDeviceRegisterEvents(
                        card.handle, nvml.nvmlEventTypeXidCriticalError, self._events
                    )
        return True

    def _hear_errors(self) -> None:
        """Take the errors that the driver has told of since the last look."""
        if self._events is None:
            return
        with self._unsupported():
            for _error in range(_ERRORS_MAX):
                # Without any it refuses at once.
                told = self._nvml.nvmlEventSetWait_v2(self._events, 0)
                uuid = _text(self._nvml.nvmlDeviceGetUUID(told.device))
                for card in self._cards or ():
                    if card.uuid == uuid:
                        card.xid = int(told.eventData)

    @contextlib.contextmanager
    def _unsupported(self) -> Iterator[None]:
        """What a card does not support leaves a hole."""
        try:
            yield
        except self._nvml.NVMLError:
            return

    def _look_at(self, card: _Card, place: int, now_ms: int) -> GpuLook:
        nvml, handle = self._nvml, card.handle
        # The first call is for every card. Where it fails, the card is gone.
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        values: dict[str, int | float | None] = {
            "memory_used": memory.used >> _MIB_BITS,
            "memory_free": memory.free >> _MIB_BITS,
        }
        with self._unsupported():
            rates = nvml.nvmlDeviceGetUtilizationRates(handle)
            values |= {"busy": rates.gpu * 10, "memory_busy": rates.memory * 10}
        with self._unsupported():
            values["power"] = nvml.nvmlDeviceGetPowerUsage(handle) / 1000
        with self._unsupported():
            values["temperature"] = nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)
        with self._unsupported():
            values["sm_clock"] = nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)
        with self._unsupported():
            values["memory_clock"] = nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)
        with self._unsupported():
            values["throttle"] = nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
        with self._unsupported():
            values["encoder_busy"] = nvml.nvmlDeviceGetEncoderUtilization(handle)[0] * 10
        with self._unsupported():
            values["decoder_busy"] = nvml.nvmlDeviceGetDecoderUtilization(handle)[0] * 10
        if self._events is not None:
            values["xid"] = card.xid
        counters = self._fields(handle)
        values |= counters | _rates(card, counters, now_ms)
        slices = self._slices(card)
        if slices is None:
            values |= {name: value for name, value in self._gpm(card, -1).items() if value is not None}
        clients = self._processes(nvml.nvmlDeviceGetMPSComputeRunningProcesses, handle)
        return GpuLook(
            gpu=place,
            uuid=card.uuid,
            values=values,
            processes=self._all_processes(card, clients, slices or {}, now_ms),
            slices_busy=self._slices_busy(card, slices),
            model=card.model,
            pci=card.pci,
            driver=self._driver,
            mps=bool(clients),
        )

    def _fields(self, handle: Any) -> dict[str, int]:
        nvml = self._nvml
        wanted = [
            (name, getattr(nvml, field), per) for name, field, per in _FIELDS if getattr(nvml, field, None)
        ]
        found: dict[str, int] = {}
        with self._unsupported():
            scopes = [(field, _ALL_LINKS if name.startswith("nvlink") else 0) for name, field, _per in wanted]
            for (name, _field, per), told in zip(
                wanted, nvml.nvmlDeviceGetFieldValues(handle, scopes), strict=True
            ):
                if told.nvmlReturn == nvml.NVML_SUCCESS and told.valueType in _KINDS:
                    found[name] = int(getattr(told.value, _KINDS[told.valueType])) // per
        return found

    # ---- GPM

    def _gpm(self, card: _Card, instance: int) -> dict[str, int | None]:
        """What happened since the last look, in parts of a thousand."""
        nvml = self._nvml
        if card.gpm is None:
            card.gpm = False
            with self._unsupported():
                card.gpm = bool(nvml.nvmlGpmQueryDeviceSupport(card.handle).isSupportedDevice)
        if not card.gpm:
            return {}
        found: dict[str, int | None] = {}
        with self._unsupported():
            newest = nvml.nvmlGpmSampleAlloc()
            before = card.samples.pop(instance, None)
            try:
                if instance < 0:
                    nvml.nvmlGpmSampleGet(card.handle, newest)
                else:
                    nvml.nvmlGpmMigSampleGet(card.handle, instance, newest)
                card.samples[instance] = newest
                if before is not None:
                    found = self._between(before, newest)
            finally:
                if before is not None:
                    nvml.nvmlGpmSampleFree(before)
                if card.samples.get(instance) is not newest:
                    nvml.nvmlGpmSampleFree(newest)
        return found

    def _between(self, before: Any, newest: Any) -> dict[str, int | None]:
        nvml = self._nvml
        asked = nvml.c_nvmlGpmMetricsGet_t()
        asked.version, asked.numMetrics = nvml.NVML_GPM_METRICS_GET_VERSION, len(_GPM)
        asked.sample1, asked.sample2 = before, newest
        for number, (_name, metric) in enumerate(_GPM):
            asked.metrics[number].metricId = getattr(nvml, metric)
        told = nvml.nvmlGpmMetricsGet(asked)
        found: dict[str, int | None] = {}
        for number, (name, _metric) in enumerate(_GPM):
            each = told.metrics[number]
            # A value that is no number says that nothing was counted.
            good = each.nvmlReturn == nvml.NVML_SUCCESS and each.value == each.value
            found[name] = min(1000, round(10 * each.value)) if good else None
        return found

    # ---- slices

    def _slices(self, card: _Card) -> dict[str, tuple[int, int]] | None:
        """The MIG devices of a GPU by UUID, with their GPU and compute instances; None: it is not cut."""
        nvml = self._nvml
        with self._unsupported():
            if nvml.nvmlDeviceGetMigMode(card.handle)[0] != nvml.NVML_DEVICE_MIG_ENABLE:
                return None
            found = {}
            for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(card.handle)):
                with self._unsupported():
                    device = nvml.nvmlDeviceGetMigDeviceHandleByIndex(card.handle, index)
                    found[_text(nvml.nvmlDeviceGetUUID(device))] = (
                        int(nvml.nvmlDeviceGetGpuInstanceId(device)),
                        int(nvml.nvmlDeviceGetComputeInstanceId(device)),
                    )
            return found
        return None

    def _slices_busy(self, card: _Card, slices: dict[str, tuple[int, int]] | None) -> dict[str, int] | None:
        if slices is None:
            return None
        found = {}
        told = {
            instance: self._gpm(card, instance) for instance in sorted({each[0] for each in slices.values()})
        }
        shared = [instance for instance, _compute in slices.values()]
        for uuid, (instance, _compute) in slices.items():
            busy = told[instance].get("engine_active")
            # Where several devices lie in one GPU instance, it does not say whose work it was.
            if busy is not None and shared.count(instance) == 1:
                found[uuid] = busy
        for gone in [each for each in card.samples if each >= 0 and each not in told]:
            with self._unsupported():
                self._nvml.nvmlGpmSampleFree(card.samples.pop(gone))
        return found

    # ---- processes

    def _processes(self, call: Callable[[Any], list[Any]], handle: Any) -> list[Any]:
        with self._unsupported():
            return list(call(handle))
        return []

    def _all_processes(
        self, card: _Card, clients: Sequence[Any], slices: dict[str, tuple[int, int]], now_ms: int
    ) -> tuple[ProcessOnGpu, ...]:
        nvml = self._nvml
        computing = self._processes(nvml.nvmlDeviceGetComputeRunningProcesses, card.handle)
        accounts = False
        with self._unsupported():
            accounts = nvml.nvmlDeviceGetAccountingMode(card.handle) == nvml.NVML_FEATURE_ENABLED
        by_instance = {ids: uuid for uuid, ids in slices.items()}
        found: dict[int, ProcessOnGpu] = {}
        for process in [*computing, *clients]:
            ids = (getattr(process, "gpuInstanceId", None), getattr(process, "computeInstanceId", None))
            used = process.usedGpuMemory
            found[process.pid] = ProcessOnGpu(
                pid=process.pid,
                # The driver does not say how much where processes are hidden from it.
                memory_mib=None if used is None else used >> _MIB_BITS,
                accounted=self._accounted(card, process.pid, now_ms) if accounts and not slices else None,
                instance=by_instance.get(ids, ""),  # type: ignore[arg-type]
            )
        for gone in card.accounts.keys() - found.keys():
            del card.accounts[gone]
        return tuple([found[pid] for pid in sorted(found)])

    def _accounted(self, card: _Card, pid: int, now_ms: int) -> int | None:
        with self._unsupported():
            stats = self._nvml.nvmlDeviceGetAccountingStats(card.handle, pid)
            life_ms = now_ms - stats.startTime // 1000
            if stats.gpuUtilization > 100:
                # The driver's word for a value that is not known.
                return None
            history = card.accounts.setdefault(pid, [])
            history.append((life_ms, stats.gpuUtilization))
            if len(history) > _HISTORY:
                # The older half thins out, so that a long life is remembered, too.
                history[: _HISTORY // 2] = history[: _HISTORY // 2 : 2]
            return recent_busy(history)
        return None


def _rates(card: _Card, counters: dict[str, int], now_ms: int) -> dict[str, int]:
    """What went over links in a second, since the look before; where a counter began anew, nobody knows."""
    before_ms, before = card.counted
    card.counted = (now_ms, counters)
    found = {}
    for name, parts in _RATES:
        if now_ms > before_ms > 0 and all([part in counters and part in before for part in parts]):
            rose = [counters[part] - before[part] for part in parts]
            if min(rose) >= 0:
                found[name] = sum(rose) * 1024 // (now_ms - before_ms)
    return found


def _text(told: str | bytes) -> str:
    return told.decode() if isinstance(told, bytes) else told
