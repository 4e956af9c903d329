"""What is published commit by commit is what would be published of the replica as it is, whatever happens."""

import json
import random
import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from gpuyard.api.connecting.mirror import Mirror
from gpuyard.control.access.rights import ALL, Sight
from gpuyard.control.reading.changes import ORDER_S
from gpuyard.control.reading.model import Model, told
from gpuyard.control.reading.plain_views import node_view
from gpuyard.control.reading.publisher import LIMITS, NodesReading, Publisher
from gpuyard.control.replica.replica import Judged
from gpuyard.control.views.queue_list import Filter, QueueList
from gpuyard.core import load
from gpuyard.core.state.dump import dump
from gpuyard.model import After, AfterKind, Event, Job, JobSubmitted, Plan, PolicySpec
from gpuyard.policies.registry import PRESETS
from harness.machines.machine import YardMachine, picks, run
from harness.yard import Yard

SIGHTS = (ALL, Sight(("a",)), Sight(("t", "u/v")))


class Shelf:
    """Replica as a publisher needs them, over a state that somebody else folds into."""

    def __init__(self, yard: "PublishedYard") -> None:
        self.yard, self.lock = yard, threading.RLock()
        self.fresh: list[Event] | None = None
        self.judged = Judged()
        self.store = SimpleNamespace(head=lambda: self.seq)

    @property
    def seq(self) -> int:
        return len(self.yard.log)

    @property
    def policy(self) -> Any:
        return self.yard.policy

    @property
    def state(self) -> Any:
        return self.yard.state

    def catch_up(self, _enough: Any = None) -> int:
        return 0

    def pause(self) -> None:
        pass


def shown(model: Model, sight: Sight = ALL) -> list[Any]:
    """A list of everything that somebody may see."""
    found = QueueList(model, None, Filter(sight=sight), None, False, 0)
    return [found.head, json.loads(f"[{''.join(found.pieces())}]")]


class PublishedYard(Yard):
    """Publishes after every event, and now and then after several; its followers look when they like."""

    clock_s = 0.0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.random = random.Random(7)
        self.shelf: Any = None
        super().__init__(*args, **kwargs)
        self.shelf = Shelf(self)
        # By this clock the order takes long to make: it is often older than the rows.
        self.reading = Publisher(self.shelf, now_s=self.steady_s)
        self.nodes = NodesReading(self.shelf)
        self.kept = self.reading.latest(), dict[int, tuple[Any, ...]]()
        """A model from before that nobody has read, and what it said of each job: that never changes."""
        self.looks_s = 0.0
        self.mirrors = [(Mirror(), sight, [0, 0]) for sight in SIGHTS]
        for mirror, sight, at in self.mirrors:
            self.begin(mirror, sight, at)

    def steady_s(self) -> float:
        self.clock_s += 0.01
        return self.clock_s

    def begin(self, mirror: Mirror, sight: Sight, at: list[int]) -> None:
        model = self.reading.latest()
        head, rows = shown(model, sight)
        mirror.fill({**head, "rows": rows})
        at[0], _model, on = self.reading.window.start(str(head["seq"]))
        assert on
        at[1] = 0

    def cut(self) -> None:
        """The replica is read anew, as after a write that failed."""
        self.state = load(json.loads(json.dumps(dump(self.state))))

    def apply(self, event: Event) -> None:
        super().apply(event)
        if self.shelf is not None:
            if self.shelf.fresh is not None:
                self.shelf.fresh.append(event)
            if self.random.random() < 0.7:
                self.check()

    def commit(self, plan: Plan) -> None:
        super().commit(plan)
        if self.shelf is not None:
            self.shelf.judged = Judged(len(self.log), self.state.last_job_id, plan.examined, plan.codes)
            self.check()

    def check(self) -> None:
        if self.random.random() < 0.1:
            # Nobody has read for long.
            self.clock_s += LIMITS.unread_s
            self.reading.drop_unread()
        model = self.reading.latest(spoken=True)
        state, shelf = self.state, Shelf(self)
        shelf.judged = self.shelf.judged
        touched, state.touched = state.touched, None
        anew = Publisher(shelf).latest()  # type: ignore[arg-type]
        unread = Publisher(shelf).latest()  # type: ignore[arg-type]
        state.touched = touched
        assert {row.id: told(row) for row in anew.jobs.values()} == {
            row.id: told(row) for row in model.jobs.values()
        }
        assert len(state.jobs) == model.jobs.count
        numbers = range(len(state.nodes.node))
        assert tuple(node_view(state, number) for number in numbers) == self.nodes.latest().views
        head, rows = shown(anew)
        now, own = shown(model)
        assert head == now
        assert sorted(row[:13] for row in rows) == sorted(row[:13] for row in own)
        assert [anew.reason(r) for r in anew.jobs.newest_first()] == [
            model.reason(r) for r in model.jobs.newest_first()
        ]
        if model.order.seq == model.seq:
            # Where it is older, a period may have closed since: that gives tenants other turns, and moves no job.
            assert not model.moved
            assert rows == own
        before, said = self.kept
        assert said == {row.id: told(row) for row in before.jobs.values()}
        if self.random.random() < 0.3:
            self.kept = unread, {row.id: told(row) for row in anew.jobs.values()}
        for mirror, sight, at in self.mirrors:
            if self.random.random() < 0.3:
                self.follow(model, mirror, sight, at)

    def follow(self, model: Model, mirror: Mirror, sight: Sight, at: list[int]) -> None:
        window = self.reading.window
        found = window.since(at[0], sight)
        if found is None:
            self.begin(mirror, sight, at)
        else:
            at[0], _seq, text = found
            if text:
                mirror.heed("rows", json.loads(text))
        self.looks_s += ORDER_S
        at[1], _seq, text = window.order(at[1], self.looks_s)
        if text:
            mirror.heed("order", json.loads(text))
        _head, rows = shown(model, sight)
        if model.moved:
            assert sorted(row[:13] for row in rows) == sorted(row[:13] for row in mirror.rows())
        elif sight is ALL:
            assert rows == mirror.rows()
        else:
            # Of jobs out of sight nobody learns when they started.
            assert sorted(rows[: model.running]) == sorted(mirror.rows()[: model.running])
            assert rows[model.running :] == mirror.rows()[model.running :]
        if sight is not ALL:
            names = {row[3] for row in mirror.rows() if row[3]}
            assert all(sight.sees(name) for name in names)


class PublishedMachine(YardMachine):
    """The same histories as for the scheduler, and jobs that wait for others."""

    yard: PublishedYard

    @initialize()
    def nothing(self) -> None:
        """Another yard is made in `begin`."""

    @rule(pick=picks, on=picks, kind=st.sampled_from(AfterKind), one=st.booleans())
    def submit_after(self, pick: int, on: int, kind: AfterKind, one: bool) -> None:
        """A job that waits for another one."""
        ids = sorted(self.yard.state.jobs)
        if not ids or kind is AfterKind.ALONE:
            return
        afters = tuple(dict.fromkeys(After(kind, ids[(on + n) % len(ids)]) for n in range(2)))
        spec = replace(self.specs[pick % len(self.specs)], after=afters, after_one=one)
        now_ms = self.now()
        self.last_id += 1
        self.yard.apply(JobSubmitted(now_ms, Job(self.last_id, spec, now_ms, 10_000)))
        self.yard.step()


@pytest.mark.parametrize("name", ["fifo", "default", "fair"])
def test_what_is_published_is_what_the_books_say(name: str) -> None:
    spec: PolicySpec = PRESETS[name]
    run(spec, examples=4, steps=25, shrink=False, base=PublishedMachine, kind=PublishedYard)
