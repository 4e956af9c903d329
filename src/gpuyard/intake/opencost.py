"""The allocation of OpenCost and Kubecost: the JSON that `/allocation` and `/model/allocation` answer, read to the row.

It is read whole or not at all. Figures are read as they are written, never as floats. A row is told by its place:
`data[0]['vision']`, which `jq '.data[0]["vision"]'` shows.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from gpuyard.errors import BadInput, quote
from gpuyard.intake.bills import BROKEN_NAMED_MAX, SPAN_DAYS_MAX, broken_rows_error, read_moment, read_number
from gpuyard.ledger.opencost import IDLE, UNALLOCATED, OpencostRow, Period
from gpuyard.ledger.prices import CURRENCY
from gpuyard.model.units import DAY_MS, HOUR_MS

BYTES_MAX = 256 << 20
NAMESPACE = "namespace"
LABEL = "label:"
APART = ("__unmounted__", "__shared__", "__external__")
"""Names for volumes without a pod, shared costs and bills from elsewhere: they are about no GPU."""
_COMPARED = ("gpuCost", "cpuCost", "ramCost")
_ADJUSTMENTS = tuple([f"{name}Adjustment" for name in _COMPARED])
_ASK = "/allocation?window=2026-11-01T00:00:00Z,2026-11-08T00:00:00Z&step=1d&aggregate=namespace&includeIdle=true"
_AGAIN = "ask OpenCost again"


class OpencostAnswer(NamedTuple):
    """What a file says."""

    rows: list[OpencostRow]
    apart_micro_usd: int
    """Of volumes, networks, shared and external costs, which the books do not have."""
    clusters: tuple[str, ...]
    """As OpenCost calls them."""


class _Figure(str):
    """A number as it is written; JSON's `NaN` and `Infinity` too."""

    __slots__ = ()


class _Object(dict[str, Any]):
    """An object, with the first of its keys that is there twice."""

    twice = ""


class _Row:
    """One allocation; what is wrong with it is gathered."""

    def __init__(self, where: str, name: str, said: object) -> None:
        self.where, self.name = where, name
        self.broken: list[str] = []
        self._said: Mapping[str, Any] = said if isinstance(said, Mapping) else {}
        if not isinstance(said, _Object):
            self.refuse("", f"it is not an object; {_AGAIN}")
        elif said.twice:
            self.refuse(said.twice, "the field occurs twice; leave one of them")

    def refuse(self, field: str, wrong: str) -> None:
        """Note what is wrong with a field, or with the row."""
        self.broken.append(f"{self.where}{f', {field}' if field else ''}: {wrong}")

    def number(self, field: str, *, needed: bool = False, below_0: bool = False) -> Decimal:
        """A figure; one that is left out is 0, unless it is needed."""
        value = self._said.get(field)
        if field not in self._said and not needed:
            return Decimal(0)
        if not isinstance(value, _Figure):
            # OpenCost writes null for a figure that came to no number.
            told = f"{_shown(value)} is not a number" if field in self._said else "it is missing"
            self.refuse(field, f"{told}; {_AGAIN}")
            return Decimal(0)
        found, wrong, _hint = read_number(value)
        if wrong or (found < 0 and not below_0):
            self.refuse(field, f"{wrong or f'{quote(value)} is less than 0'}; {_AGAIN}")
            return Decimal(0)
        return found

    def part(self, field: str) -> Mapping[str, Any]:
        """An object in it; empty if it is left out."""
        value = self._said.get(field)
        if value is None:
            return {}
        if not isinstance(value, _Object) or value.twice:
            wrong = (
                f"the field {quote(value.twice)} occurs twice"
                if isinstance(value, _Object)
                else "it is not an object"
            )
            self.refuse(field, f"{wrong}; {_AGAIN}")
            return {}
        return value

    def window(self) -> tuple[int, int]:
        """The time that it is about."""
        found = []
        told = self.part("window")
        for end in ("start", "end"):
            at_ms, wrong, hint = read_moment(str(told.get(end) or ""))
            if wrong:
                self.refuse(f"window.{end}", f"{wrong}; {hint}")
            found.append(at_ms)
        if not self.broken and not 0 < found[1] - found[0] <= SPAN_DAYS_MAX * DAY_MS:
            self.refuse("window", f"it is empty, or has more than {SPAN_DAYS_MAX} days; {_AGAIN}")
        return found[0], found[1]

    def usd(self) -> None:
        """Refuse another currency than that of the books."""
        told = self._said.get("currency", CURRENCY)
        if told != CURRENCY:
            self.refuse("currency", _other_currency(told))

    def named(self, what: str) -> str:
        """The name by which it is compared: a namespace or the value of a label."""
        if IDLE in self.name:
            return IDLE
        properties = self.part("properties")
        found = [properties.get(NAMESPACE)]
        if what != NAMESPACE:
            # OpenCost has the keys of labels as Prometheus has them.
            key = what.removeprefix(LABEL)
            plain = "".join([sign if sign.isalnum() and sign.isascii() else "_" for sign in key])
            labels = [properties.get(place) for place in ("labels", "namespaceLabels")]
            found = [each.get(name) for each in labels if isinstance(each, Mapping) for name in (key, plain)]
        # Of an answer that is aggregated by it, it is the whole name.
        name = next(filter(None, found), self.name if "/" not in self.name else UNALLOCATED)
        if not isinstance(name, str):
            self.refuse(f"properties.{what}", f"{_shown(name)} is not a name; {_AGAIN}")
            return ""
        return name


def read_opencost(path: Path, what: str) -> OpencostAnswer:
    """What a file says, or standard input (`-`); `what` names an allocation: `namespace`, or `label:KEY`."""
    try:
        return _read(path, what)
    except RecursionError:
        raise BadInput(f"{path} is nested too deeply", f"Save what {_ASK} answers.") from None


def _read(path: Path, what: str) -> OpencostAnswer:
    sets = _sets(_parsed(_text(path), path), path)
    told: list[str] = []
    broken, apart = 0, Decimal(0)
    clusters: set[str] = set()
    found: list[tuple[_Row, tuple[int, int], OpencostRow]] = []
    for row in _rows(sets, path):
        row.usd()
        window, name = row.window(), row.named(what)
        cost = sum([row.number(field, needed=True) for field in _COMPARED], Decimal(0))
        cost += sum([row.number(field, below_0=True) for field in _ADJUSTMENTS], Decimal(0))
        hours, total = row.number("gpuHours", needed=True), row.number("totalCost", below_0=True)
        if row.broken:
            broken += 1
            told += row.broken[:1] if broken <= BROKEN_NAMED_MAX else []
            continue
        if any([each in row.name for each in APART]) and not hours:
            apart += total
            continue
        apart += total - cost if total else 0
        if cluster := row.part("properties").get("cluster"):
            clusters.add(str(cluster))
        whole = [int((each).to_integral_value()) for each in (hours * HOUR_MS, cost * 1_000_000)]
        found.append((row, window, OpencostRow(row.where, name, (0, 0), *whole)))
    if broken:
        raise broken_rows_error([f"{path}, {each}" for each in told], broken)
    if not found:
        raise BadInput(f"{path} has no allocation in it", f"Ask OpenCost for days with pods: {_ASK}")
    periods = _periods([(window, row.where) for row, window, _made in found], path)
    rows = [made._replace(period=periods[window]) for _row, window, made in found]
    return OpencostAnswer(rows, int((apart * 1_000_000).to_integral_value()), tuple(sorted(clusters)))


def _text(path: Path) -> str:
    try:
        if str(path) == "-":
            raw = sys.stdin.buffer.read(BYTES_MAX + 1)
        else:
            with path.open("rb") as file:
                raw = file.read(BYTES_MAX + 1)
    except OSError as error:
        raise BadInput(
            f"{path}: {error.strerror or error}", "Name a file with OpenCost's answer, or -."
        ) from None
    if len(raw) > BYTES_MAX:
        raise BadInput(f"{path} has more than {BYTES_MAX >> 20} MiB", "Ask OpenCost for fewer days at once.")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is not text in UTF-8 (byte {error.start})", f"Ask again: {_ASK}") from None


def _parsed(text: str, path: Path) -> object:
    def object_of(pairs: Sequence[tuple[str, Any]]) -> _Object:
        found = _Object(pairs)
        if len(found) < len(pairs):
            names = [name for name, _value in pairs]
            found.twice = next(name for place, name in enumerate(names) if name in names[:place])
        return found

    try:
        return json.loads(
            text, parse_float=_Figure, parse_int=_Figure, parse_constant=_Figure, object_pairs_hook=object_of
        )
    except json.JSONDecodeError as error:
        if text.startswith("Date,"):
            wrong = f"{path} is OpenCost's csv, which does not tell GPU-hours"
            raise BadInput(wrong, f"Save the JSON of {_ASK}") from None
        where = f"line {error.lineno}, column {error.colno}"
        raise BadInput(f"{path}, {where}: it is no JSON: {error.msg}", f"Save what {_ASK} answers.") from None


def _sets(said: object, path: Path) -> list[object]:
    """The sets of allocations, one for each step of the window."""
    wants = f"Save what {_ASK} answers."
    if not isinstance(said, _Object) or "data" not in said:
        raise BadInput(f"{path} has no field 'data': it is not an answer of /allocation", wants)
    if said.twice:
        raise BadInput(f"{path}: the field {quote(said.twice)} occurs twice", wants)
    code = said.get("code", "200")
    if code != "200":
        raise BadInput(f"{path}: OpenCost refused with code {code}: {quote(str(said.get('message')))}", wants)
    if said.get("currency", CURRENCY) != CURRENCY:
        raise BadInput(f"{path}, currency: {_other_currency(said['currency'])}", "Nothing was compared.")
    data = said["data"]
    if isinstance(data, Mapping) and "sets" in data:
        raise BadInput(f"{path} is a summary without GPU-hours", wants)
    if not isinstance(data, list):
        raise BadInput(f"{path}, data: it is not a list", wants)
    return data


def _rows(sets: Sequence[object], path: Path) -> Iterator[_Row]:
    for place, each in enumerate(sets):
        if each is None:
            # A step without pods.
            continue
        if not isinstance(each, _Object):
            raise BadInput(f"{path}, data[{place}]: it is not an object", f"Save what {_ASK} answers.")
        if each.twice:
            wrong = f"{path}, data[{place}]: the name {quote(each.twice)} occurs twice"
            raise BadInput(wrong, "Leave one of them; nothing was compared.")
        for name, said in each.items():
            yield _Row(f"data[{place}][{quote(name)}]", name, said)


def _periods(windows: Sequence[tuple[tuple[int, int], str]], path: Path) -> dict[tuple[int, int], Period]:
    """The whole days that each window belongs to; shorter windows that follow each other are taken together."""
    first = dict(reversed(windows))
    found: dict[tuple[int, int], Period] = {}
    run: list[tuple[int, int]] = []
    before: tuple[int, int] | None = None
    for window in sorted(first):
        if before and window[0] < before[1]:
            wrong = f"{path}, {first[window]}: its window overlaps that of {first[before]}"
            raise BadInput(wrong, "Its time would count twice: leave one of them. Nothing was compared.")
        if (window[0] % DAY_MS and not run) or (run and before and window[0] != before[1]):
            raise _no_days(path, first[window])
        run.append(window)
        before = window
        if window[1] % DAY_MS == 0:
            found |= dict.fromkeys(run, (run[0][0] // DAY_MS, window[1] // DAY_MS))
            run = []
    if run:
        raise _no_days(path, first[run[-1]])
    return found


def _no_days(path: Path, where: str) -> BadInput:
    wrong = f"{path}, {where}: its window begins or ends within a day, and the books are kept by the UTC day"
    return BadInput(wrong, f"Ask for whole days: {_ASK}")


def _shown(value: object) -> str:
    """A value of JSON in a message."""
    if isinstance(value, list | Mapping):
        return "a list" if isinstance(value, list) else "an object"
    return quote(json.dumps(value))


def _other_currency(told: object) -> str:
    return f"{quote(str(told))}: the books are in {CURRENCY}; have OpenCost count in {CURRENCY}"
