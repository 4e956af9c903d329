"""Quantities: durations, memory, percent, money and counts, as people write them and as people read them.

Inside gpuyard they are integers: milliseconds, MiB, micro-dollars, milli-GPU. This module alone reads them from a text
and writes them into one. The notations of others stay beside their language: Slurm's in `engines.slurm.words.forms`,
`intake.sbatch.amounts` and `cli.slurm.language`, Kubernetes' in `intake.kubernetes.resources`.

Reading is exact: a float would make `0.1` GPUs and a tenth of a dollar depend on rounding. What cannot be kept exactly
is refused, not rounded: a `ValueError` with the end of a sentence that begins with the key or the option, "must be …,
not …". What is written has one of three forms: the notation of the file (`1h30m`, `64G`), which is read again; words,
for a sentence (`1 h 30 min`, `64 GiB`); and few letters, for a table (`1h30m`, `1.5 TiB`).

Light, and without any import but that of errors: every command line needs it.
"""

import re
from collections.abc import Iterable

from gpuyard.errors import quote

MISSING = "–"
"""What stands in a report for a figure that nobody knows."""

# -- numbers -------------------------------------------------------------------------------------------------------

MILLI = 1000
"""Milli-GPU in a whole GPU; milli-CPU in a core."""
NODES_MAX = 1_000_000
GPUS_PER_NODE_MAX = 64
GPUS_MAX = NODES_MAX * GPUS_PER_NODE_MAX
CPUS_PER_NODE_MAX = 100_000

_NUMBER = re.compile(r"[+-]?([0-9]{1,18}(\.[0-9]{0,18})?|\.[0-9]{1,18})")
_MILLION = 1_000_000


def _exact(text: str, what: str) -> tuple[int, int]:
    """A number as a fraction of two integers."""
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"must be {what}, not {quote(text)}")
    above, _, below = text.partition(".")
    return int(above + below), 10 ** len(below)


def parse_whole(text: str, *, least: int, most: int) -> int:
    """A whole number within bounds."""
    value, of = _exact(text, "a whole number")
    if value % of:
        raise ValueError(f"must be a whole number, not {text}")
    return parse_scaled(text, "a whole number", scale=1, grain="1", least=least, most=most)


def parse_scaled(text: str, what: str, *, scale: int, grain: str, least: int, most: int) -> int:
    """An exact number, counted in parts of which `scale` are one; at least so many parts, and at most `most` whole."""
    value, of = _exact(text, what)
    if value * scale < least * of:
        raise ValueError(f"must be {what} of at least {decimal_text(least, scale)}, not {text}")
    if value > most * of:
        raise ValueError(f"must be {what} of at most {most}, not {text}")
    parts, rest = divmod(value * scale, of)
    if rest:
        raise ValueError(f"is finer than {grain}, the smallest part that is counted: {text}")
    return parts


def decimal_text(parts: int, scale: int = 1) -> str:
    """The inverse of `parse_scaled`: a number in decimal notation, to a millionth."""
    above, below = divmod((2 * parts * _MILLION + scale) // (2 * scale), _MILLION)
    return f"{above}.{below:06}".rstrip("0") if below else str(above)


def rounded(value: float) -> str:
    """One decimal below ten, none above. Nobody compares more than three digits by eye."""
    written = f"{value:.1f}"
    return written if abs(float(written)) < 10 else f"{value:.0f}"


def parse_gpu_milli(text: str) -> int:
    """A number of GPUs, zero included, in milli-GPU."""
    return parse_scaled(text, "a number of GPUs", scale=MILLI, grain="0.001 GPU", least=0, most=GPUS_MAX)


def parse_positive_gpu_milli(text: str) -> int:
    """A number of GPUs above zero, in milli-GPU."""
    return parse_scaled(text, "a number of GPUs", scale=MILLI, grain="0.001 GPU", least=1, most=GPUS_MAX)


def parse_cpu_milli(text: str) -> int:
    """A number of cores, in milli-CPU."""
    return parse_scaled(
        text, "a number of cores", scale=MILLI, grain="0.001 core", least=1, most=CPUS_PER_NODE_MAX
    )


# -- durations -----------------------------------------------------------------------------------------------------

SECOND_MS = 1000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
DURATION_PATTERN = r"^([0-9]{1,9}d)?([0-9]{1,9}h)?([0-9]{1,9}m)?([0-9]{1,9}s)?$"
DURATION_MS_MAX = 3650 * DAY_MS
"""Ten years: the time limit of a job that has none."""
FOREVER = "forever"
GPU_HOURS_MAX = 1_000_000_000

_UNITS_MS = ((DAY_MS, "d"), (HOUR_MS, "h"), (MINUTE_MS, "m"), (SECOND_MS, "s"))
_UNITS_S = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_ROUNDED_UNITS = (("s", 1, 60), ("min", 60, 3600), ("h", 3600, 48 * 3600))
"""Name, seconds, and the seconds from which the next unit takes over."""


def parse_duration_ms(text: str) -> int:
    """A duration such as `90s`, `10m`, `24h`, `7d` or `1h30m`, in milliseconds."""
    match = re.fullmatch(DURATION_PATTERN, text)
    if not match or not text:
        raise ValueError(f"must be a duration such as 90s, 10m, 24h, 7d or 1h30m, not {quote(text)}")
    parts = zip(match.groups(), _UNITS_MS, strict=True)
    value = sum(int(part[:-1]) * unit for part, (unit, _letter) in parts if part)
    if value > DURATION_MS_MAX:
        raise ValueError(f"must be at most {duration_text(DURATION_MS_MAX)}, not {text}")
    return value


def parse_positive_duration_ms(text: str) -> int:
    """A duration above zero, in milliseconds."""
    value = parse_duration_ms(text)
    if value == 0:
        raise ValueError(f"must be longer than zero, not {text}")
    return value


def duration_text(value_ms: int) -> str:
    """A duration in the notation of the file, in whole seconds: the inverse of `parse_duration_ms`."""
    parts, rest = [], value_ms
    for unit, letter in _UNITS_MS:
        count, rest = divmod(rest, unit)
        if count:
            parts.append(f"{count}{letter}")
    return "".join(parts) or "0s"


def duration_in_one_unit(value_ms: int) -> str:
    """The same in the largest unit that it is a whole number of: `90m`."""
    unit, letter = next((each for each in _UNITS_MS if value_ms % each[0] == 0), _UNITS_MS[-1])
    return f"{value_ms // unit}{letter}"


def parse_kept_ms(text: str) -> int:
    """How long something is kept: a duration above zero, or `forever`, which is 0."""
    return 0 if text == FOREVER else parse_positive_duration_ms(text)


def kept_text(value_ms: int) -> str:
    """The inverse of `parse_kept_ms`."""
    return duration_text(value_ms) if value_ms else FOREVER


def parse_gpu_hours_ms(text: str) -> int:
    """GPU-hours, in milliseconds of a whole GPU."""
    grain = "a millisecond of a GPU"
    least, most = HOUR_MS // MILLI, GPU_HOURS_MAX
    return parse_scaled(text, "a number of GPU-hours", scale=HOUR_MS, grain=grain, least=least, most=most)


def gpu_hours_text(hours: float) -> str:
    """`1,240.00`, `0.25`; less than a tenth has two digits, where two decimals would leave little: `0.0036`."""
    return f"{hours:.2g}" if 0 < hours < 0.1 else f"{hours:,.2f}"


def span(ms: int) -> str:
    """A span of time in a few letters: `42s`, `12m05s`, `3h20m`, `2d04h`."""
    seconds = max(0, ms) // 1000
    if seconds < 60:
        return f"{seconds}s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes}m{seconds:02d}s"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours}h{minutes:02d}m"
    days, hours = divmod(hours, 24)
    return f"{days}d{hours:02d}h"


def span_words(ms: int) -> str:
    """The same in a sentence, in the largest unit and the next: `42 s`, `12 min 5 s`, `3 h 20 min`, `2 d`."""
    seconds = max(0, ms) // 1000
    first = next((place for place, (size, _name) in enumerate(_UNITS_S) if seconds >= size), 3)
    parts: list[str] = []
    for size, name in _UNITS_S[first : first + 2]:
        count, seconds = divmod(seconds, size)
        if count or not parts:
            parts.append(f"{count} {name}")
    return " ".join(parts)


def span_up(ms: int) -> str:
    """A span of time, rounded up: `40 s`, `4 min`, `3 h`, `2 days`."""
    seconds = max(1, -(-ms // 1000))
    if seconds < 60:
        return f"{seconds} s"
    minutes = -(-seconds // 60)
    if minutes < 120:
        return f"{minutes} min"
    hours = -(-minutes // 60)
    return f"{hours} h" if hours < 48 else f"{-(-hours // 24)} days"


def span_down(ms: int) -> str:
    """A span of time, rounded down: `1 min`, `90 min`, `3 hours`, `2 days`."""
    for unit, name in ((DAY_MS, "days"), (HOUR_MS, "hours")):
        if ms >= 2 * unit:
            return f"{ms // unit} {name}"
    return f"{max(1, ms // MINUTE_MS)} min"


def seconds_text(ms: float) -> str:
    """A short span, to a tenth of a second: `1.2 s`."""
    return f"{ms / 1000:.1f} s"


def span_rounded(seconds: float | None) -> str:
    """A mean of spans: `0 s`, `4.2 s`, `41 min`, `36 h`, `2.1 d`."""
    if seconds is None:
        return MISSING
    if seconds < 0.05:
        return "0 s"
    for name, size, limit in _ROUNDED_UNITS:
        written = rounded(seconds / size)
        # The rounded value decides: 59.7 s is one minute, not 60 s.
        if float(written) * size < limit:
            return f"{written} {name}"
    days = seconds / 86_400
    return f"{rounded(days)} d" if days < 1000 else f"{round(days):,} d"


# -- memory --------------------------------------------------------------------------------------------------------

GIB_MIB = 1024
MEMORY_PATTERN = r"^[0-9]{1,12}(\.[0-9]{1,12})?[KMGT]i?B?$"
_MEMORY = re.compile(MEMORY_PATTERN)
_KIB = {"K": 1, "M": 1024, "G": 1024**2, "T": 1024**3}


def parse_memory_mib(text: str) -> int:
    """An amount of memory such as `512M`, `80G` or `1.5TiB`, in MiB. All spellings are powers of 1024."""
    if not _MEMORY.fullmatch(text):
        raise ValueError(f"must be an amount of memory such as 512M, 80G or 1T, not {quote(text)}")
    figure = text.rstrip("iB")
    value, of = _exact(figure[:-1], "an amount")
    mib, rest = divmod(value * _KIB[figure[-1]], of * 1024)
    if value <= 0:
        raise ValueError(f"must be more than zero, not {text}")
    if rest:
        raise ValueError(f"must be a whole number of MiB (1M), not {text}")
    if mib > GIB_MIB**3:
        raise ValueError(f"must be at most 1024T, not {text}")
    return mib


def parse_stored_mib(text: str) -> int:
    """An amount of the store in MiB, as of memory; 0: any amount."""
    return 0 if text == "0" else parse_memory_mib(text)


def memory_text(mib: int) -> str:
    """An amount in the notation of the file: the inverse of `parse_memory_mib`."""
    return f"{mib // GIB_MIB}G" if mib % GIB_MIB == 0 else f"{mib}M"


def memory_words(mib: int) -> str:
    """The same in a sentence, never rounded: `64 GiB`, or MiB if it is not a whole number of GiB."""
    return f"{mib // GIB_MIB} GiB" if mib % GIB_MIB == 0 else f"{mib} MiB"


def memory_size(mib: int) -> str:
    """The same in a table, to four digits: `512 MiB`, `900 GiB`, `1.5 TiB`."""
    if mib < GIB_MIB:
        return f"{mib} MiB"
    return f"{mib / GIB_MIB:.4g} GiB" if mib < GIB_MIB**2 else f"{mib / GIB_MIB**2:.4g} TiB"


def memory_gib(mib: int) -> str:
    """Memory of a machine or a GPU, in whole GiB, rounded down: `80 GiB`."""
    return f"{mib // GIB_MIB} GiB"


def memory_used(mib: int) -> str:
    """What is used of it, to a tenth of a GiB and without the unit: `12.3`."""
    return f"{mib / GIB_MIB:.1f}"


def bytes_text(count: int) -> str:
    """Bytes as people write them: `12 B`, `1.5 MiB`."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} TiB"


def rate_text(value: float) -> str:
    """Bytes in a second, to three digits: `12 B/s`, `1.5 MiB/s`."""
    for unit, factor in (("GiB/s", 1 << 30), ("MiB/s", 1 << 20), ("KiB/s", 1 << 10)):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value:.0f} B/s"


# -- percent -------------------------------------------------------------------------------------------------------

PERCENT_MAX = 1000


def parse_percent(text: str) -> int:
    """A part of a budget of which people are told."""
    if not (text.isdecimal() and 1 <= int(text) <= PERCENT_MAX):
        raise ValueError(f"must be a whole number from 1 to {PERCENT_MAX}, in percent, not {quote(text)}")
    return int(text)


def percent_text(value: float, places: int = 0) -> str:
    """A number of hundredths: `41 %`, `41.2 %`."""
    return f"{value:.{places}f} %"


def percent_change(value: float) -> str:
    """A change in hundredths: `+12 %`, `-3 %`."""
    return f"{value:+.0f} %"


def percent_words(ppm: int) -> str:
    """A part in millionths, to a tenth where it has one: `41 %`, `0.5 %`."""
    tenths = (ppm + 500) // 1000
    return percent_text(tenths / 10, 1 if tenths % 10 else 0)


def percent_share(ppm: int) -> str:
    """A part in millionths, as the table of `yard share` has it: `41.2%`."""
    return f"{ppm / 10_000:.1f}%"


def percent_rounded(ratio: float | None) -> str:
    """A mean of parts: `0 %`, `3.1 %`, `91 %`."""
    if ratio is None:
        return MISSING
    return f"{rounded(100 * ratio)} %" if ratio else "0 %"


# -- money ---------------------------------------------------------------------------------------------------------

MICRO_USD = 1_000_000
PRICE_USD_MAX = 1_000_000
BUDGET_USD_MAX = 1_000_000_000
CENTS, FINE = 2, 4
"""Digits after the point."""


def parse_micro_usd(text: str, most: int = PRICE_USD_MAX) -> int:
    """Dollars, in micro-dollars."""
    return parse_scaled(text, "an amount in USD", scale=MICRO_USD, grain="0.000001 USD", least=0, most=most)


def parse_budget_usd(text: str) -> int:
    """Dollars that a budget has, in micro-dollars; above zero."""
    grain, least, most = "0.000001 USD", MICRO_USD // 100, BUDGET_USD_MAX
    return parse_scaled(text, "an amount in USD", scale=MICRO_USD, grain=grain, least=least, most=most)


def parse_share_weight(text: str) -> int:
    """Dollars an hour, in milli-dollars; above zero, because otherwise a model's usage would never count."""
    return parse_scaled(text, "an amount in USD", scale=MILLI, grain="0.001 USD", least=1, most=PRICE_USD_MAX)


def count_digits(amounts: Iterable[int | None]) -> int:
    """Digits for amounts that stand in one table or sentence: cents; finer where one is below a dollar and no cents.

    So all of them have as many, and what adds up is seen to add up.
    """
    odd = [each for each in amounts if each and abs(each) < MICRO_USD and each % 10_000]
    return FINE if odd else CENTS


def usd_text(micro: int, places: int = 0, *, up: bool = False) -> str:
    """`$1,234.50`, `-$0.0043`, rounded to the nearest, or `up`; `places`: digits, 0 for those of this amount alone."""
    places = places or count_digits([micro])
    unit = MICRO_USD // 10**places
    whole = -(-micro // unit) if up else (2 * abs(micro) + unit) // (2 * unit) * (-1 if micro < 0 else 1)
    sign, whole = ("-", -whole) if whole < 0 else ("", whole)
    return f"{sign}${whole // 10**places:,}.{whole % 10**places:0{places}}"


def usd_axis(micro: float) -> str:
    """An amount on an axis and beside a bar: `$12`, `$12.50`."""
    return usd_text(round(micro)) if micro % MICRO_USD else f"${micro / MICRO_USD:,.0f}"


def hour_rate_text(micro: int) -> str:
    """The price of an hour or a kWh: `$2.50`, `$0.0125`; all its digits, two at least."""
    above, rest = divmod(micro, MICRO_USD)
    return f"${above:,}.{f'{rest:06}'.rstrip('0').ljust(2, '0')}"


def usd_rounded(dollars: float | None) -> str:
    """A sum in a report: `$3.10`, `$12,340`; nothing if nothing has a price."""
    if not dollars:
        return MISSING
    return f"${dollars:,.2f}" if dollars < 100 else f"${dollars:,.0f}"


def usd_plain(milli: int) -> str:
    """Thousandths of a dollar as share weights have them, without a sign: `12.40`."""
    return f"{milli / MILLI:.2f}"
