"""A yard with `--auth` in this process, behind its gate, and people of every role with tokens; no sockets."""

import asyncio
import json
import os
import pwd
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from gpuyard.api.edge.peers import PEER
from gpuyard.api.edge.upgrades import TAKE_OVER
from gpuyard.api.server.app import build
from gpuyard.api.server.serving import gate_of
from gpuyard.control.access.people import Person
from gpuyard.control.access.rights import EVERYTHING, Right, Role
from gpuyard.control.access.tokens import WantedToken
from gpuyard.control.clock import clock_ms
from gpuyard.control.options import Options
from gpuyard.control.serve import Yard
from gpuyard.model import Verb
from gpuyard.model.units import DAY_MS
from harness import patience
from rigs.described import Description
from rigs.gpu_time import GpuTime
from rigs.request_service import granted, listed

ME = pwd.getpwuid(os.geteuid()).pw_name
ADMIN = Person(os.geteuid(), os.getegid(), ME, True)

CONFIG = f"""
version: 1
clusters:
  box: {{gpus: 8 x A100-80GB, emulate: true, allow_root: true}}
tenants:
  research: {{}}
  vision: {{parent: research}}
  product: {{}}
auth:
  users:
    vera: {{unix: {ME}, tenant: research, role: viewer}}
    ulla: {{unix: {ME}, tenant: research, role: user}}
    tara: {{unix: {ME}, tenant: research, role: tenant-admin}}
    adam: {{unix: {ME}, role: admin}}
    carl: {{unix: {ME}, tenant: research}}
    dora: {{unix: {ME}, tenant: research/vision}}
    erik: {{unix: {ME}, tenant: product}}
  limits: {{submits_per_s: 100000, reads_per_s: 100000, at_once: 100}}
"""
ROLES = {"viewer": "vera", "user": "ulla", "tenant-admin": "tara", "admin": "adam"}


@dataclass
class Answer:
    """What came back."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def json(self) -> Any:
        """The body as a value."""
        return json.loads(self.body)


class Later:
    """A request that goes on: what has come of it so far, until the server ends it or it is left."""

    def __init__(
        self, answer: Answer, gone: asyncio.Event, loop: asyncio.AbstractEventLoop, done: "Future[Answer]"
    ) -> None:
        self.answer, self._gone, self._loop, self._done = answer, gone, loop, done

    def until(self, what: Callable[[bytes], object]) -> bytes:
        """Wait until that holds of what has come; all of it."""
        patience.until(lambda: what(self.answer.body), say=lambda: f"it is not so of {self.answer}")
        return self.answer.body

    def done(self) -> bool:
        return self._done.done()

    def result(self) -> Answer:
        """The answer, once the server has ended it."""
        return self._done.result(patience.patient(60))

    def leave(self) -> Answer:
        """Hang up; what has come."""
        self._loop.call_soon_threadsafe(self._gone.set)
        return self.result()


class Team:
    """The yard and whoever asks it."""

    _description: ClassVar[list[Description]] = []
    """Made once: it is as long in the making as the yard, and all yards of a checkout give the same."""

    def __init__(self, yard: Yard) -> None:
        self.yard = yard
        self.app = build(yard)
        self.gate = gate_of(yard, self.app)
        if not self._description:
            self._description.append(Description(self.app.openapi()))
        self.token_service = yard.token_service
        assert self.token_service is not None
        self._served: set[Future[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._lifespan = self.app.router.lifespan_context(self.app)
        self._run(self._lifespan.__aenter__())
        self.tokens = {name: self.token(name) for name in (*ROLES.values(), "carl", "dora", "erik")}

    def end_jobs(self) -> None:
        """Leave nothing running."""

        def left() -> list[str]:
            return [row[1] for row in listed(self.yard.views)["rows"]]

        labels = left()
        if labels:
            # One of them may end by itself between the two.
            granted(self.yard.requests, self.yard.requests.wish(ADMIN, Verb.CANCEL, labels))
        self.until(lambda: not left())

    def close(self) -> None:
        self._run(self._lifespan.__aexit__(None, None, None))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, what: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(patience.patient(60))

    def token(self, user: str, days: int = 30, **asked: Any) -> str:
        """A new token's secret."""
        wanted = WantedToken(user, lifetime_ms=days * DAY_MS, **asked)
        return self.token_service.make(ADMIN, wanted).result(120)[1]

    def expired(self, user: str) -> str:
        """A token that has ended."""
        past = self.token_service._now_ms() - 1
        right = self.token_service.directory.limit(user) or Right(Role.USER)
        return self.token_service._issue("e" * 10, user, right, past, "", "test", "").result(120)[1]

    def call(
        self,
        method: str,
        path: str,
        token: str = "",
        body: Any = None,
        *,
        peer: tuple[int, int] | None = None,
        most_s: float | None = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """One request; a stream is hung up `most_s` after it has begun."""
        scope, content = self._scope(path, method, token, body, peer, headers or {})
        return self._run(self._call(scope, content, Answer(), asyncio.Event(), most_s))

    def later(self, path: str, token: str = "", headers: dict[str, str] | None = None) -> Later:
        """A stream, which is read until the server ends it or it is left."""
        scope, content = self._scope(path, "GET", token, None, None, headers or {})
        answer, gone = Answer(), asyncio.Event()
        asked = self._call(scope, content, answer, gone)
        return Later(answer, gone, self._loop, asyncio.run_coroutine_threadsafe(asked, self._loop))

    def streamed(self, path: str, token: str, what: Callable[[bytes], object], **headers: str) -> bytes:
        """What comes of a stream until that holds; it is left then."""
        stream = self.later(path, token, headers)
        stream.until(what)
        return stream.leave().body

    @staticmethod
    def _scope(
        path: str, method: str, token: str, body: Any, peer: Any, more: dict[str, str]
    ) -> tuple[dict[str, Any], bytes]:
        """A request as a server hands it on, and its body."""
        route, _, query = path.partition("?")
        sent = [(name.lower().encode(), value.encode()) for name, value in more.items()]
        if token:
            sent.append((b"authorization", f"Bearer {token}".encode()))
        content = b"" if body is None else json.dumps(body).encode()
        if body is not None:
            sent.append((b"content-type", b"application/json"))
        scope: dict[str, Any] = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
            "path": route, "raw_path": route.encode(), "query_string": query.encode(), "root_path": "",
            "headers": sent, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2), "state": {},
        }  # fmt: skip
        if peer is not None:
            scope[PEER] = peer
        return scope, content

    async def _call(
        self,
        scope: dict[str, Any],
        content: bytes,
        answer: Answer,
        gone: asyncio.Event,
        most_s: float | None = None,
    ) -> Answer:
        given = False

        async def receive() -> dict[str, Any]:
            nonlocal given
            if not given:
                given = True
                return {"type": "http.request", "body": content, "more_body": False}
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                if most_s is not None:
                    self._loop.call_later(most_s, gone.set)
                answer.status = message["status"]
                answer.headers = {k.decode().lower(): v.decode() for k, v in message["headers"]}
            else:
                answer.body += message.get("body", b"")

        await self.gate(scope, receive, send)
        if not gone.is_set():
            kind = answer.headers.get("content-type", "")
            self._description[0].check(scope["method"], scope["path"], answer.status, kind, answer.body)
        return answer

    def connect(self, path: str, headers: dict[str, str], *, upgrade: bool) -> socket.socket:
        """The client's end of a connection with one request on it, a stream or (`upgrade`) a WebSocket."""
        ours, theirs = socket.socketpair()
        ours.settimeout(120)
        # The loop itself holds no task, and one that nothing holds ends with the next collection of garbage.
        served = asyncio.run_coroutine_threadsafe(self._serve(theirs, path, headers, upgrade), self._loop)
        self._served.add(served)
        served.add_done_callback(self._served.discard)
        return ours

    async def _serve(self, link: socket.socket, path: str, headers: dict[str, str], upgrade: bool) -> None:
        reader, writer = await asyncio.open_connection(sock=link)
        route, _, query = path.partition("?")
        if upgrade:
            headers = {
                **headers, "Upgrade": "websocket", "Sec-WebSocket-Key": "a2V5", "Sec-WebSocket-Version": "13",
            }  # fmt: skip
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
            "path": route, "raw_path": route.encode(), "query_string": query.encode(), "root_path": "",
            "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2), "state": {}, TAKE_OVER: lambda: (reader, writer),
        }  # fmt: skip
        gone = asyncio.Event()

        async def receive() -> dict[str, Any]:
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.body":
                writer.write(message.get("body", b""))
                await writer.drain()

        try:
            await self.gate(scope, receive, send)
        finally:
            writer.close()

    def until(self, what: Callable[[], object], s: float = 20.0) -> None:
        """Wait until something holds."""
        patience.until(what, s)

    def submit(self, user: str, tenant: str = "", **fields: Any) -> int:
        """A job that is held; its id."""
        wanted = {"command": ["true"], "hold": True, "tenant": tenant, **fields}
        answer = self.call("POST", "/api/v1/jobs", self.tokens[user], wanted)
        assert 201 == answer.status, answer.body
        return int(answer.json["id"])


@contextmanager
def team(
    folder: Path, config: str = CONFIG, *, books: bool = False, now_ms: Callable[[], int] = clock_ms
) -> Iterator[Team]:
    """The rig, ended with all its jobs. `books`: its projections are those of every yard."""
    assert EVERYTHING == ADMIN.rights
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "yard.yaml"
    path.write_text(config, encoding="utf-8")
    options = Options(data=folder / "data", port=0, config=path, auth=True)
    yard = Yard(options, now_ms=now_ms, projections=None if books else [GpuTime()])
    try:
        yard.start()
        made = Team(yard)
        try:
            made.until(lambda: made.call("GET", "/api/v1/nodes", made.tokens["adam"]).json["nodes"])
            yield made
        finally:
            made.end_jobs()
            made.close()
    finally:
        yard.close()
