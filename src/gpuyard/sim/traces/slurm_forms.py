"""How Slurm writes durations, memory and trackable resources (TRES). Pure text in, integers out."""

import re
from typing import NamedTuple

from gpuyard.model.units import MILLI
from gpuyard.sim.traces.cells import (
    COUNT_MAX,
    CPU_MILLI_MAX,
    MEMORY_MIB_MAX,
    TIME_MS_MAX,
    RowError,
    name,
    show,
    whole,
)

_NO_LIMIT = {"", "unlimited", "partition_limit", "n/a", "none"}
_MEMORY = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)([kmgtp]?)[nc]?", re.IGNORECASE | re.ASCII)
_MIB = {"k": 1 / 1024, "": 1, "m": 1, "g": 1024, "t": 1024**2, "p": 1024**3}
_PROFILE = re.compile(r"\d{1,2}g\.\d{1,4}gb", re.ASCII)

MODELS = {
    "t4": ("T4",),
    "v100": ("V100",),
    "a10": ("A10",),
    "a30": ("A30",),
    "l4": ("L4",),
    "l40s": ("L40S",),
    "a100": ("A100-40GB", "A100-80GB"),
    "a100-40gb": ("A100-40GB",),
    "a100-sxm4-40gb": ("A100-40GB",),
    "a100-pcie-40gb": ("A100-40GB",),
    "a100-80gb": ("A100-80GB",),
    "a100-sxm4-80gb": ("A100-80GB",),
    "a100-80gb-pcie": ("A100-80GB",),
    "h100": ("H100",),
    "h100-80gb-hbm3": ("H100",),
    "h100-pcie": ("H100",),
    "h200": ("H200",),
    "b200": ("B200",),
}
"""Sites name the type of a GPU as they like; these are the common names and what they are called here. A name
that means two models lets the job have either; one that is not listed is kept as it is written."""


class Tres(NamedTuple):
    """What a TRES list says of a job, all its nodes together."""

    gpus: int
    profile: str
    """Of its MIG slices, in which case `gpus` counts these."""
    models: tuple[str, ...]
    nodes: int
    cpu_milli: int
    memory_mib: int
    shared: bool
    """It had shares of GPUs (`gres/shard`, `gres/mps`), whose size the list does not tell."""


def duration_ms(text: str, what: str) -> int:
    """`[DD-]HH:MM:SS`, `MM:SS`, `DD-HH`, `DD-HH:MM` or plain minutes."""
    days, dash, clock = text.strip().rpartition("-")
    parts = clock.split(":")
    if len(parts) > 3:
        raise RowError(f"{what} is {show(text)}, not a duration such as 1-12:00:00")
    numbers = [whole(part.partition(".")[0], what, 10**9) for part in parts]
    if dash:
        hours, minutes, seconds = [*numbers, 0, 0][:3]
    else:
        # A single number is minutes.
        clocked = numbers if len(numbers) > 1 else [*numbers, 0]
        hours, minutes, seconds = [0, *clocked][-3:]
    day_count = whole(days, what, 10**7) if dash else 0
    total_ms = (((day_count * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000
    if total_ms > TIME_MS_MAX:
        raise RowError(f"{what} is {show(text)}, absurdly long")
    return total_ms


def limit_ms(text: str, what: str) -> int:
    """A time limit; 0 where the job had none of its own."""
    return 0 if text.strip().lower() in _NO_LIMIT else duration_ms(text, what)


def memory_mib(text: str, what: str) -> int:
    """`128G`, `1.5T`, `4000M`, `512000K`; a bare number is MiB."""
    match = _MEMORY.fullmatch(text.strip())
    value = float(match[1]) * _MIB[match[2].lower()] if match else -1.0
    if not 0 <= value <= MEMORY_MIB_MAX:
        raise RowError(f"{what} is {show(text)}, not an amount of memory such as 128G")
    return int(value) + (value > int(value))


def tres(text: str) -> Tres:
    """A list such as `billing=16,cpu=16,gres/gpu:a100=8,gres/gpu=8,mem=128G,node=2`."""
    plain = typed = slices = nodes = cpu_milli = memory = 0
    profiles: set[str] = set()
    models: dict[str, None] = {}
    shared = False
    for item in text.split(","):
        key, equals, value = item.strip().partition("=")
        kind, _, gpu_type = key.lower().partition(":")
        if not equals:
            if key:
                raise RowError(f"{show(item)} is no resource such as gres/gpu=8")
        elif kind == "gres/gpu" and not gpu_type:
            plain = whole(value, key)
        elif kind == "gres/gpu":
            found = _PROFILE.search(gpu_type)
            count = whole(value, show(key))
            if found:
                profiles.add(found[0])
                slices += count
            else:
                models.update(dict.fromkeys(_models(key.partition(":")[2])))
                typed += count
        elif kind in {"gres/shard", "gres/mps"}:
            shared = True
        elif key == "cpu":
            cpu_milli = whole(value, "cpu", CPU_MILLI_MAX // MILLI) * MILLI
        elif key == "mem":
            memory = memory_mib(value, "mem")
        elif key == "node":
            nodes = whole(value, "node")
    if slices and (typed or len(profiles) > 1):
        raise RowError("mixes MIG slices with other GPUs")
    gpus = slices or max(plain, typed)
    if gpus > COUNT_MAX:
        raise RowError(f"has {gpus} GPUs, absurdly many")
    return Tres(gpus, min(profiles, default=""), tuple(models), nodes, cpu_milli, memory, shared)


def _models(gpu_type: str) -> tuple[str, ...]:
    written = name(gpu_type, "GPU type")
    key = written.lower().removeprefix("nvidia").strip("-_ ").replace("_", "-").replace(" ", "-")
    return MODELS.get(key, (written,))
