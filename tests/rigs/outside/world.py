"""A world that is no machine of ours: berths that hold cargo. It runs in the test and answers a line with a line.

Its cargo is jobs: what people there loaded by themselves, and what a yard asked for. Output is a stream of pieces,
which nobody has as a file. What a yard asked for ends when the test says so.
"""

import json
import socket
import socketserver
import threading
import time
from dataclasses import dataclass, field
from typing import Any


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass
class Cargo:
    """Something that is loaded, waits to be, or was."""

    number: int
    owner: str = "ann"
    fleet: str = "freight"
    name: str = "crate"
    gpus: int = 1
    state: str = "queued"
    """queued, loaded, paused, or how it was unloaded: delivered, dropped."""
    at: dict[str, int] = field(default_factory=dict)
    """GPUs by berth."""
    came_ms: int = field(default_factory=now_ms)
    loaded_ms: int = 0
    left_ms: int = 0
    excuse: str = ""
    """Why it is queued."""


@dataclass
class Order:
    """What a yard asked for, by key."""

    key: str
    words: list[str]
    at: dict[str, int]
    state: str = "loaded"
    left: str = ""
    """How it was unloaded, once it was."""
    code: int = 0
    loaded_ms: int = field(default_factory=now_ms)
    left_ms: int = 0
    pieces: list[str] = field(default_factory=list)
    """What it said."""


class World:
    """Berths, cargo and orders behind a socket."""

    def __init__(self, prefix: str, berths: int = 2, gpus: int = 4) -> None:
        self.berths: dict[str, dict[str, Any]] = {
            f"{prefix}-{i}": {"gpus": gpus, "cores": 32, "memory_mib": 100_000, "shut": "", "lost": ""}
            for i in range(1, berths + 1)
        }
        self.cargo: list[Cargo] = []
        self.orders: dict[str, Order] = {}
        self.barred: set[str] = set()
        self.epoch = 0
        self.lock = threading.Lock()
        self.asked: list[str] = []
        world = self

        class Line(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                for line in self.rfile:
                    request = json.loads(line)
                    with world.lock:
                        world.asked.append(request["do"])
                        reply = getattr(world, f"do_{request.pop('do')}")(**request)
                    self.wfile.write(json.dumps(reply).encode() + b"\n")

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Line)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        host, port = self._server.server_address[:2]
        return f"{host!s}:{port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    # -- what a test does ----------------------------------------------------------------------------------------

    def load(self, number: int, at: dict[str, int], **more: Any) -> Cargo:
        """Somebody there loads a crate."""
        started = now_ms()
        made = Cargo(number, at=at, gpus=sum(at.values()), state="loaded", loaded_ms=started, **more)
        with self.lock:
            self.cargo.append(made)
        return made

    def queue(self, number: int, gpus: int, excuse: str, **more: Any) -> Cargo:
        """Somebody there wants to load a crate, and has to wait."""
        made = Cargo(number, gpus=gpus, excuse=excuse, **more)
        with self.lock:
            self.cargo.append(made)
        return made

    def unload(self, cargo: Cargo, state: str) -> None:
        """A crate goes."""
        with self.lock:
            cargo.state, cargo.left_ms = state, now_ms()

    def finish(self, key: str, code: int = 0) -> None:
        """What a yard asked for ends by itself."""
        with self.lock:
            self._leave(self.orders[key], "delivered" if code == 0 else "dropped", code)

    def _leave(self, order: Order, left: str, code: int) -> None:
        if not order.left:
            order.state, order.left, order.code, order.left_ms = "gone", left, code, now_ms()

    # -- what is asked over the socket ---------------------------------------------------------------------------

    def do_berths(self) -> Any:
        return self.berths

    def do_cargo(self) -> Any:
        return [vars(each) for each in self.cargo]

    def do_load(self, epoch: int, key: str, words: list[str], at: dict[str, int]) -> Any:
        if not self._newest(epoch):
            return "stale"
        if key in self.barred:
            return "refused"
        if key not in self.orders:
            said = [f"{word}\n" for word in words[1:]] if words[:1] == ["say"] else []
            self.orders[key] = Order(key, words, at, pieces=said)
        return "done"

    def do_drop(self, epoch: int, key: str, left: str) -> Any:
        if not self._newest(epoch):
            return "stale"
        if key not in self.orders:
            self.barred.add(key)
            return "barred"
        self._leave(self.orders[key], left, 143)
        return "done"

    def do_orders(self) -> Any:
        return [vars(each) for each in self.orders.values()]

    def do_forget(self, epoch: int, keys: list[str]) -> Any:
        if not self._newest(epoch):
            return "stale"
        for key in keys:
            if key in self.orders and self.orders[key].left:
                self.orders[key].state = "forgotten"
        return "done"

    def do_stream(self, key: str, number: int = 0) -> Any:
        return self.orders[key].pieces[number:] if key in self.orders else []

    def _newest(self, epoch: int) -> bool:
        self.epoch = max(self.epoch, epoch)
        return epoch == self.epoch


class Wire:
    """The other end: one question at a time, over a connection of its own."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._place = host, int(port)

    def ask(self, do: str, **more: Any) -> Any:
        """The answer. Raises `OSError` where nobody answers."""
        with socket.create_connection(self._place, timeout=5) as line:
            line.sendall(json.dumps({"do": do, **more}).encode() + b"\n")
            with line.makefile("rb") as reply:
                return json.loads(reply.readline() or b"null")
