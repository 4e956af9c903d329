"""The hands that load both sides alike: HTTP clients on kept-alive connections, commands, and a probe of the disk.

Requests are made beforehand as bytes and replies are read by their length, so that on a small machine the clients take
as little as possible from the servers they measure. Both sides are served by exactly this code.
"""

import math
import os
import resource
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

_REPLY_S_MAX = 60.0


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back."""

    status: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Burst:
    """What several clients did together."""

    wall_s: float
    latencies_s: list[float]
    """Of every request, ascending."""
    replies: list[bytes]

    @property
    def per_s(self) -> float:
        """How many in a second."""
        return len(self.latencies_s) / self.wall_s


def connected(door: int | Path, most_s: float = _REPLY_S_MAX) -> socket.socket:
    """A connection to a port of this machine or to a socket at a path."""
    if isinstance(door, Path):
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # Without a limit on time it waits for its place among those that wait; with one it would be refused.
            made.connect(str(door))
            made.settimeout(most_s)
        except BaseException:
            made.close()
            raise
        return made
    made = socket.create_connection(("127.0.0.1", door), timeout=most_s)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


class Caller:
    """One client on one connection: to a port, or to a socket at a path, which knows who asks."""

    def __init__(self, door: int | Path, headers: dict[str, str], most_s: float = _REPLY_S_MAX) -> None:
        self._socket = connected(door, most_s)
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        host = "localhost" if isinstance(door, Path) else f"127.0.0.1:{door}"
        self._head = f"Host: {host}\r\nConnection: keep-alive\r\n{lines}"
        self._rest = b""

    def request(self, method: str, path: str, body: bytes = b"") -> bytes:
        """A request as bytes, to be sent as often as wanted."""
        about = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if body else ""
        return f"{method} {path} HTTP/1.1\r\n{self._head}{about}\r\n".encode() + body

    def send(self, request: bytes) -> Reply:
        """Send it and read the reply."""
        self._socket.sendall(request)
        data = self._rest
        while (end := data.find(b"\r\n\r\n")) < 0:
            data += self._more()
        head = data[:end].lower()
        at = head.find(b"content-length:")
        if b"\r\ntransfer-encoding: chunked" in head:
            return Reply(int(head.split(b" ", 2)[1]), self._chunks(data[end + 4 :]))
        if at < 0:
            raise ConnectionError(f"a reply without its length: {data[:200]!r}")
        length = int(head[at + 15 :].split(b"\r\n", 1)[0])
        parts, have = [data[end + 4 :]], len(data) - end - 4
        while have < length:
            parts.append(self._more())
            have += len(parts[-1])
        body = b"".join(parts)
        self._rest = body[length:]
        return Reply(int(head.split(b" ", 2)[1]), body[:length])

    def _chunks(self, data: bytes) -> bytes:
        """A body that comes in pieces, each with its length before it."""
        parts = []
        while True:
            while (end := data.find(b"\r\n")) < 0:
                data += self._more()
            size, data = int(data[:end], 16), data[end + 2 :]
            while len(data) < size + 2:
                data += self._more()
            parts.append(data[:size])
            data = data[size + 2 :]
            if not size:
                self._rest = data
                return b"".join(parts)

    def ask(self, method: str, path: str, body: bytes = b"") -> Reply:
        """Make a request and send it."""
        return self.send(self.request(method, path, body))

    def _more(self) -> bytes:
        data = self._socket.recv(1 << 16)
        if not data:
            raise ConnectionError("the server hung up")
        return data

    def close(self) -> None:
        """Hang up."""
        self._socket.close()


def together(work: Callable[[int], bytes], count: int, clients: int, most_s: float = math.inf) -> Burst:
    """So many clients do so much work between them, each its share; `work` gets the client's number.

    After `most_s` none begins anything new. A failure in one of them is raised here.
    """
    latencies: list[list[float]] = [[] for _ in range(clients)]
    replies: list[list[bytes]] = [[] for _ in range(clients)]
    failures: list[BaseException] = []
    gate = threading.Barrier(clients + 1)

    def client(number: int) -> None:
        share = count // clients + (number < count % clients)
        gate.wait()
        end_s = time.perf_counter() + most_s
        try:
            for _ in range(share):
                began_s = time.perf_counter()
                if began_s > end_s:
                    break
                replies[number].append(work(number))
                latencies[number].append(time.perf_counter() - began_s)
        except BaseException as error:  # It is raised again by whoever waits.
            failures.append(error)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    gate.wait()
    began_s = time.perf_counter()
    for thread in threads:
        thread.join()
    wall_s = time.perf_counter() - began_s
    if failures:
        raise failures[0]
    return Burst(
        wall_s, sorted(one for each in latencies for one in each), [one for each in replies for one in each]
    )


def percentile(ascending: Sequence[float], percent: int) -> float:
    """The value below which so many of a hundred lie."""
    return ascending[min(len(ascending) - 1, len(ascending) * percent // 100)]


@dataclass(frozen=True, slots=True)
class Timed:
    """One command, run as a process."""

    wall_s: float
    cpu_s: float
    output: bytes


def timed(command: Sequence[str], environment: dict[str, str]) -> Timed:
    """Run a command and read what it prints, as a pipe would. A failure ends the benchmark."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began_s = time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, check=False, cwd="/")
    wall_s = time.perf_counter() - began_s
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: exit code {done.returncode}: {done.stderr[-500:].decode()}")
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Timed(wall_s, cpu_s, done.stdout)


def fdatasync_s(folder: Path, count: int) -> list[float]:
    """How long the disk takes to keep 4 KiB more, each time, ascending: the floor under a durable acknowledgement."""
    path = folder / "fdatasync.probe"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    took = []
    try:
        for _ in range(count):
            began_s = time.perf_counter()
            os.write(fd, b"x" * 4096)
            os.fdatasync(fd)
            took.append(time.perf_counter() - began_s)
    finally:
        os.close(fd)
        path.unlink()
    return sorted(took)


_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s_of(pids: Sequence[int]) -> float:
    """CPU time that these processes have used so far, without that of their children."""
    total = 0
    for pid in pids:
        try:
            text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        except OSError:
            continue
        total += sum(int(field) for field in text.rpartition(")")[2].split()[11:13])
    return total / _TICKS
