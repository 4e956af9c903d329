"""A world that is no machine of ours: berths that hold cargo. It runs in the test and answers a line with a line.

Its cargo is jobs: what people there loaded by themselves, and what a yard asked for. Output is a stream of pieces,
which nobody has as a file. What a yard asked for ends when the test says so, or by the plan that it came with: what
the world is asked decides at which moment it looks, and not what happens.
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
class Plan:
    """What an order does by itself, and what else is said of it when it is loaded."""

    run_ms: int | None = None
    """None: it goes on until somebody ends it."""
    code: int = 0
    deaf: bool = False
    """Whether it does not go when it is asked to."""
    saves: bool = False
    limit_ms: int = 0
    grace_ms: int = 0
    crew: int = 1
    """How many begin together, and end together."""


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
    plan: Plan = field(default_factory=Plan)
    slots: dict[str, list[int]] = field(default_factory=dict)
    """The GPUs that the world gave it, by berth."""
    leaving: str = ""
    """What it will be called if it is still there when it is made to go; empty: nobody wants it to."""
    until_ms: int = 0
    """When it is made to go, if it is asked to."""
    saved_ms: int = 0

    def look(self, now_ms: int) -> None:
        """What has happened up to now."""
        plan, ends = self.plan, []
        if self.left:
            return
        if plan.run_ms is not None:
            how = "delivered" if plan.code == 0 else "dropped"
            ends.append((self.loaded_ms + plan.run_ms, 0, how, plan.code))
        if plan.limit_ms:
            due_ms = self.loaded_ms + plan.limit_ms
            code = FORCED if plan.deaf else ASKED
            ends.append((due_ms + plan.grace_ms * plan.deaf, 1, "overdue", code))
        if self.leaving:
            ends.append((self.until_ms, 2, self.leaving, FORCED if plan.deaf else ASKED))
        at_ms, _order, how, code = min(ends, default=(now_ms + 1, 0, "", 0))
        if at_ms <= now_ms:
            self.state, self.left, self.code, self.left_ms = "gone", how, code, at_ms


ASKED, FORCED = 128 + 15, 128 + 9


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
        self.skipped_ms = 0
        """How far its clock was set ahead."""
        self.loads: list[str] = []
        """Keys of what was really loaded, a line for each of a crew."""
        self.lock = threading.Lock()
        self.asked: list[str] = []
        world = self

        class Line(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                for line in self.rfile:
                    request = json.loads(line)
                    with world.lock:
                        world.asked.append(request["do"])
                        world.look()
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
            order.state, order.left, order.code, order.left_ms = "gone", left, code, self.now_ms()

    def now_ms(self) -> int:
        """Its own time."""
        return now_ms() + self.skipped_ms

    def look(self) -> None:
        """What has happened up to now."""
        for order in self.orders.values():
            order.look(self.now_ms())

    def crew(self, key: str) -> int:
        """How many of an order are there now."""
        with self.lock:
            self.look()
            order = self.orders.get(key)
            return order.plan.crew if order is not None and not order.left else 0

    # -- what is asked over the socket ---------------------------------------------------------------------------

    def do_berths(self) -> Any:
        return self.berths

    def do_cargo(self) -> Any:
        return [vars(each) for each in self.cargo]

    def do_load(self, epoch: int, key: str, words: list[str], at: dict[str, int], **limits: int) -> Any:
        if not self._newest(epoch):
            return "stale"
        if key in self.barred or (key in self.orders and self.orders[key].state == "forgotten"):
            return f"{key} is over"
        if key in self.orders:
            return "done"
        slots = {berth: self._free(berth)[:count] for berth, count in at.items()}
        if short := [berth for berth, count in at.items() if len(slots[berth]) < count]:
            return f"there is no room at {' and '.join(short)}"
        plan = json.loads(words[1]) if words[:1] == ["do"] else {}
        said = [f"{word}\n" for word in words[1:]] if words[:1] == ["say"] else plan.pop("says", [])
        made = Order(
            key, words, at, loaded_ms=self.now_ms(), pieces=said, plan=Plan(**plan, **limits), slots=slots
        )
        made.saved_ms = made.loaded_ms if made.plan.saves else 0
        self.orders[key] = made
        self.loads += [key] * made.plan.crew
        made.look(self.now_ms())
        return "done"

    def _free(self, berth: str) -> list[int]:
        taken = {
            slot for order in self.orders.values() if not order.left for slot in order.slots.get(berth, ())
        }
        return [slot for slot in range(self.berths.get(berth, {}).get("gpus", 0)) if slot not in taken]

    def do_drop(self, epoch: int, key: str, left: str, grace_ms: int) -> Any:
        if not self._newest(epoch):
            return "stale"
        order = self.orders.get(key)
        if order is None or order.state == "forgotten":
            self.barred.add(key)
            return "barred"
        until_ms = self.now_ms() + (grace_ms if order.plan.deaf else 0)
        order.until_ms = min(until_ms, order.until_ms) if order.leaving else until_ms
        order.leaving = order.leaving or left
        order.look(self.now_ms())
        return "done"

    def do_pause(self, epoch: int) -> Any:
        return "a crate cannot stand still" if self._newest(epoch) else "stale"

    def do_orders(self) -> Any:
        return [{**vars(each), "plan": None} for each in self.orders.values()]

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
