"""Events as rows of the log, and back: kind, version and a JSON text.

A log outlives the release that wrote it. So a row says which version of its kind it holds, and a reader that knows a
newer version lifts the old text up one version at a time before it makes the event. A field that is added with a
default needs no new version: an old text simply lacks it. Anything else that changes the shape of an event does:
raise its number in `VERSIONS` and add the step to `UPCASTERS`.

Tasks of an array, and jobs that are submitted again and again, ask for the same: their spec is encoded once, and
decoded once, so that ten thousand tasks take a fraction of the time and share one value in memory.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, get_args, get_type_hints

from pydantic_core import from_json

from gpuyard.model import Event, Job, JobSpec, JobSubmitted, TasksSubmitted
from gpuyard.model.serialise import Plain, from_plain, make_reader, to_plain
from gpuyard.store.errors import StoreDamaged, StoreError

Upcaster = Callable[[Plain], Plain]
"""From the plain form of one version to that of the next."""

VERSIONS: dict[str, int] = {}
"""Kinds with a version other than 1."""

UPCASTERS: dict[tuple[str, int], Upcaster] = {}
"""By kind and the version that is read; gives the version after it."""

_INTEGER_MAX = (1 << 63) - 1
_SPECS_MAX = 2048
"""How many specs of jobs are remembered, by their text in the log."""
_SPEC, _AFTER_SPEC = '"spec":', ',"submitted_ms":'
"""Around the spec of a job. Within its texts quotation marks have a backslash, so neither occurs there."""
_SUBMISSIONS = frozenset({JobSubmitted.__name__, TasksSubmitted.__name__})
_OF_TASKS: dict[str, Any] = {
    name: of for name, of in get_type_hints(TasksSubmitted).items() if name not in JobSubmitted._fields
}
"""What an event about tasks of an array has beyond that about one job."""
_OF_JOB = itemgetter(*Job._fields)
_to_json = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode


EncodedLine = tuple[int, str, int, str]
"""Of the log: number, kind, version and text."""


class Encoded(NamedTuple):
    """One event as it is written."""

    at_ms: int
    kind: str
    version: int
    body: str


class Codec:
    """The kinds of events that a release knows, each with its version and the upcasters from older ones."""

    def __init__(
        self,
        kinds: Iterable[type],
        versions: Mapping[str, int],
        upcasters: Mapping[tuple[str, int], Upcaster],
    ) -> None:
        self._kinds: dict[str, Any] = {kind.__name__: kind for kind in kinds}
        self._versions = {name: versions.get(name, 1) for name in self._kinds}
        self._tags = {kind: (name, self._versions[name]) for name, kind in self._kinds.items()}
        self._upcasters = dict(upcasters)
        self._written: tuple[JobSpec | None, str] = (None, "")
        """What the last job that was written asks for, and how that is written."""
        self._read: dict[str, JobSpec] = {}

    def encode(self, event: Event) -> Encoded:
        """The event as a row."""
        tag = self._tags.get(type(event))
        if tag is None:
            raise StoreError(f"{type(event).__name__} is not a kind of event that can be stored")
        at_ms = event.at_ms
        if not -_INTEGER_MAX <= at_ms <= _INTEGER_MAX:
            raise StoreError(f"{tag[0]} at {at_ms} ms: no such time can be stored")
        kind = type(event)
        if kind is JobSubmitted or kind is TasksSubmitted:
            body = self._submission(event)
        else:
            body = _to_json(to_plain(event))
        return Encoded(at_ms, tag[0], tag[1], body)

    def _submission(self, event: Any) -> str:
        job = event.job
        known, text = self._written
        if known is not job.spec and known != job.spec:
            text = _to_json(to_plain(job.spec))
            self._written = (job.spec, text)
        numbers = {name: getattr(job, name) for name in Job._fields}
        numbers["spec"] = None
        plain = {"at_ms": event.at_ms, "job": numbers}
        if type(event) is TasksSubmitted:
            plain |= {name: to_plain(getattr(event, name)) for name in _OF_TASKS}
        written = _to_json(plain)
        return written.replace(f"{_SPEC}null", f"{_SPEC}{text}", 1)

    def decode(self, seq: int, kind: str, version: int, body: str) -> Event:
        """The event of a row."""
        known = self._versions.get(kind)
        if known is None or version > known:
            what = f"of kind {kind}" if known is None else f"{kind} of version {version}"
            raise StoreError(
                f"event {seq} is {what}, which this release does not know",
                "The log was written by a newer release; start that one.",
            )
        try:
            if kind in _SUBMISSIONS and version == known:
                text, spec = self._without_spec(body)
                if spec is not None:
                    return _submitted(self._kinds[kind], json.loads(text), spec)
            plain = json.loads(body)
            while version < known:
                plain = self._upcasters[kind, version](plain)
                version += 1
            event: Event = from_plain(self._kinds[kind], plain)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StoreDamaged(
                f"event {seq} ({kind}, version {version}) cannot be read: {error!r}",
                "Stop, keep a copy of the store as it is, and restore a backup.",
            ) from error
        return event

    def decode_all(self, rows: Sequence[EncodedLine]) -> list[Event]:
        """The events of many rows: their texts are read as one, which takes a sixth of the time."""
        versions, kinds = self._versions, self._kinds
        try:
            tags = {(row[1], row[2]) for row in rows}
            for kind, version in tags:
                if versions.get(kind) != version:
                    raise ValueError(kind)
            specs: dict[int, JobSpec | None] = {}
            texts = [row[3] for row in rows]
            for at, row in enumerate(rows):
                if row[1] in _SUBMISSIONS:
                    texts[at], specs[at] = self._without_spec(row[3])
            plains = from_json(f"[{','.join(texts)}]", allow_inf_nan=False)
            readers = {kind: make_reader(kinds[kind]) for kind, _version in tags}
            return [
                readers[row[1]](plain)
                if (spec := specs.get(at)) is None
                else _submitted(kinds[row[1]], plain, spec)
                for at, (row, plain) in enumerate(zip(rows, plains, strict=True))
            ]
        except (KeyError, TypeError, ValueError, AttributeError):
            # An old version, or damage: one by one, so that the row is named.
            return [self.decode(*row) for row in rows]

    def _without_spec(self, body: str) -> tuple[str, JobSpec | None]:
        """The text of a submission without what was asked for, and that; None: it is still in the text."""
        text, spec = cut_spec(body)
        return text, None if spec is None else self.spec(spec)

    def spec(self, text: str) -> JobSpec:
        """What a job asks for, as the log has it."""
        spec = self._read.get(text)
        if spec is None:
            spec = from_plain(JobSpec, json.loads(text))
            if len(self._read) >= _SPECS_MAX:
                self._read = {}
            self._read[text] = spec
        return spec

    def knows(self, kind: str, version: int) -> bool:
        """Whether rows of this version are of the kind as it is now."""
        return self._versions.get(kind) == version


def cut_spec(body: str) -> tuple[str, str | None]:
    """The text of a submission with null in place of what was asked for, and that; None: it could not be cut out."""
    begin, end = body.find(_SPEC) + len(_SPEC), body.rfind(_AFTER_SPEC)
    if not len(_SPEC) <= begin < end:
        # Written by hand, or by a release that wrote it in another order.
        return body, None
    return f"{body[:begin]}null{body[end:]}", body[begin:end]


def _submitted(kind: Any, plain: Plain, spec: JobSpec) -> Event:
    numbers = plain["job"]
    numbers["spec"] = spec
    try:
        # In one step: most events of many logs are jobs.
        made = tuple.__new__(Job, _OF_JOB(numbers))
    except KeyError:
        made = Job(**{name: numbers[name] for name in Job._fields if name in numbers})
    if kind is JobSubmitted:
        return tuple.__new__(JobSubmitted, (plain["at_ms"], made))
    rest: Any = {name: from_plain(of, plain[name]) for name, of in _OF_TASKS.items() if name in plain}
    return TasksSubmitted(plain["at_ms"], made, **rest)


CODEC = Codec(get_args(Event), VERSIONS, UPCASTERS)
"""All events of the model."""
