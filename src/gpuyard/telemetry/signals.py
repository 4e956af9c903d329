"""Every signal there is, in one table: its unit, its bounds, how it is folded, and what DCGM and Prometheus call it.

Values are integers in the unit of the table. A value outside its bounds is no measurement and is not kept.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

MOST = 1 << 60
"""No signal is larger: differences of two values fit into 64 bits."""


class Of(Enum):
    """What a signal is about. The value is how the subject of a sample begins."""

    NODE = "node"
    GPU = "gpu"
    ATTEMPT = "attempt"


class Fold(Enum):
    """What the samples of a minute, and the minutes of an hour, come to."""

    MEAN = "mean"
    MAX = "max"
    ANY = "any"
    """Bits that were set at any time."""
    RISE = "rise"
    """A counter: by how much it rose. Raw samples have the counter itself."""
    LIFE = "life"
    """A counter that began at 0 together with its subject: its first sample is a rise too."""


@dataclass(frozen=True, slots=True)
class Signal:
    """One signal. `times` and `per` turn a value into the base unit that Prometheus has."""

    name: str
    of: Of
    unit: str
    fold: Fold
    prometheus: str
    """Without `gpuyard_` and without the ending of counters."""
    help: str
    most: int = MOST
    times: int = 1
    per: int = 1
    dcgm: str = ""
    dcgm_per: int = 1
    """By what a value is divided for the unit that DCGM has."""
    dcgm_times: int = 1
    across: Fold = Fold.MEAN
    """How the values of one attempt on several GPUs or nodes come together: MEAN, or RISE for their sum."""
    estimated: bool = False
    """Whether it is worked out from other signals. No estimate shares a curve with a measurement."""

    @property
    def counts(self) -> bool:
        """Whether it is a counter."""
        return self.fold in (Fold.RISE, Fold.LIFE)


_PERMILLE = 1000
_MIB = 1 << 20
_KIB = 1 << 10


def _ratio(
    name: str, of: Of, help: str, dcgm: str = "", dcgm_per: int = 10, estimated: bool = False
) -> Signal:
    return Signal(
        name, of, "‰", Fold.MEAN, f"{of.value}_{name}_ratio", help, _PERMILLE, per=_PERMILLE, dcgm=dcgm,
        dcgm_per=dcgm_per, estimated=estimated,
    )  # fmt: skip


def _mib(name: str, of: Of, help: str, dcgm: str = "") -> Signal:
    return Signal(
        name, of, "MiB", Fold.MAX, f"{of.value}_{name}_bytes", help, 1 << 40, _MIB, dcgm=dcgm, across=Fold.RISE
    )  # fmt: skip


def _count(
    name: str, of: Of, help: str, dcgm: str = "", fold: Fold = Fold.RISE, unit: str = "", times: int = 1
) -> Signal:
    prometheus = f"{of.value}_{name}{'_bytes' if unit in ('B', 'KiB') else ''}"
    return Signal(name, of, unit, fold, prometheus, help, times=times, dcgm=dcgm, across=Fold.RISE)


def _rate(name: str, help: str, dcgm: str, dcgm_per: int = 1) -> Signal:
    """DCGM has rates in KB/s, or MB/s."""
    return Signal(
        name, Of.GPU, "kB/s", Fold.MEAN, f"gpu_{name}_bytes_per_second", help, times=1000, dcgm=dcgm, dcgm_per=dcgm_per,
        across=Fold.RISE,
    )  # fmt: skip


def _busy(name: str, prometheus: str, of: Of, help: str, fold: Fold, unit: str, per: int) -> Signal:
    return Signal(name, of, unit, fold, f"{of.value}_{prometheus}_seconds", help, per=per, across=Fold.RISE)


_GPU = (
    _ratio("busy", Of.GPU, "Fraction of the time during which a kernel was running.", "DCGM_FI_DEV_GPU_UTIL"),
    _ratio("memory_busy", Of.GPU, "Fraction of the time during which GPU memory was being read or written.",
           "DCGM_FI_DEV_MEM_COPY_UTIL"),
    _mib("memory_used", Of.GPU, "GPU memory in use.", "DCGM_FI_DEV_FB_USED"),
    _mib("memory_free", Of.GPU, "Free GPU memory.", "DCGM_FI_DEV_FB_FREE"),
    Signal("power", Of.GPU, "W", Fold.MEAN, "gpu_power_watts", "Power draw.", 10_000,
           dcgm="DCGM_FI_DEV_POWER_USAGE", across=Fold.RISE),
    Signal("energy", Of.GPU, "J", Fold.RISE, "gpu_energy_joules", "Energy used since the driver was loaded.",
           dcgm="DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", dcgm_times=1000, across=Fold.RISE),
    Signal("temperature", Of.GPU, "°C", Fold.MAX, "gpu_temperature_celsius", "GPU temperature.", 200,
           dcgm="DCGM_FI_DEV_GPU_TEMP"),
    Signal("memory_temperature", Of.GPU, "°C", Fold.MAX, "gpu_memory_temperature_celsius", "GPU memory temperature.",
           200, dcgm="DCGM_FI_DEV_MEMORY_TEMP"),
    Signal("sm_clock", Of.GPU, "MHz", Fold.MEAN, "gpu_sm_clock_hertz", "Clock rate of the multiprocessors.", 100_000,
           1_000_000, dcgm="DCGM_FI_DEV_SM_CLOCK"),
    Signal("memory_clock", Of.GPU, "MHz", Fold.MEAN, "gpu_memory_clock_hertz", "Clock rate of the GPU memory.", 100_000,
           1_000_000, dcgm="DCGM_FI_DEV_MEM_CLOCK"),
    Signal("throttle", Of.GPU, "bits", Fold.ANY, "gpu_throttle_reasons",
           "Reasons why clocks are throttled, as the bits of NVML.",
           dcgm="DCGM_FI_DEV_CLOCKS_EVENT_REASONS"),
    _count("ecc_corrected", Of.GPU, "Corrected memory errors since the driver was loaded.",
           "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL"),
    _count("ecc_uncorrected", Of.GPU, "Uncorrected memory errors since the driver was loaded.",
           "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"),
    _count("rows_remapped", Of.GPU, "Memory rows remapped because of corrected errors.",
           "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS"),
    _count("rows_remapped_hard", Of.GPU, "Memory rows remapped because of uncorrected errors.",
           "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS"),
    Signal("row_remap_failed", Of.GPU, "", Fold.ANY, "gpu_row_remap_failed",
           "1 if remapping a memory row has failed.", 1,
           dcgm="DCGM_FI_DEV_ROW_REMAP_FAILURE"),
    _count("pcie_replays", Of.GPU, "PCIe packets that had to be sent again.", "DCGM_FI_DEV_PCIE_REPLAY_COUNTER"),
    _count("pcie_sent", Of.GPU, "Data sent over PCIe.", unit="KiB", times=_KIB),
    _count("pcie_received", Of.GPU, "Data received over PCIe.", unit="KiB", times=_KIB),
    _count("nvlink_sent", Of.GPU, "Data sent over NVLink.", unit="KiB", times=_KIB),
    _count("nvlink_received", Of.GPU, "Data received over NVLink.", unit="KiB", times=_KIB),
    _rate("pcie_send_rate", "Data sent over PCIe per second, since the previous reading.",
          "DCGM_FI_DEV_PCIE_TX_THROUGHPUT"),
    _rate("pcie_receive_rate", "Data received over PCIe per second, since the previous reading.",
          "DCGM_FI_DEV_PCIE_RX_THROUGHPUT"),
    _rate("nvlink_rate", "Data sent and received over NVLink per second, since the previous reading.",
          "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", dcgm_per=1000),
    _ratio("encoder_busy", Of.GPU, "Fraction of the time during which video was being encoded.",
           "DCGM_FI_DEV_ENC_UTIL"),
    _ratio("decoder_busy", Of.GPU, "Fraction of the time during which video was being decoded.",
           "DCGM_FI_DEV_DEC_UTIL"),
    Signal("xid", Of.GPU, "", Fold.MAX, "gpu_xid", "Latest error (XID) since the collector started; 0 for none.",
           100_000,
           dcgm="DCGM_FI_DEV_XID_ERRORS"),
    _ratio("engine_active", Of.GPU, "Fraction of the time during which the compute engine was active.",
           "DCGM_FI_PROF_GR_ENGINE_ACTIVE", 1000),
    _ratio("sm_active", Of.GPU, "Fraction of the multiprocessors that were active.", "DCGM_FI_PROF_SM_ACTIVE", 1000),
    _ratio("sm_occupancy", Of.GPU, "Fraction of the possible warps that were resident.", "DCGM_FI_PROF_SM_OCCUPANCY",
           1000),
    _ratio("tensor_active", Of.GPU, "Fraction of the time during which tensor cores were active.",
           "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
           1000),
    _ratio("dram_active", Of.GPU, "Fraction of the memory bandwidth in use.", "DCGM_FI_PROF_DRAM_ACTIVE", 1000),
)  # fmt: skip

_ATTEMPT = (
    _ratio("gpu_busy", Of.ATTEMPT,
           "Fraction of the time during which the attempt's kernels ran, averaged over its GPUs; measured."),
    _ratio("gpu_busy_estimated", Of.ATTEMPT,
           "The same, estimated, where the GPU does not tell which process was computing.",
           estimated=True),
    _mib("gpu_memory", Of.ATTEMPT, "GPU memory used by the attempt's processes."),
    Signal("energy", Of.ATTEMPT, "mJ", Fold.RISE, "attempt_energy_joules",
           "Energy used by the attempt's GPUs (of a shared GPU, its share) since the collector first saw it.", per=1000,
           across=Fold.RISE),
    _busy("cpu", "cpu", Of.ATTEMPT, "CPU time used by the attempt's processes.", Fold.LIFE, "ms", 1000),
    _mib("memory", Of.ATTEMPT, "Memory used by the attempt's processes."),
    _mib("memory_peak", Of.ATTEMPT, "Peak memory use of the attempt's processes."),
    _count("disk_read", Of.ATTEMPT, "Data that the attempt's processes read from disks.", fold=Fold.LIFE, unit="B"),
    _count("disk_written", Of.ATTEMPT, "Data that the attempt's processes wrote to disks.", fold=Fold.LIFE, unit="B"),
    _busy("io_stalled", "io_stalled", Of.ATTEMPT,
          "Time during which at least one of the attempt's processes waited for a disk.", Fold.LIFE,
          "ms", 1000),
    _busy("memory_stalled", "memory_stalled", Of.ATTEMPT,
          "Time during which at least one of the attempt's processes waited for memory.",
          Fold.LIFE, "ms", 1000),
)  # fmt: skip

_NODE = (
    _busy("cpu", "cpu", Of.NODE, "CPU time used by all processes of the node.", Fold.RISE, "ms", 1000),
    _mib("memory_used", Of.NODE, "Memory of the node in use."),
    _mib("memory_available", Of.NODE, "Memory of the node that is available without swapping."),
    _count("disk_read", Of.NODE, "Data read from the node's disks.", unit="B"),
    _count("disk_written", Of.NODE, "Data written to the node's disks.", unit="B"),
    _count("net_received", Of.NODE, "Data the node received over its network, loopback excluded.", unit="B"),
    _count("net_sent", Of.NODE, "Data the node sent over its network, loopback excluded.", unit="B"),
    _count("ib_received", Of.NODE, "Data received over InfiniBand.", unit="B"),
    _count("ib_sent", Of.NODE, "Data sent over InfiniBand.", unit="B"),
    _busy("cpu_stalled", "cpu_stalled", Of.NODE, "Time during which at least one process waited for a core.",
          Fold.RISE, "ms",
          1000),
    _busy("memory_stalled", "memory_stalled", Of.NODE, "Time during which at least one process waited for memory.",
          Fold.RISE, "ms",
          1000),
    _busy("io_stalled", "io_stalled", Of.NODE, "Time during which at least one process waited for a disk.", Fold.RISE,
          "ms", 1000),
    _count("kernel_faults", Of.NODE, "GPU, memory and disk faults found in the kernel's log."),
)  # fmt: skip

SIGNALS: Mapping[tuple[Of, str], Signal] = MappingProxyType(
    {(signal.of, signal.name): signal for signal in (*_GPU, *_ATTEMPT, *_NODE)}
)
"""All of them, by what they are about and their name."""


def gpu_subject(gpu: int) -> str:
    """The subject of samples of a GPU of a node."""
    return f"{Of.GPU.value}/{gpu}"


def attempt_subject(key: str) -> str:
    """The subject of samples of what an attempt does on a node."""
    return f"{Of.ATTEMPT.value}/{key}"


def parse_attempt(series: str) -> str:
    """The key of the attempt that a series is about; empty: it is about none."""
    kind, _, rest = series.partition("/")
    return rest.rpartition("/")[0] if kind == Of.ATTEMPT.value else ""


NODE_SUBJECT = Of.NODE.value

_BY_PREFIX = {each.value: each for each in Of}


def signal_of(name: str) -> Signal | None:
    """The signal of a series, `gpu/0/busy`; None: there is no such signal."""
    subject, _, signal = name.rpartition("/")
    of = _BY_PREFIX.get(subject.partition("/")[0])
    return SIGNALS.get((of, signal)) if of is not None else None
