"""What connections may take: bytes of a head, time, and how many there are. A real server with nothing behind it."""

import asyncio
import logging
import os
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import pytest
import uvicorn
from starlette.requests import Request
from starlette.responses import Response

from gpuyard.api.connecting.calling import Connection
from gpuyard.api.edge.pulse import AsyncNotifier
from gpuyard.api.edge.throttle import Throttle
from gpuyard.api.edge.unread import UNREAD_MAX, UserAnswers, current, make_room
from gpuyard.api.handlers.streams import STILL_HERE, signs_until_room
from gpuyard.api.messages.bodies import read_bytes, told_when_gone
from gpuyard.api.messages.problems import Problem
from gpuyard.api.server import connections
from gpuyard.api.server.connections import Acceptor, ConnectionCounts, PeerProtocol, look_after
from harness.patience import Patience, patient, until

ASK = b"GET /x HTTP/1.1\r\nHost: x\r\n"


async def nothing(scope: Any, receive: Any, send: Any) -> None:
    """Reads what is sent and answers with how much it was."""
    length, more = 0, True
    while more:
        message = await receive()
        length, more = length + len(message.get("body", b"")), message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(length).encode()})


class Served(uvicorn.Server):
    """A server on a free port, in a thread."""

    def __init__(
        self, crowd: ConnectionCounts, app: Any = nothing, times: connections.RequestTimes = connections.TIMES
    ) -> None:
        self.times = times
        config = uvicorn.Config(app, http=PeerProtocol, ws="none", lifespan="off", log_config=None, port=0)
        self.crowd = crowd
        super().__init__(config)
        self.thread = threading.Thread(target=self.run, daemon=True)

    async def startup(self, sockets: Any = None) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        await super().startup([])
        self.servers.append(Acceptor(listener, self.crowd, self._protocol))  # type: ignore[arg-type]
        self.looks = asyncio.get_running_loop().create_task(
            look_after(self.server_state.connections, self.times.look_s)
        )

    def _protocol(self) -> PeerProtocol:
        made = PeerProtocol(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)
        made.times = self.times
        return made

    async def shutdown(self, sockets: Any = None) -> None:
        await super().shutdown(sockets)
        self.servers[0].sockets[0].close()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=patient(20))


@contextmanager
def running(made: Served) -> Iterator[Served]:
    made.thread.start()
    until(lambda: made.started, 20)
    yield made
    made.should_exit = True
    made.thread.join(patient(20))


@pytest.fixture
def served() -> Iterator[Served]:
    with running(Served(ConnectionCounts(descriptors=1024, alone_max=5))) as made:
        yield made


@pytest.fixture
def hasty() -> Iterator[Served]:
    """It waits for a request for a moment only."""
    moment_s = min(patient(0.5), 3.0)
    times = connections.RequestTimes(moment_s, moment_s, look_s=moment_s / 5)
    with running(Served(ConnectionCounts(descriptors=1024), times=times)) as made:
        yield made


def heard(connection: socket.socket) -> bytes:
    """All that comes until the server hangs up."""
    said = b""
    try:
        while piece := connection.recv(65536):
            said += piece
    except ConnectionError:
        pass
    return said


def flood(served: Served, first: bytes, piece: bytes, times: int) -> tuple[bytes, int]:
    """Send something again and again; what comes back, and how often it could be sent."""
    with closing(served.connect()) as connection:
        connection.sendall(first)
        sent = 0
        try:
            while sent < times:
                connection.sendall(piece)
                sent += 1
        except ConnectionError:
            pass
        return heard(connection), sent


@pytest.mark.parametrize(
    ("first", "piece"),
    [
        (ASK, b"X-%d: " % 1 + b"x" * 60_000 + b"\r\n"),
        (ASK + b"X: ", b"x" * 65_536),
        (b"GET /", b"x" * 65_536),
        (ASK, b"X: y\r\n" * 10_000),
        (
            b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX: ",
            b"x" * 65_536,
        ),
    ],
    ids=[
        "many long headers",
        "a header without an end",
        "an address without one",
        "many headers",
        "a trailer",
    ],
)
def test_a_head_without_an_end_is_cut_off(served: Served, first: bytes, piece: bytes) -> None:
    said, sent = flood(served, first, piece, 1000)
    assert sent < 1000, "the server took all of it"
    assert said[:12] in (b"HTTP/1.1 431", b"HTTP/1.1 400", b"")


def test_a_long_body_and_many_requests_are_no_head(served: Served) -> None:
    with closing(served.connect()) as connection:
        for length in (0, 300_000, 70_000, 1_000_000):
            connection.sendall(
                b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % length + b"x" * length
            )
            said = b""
            while b"\r\n\r\n" not in said or not said.endswith(b"%d\r\n0\r\n\r\n" % length):
                said += connection.recv(65536)
            assert said.startswith(b"HTTP/1.1 200")


def test_requests_that_do_not_wait_for_answers_are_few(served: Served) -> None:
    """Thousands in one read were all taken apart at once: nobody else was answered meanwhile."""
    said, _sent = flood(served, b"", (ASK + b"\r\n") * 5_000, 1)
    assert said.count(b"HTTP/1.1 200") <= connections.PIPELINED_MAX + 1
    assert b"HTTP/1.1 400" in said
    with closing(served.connect()) as connection:
        connection.sendall((ASK + b"\r\n") * 8)
        said = b""
        while said.count(b"HTTP/1.1 200") < 8:
            said += connection.recv(65536)


def test_what_strangers_send_wrong_or_leave_writes_nothing_to_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    begun = threading.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        begun.set()
        while (await receive())["type"] != "http.disconnect":
            pass
        await nothing(scope, receive, send)
        ended.append(scope["path"])

    ended: list[str] = []
    with running(Served(ConnectionCounts(descriptors=1024), slow)) as made:
        with closing(made.connect()) as connection:
            connection.sendall(b"GET / HTTP/1.1\nHost: x\n\n")
            assert heard(connection).startswith(b"HTTP/1.1 400")
        with closing(made.connect()) as connection:
            connection.sendall((ASK + b"\r\n") * 3)
            assert begun.wait(patient(30))
        until(lambda: ended, 30, lambda: "the one that is answered is told that nobody is there")
    assert [] == [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize(
    "start", [b"", b"GET / HT", ASK, b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf"]
)
def test_what_does_not_come_in_time_is_not_waited_for(hasty: Served, start: bytes) -> None:
    with closing(hasty.connect()) as connection:
        began_s = time.monotonic()
        connection.sendall(start)
        assert heard(connection).startswith(b"HTTP/1.1 408")
        assert time.monotonic() - began_s > 0.8 * hasty.times.head_s


def test_between_two_requests_a_client_may_take_as_long_as_it_likes(hasty: Served) -> None:
    with closing(hasty.connect()) as one:
        one.sendall(ASK + b"\r\n")
        assert one.recv(65536).startswith(b"HTTP/1.1 200")
        # Another one comes later, sends nothing, and is not waited for any longer.
        with closing(hasty.connect()) as other:
            assert heard(other).startswith(b"HTTP/1.1 408")
        one.sendall(ASK + b"\r\n")
        assert b"HTTP/1.1 200" in one.recv(65536)


def test_one_address_has_its_share_of_connections(served: Served) -> None:
    with ExitStack() as open_:
        for _ in range(5):
            open_.enter_context(closing(served.connect()))
        with closing(served.connect()) as sixth:
            said = heard(sixth)
            assert (True, True) == (said.startswith(b"HTTP/1.1 503"), b"127.0.0.1 has 5 connections" in said)
    until(lambda: not (served.crowd._from), 20)
    with closing(served.connect()) as again:
        again.sendall(ASK + b"Connection: close\r\n\r\n")
        assert heard(again).startswith(b"HTTP/1.1 200")


def test_users_of_the_machine_keep_a_part_and_descriptors_are_left() -> None:
    crowd = ConnectionCounts(descriptors=1024)
    remote = [crowd.enter(f"10.0.0.{n}", local=False, bound=True) for n in range(400)]
    assert ["" for _ in range(384)] == remote[:384]
    assert {"the yard has as many connections as it can serve"} == set(remote[384:])
    local = [crowd.enter("user 1000", local=True, bound=True) for _ in range(200)]
    assert (128, 72) == (local.count(""), len(local) - local.count(""))
    crowd.leave("10.0.0.7", local=False)
    assert "" == crowd.enter("user 1001", local=True, bound=True)


def test_a_server_has_more_descriptors_and_its_jobs_what_it_was_started_with() -> None:
    code = (
        "import resource, subprocess, sys, time\n"
        "from gpuyard.engines.machine import processes\n"
        "print(processes.raise_file_limit())\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "processes.give_back_file_limit(child.pid)\n"
        "print(resource.prlimit(child.pid, resource.RLIMIT_NOFILE)[0])\n"
        "child.kill()\n"
    )

    def few() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        preexec_fn=few,
        check=True,
        env=os.environ,
    )
    most = 4096 if hard == resource.RLIM_INFINITY else min(4096, hard)
    assert [str(most), "256"] == done.stdout.split()


def test_a_client_waits_for_a_place_before_a_crowded_socket(tmp_path: Any) -> None:
    door = str(tmp_path / "door")
    with ExitStack() as stack:
        listener = stack.enter_context(closing(socket.socket(socket.AF_UNIX)))
        listener.bind(door)
        listener.listen(0)
        first = stack.enter_context(closing(socket.socket(socket.AF_UNIX)))
        first.connect(door)
        with pytest.raises(TimeoutError, match="takes no connections"):
            Connection(door, 0.1)

        def take() -> None:
            listener.accept()[0].close()

        taking = threading.Timer(0.2, take)
        taking.start()
        Connection(door, patient(5)).close()
        taking.join()


def test_a_user_that_floods_the_door_waits_in_a_line_of_their_own(
    tmp_path: Any,
) -> None:
    order: list[str] = []
    comes = iter([*[(1000, 1000)] * 20, (2000, 2000)])

    class Noted(asyncio.Protocol):
        guest: connections.CountedConnection

        def connection_made(self, transport: Any) -> None:
            assert self.guest.peer is not None
            order.append(str(self.guest.peer[0]))
            transport.close()

    async def flooded() -> None:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(tmp_path / "door"))
        listener.listen(64)
        with closing(listener), ExitStack() as open_:
            for _ in range(21):
                client = open_.enter_context(closing(socket.socket(socket.AF_UNIX)))
                client.connect(str(tmp_path / "door"))
            door = Acceptor(
                listener,
                ConnectionCounts(1024),
                Noted,  # type: ignore[arg-type]
                peer_of=lambda _: next(comes),
            )
            patience = Patience(20)
            while len(order) < 21:
                assert patience
                await asyncio.sleep(0.01)
            door.close()

    asyncio.run(flooded())
    assert 20 == order.count("1000")
    assert order.index("2000") <= 1 + connections.SERVED_A_BEAT


def test_answers_that_nobody_reads_fill_no_memory() -> None:
    """512 connections of one user that asked for 4 MiB each and read nothing were 2 GiB of the server."""
    # More than the kernel takes of each.
    turns, whole = Throttle(), b"x" * 16 * 1024 * 1024

    async def long(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": whole})

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await turns.user("eve" if scope["path"] == "/eve" else "ana", long, scope, receive, send)

    with running(Served(ConnectionCounts(descriptors=1024), app)) as made, ExitStack() as opened:

        def ask(path: bytes) -> bytes:
            connection = opened.enter_context(closing(made.connect()))
            connection.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: x\r\n\r\n")
            heads[connection] = connection.recv(12)
            return heads[connection]

        heads: dict[socket.socket, bytes] = {}
        eve = [ask(b"/eve") for _ in range(12)]
        assert b"HTTP/1.1 200" == eve[0]
        assert {b"HTTP/1.1 429"} == set(eve[6:]), "each of those before leaves 3 MiB at the least"
        assert b"HTTP/1.1 200" == ask(b"/ana"), "others are answered"
        for connection in list(heads):
            connection.close()
        until(lambda: ask(b"/eve") == b"HTTP/1.1 200", 30, lambda: "what is closed is not held any longer")


def test_large_answers_that_are_asked_for_at_once_are_made_as_far_as_there_is_room() -> None:
    """Eight of them were made, 32 MiB, before one was counted."""
    turns, made_bytes = Throttle(), [0]

    async def long(scope: Any, receive: Any, send: Any) -> None:
        try:
            await make_room(4 << 20)
        except Problem as problem:
            await problem.response()(scope, receive, send)
            return
        made_bytes[0] += 4 << 20
        await asyncio.sleep(0.05)
        await Response(b"x" * (4 << 20))(scope, receive, send)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await turns.user(scope["path"], long, scope, receive, send)

    with running(Served(ConnectionCounts(descriptors=1024), app)) as made:
        with ExitStack() as opened:
            eve = [opened.enter_context(closing(made.connect())) for _ in range(40)]
            for connection in eve:
                connection.sendall(b"GET /eve HTTP/1.1\r\nHost: x\r\n\r\n")
            said = [connection.recv(12) for connection in eve]
            assert (4, 36) == (said.count(b"HTTP/1.1 200"), said.count(b"HTTP/1.1 429"))
            assert UNREAD_MAX == made_bytes[0]
            ana = opened.enter_context(closing(made.connect()))
            ana.sendall(b"GET /ana HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b"HTTP/1.1 200" == ana.recv(12), "others are answered"

        def again() -> bool:
            with closing(made.connect()) as connection:
                connection.sendall(b"GET /eve HTTP/1.1\r\nHost: x\r\n\r\n")
                return connection.recv(12) == b"HTTP/1.1 200"

        until(again, 30, lambda: "what is closed is not held any longer")


@pytest.mark.parametrize("server_stops", [False, True])
def test_a_stream_that_waits_for_room_shows_that_it_lives(server_stops: bool) -> None:
    """It said nothing for as long as that took, also to a server that stopped."""

    async def wait() -> list[bytes]:
        user, pulse, left = UserAnswers(), AsyncNotifier(lambda _seq, _s: False, lambda: 0), [UNREAD_MAX]
        length = [(b"content-length", str(UNREAD_MAX).encode())]
        first = user.begin(lambda: left[0])
        assert first.hold({"type": "http.response.start", "headers": length}) is None
        first.let_go()
        current(user.begin(lambda: 0))
        signs = []
        try:
            async for sign in signs_until_room(100_000, pulse, quiet_s=0.01):
                signs.append(sign)
                if len(signs) == 2:
                    if server_stops:
                        pulse.close()
                    else:
                        left[0] = 0
        finally:
            pulse.close()
        return signs

    assert [STILL_HERE] * 2 == asyncio.run(asyncio.wait_for(wait(), 30))


def test_an_answer_behind_one_that_is_not_read_counts() -> None:
    """It was made, and waited on its connection uncounted: 40 of 4 MiB each."""
    turns, held_bytes = Throttle(), [0]

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        await Response(b"x" * (700_000 if scope["path"] == "/short" else 4 << 20))(scope, receive, send)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        async def held(message: Any) -> None:
            held_bytes[0] += int(dict(message.get("headers", ())).get(b"content-length", 0))
            await send(message)

        await turns.user("eve", answer, scope, receive, held)

    with running(Served(ConnectionCounts(descriptors=1024), app)) as made, ExitStack() as opened:
        two = b"GET /short HTTP/1.1\r\nHost: x\r\n\r\nGET /long HTTP/1.1\r\nHost: x\r\n\r\n"
        for _ in range(40):
            connection = opened.enter_context(closing(made.connect()))
            connection.sendall(two)
            connection.recv(12)
        assert UNREAD_MAX - (4 << 20) < held_bytes[0] < UNREAD_MAX + 1_000_000, "and some words of refusal"


def test_the_system_takes_little_of_an_answer_that_is_not_read() -> None:
    """It took a megabyte of each, which counted for nobody."""
    turns = Throttle()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await turns.user("eve", Response(b"x" * (1 << 20)), scope, receive, send)

    with running(Served(ConnectionCounts(descriptors=1024), app)) as made, ExitStack() as opened:
        said = []
        for _ in range(20):
            connection = opened.enter_context(closing(made.connect()))
            connection.sendall(ASK + b"\r\n")
            said.append(connection.recv(12))
        assert [b"HTTP/1.1 200"] * 16 + [b"HTTP/1.1 429"] * 4 == said


def test_a_client_that_takes_nothing_of_a_whole_answer_is_hung_up_on() -> None:
    async def long(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send(
            {
                "type": "http.response.body",
                "body": b"x" * 16 * 1024 * 1024,
                "more_body": scope["path"] == "/on",
            }
        )
        while scope["path"] == "/on" and (await receive())["type"] != "http.disconnect":
            pass

    times = connections.RequestTimes(take_s=1.0, look_s=0.2)
    with running(Served(ConnectionCounts(descriptors=1024), long, times)) as made, ExitStack() as opened:
        whole, two, stream = [opened.enter_context(closing(made.connect())) for _ in range(3)]
        stream.sendall(b"GET /on HTTP/1.1\r\nHost: x\r\n\r\n")
        whole.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        # The second answer waits for the first one.
        two.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 2)
        until(lambda: len(made.server_state.connections) == 3)
        until(lambda: len(made.server_state.connections) == 1, 10)
        time.sleep(1)
        assert 1 == len(made.server_state.connections), "a stream may stand still"


def test_a_client_that_goes_after_a_long_body_is_noticed_while_its_answer_is_made() -> None:
    """Its connection was left unread, and its answer made to the end."""
    asked, gone = threading.Event(), threading.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive, send)
        assert len(await read_bytes(request)) > 500_000
        async with told_when_gone(request, gone.set):
            asked.set()
            await asyncio.to_thread(gone.wait, 20)

    body = b'"' + b"[" * 500_000 + b'"'
    head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    with running(Served(ConnectionCounts(descriptors=1024), app)) as made:
        with closing(made.connect()) as connection:
            connection.sendall(head % len(body) + body)
            assert asked.wait(20)
            assert not gone.is_set()
        assert gone.wait(5)
