"""Events on their way from a process that reads the log to another one of the same release.

The four kinds that most of a log is made of travel as columns of numbers, from which they are made without a step in
Python for each; of what jobs ask for, each is told once. All other events travel as the log has them, and so does
whatever is written in another way.
"""

import marshal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, repeat
from operator import itemgetter
from typing import Any

from pydantic_core import from_json

from gpuyard.model import (
    AttemptConfirmed,
    AttemptEnded,
    AttemptStarted,
    Event,
    Grant,
    Job,
    JobSpec,
    JobSubmitted,
    Outcome,
)
from gpuyard.store.codec import CODEC, EncodedLine, cut_spec

SPECS_MAX = 2048
"""How many specs of jobs both sides remember."""
_SUBMITTED, _STARTED, _CONFIRMED, _ENDED, _OTHER = range(5)
_TAGS = {
    kind.__name__: tag
    for tag, kind in enumerate((JobSubmitted, AttemptStarted, AttemptConfirmed, AttemptEnded))
}
_OUTCOMES = {outcome.value: outcome for outcome in Outcome}
_CUT = '"slices":[{'
"""Grants of slices are more than a row of numbers."""

Columns = Sequence[Sequence[Any]]


class Packer:
    """The side that has the log."""

    def __init__(self) -> None:
        self._specs: dict[str, int] = {}

    def pack(self, lines: Sequence[EncodedLine]) -> bytes:
        """These events for the other side."""
        if len(self._specs) >= SPECS_MAX:
            self._specs = {}
        known, specs = len(self._specs), self._specs
        tags, wanted, others = bytearray(), list[int](), list[EncodedLine]()
        texts: list[list[str]] = [[] for _ in range(_OTHER)]
        for line in lines:
            _seq, kind, version, body = line
            tag = _TAGS.get(kind, _OTHER) if CODEC.knows(kind, version) else _OTHER
            if tag == _SUBMITTED:
                body, spec = cut_spec(body)
                if spec is None:
                    tag = _OTHER
                else:
                    wanted.append(specs.setdefault(spec, len(specs)))
            elif tag == _STARTED and _CUT in body:
                tag = _OTHER
            if tag == _OTHER:
                others.append(line)
            else:
                texts[tag].append(body)
            tags.append(tag)
        try:
            same = [from_json(f"[{','.join(each)}]", allow_inf_nan=False) for each in texts]
            columns = [picked(plains) if plains else [] for picked, plains in zip(_PICK, same, strict=True)]
        except (KeyError, TypeError, ValueError):
            # Written before they had all their fields, or damaged: the other side finds out.
            tags, columns, wanted, others = bytearray([_OTHER]) * len(lines), [], [], [*lines]
        return marshal.dumps((bytes(tags), columns, wanted, known, list(specs)[known:], others))


def _of_fields(
    names: Sequence[str], defaults: Mapping[str, Any] | None = None
) -> Callable[[list[Any]], Columns]:
    pick, missing = itemgetter(*names), defaults or {}

    def columns(plains: list[Any]) -> Columns:
        try:
            rows = list(map(pick, plains))
        except KeyError:
            # Written before they had all their fields.
            rows = [pick({**missing, **plain}) for plain in plains]
        return list(zip(*rows, strict=True))

    return columns


def _of_kind(kind: Any) -> Callable[[list[Any]], Columns]:
    return _of_fields(kind._fields, kind._field_defaults)


_JOBS = _of_fields([name for name in Job._fields if name != "spec"])
_STARTS = _of_fields([name for name in AttemptStarted._fields if name != "grants"])
_GRANTS = _of_fields([name for name in Grant._fields if name not in ("slices", "user")])


def _submitted(plains: list[Any]) -> Columns:
    return [[plain["at_ms"] for plain in plains], *_JOBS([plain["job"] for plain in plains])]


def _started(plains: list[Any]) -> Columns:
    grants = [plain["grants"] for plain in plains]
    every = list(chain.from_iterable(grants))
    if any([grant["slices"] for grant in every]):
        raise ValueError("slices in another way")
    users = [grant["user"] for grant in every]
    return [*_STARTS(plains), [len(each) for each in grants], users, *(_GRANTS(every) if every else ())]


_PICK = [_submitted, _started, _of_kind(AttemptConfirmed), _of_kind(AttemptEnded)]


class Unpacker:
    """The other side."""

    def __init__(self) -> None:
        self._specs: list[JobSpec] = []

    def unpack(self, body: bytes) -> list[Event]:
        """The events that were packed; `StoreError` if one cannot be read. Each body once, in order."""
        tags, columns, wanted, known, texts, others = marshal.loads(body)
        self._specs[known:] = [CODEC.spec(text) for text in texts]
        made: list[Iterator[Any]] = [iter(()) for _ in range(_OTHER)]
        for tag, each in enumerate(columns):
            if each:
                made[tag] = self._made(tag, each, wanted)
        made.append(iter(CODEC.decode_all(others)))
        return list(map(next, map(made.__getitem__, tags)))

    def _made(self, tag: int, columns: Columns, wanted: list[int]) -> Iterator[Any]:
        if tag == _SUBMITTED:
            at_ms, ids, *dates = columns
            specs = map(self._specs.__getitem__, wanted)
            return _new(JobSubmitted, at_ms, _new(Job, ids, specs, *dates))
        if tag == _STARTED:
            at_ms, ids, attempts, counts, users, *held = columns
            grants = _new(Grant, *held, repeat(()), users) if held else iter(())
            return _new(AttemptStarted, at_ms, ids, attempts, _together(counts, grants))
        if tag == _CONFIRMED:
            return _new(AttemptConfirmed, *columns)
        at_ms, ids, attempts, outcomes, *rest = columns
        return _new(AttemptEnded, at_ms, ids, attempts, map(_OUTCOMES.__getitem__, outcomes), *rest)


def _new(kind: Any, *columns: Iterable[Any]) -> Iterator[Any]:
    new: Any = tuple.__new__
    # Not strict: some columns never end.
    return map(new, repeat(kind), zip(*columns))  # noqa: B905


def _together(counts: Sequence[int], grants: Iterator[Grant]) -> Iterable[tuple[Grant, ...]]:
    if counts == [1] * len(counts):
        # Most attempts are on one node.
        return zip(grants)
    return [tuple(islice(grants, count)) for count in counts]
