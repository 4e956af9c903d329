"""What is open ends when the right to it does: every kind of stream, every way to lose it, and the reason is told."""

import asyncio
import gc
import json
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread

from gpuyard.api.client import StreamClosed
from gpuyard.api.connecting.websocket import WebSocket
from gpuyard.api.edge.open_streams import APART_S, QUIET_S, OpenStream, OpenStreams
from gpuyard.api.edge.pulse import AsyncNotifier
from gpuyard.cli.connection.visits import read_frame
from gpuyard.control.access.people_in_force import LOOK_S
from gpuyard.control.access.rights import Right, Role
from gpuyard.control.access.tokens import TokenService, WantedToken
from gpuyard.control.duties import people
from gpuyard.control.duties.duty import Duties
from gpuyard.engines.node.kernel.processes import read_stat
from gpuyard.model.units import DAY_MS
from gpuyard.wire.endpoints import ENDPOINTS
from harness.patience import patient, until
from rigs.teams import ADMIN, CONFIG, ME, Team, team

CLOSED_S = 20.0
"""Less than a stream takes that nobody told: such a one is looked at once in `QUIET_S`."""
PROMISED_S = 1.0
LIFE_S = 3.0
"""Of a token, beside what opening the streams takes."""
OPEN = CONFIG.replace("  limits:", f"    eddy: {{unix: {ME}, role: admin}}\n  limits:")
LESS = CONFIG.replace("  limits:", f"    eddy: {{unix: {ME}, role: viewer, tenant: product}}\n  limits:")
SAME = OPEN.replace("product: {}", "product: {weight: 2}")


class Stream:
    """One open stream, read in a thread of its own until it ends."""

    def __init__(
        self, yard: Team, path: str, token: str | dict[str, str], asked: dict[str, Any] | None = None
    ) -> None:
        """`token`: or the headers that the page of a browser sends."""
        self.began = threading.Event()
        self.reason: dict[str, Any] | None = None
        self.shown = b""
        self._asked = asked
        self._headers = token if isinstance(token, dict) else {"Authorization": f"Bearer {token}"}
        self.holds = threading.Event()
        """Set while the client takes nothing."""
        self.taken = yard.connect(path, self._headers, upgrade=asked is not None)
        self.socket: WebSocket | None = None
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        with self.taken:
            if self._asked is None:
                self._read_events()
            else:
                self._visit()

    def _read_events(self) -> None:
        while piece := self.taken.recv(65536):
            self.shown += piece
            self.began.set()
        last = [block for block in self.shown.split(b"\n\n") if block.startswith(b"event: closed\n")]
        if last:
            self._told(json.loads(last[-1].partition(b"data: ")[2]))

    def _visit(self) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += self.taken.recv(1)
        self.socket = WebSocket(self.taken)
        self.socket.send(json.dumps(self._asked))
        if self._asked and self._asked["do"] == "attach":
            self.began.set()
        try:
            while True:
                while self.holds.is_set():
                    time.sleep(0.01)
                for message in self.socket.receive():
                    self._heed(message)
        except OSError:
            return

    def _heed(self, message: bytes | str) -> None:
        if isinstance(message, bytes):
            self.shown += message[1:] if message[:1] == b"d" and len(message) < 1000 else b""
            if message[:1] == b"h":
                if self._asked and self._asked["do"] == "read":
                    self.holds.set()
                self.began.set()
        elif json.loads(message)["event"] == "error":
            self._told(json.loads(message)["data"])

    def _told(self, reason: dict[str, Any]) -> None:
        self.reason = reason

    def ended(self) -> dict[str, Any]:
        """Why it was closed, once it has been."""
        until(lambda: not self.thread.is_alive(), CLOSED_S, lambda: self.shown[-200:])
        assert self.reason is not None, self.shown[-200:]
        return self.reason


class Places:
    """Jobs to be in, and a token of eddy, who may be in all of them as an admin."""

    def __init__(self, yard: Team, folder: Path) -> None:
        self.yard, self.folder = yard, folder
        self.opened_s = LIFE_S
        """How long opening took at most."""
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        self.listener = listener
        with (folder / "large").open("wb") as file:
            file.truncate(1 << 32)
        self.waits = yard.submit("ulla", "research", gpus=1, terminal=True)
        self.job = yard.submit("ulla", "research", command=["sleep", "600"], gpus=1, hold=False)
        self.terminal = yard.submit(
            "ulla", "research", command=["sleep", "600"], gpus=1, hold=False, terminal=True
        )
        for job in (self.job, self.terminal):
            yard.until(lambda job=job: self.state(job) == "RUNNING")

    def state(self, job: int) -> str:
        return str(self.yard.call("GET", f"/api/v1/jobs/{job}", self.yard.tokens["adam"]).json["state"])

    def open(self, token: str) -> dict[str, Stream]:
        """One stream of every kind, all begun."""
        began_s = time.monotonic()
        inside = f"/api/v1/jobs/{self.job}/terminal"
        asked: dict[str, tuple[str, dict[str, Any] | None]] = {
            "logs": (f"/api/v1/jobs/{self.job}/logs?follow=true&standing=true", None),
            "logs of a job that waits": (f"/api/v1/jobs/{self.waits}/logs?follow=true&standing=true", None),
            "events": ("/api/v1/events", None),
            "changes": ("/api/v1/changes", None),
            "wakes": ("/api/v1/changes?rows=0", None),
            "shell": (inside, {"do": "shell", "argv": ["sh"]}),
            "command": (inside, {"do": "run", "argv": ["sh", "-c", "echo $$; sleep 600"]}),
            "ports": (inside, {"do": "stay"}),
            "forward": (inside, {"do": "forward", "port": self.listener.getsockname()[1]}),
            "cp out of it": (inside, {"do": "read", "path": str(self.folder / "large")}),
            "cp into it": (inside, {"do": "write", "path": str(self.folder)}),
            "attach": (f"/api/v1/jobs/{self.terminal}/terminal", {"do": "attach"}),
            "attach to a job that waits": (f"/api/v1/jobs/{self.waits}/terminal", {"do": "attach"}),
        }
        found = {name: Stream(self.yard, path, token, first) for name, (path, first) in asked.items()}
        for name, stream in found.items():
            quiet = name.startswith("logs")
            assert quiet or stream.began.wait(patient(60)), name
        # A stream that nothing holds would end here.
        gc.collect()
        ended = {
            name: (each.reason, each.shown) for name, each in found.items() if not each.thread.is_alive()
        }
        assert not ended
        into = found["cp into it"].socket
        assert into is not None
        into.send(b"f" + json.dumps({"path": "half", "mode": 0o644, "folder": False, "size": 100}).encode())
        into.send(b"dhalf of it")
        shell = found["shell"].socket
        assert shell is not None
        shell.send(b"decho $((6*7)) $$\n")
        self.yard.until(lambda: b"42 " in found["shell"].shown and b"\n" in found["command"].shown, 60)
        self.opened_s = max(self.opened_s, time.monotonic() - began_s)
        return found


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    folder = tmp_path_factory.mktemp("open")
    with team(folder, OPEN) as yard:
        yard.until(lambda: yard.yard.store.configs.version() is not None)
        # As on a shared store.
        renewing = Duties(people.duties(yard.yard.people, shared=True), yard.yard.leader.epoch)
        renewing.start()
        made = Places(yard, folder)
        with made.listener:
            yield made
        renewing.close()


def put(yard: Team, text: str) -> None:
    """Apply a configuration, as another server of the store would: this one is told by the log alone."""
    configs = yard.yard.configs
    configs.apply(ADMIN, configs.proposal(text, "yard.yaml"), None).result(120)


def revoked_elsewhere(yard: Team, token: str) -> None:
    """As by another server: what this one remembers of tokens is not touched."""
    real, service = yard.yard, yard.token_service
    assert service is not None
    other = TokenService(
        real.replica, real.committer, real.now_ms, real.people.access, service.directory, real.valid_ms
    )
    other.revoke(ADMIN, token.split("_")[1]).result(120)


def short(places: Places) -> tuple[str, int]:
    """A token that ends soon after all streams are open, and when."""
    service, life_s = places.yard.token_service, LIFE_S + 2 * patient(places.opened_s)
    assert service is not None
    ends_ms = places.yard.yard.now_ms() + int(1000 * life_s)
    _row, secret = service._issue(
        os.urandom(5).hex(), "eddy", Right(Role.ADMIN), ends_ms, "", "test", ""
    ).result(120)
    return secret, ends_ms


def made(yard: Team) -> str:
    assert yard.token_service is not None
    return yard.token_service.make(ADMIN, WantedToken("eddy", lifetime_ms=DAY_MS)).result(120)[1]


def pid_in(text: bytes) -> int:
    return int(text.split(b"42 ")[-1].split()[0])


def all_closed(places: Places, streams: dict[str, Stream], says: Callable[[str], bool]) -> None:
    for stream in streams.values():
        stream.holds.clear()
    for name, stream in streams.items():
        assert says(stream.ended()["detail"]), (name, stream.reason)
    # What was begun in the job has ended too, and half a file is none.
    for pid in (pid_in(streams["shell"].shown), int(streams["command"].shown.split()[0])):
        places.yard.until(lambda pid=pid: (stat := read_stat(pid)) is None or stat.state == "Z")
    assert not (places.folder / "half").exists()
    for job in (places.job, places.terminal):
        assert "RUNNING" == places.state(job)


@pytest.mark.parametrize("where", ["here", "another server"])
def test_rights_that_an_apply_takes_away_end_every_open_stream(places: Places, where: str) -> None:
    yard = places.yard
    streams = places.open(made(yard))
    if where == "here":
        assert 200 == yard.call("PUT", "/api/v1/config", yard.tokens["adam"], {"yaml": LESS}).status
    else:
        put(yard, LESS)
    says = ("may not", "there is no job", "is ulla's", "may now see the jobs of other tenants")
    all_closed(places, streams, lambda detail: any([each in detail for each in says]))
    put(yard, OPEN)
    yard.until(lambda: str(yard.yard.people.directory.limit("eddy")) == "admin of the whole yard")


def test_rights_that_go_between_the_gate_and_the_stream_open_none(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gate has let the request in, and streams that are open are judged before this one is among them."""
    yard, token = places.yard, made(places.yard)
    other = Stream(yard, "/api/v1/changes", token)
    assert other.began.wait(patient(60))
    real = OpenStreams.open

    async def later(*args: Any) -> OpenStream:
        await to_thread.run_sync(put, yard, LESS)
        await to_thread.run_sync(yard.until, lambda: other.reason is not None, 60.0)
        return await real(*args)

    monkeypatch.setattr(OpenStreams, "open", later)
    answer = yard.call("GET", "/api/v1/events", token, most_s=0)
    put(yard, OPEN)
    yard.until(lambda: str(yard.yard.people.directory.limit("eddy")) == "admin of the whole yard")
    assert 403 == answer.status


@pytest.mark.parametrize("where", ["here", "another server"])
def test_a_revoked_token_ends_every_open_stream(places: Places, where: str) -> None:
    yard, token = places.yard, made(places.yard)
    streams = places.open(token)
    if where == "here":
        assert 200 == yard.call("DELETE", f"/api/v1/tokens/{token.split('_')[1]}", yard.tokens["adam"]).status
    else:
        revoked_elsewhere(yard, token)
    all_closed(places, streams, lambda detail: detail == "the token was revoked")


@pytest.mark.parametrize(
    ("do", "script"),
    [
        ("run", "echo 42 $$; exec sleep 600"),
        ("shell", "echo 42 $$; exec sleep 600"),
        ("shell", "trap '' HUP; echo 42 $$; exec sleep 600"),
    ],
    ids=["command", "shell", "shell that ignores it"],
)
def test_what_reads_nothing_of_its_input_ends_with_the_right_to_it(
    places: Places, do: str, script: str
) -> None:
    yard, token = places.yard, made(places.yard)
    asked = {"do": do, "argv": ["sh", "-c", script]}
    stream = Stream(yard, f"/api/v1/jobs/{places.job}/terminal", token, asked)
    yard.until(lambda: re.search(rb"42 \d+\r?\n", stream.shown), 60)
    assert stream.socket is not None
    for _ in range(24):
        stream.socket.send(b"d" + b"x\n" * (32 << 10))
    revoked_elsewhere(yard, token)

    assert "the token was revoked" == stream.ended()["detail"]
    pid = pid_in(stream.shown)
    yard.until(lambda: (stat := read_stat(pid)) is None or stat.state == "Z")


def test_what_is_open_ends_within_a_second_of_the_right_to_it() -> None:
    """Of a machine that has nothing else to do: what is waited for on the way, without the work."""
    assert CLOSED_S < QUIET_S
    assert PROMISED_S > LOOK_S + APART_S


def test_a_token_that_ends_ends_every_open_stream(places: Places) -> None:
    token, ends_ms = short(places)
    streams = places.open(token)
    assert not any([stream.reason for stream in streams.values()])
    until(lambda: places.yard.yard.valid_ms() >= ends_ms, 600)
    all_closed(places, streams, lambda detail: detail.startswith("the token ended at"))


def signed_in(yard: Team, token: str) -> dict[str, str]:
    """The headers of a browser in which somebody signed in."""
    here = {"Host": "yard.example.org", "Origin": "http://yard.example.org"}
    code = yard.call("POST", "/api/v1/login/codes", token).json["code"]
    answer = yard.call("POST", "/api/v1/login/browser", body={"code": code, "path": "/"}, headers=here)
    assert 201 == answer.status, answer.body
    cookie = answer.headers["set-cookie"].partition(";")[0]
    return {**here, "Cookie": cookie, "Yard-Page": answer.json["key"]}


def test_a_browser_that_signs_out_ends_what_is_open_in_it_and_in_no_other(places: Places) -> None:
    yard, token = places.yard, made(places.yard)
    paths = (
        "/api/v1/changes",
        "/api/v1/events",
        f"/api/v1/jobs/{places.terminal}/logs?follow=true&standing=true",
    )
    one, other = signed_in(yard, token), signed_in(yard, token)
    streams, stays = ([Stream(yard, path, headers) for path in paths] for headers in (one, other))
    for stream in (streams[0], streams[1], stays[0], stays[1]):
        assert stream.began.wait(patient(60))

    assert 200 == yard.call("POST", "/api/v1/logout", headers=one).status

    for stream in streams:
        stream.ended()
    assert [None] * len(paths) == [stream.reason for stream in stays]
    for stream in stays:
        stream.taken.shutdown(socket.SHUT_RDWR)


def test_a_stream_goes_on_where_the_right_to_it_stays(places: Places) -> None:
    yard = places.yard
    streams, other = places.open(yard.tokens["adam"]), made(yard)
    judged = Stream(yard, "/api/v1/changes", other)
    assert judged.began.wait(patient(60))
    put(yard, SAME)
    revoked_elsewhere(yard, other)
    # What came to judge the other one has judged these.
    judged.ended()
    streams["cp out of it"].holds.clear()
    assert {None} == {stream.reason for stream in streams.values()}
    for stream in streams.values():
        stream.taken.shutdown(socket.SHUT_RDWR)


def test_the_client_says_why_and_ends_with_a_code_of_its_own() -> None:
    told = {"detail": "the token was revoked", "hint": "Log in again.", "closed": True}
    with pytest.raises(StreamClosed, match=r"^the yard closed this: the token was revoked$") as ended:
        read_frame(json.dumps({"event": "error", "data": told}))
    assert (6, "Log in again.") == (ended.value.exit_code, ended.value.hint)


def test_a_stream_is_closed_also_by_what_comes_with_news_in_the_same_moment() -> None:
    """The revocation is an event itself: a stream that forgot it for the event stayed open until the next one."""

    async def forgotten(turns: int) -> bool:
        pulse = AsyncNotifier(lambda _seq, s: bool(time.sleep(min(s, 0.01))), lambda: 0)
        watcher = asyncio.ensure_future(pulse.next(60))
        for _ in range(3):
            await asyncio.sleep(0)
        pulse._beat()
        for _ in range(turns):
            await asyncio.sleep(0)
        cancelled = watcher.cancel()
        await asyncio.wait({watcher})
        pulse.close()
        return cancelled and not watcher.cancelled()

    assert [False] * 5 == [asyncio.run(forgotten(turns)) for turns in range(5)]


def test_every_endpoint_with_a_stream_is_tried_here() -> None:
    streams = {each.path for each in ENDPOINTS if each.tag == "streams"}
    assert {"/jobs/{id}/logs", "/jobs/{id}/terminal", "/events", "/changes"} == {
        path.removeprefix("/api/v1") for path in streams
    }
