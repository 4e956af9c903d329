"""How Slurm writes things down: durations, moments, memory, trackable resources (TRES), tables, lists of nodes.

Slurm's notation of durations and memory is its own (`90` is minutes, `4000` is MiB), so it is read and written here and
not in `gpuyard.quantities`.

Pure text in, integers and rows out. Text that cannot be read raises `Unreadable`, with a sentence about that text; the
reader of the text adds where it was.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from gpuyard.engines.name_lists import expand
from gpuyard.model.gpu_names import find_models, parse_mig_profile
from gpuyard.model.units import MILLI

COUNT_MAX = 10**6
"""GPUs, nodes or tasks of one job."""
TIME_MS_MAX = 10**15
MEMORY_MIB_MAX = 10**12
CPU_MAX = 10**9

_NO_LIMIT = {"", "unlimited", "partition_limit", "n/a", "none", "infinite"}
_NOTHING = {"", "(null)", "n/a", "none", "unknown", "none assigned"}
_MEMORY = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)([kmgtp]?)[nc]?", re.IGNORECASE | re.ASCII)
_MIB = {"k": 1 / 1024, "": 1, "m": 1, "g": 1024, "t": 1024**2, "p": 1024**3}
_PAIR = re.compile(r"(?:^|\s)([A-Za-z][A-Za-z0-9/:_.]*)=")
_GRES = re.compile(r"([a-z]+)(?::([^:(]*?))?(?::(\d{1,9}))?(?:\([^)]*\))?", re.IGNORECASE | re.ASCII)
_EPOCH_NAIVE = datetime(1970, 1, 1)  # noqa: DTZ001 (times without a zone are taken as UTC)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Unreadable(ValueError):
    """The text is not what Slurm writes; the message says what it is instead."""


class Tres(NamedTuple):
    """A job's TRES list, all its nodes together."""

    gpus: int
    profile: str
    """Of its MIG slices, in which case `gpus` counts these."""
    models: tuple[str, ...]
    nodes: int
    cpu_milli: int
    memory_mib: int
    shared: bool
    """It had shares of GPUs (`gres/shard`, `gres/mps`); the list does not give their size."""


class Gres(NamedTuple):
    """One entry of a node's or a request's generic resources: `gpu:a100:8`."""

    name: str
    type: str
    number: int


# -- numbers and moments -------------------------------------------------------------------------------------------


def show(text: str) -> str:
    """A text as it may be printed: short, and without control characters."""
    return repr(text if len(text) <= 40 else text[:37] + "...")


def parse_whole(text: str, what: str, most: int = COUNT_MAX) -> int:
    """A whole number; `8.0` is one."""
    try:
        value = float(text)
    except ValueError:
        raise Unreadable(f"{what} is {show(text)}, not a number") from None
    if not 0 <= value <= most:
        absurd = "negative" if value < 0 else "absurdly large" if value > 0 else "not a number"
        raise Unreadable(f"{what} is {show(text)}, which is {absurd}")
    if value != int(value):
        raise Unreadable(f"{what} is {show(text)}, not a whole number")
    return int(value)


def parse_duration_ms(text: str, what: str) -> int:
    """`[DD-]HH:MM:SS`, `MM:SS`, `DD-HH`, `DD-HH:MM` or plain minutes."""
    days, dash, clock = text.strip().rpartition("-")
    parts = clock.split(":")
    if len(parts) > 3:
        raise Unreadable(f"{what} is {show(text)}, not a duration such as 1-12:00:00")
    numbers = [parse_whole(part.partition(".")[0], what, 10**9) for part in parts]
    if dash:
        hours, minutes, seconds = [*numbers, 0, 0][:3]
    else:
        # A single number is minutes.
        clocked = numbers if len(numbers) > 1 else [*numbers, 0]
        hours, minutes, seconds = [0, *clocked][-3:]
    day_count = parse_whole(days, what, 10**7) if dash else 0
    total_ms = (((day_count * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000
    if total_ms > TIME_MS_MAX:
        raise Unreadable(f"{what} is {show(text)}, absurdly long")
    return total_ms


def limit_ms(text: str, what: str) -> int:
    """A time limit; 0 where there is none."""
    return 0 if text.strip().lower() in _NO_LIMIT else parse_duration_ms(text, what)


def duration_text(value_ms: int) -> str:
    """A duration as Slurm's commands take it, in whole seconds: `1-12:00:00`, `00:05:00`."""
    days, rest = divmod(value_ms // 1000, 86_400)
    clock = f"{rest // 3600:02d}:{rest % 3600 // 60:02d}:{rest % 60:02d}"
    return f"{days}-{clock}" if days else clock


def parse_moment_ms(text: str, what: str) -> int:
    """Epoch seconds (SLURM_TIME_FORMAT=%s) or `2026-03-02T09:30:00`, taken as UTC; 0 where there is none."""
    text = text.strip()
    if text.lower() in _NOTHING or text == "0":
        return 0
    if text.isdecimal():
        return parse_whole(text, what, TIME_MS_MAX // 1000) * 1000
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise Unreadable(f"{what} is {show(text)}, not a time such as 2026-03-02T09:30:00") from None
    since = when - (_EPOCH_NAIVE if when.tzinfo is None else _EPOCH)
    if since.days < 0:
        raise Unreadable(f"{what} is {show(text)}, before 1970")
    return since.days * 86_400_000 + since.seconds * 1000


def parse_memory_mib(text: str, what: str) -> int:
    """`128G`, `1.5T`, `4000M`, `512000K`; a bare number is MiB."""
    match = _MEMORY.fullmatch(text.strip())
    value = float(match[1]) * _MIB[match[2].lower()] if match else -1.0
    if not 0 <= value <= MEMORY_MIB_MAX:
        raise Unreadable(f"{what} is {show(text)}, not an amount of memory such as 128G")
    return int(value) + (value > int(value))


def drop_null(text: str) -> str:
    """A value, or nothing where Slurm writes one of its words for nothing."""
    text = text.strip()
    return "" if text.lower() in _NOTHING else text


def split_names(text: str) -> tuple[str, ...]:
    """The names of a list with commas."""
    return tuple(name.strip() for name in drop_null(text).split(",") if name.strip())


# -- resources -----------------------------------------------------------------------------------------------------


def parse_tres_map(text: str) -> dict[str, str]:
    """A list such as `cpu=16,gres/gpu:a100=8` by name, in lower case but for types."""
    found = {}
    for item in drop_null(text).split(","):
        key, equals, value = item.strip().partition("=")
        if equals:
            kind, colon, type_ = key.partition(":")
            found[kind.lower() + colon + type_] = value
        elif key:
            raise Unreadable(f"{show(item)} is not a resource such as gres/gpu=8")
    return found


def parse_tres(text: str) -> Tres:
    """A list such as `billing=16,cpu=16,gres/gpu:a100=8,gres/gpu=8,mem=128G,node=2`."""
    plain = typed = slices = nodes = cpus = memory = 0
    profiles: set[str] = set()
    models: dict[str, None] = {}
    shared = False
    for key, value in parse_tres_map(text).items():
        kind, _, gpu_type = key.partition(":")
        if kind == "gres/gpu" and not gpu_type:
            plain = parse_whole(value, key)
        elif kind == "gres/gpu":
            profile = parse_mig_profile(gpu_type)
            count = parse_whole(value, show(key))
            if profile:
                profiles.add(profile)
                slices += count
            else:
                models.update(dict.fromkeys(guess_models(gpu_type)))
                typed += count
        elif kind in {"gres/shard", "gres/mps"}:
            shared = True
        elif key == "cpu":
            cpus = parse_whole(value, "cpu", CPU_MAX)
        elif key == "mem":
            memory = parse_memory_mib(value, "mem")
        elif key == "node":
            nodes = parse_whole(value, "node")
    if slices and (typed or len(profiles) > 1):
        raise Unreadable("mixes MIG slices with other GPUs")
    gpus = slices or max(plain, typed)
    if gpus > COUNT_MAX:
        raise Unreadable(f"has {gpus} GPUs, absurdly many")
    return Tres(gpus, min(profiles, default=""), tuple(models), nodes, cpus * MILLI, memory, shared)


def guess_models(gpu_type: str) -> tuple[str, ...]:
    """Models that a site's name for a type of GPU may mean; the name itself if it is unknown."""
    written = gpu_type.strip()
    if not written.isprintable() or len(written) > 256:
        raise Unreadable(f"a type of GPU is {show(gpu_type)}")
    return find_models(written)


def parse_gres(text: str) -> tuple[Gres, ...]:
    """`gpu:a100:8(S:0-1),shard:16`: names, types and counts; a name alone counts one."""
    found = []
    for part in _outside_brackets(drop_null(text)):
        written = part.strip().removeprefix("gres:")
        match = _GRES.fullmatch(written)
        if match is None and not written.lower().startswith("gpu"):
            # Such as lustre:no_consume:4G: other resources have forms that nothing here needs.
            continue
        if match is None:
            raise Unreadable(f"{show(part)} is not a generic resource such as gpu:a100:8")
        name, type_, count = match.groups()
        if type_ is not None and type_.isdecimal() and count is None:
            type_, count = "", type_
        found.append(Gres(name.lower(), type_ or "", int(count) if count else 1))
    return tuple(found)


# -- rows ----------------------------------------------------------------------------------------------------------


def _outside_brackets(text: str) -> list[str]:
    """The parts between commas that stand in no bracket."""
    parts, depth, current = [], 0, ""
    for char in text:
        depth += (char == "(") - (char == ")")
        if depth == 0 and char == ",":
            parts.append(current)
            current = ""
        else:
            current += char
    if depth:
        raise Unreadable(f"{show(text)} has brackets that do not match")
    return [part for part in [*parts, current] if part.strip()]


def parse_table(text: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Rows of `--parsable2`: line and cells by the names of the header, in lower case without blanks.

    The last column may hold the separator, as the name of a job can. A line with too few cells raises.
    """
    # Not splitlines: a name may hold other characters that count as line ends there.
    lines = text.split("\n")
    if not text:
        return
    header = [name.strip().lower().replace(" ", "") for name in lines[0].split("|")]
    for number, line in enumerate(lines[1:], start=2):
        if not line.strip():
            continue
        cells = line.split("|", len(header) - 1)
        if len(cells) < len(header):
            raise Unreadable(f"line {number} has {len(cells)} of {len(header)} columns: {show(line)}")
        yield number, dict(zip(header, cells, strict=True))


def parse_pairs(line: str) -> dict[str, str]:
    """A line of `scontrol -o`: `NodeName=n1 Arch=aarch64 OS=Linux 6.1 #1 RealMemory=512`. Values may hold blanks."""
    places = list(_PAIR.finditer(line))
    ends = [*(place.start() for place in places[1:]), len(line)][: len(places)]
    found: dict[str, str] = {}
    for place, end in zip(places, ends, strict=True):
        # The first counts: reasons and comments, in which people may write such a pair, come last.
        found.setdefault(place[1], line[place.end() : end].strip())
    return found


def read_size(found: Mapping[str, str]) -> tuple[int, int]:
    """Cores and MiB of a node for jobs: without those that Slurm keeps for itself."""
    cpus = parse_whole(found.get("CPUEfctv") or found.get("CPUTot") or found.get("CPUs") or "0", "CPUTot")
    memory_mib = parse_whole(found.get("RealMemory") or "0", "RealMemory", MEMORY_MIB_MAX)
    kept_mib = parse_whole(drop_null(found.get("MemSpecLimit", "")) or "0", "MemSpecLimit", MEMORY_MIB_MAX)
    return cpus, max(0, memory_mib - kept_mib)


def read_features(found: Mapping[str, str]) -> tuple[str, ...]:
    """The features that a node has now; where Slurm does not say, those that it can have."""
    text = drop_null(found.get("ActiveFeatures") or found.get("AvailableFeatures", ""))
    return tuple([name.strip() for name in text.split(",") if name.strip()])


def parse_settings(text: str) -> dict[str, str]:
    """`scontrol show config`: `Name = value`, one a line."""
    found = {}
    for line in text.splitlines():
        name, sign, value = line.partition("=")
        if sign and name.strip() and " " not in name.strip():
            found[name.strip()] = value.strip()
    return found


def parse_words(text: str) -> dict[str, str]:
    """Parameters such as `bf_interval=30,defer`, by name; without a value: empty."""
    parts = [part.strip() for part in drop_null(text).split(",") if part.strip()]
    return {name: value for name, _, value in (part.partition("=") for part in parts)}


# -- nodes ---------------------------------------------------------------------------------------------------------


def parse_hosts(text: str) -> list[str]:
    """`n[01-03,7],gpu1`: every name once, in the order they are written."""
    try:
        return list(expand(drop_null(text)))
    except ValueError as error:
        raise Unreadable(f"{show(text)} {error}") from None


def find_setting(found: Mapping[str, str], name: str) -> str:
    """A value by its name, however it is written: `PriorityWeightFairShare`, `PriorityWeightFairshare`."""
    lower = name.lower()
    return next((value for key, value in found.items() if key.lower() == lower), "")
