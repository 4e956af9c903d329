"""Followers of the queue: right rows for everybody, also after a lost connection, and nothing of other tenants."""

import asyncio
import json
import time
from collections.abc import Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from gpuyard.api.connecting.mirror import Mirror
from gpuyard.api.handlers.changes import Beat, _Changes
from gpuyard.control.access.people import Person
from gpuyard.control.access.rights import EVERYTHING, Sight
from gpuyard.control.admission.wanted import make_job
from gpuyard.model import Verb
from gpuyard.wire.endpoints import QUEUE_COLUMNS
from harness.patience import patient
from harness.steered import Steered
from rigs.request_service import ROOT, Rig, granted, listed, rig
from rigs.teams import ADMIN, ROLES, Team, team

OWNERS = {"ulla": "research", "dora": "research/vision", "erik": "product"}


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    with team(tmp_path_factory.mktemp("changes")) as made:
        yield made
        made.end_jobs()


def events_in(body: bytes) -> list[tuple[str, Any, str]]:
    """Name, data and id of every event."""
    found = []
    for block in body.decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line and line[0] != ":")
        if "data" in fields:
            found.append((fields["event"], json.loads(fields["data"]), fields.get("id", "")))
    return found


def seq_of(body: bytes) -> int:
    """Up to which event what has come goes."""
    return max([int(data["seq"]) for _name, data, _id in events_in(body) if "seq" in data], default=0)


def submit(yard: Team, user: str, **fields: Any) -> int:
    person = Person(ADMIN.uid, ADMIN.gid, user, False, ADMIN.name, EVERYTHING)
    new = make_job(
        **{
            "command": ("true",),
            "gpus": 1,
            "name": f"of-{user}",
            "tenant": OWNERS[user],
            "hold": True,
            **fields,
        }
    )
    return int(yard.yard.requests.submit(person, new, Future()).result(10).first_id)


def wish(yard: Team, verb: Verb, *ids: int) -> None:
    granted(yard.yard.requests, yard.yard.requests.wish(ADMIN, verb, [str(job_id) for job_id in ids]))


def in_order(rows: list[Any]) -> list[Any]:
    return sorted(rows, key=lambda row: row[0])


@pytest.mark.parametrize("role", [*ROLES, "of another tenant"])
def test_a_follower_of_any_role_has_the_rows_of_its_list_and_nothing_else(yard: Team, role: str) -> None:
    token = yard.tokens[ROLES.get(role, "erik")]
    mirror = Mirror()
    before = [submit(yard, user) for user in OWNERS]
    mirror.fill(yard.call("GET", "/api/v1/queue", token).json)
    stream = yard.later(f"/api/v1/changes?after={mirror.seq}", token)
    stream.until(events_in)
    ids = [submit(yard, user, name=f"new-{user}") for user in OWNERS]
    wish(yard, Verb.CANCEL, *before)
    wish(yard, Verb.TOP, ids[1])
    last = yard.call("GET", "/api/v1/queue", token).json
    body = stream.until(lambda body: last["seq"] <= seq_of(body))
    stream.leave()
    found = events_in(body)

    assert "start" == found[0][0]
    assert "again" not in [name for name, _data, _id in found]
    for name, data, _id in found:
        assert not mirror.heed(name, data)
    assert in_order(last["rows"]) == in_order(mirror.rows())
    seen = {"admin": OWNERS, "of another tenant": ("erik",)}.get(role, ("ulla", "dora"))
    assert [f"new-{user}" in body.decode() for user in OWNERS] == [user in seen for user in OWNERS]
    wish(yard, Verb.CANCEL, *ids)


def test_of_a_job_out_of_sight_all_but_id_state_and_gpus_is_hidden(yard: Team) -> None:
    job = submit(yard, "erik", name="theirs")
    (row,) = [r for r in yard.call("GET", "/api/v1/queue", yard.tokens["ulla"]).json["rows"] if job == r[0]]
    found = dict(zip(QUEUE_COLUMNS, row, strict=True))
    (own,) = [r for r in yard.call("GET", "/api/v1/queue", yard.tokens["erik"]).json["rows"] if job == r[0]]

    assert {"id": job, "label": str(job), "state": "PENDING", "gpus": 1} == {
        k: v for k, v in found.items() if v
    }
    assert 0 == found["submitted_ms"] < dict(zip(QUEUE_COLUMNS, own, strict=True))["submitted_ms"]
    wish(yard, Verb.CANCEL, job)


def test_a_follower_that_lost_its_connection_goes_on_where_it_was(
    yard: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, mirror = yard.tokens["ulla"], Mirror()
    mirror.fill(yard.call("GET", "/api/v1/queue", token).json)
    first = submit(yard, "ulla")
    (_start, *rest) = events_in(
        yard.streamed(f"/api/v1/changes?after={mirror.seq}", token, lambda body: len(events_in(body)) > 1)
    )
    for name, data, _id in rest:
        assert not mirror.heed(name, data)
    assert [first] == [row[0] for row in mirror.rows() if row[2]]
    last = next(number for _name, _data, number in reversed(rest) if number)
    second = submit(yard, "ulla")
    wish(yard, Verb.CANCEL, first)

    queue = yard.call("GET", "/api/v1/queue", token).json
    missed = yard.streamed(
        "/api/v1/changes", token, lambda body: queue["seq"] <= seq_of(body), **{"Last-Event-ID": last}
    )
    for name, data, _id in events_in(missed):
        assert not mirror.heed(name, data)
    assert [second] == [row[0] for row in mirror.rows() if row[2]]
    assert in_order(queue["rows"]) == in_order(mirror.rows())

    # Of another process, or further back than is kept: the list has to be read again.
    for after in (f"{mirror.seq}-abcdef", "1", str(mirror.seq + 1000)):
        told = events_in(
            yard.streamed(f"/api/v1/changes?after={after}", token, lambda body: len(events_in(body)) > 1)
        )
        assert ["start", "again"] == [name for name, _data, _id in told[:2]]
    assert 422 == yard.call("GET", "/api/v1/changes?after=yesterday", token).status
    wish(yard, Verb.CANCEL, second)


def test_a_revoked_token_ends_the_stream(yard: Team) -> None:
    token = yard.token("ulla")
    stream = yard.later("/api/v1/changes", token)
    stream.until(events_in)
    ids = {
        each["id"]: each for each in yard.call("GET", "/api/v1/tokens", yard.tokens["adam"]).json["tokens"]
    }
    mine = max((each for each in ids.values() if each["user"] == "ulla"), key=lambda each: each["created_ms"])
    yard.call("DELETE", f"/api/v1/tokens/{mine['id']}", yard.tokens["adam"])
    assert 200 == stream.result().status


@pytest.mark.parametrize("user", ["ulla", "erik"])
def test_a_follower_without_rows_is_told_that_something_has_happened_and_no_more(
    yard: Team, user: str
) -> None:
    stream = yard.later("/api/v1/changes?rows=0", yard.tokens[user])
    stream.until(events_in)
    began = yard.yard.store.head()
    first = submit(yard, "dora", name="secret-name")
    stream.until(lambda body: len(events_in(body)) > 1)
    # Nothing of the queue: a list of nodes has changed all the same.
    node = yard.yard.replica.state.nodes.node[0].name
    yard.yard.requests.drain(ADMIN, node, "a fan").result(10)
    last = yard.yard.store.head()
    yard.yard.requests.resume(ADMIN, node).result(10)
    stream.until(lambda body: last <= events_in(body)[-1][1]["seq"])
    body = stream.leave().body
    found = events_in(body)

    assert ("start", True) == (found[0][0], found[0][1]["wakes"])
    assert {"seq"} == {name for name, _data, _id in found[1:]}
    assert {"seq"} == {key for _name, data, _id in found[1:] for key in data}
    assert began < found[1][1]["seq"] < last <= found[-1][1]["seq"]
    assert len(found) <= 1 + 3
    assert b"secret-name" not in body
    assert 422 == yard.call("GET", "/api/v1/changes?rows=2", yard.tokens[user]).status
    wish(yard, Verb.CANCEL, first)


def test_a_server_that_nobody_asks_keeps_no_second_copy_of_its_jobs(
    yard: Team,
) -> None:
    reading, job_id = yard.yard.views.reading, submit(yard, "ulla")
    yard.call("GET", "/api/v1/queue", yard.tokens["ulla"])
    assert reading._model is not None

    limits = reading.limits
    reading.limits = limits._replace(unread_s=0.2)
    yard.until(lambda: reading._model is None)

    reading.limits = limits
    rows = yard.call("GET", "/api/v1/queue", yard.tokens["ulla"]).json["rows"]
    assert job_id in [row[0] for row in rows]
    wish(yard, Verb.CANCEL, job_id)


# -- without a server ---------------------------------------------------------------------------------------


class Quiet:
    """A pulse without news: followers look by themselves."""

    closed = False

    async def next(self, timeout_s: float) -> None:
        await asyncio.sleep(0.01)


def follower(here: Rig, sight: Sight, after: str) -> Any:
    yard: Any = SimpleNamespace(views=here.views)
    beat = Beat(Quiet(), lambda: here.views.reading.latest(spoken=True), 0.0)  # type: ignore[arg-type]
    return _Changes(yard).follow(beat, sight, after)


def test_a_slow_follower_gets_each_row_once_as_it_is_by_then(
    tmp_path: Any,
) -> None:
    async def main(here: Rig) -> None:
        window = here.views.reading.window
        window.ids_max = 60
        job_id = here.submit(hold=True)
        seq = here.views.queue().head["seq"]
        stream = follower(here, Sight(), str(seq))
        assert b"event: start" in await anext(stream)
        for round_ in range(25):
            verb = Verb.HOLD if round_ % 2 else Verb.RELEASE
            granted(here.requests, here.requests.wish(ROOT, verb, [str(job_id)]))
            here.views.reading.latest()
        while not (text := await anext(stream)).startswith(b"id:"):
            pass
        (found,) = events_in(text)
        assert [job_id] == [row[0] for row in found[1]["rows"]], "once, whatever has happened to it meanwhile"

        # It sleeps on, and more changes than are kept.
        array = here.submit(array=tuple(range(50)), hold=True)
        for verb in (Verb.RELEASE, Verb.HOLD):
            granted(here.requests, here.requests.wish(ROOT, verb, [str(array)]))
            here.views.reading.latest()
        assert window._ids <= 60
        told = []
        while not any(name == "again" for name, _data, _id in told):
            told += events_in(await anext(stream))
        await stream.aclose()

    with rig(tmp_path) as here:
        asyncio.run(asyncio.wait_for(main(here), patient(30)))


def test_followers_with_the_same_sight_share_one_text(tmp_path: Any) -> None:
    with rig(tmp_path) as here:
        seq = here.views.queue().head["seq"]
        reading = here.views.reading
        version, _model, _on = reading.window.start(str(seq))
        here.submit(tenant="a")
        reading.latest()
        whole, part = Sight(), Sight(("a",))
        first = reading.window.since(version, whole)
        assert first is not None
        assert first is reading.window.since(version, Sight())
        assert reading.window.since(version, part) is reading.window.ready(version, Sight(("a",)))
        assert listed(here.views)["rows"] == json.loads(first.text)["rows"]


def test_followers_that_are_woken_together_have_one_text_made(
    tmp_path: Any,
) -> None:
    async def main(here: Rig) -> None:
        window, made = here.views.reading.window, []
        since = window.since

        def slowly(version: int, sight: Sight) -> Any:
            made.append((version, sight.tenants))
            time.sleep(0.05)
            return since(version, sight)

        here.submit(hold=True)
        reading = Steered(here.views.reading, window=Steered(window, since=slowly))
        yard: Any = SimpleNamespace(views=Steered(here.views, reading=reading))
        api = _Changes(yard)
        beat = Beat(Quiet(), lambda: here.views.reading.latest(spoken=True), 0.0)  # type: ignore[arg-type]
        streams: list[Any] = [api.follow(beat, Sight(), "") for _ in range(5)]
        for stream in streams:
            assert b"event: start" in await anext(stream)
        job_id = here.submit(hold=True)
        here.views.reading.latest()
        first, *others = [asyncio.create_task(rows_of(stream)) for stream in streams]
        await asyncio.sleep(0.02)
        first.cancel()
        assert [[job_id]] * 4 == [[row[0] for row in rows] for rows in await asyncio.gather(*others)]
        assert len(made) == len(set(made)), "each once, and a follower that went away took it from nobody"
        for stream in streams[1:]:
            await stream.aclose()

    with rig(tmp_path) as here:
        asyncio.run(asyncio.wait_for(main(here), patient(30)))


async def rows_of(stream: Any) -> list[Any]:
    """The rows that a follower is told next."""
    while True:
        for name, data, _id in events_in(await anext(stream)):
            if name == "rows":
                return list(data["rows"])


def test_a_follower_without_rows_asks_the_store_once_and_misses_nothing() -> None:
    heads: list[int] = []
    yard: Any = SimpleNamespace(store=SimpleNamespace(head=lambda: heads.append(1) or 7))

    class Beats:
        """Three quiet looks, an event, and the end."""

        closed, seq, looks = False, 7, 0

        async def next(self, _timeout_s: float) -> None:
            self.looks += 1
            self.seq = 8 if self.looks == 3 else self.seq
            self.closed = self.looks == 6

    async def main() -> list[tuple[str, Any, str]]:
        pulse: Any = Beats()
        return events_in(b"".join([each async for each in _Changes(yard).wake(pulse)]))

    assert [("start", 7), ("seq", 8)] == [(name, data["seq"]) for name, data, _id in asyncio.run(main())]
    assert [1] == heads
