"""Events as rows and back, across releases."""

import json
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, get_args

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from gpuyard.model import (
    AttemptConfirmed,
    AttemptEnded,
    AttemptStarted,
    Event,
    Job,
    JobSubmitted,
    NodeDown,
    TasksSubmitted,
    Ticked,
)
from gpuyard.model.serialise import to_plain
from gpuyard.store import CODEC, Codec, StoreDamaged, StoreError
from gpuyard.store.packing import SPECS_MAX, Packer, Unpacker
from rigs.stores import SPEC, array, submission

TOLD = (JobSubmitted, TasksSubmitted, AttemptStarted, AttemptConfirmed, AttemptEnded, NodeDown)


@given(event=st.one_of(*[st.from_type(kind) for kind in get_args(Event)]))
@settings(max_examples=150, deadline=None)
def test_every_event_comes_back_equal(event: Any) -> None:
    assume(abs(event.at_ms) < 1 << 63)

    at_ms, kind, version, body = CODEC.encode(event)

    assert (event.at_ms, type(event).__name__, 1) == (at_ms, kind, version)
    assert event == CODEC.decode(1, kind, version, body)


@given(
    pieces=st.lists(st.lists(st.one_of(*[st.from_type(kind) for kind in TOLD]), max_size=6), max_size=3),
    short=st.booleans(),
)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_events_come_to_another_process_as_the_log_has_them(pieces: list[list[Any]], short: bool) -> None:
    packer, unpacker = Packer(), Unpacker()
    for events in pieces:
        assume(all([abs(event.at_ms) < 1 << 63 for event in events]))
        rows = [CODEC.encode(event) for event in events]
        lines = [(seq, row.kind, row.version, row.body) for seq, row in enumerate(rows)]
        if short:
            # As an older release wrote them: without a field that has a default.
            lines.append((9, "AttemptConfirmed", 1, '{"at_ms":5,"job_id":7,"attempt":1}'))
        more = [AttemptConfirmed(5, 7, 1)] if short else []
        assert events + more == unpacker.unpack(packer.pack(lines))


def test_what_jobs_ask_for_is_told_to_another_process_once() -> None:
    packer, unpacker = Packer(), Unpacker()
    for first in range(0, 3 * SPECS_MAX, 512):
        jobs = [
            Job(n, replace(SPEC, name=f"j{n % 700 + n // SPECS_MAX}"), 5) for n in range(first, first + 512)
        ]
        events = [JobSubmitted(5, job) for job in jobs]
        rows = [CODEC.encode(event) for event in events]
        body = packer.pack([(seq, row.kind, row.version, row.body) for seq, row in enumerate(rows)])
        assert events == unpacker.unpack(body)
        assert len(unpacker._specs) <= SPECS_MAX + 512
    assert body.count(SPEC.tenant.encode()) < 512


def test_text_is_compact_and_plain_ascii() -> None:
    [event] = submission().make(7)

    body = CODEC.encode(event).body

    assert json.dumps(json.loads(body), separators=(",", ":")) == body
    assert body.isascii()
    assert event == CODEC.decode(1, "JobSubmitted", 1, body)
    assert SPEC.tenant in body


def test_what_tasks_of_an_array_ask_for_is_read_once_and_shared() -> None:
    """Ten thousand tasks would otherwise fill the memory with ten thousand copies of it."""
    odd = replace(SPEC, name='","submitted_ms":1,"spec":{}', user="\\")
    jobs = [Job(id=n, spec=replace(odd), submitted_ms=5, array_id=7, array_index=n) for n in range(8, 11)]

    rows = [CODEC.encode(JobSubmitted(5, job)) for job in jobs]

    assert [json.dumps(to_plain(JobSubmitted(5, job)), separators=(",", ":")) for job in jobs] == [
        row.body for row in rows
    ]
    found = [CODEC.decode(n, row.kind, row.version, row.body) for n, row in enumerate(rows)]
    assert [JobSubmitted(5, job) for job in jobs] == found
    assert 1 == len({id(event.job.spec) for event in found if isinstance(event, JobSubmitted)})


def test_lines_about_tasks_of_an_array_share_what_the_tasks_ask_for() -> None:
    lines = [event for event in array(1_200).make(7) if isinstance(event, TasksSubmitted)]

    rows = [CODEC.encode(event) for event in lines]
    found = [CODEC.decode(n, row.kind, row.version, row.body) for n, row in enumerate(rows)]

    assert lines == found
    assert [json.dumps(to_plain(event), separators=(",", ":")) for event in lines] == [
        row.body for row in rows
    ]
    assert 1 == len({id(event.job.spec) for event in found if isinstance(event, TasksSubmitted)})


@dataclass(frozen=True, slots=True)
class Moved:
    """An event as a later release might have it."""

    at_ms: int
    to_node: int
    why: str = "not said"


def upcast_node_name(plain: Any) -> Any:
    return {"at_ms": plain["at_ms"], "node": int(plain["node"].removeprefix("n"))}


def upcast_to_node(plain: Any) -> Any:
    return {"at_ms": plain["at_ms"], "to_node": plain["node"]}


LATER = Codec([Moved], {"Moved": 3}, {("Moved", 1): upcast_node_name, ("Moved", 2): upcast_to_node})


@pytest.mark.parametrize(
    ("version", "body"),
    [(1, '{"at_ms":5,"node":"n4"}'), (2, '{"at_ms":5,"node":4}'), (3, '{"at_ms":5,"to_node":4}')],
)
def test_an_old_text_is_lifted_step_by_step(version: int, body: str) -> None:
    """Version 3 also gained a field with a default, for which no step is needed."""
    assert Moved(5, 4) == LATER.decode(1, "Moved", version, body)


def test_a_later_kind_is_refused_with_advice() -> None:
    with pytest.raises(
        StoreError, match="event 9 is of kind Moved, which this release does not know"
    ) as caught:
        CODEC.decode(9, "Moved", 1, "{}")

    assert "newer release" in caught.value.hint


def test_a_later_version_is_refused() -> None:
    with pytest.raises(StoreError, match="event 9 is Ticked of version 2"):
        CODEC.decode(9, "Ticked", 2, "{}")


@pytest.mark.parametrize("body", ["", "{", "[]", "{}", "null"])
def test_a_text_that_makes_no_sense_is_damage(body: str) -> None:
    with pytest.raises(StoreDamaged, match="event 9"):
        CODEC.decode(9, "NodeUp", 1, body)


def test_what_is_no_event_is_refused() -> None:
    class Rumour(NamedTuple):
        at_ms: int

    with pytest.raises(StoreError, match="Rumour"):
        CODEC.encode(Rumour(1))  # type: ignore[arg-type]
    with pytest.raises(StoreError, match="no such time"):
        CODEC.encode(Ticked(1 << 63))
