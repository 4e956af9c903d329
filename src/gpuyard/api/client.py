"""The Python client: typed, synchronous, without dependencies, and light, since every command starts with it.

    from gpuyard.api.client import Client

    with Client() as yard:
        job = yard.submit(command=["python3", "train.py"], gpus=2)
        for piece in yard.follow(job["id"]):
            ...

It finds the yard of this machine by itself, or is told with `server` and `token` (or YARD_URL and YARD_TOKEN), or goes
where `yard login` has been. A submission carries an idempotency key and is sent again if the connection is lost, so it
happens once.
"""

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from gpuyard.api.answers import Asked, End, Job, Node, Overview, Page, Queue, Submitted
from gpuyard.api.client_foresight import ForesightCalls
from gpuyard.api.client_people import PeopleCalls
from gpuyard.api.config_calls import ConfigCalls
from gpuyard.api.finding import find
from gpuyard.api.http import Connection, Head
from gpuyard.api.quoting import part as _part
from gpuyard.api.quoting import query as _query
from gpuyard.errors import YardError

API = "/api/v1"
TIMEOUT_S = 60.0
PATIENCE_S = 10.0
"""How long a lost connection is tried to be made again."""
FOLLOW_PATIENCE_S = 30.0
"""The same for who follows a job: a yard that is started again takes seconds, and the job goes on."""
_FIRST_PAUSE_S = 0.05
_STREAM_TIMEOUT_S = 60.0
"""The server says something at least every 15 seconds."""


class NoServer(YardError):
    """There is nobody to ask."""

    exit_code = 4


class Refused(YardError):
    """The server said no."""

    def __init__(self, status: int, body: Mapping[str, Any]) -> None:
        super().__init__(
            str(body.get("detail") or body.get("title") or "refused"), str(body.get("hint") or "")
        )
        self.status = status
        self.body = body
        self.exit_code = 2 if 400 <= status < 500 else 1


class Client(ConfigCalls, ForesightCalls, PeopleCalls):
    """A connection to a yard. Not to be shared between threads."""

    def __init__(
        self,
        server: str = "",
        token: str = "",
        *,
        data: Path | None = None,
        ca: str = "",
        timeout_s: float = TIMEOUT_S,
        patience_s: float = PATIENCE_S,
        follow_patience_s: float = FOLLOW_PATIENCE_S,
    ) -> None:
        self._timeout_s = timeout_s
        self._follow_patience_s = follow_patience_s
        self._patience_s = patience_s
        self._connection: Connection | None = None
        self._stream: Connection | None = None
        self._hung_up = False
        place = find(server, token, data, ca)
        self._address = place.address
        self._tls = place.tls
        self.server = place.url
        self._headers = {"Host": place.host, "Accept": "application/json"}
        if place.token:
            self._headers["Authorization"] = f"Bearer {place.token}"

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def hang_up(self) -> None:
        """End the stream that is read in another thread; the one thing that another thread may ask for."""
        self._hung_up = True
        if self._stream is not None:
            self._stream.shut_down()

    # -- jobs ----------------------------------------------------------------------------------------------------

    def submit(
        self,
        request: Mapping[str, Any] | None = None,
        *,
        key: str = "",
        **fields: Any,
    ) -> Submitted:
        """Submit a job: the fields of `POST /jobs`, as one mapping or by name (`klass` for `class`)."""
        wanted = {**(request or {}), **fields}
        if "klass" in wanted:
            wanted["class"] = wanted.pop("klass")
        body = json.dumps(wanted).encode()
        headers = {"Idempotency-Key": key or os.urandom(16).hex()}
        accepted: Submitted = self._call("POST", f"{API}/jobs", body, headers)
        return accepted

    def job(self, job_id: int | str, *, explain: bool = True) -> Job:
        """One job, live or ended."""
        found: Job = self._call("GET", f"{API}/jobs/{_part(job_id)}?explain={str(explain).lower()}")
        return found

    def why(self, job_id: int | str, *, at_ms: int | None = None) -> dict[str, Any]:
        """Why a job waits, or did at a time that is past: `GET /jobs/{id}/why`."""
        query = _query({"at_ms": "" if at_ms is None else at_ms})
        found: dict[str, Any] = self._call("GET", f"{API}/jobs/{_part(job_id)}/why{query}")
        return found

    def share(self, tenant: str = "") -> dict[str, Any]:
        """How the tenants stand: `GET /share`."""
        found: dict[str, Any] = self._call("GET", f"{API}/share{_query({'tenant': tenant})}")
        return found

    def jobs(
        self,
        *,
        states: Sequence[str] = (),
        tenant: str = "",
        user: str = "",
        name: str = "",
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page:
        """A page of jobs, newest first."""
        query = {"state": ",".join(states), "tenant": tenant, "user": user, "name": name, "limit": limit}
        found = self._call("GET", f"{API}/jobs{_query(query | {'cursor': cursor or ''})}")
        return Page(found["jobs"], found["next_cursor"])

    def history(
        self,
        *,
        states: Sequence[str] = (),
        tenant: str = "",
        user: str = "",
        name: str = "",
        since_ms: int | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page:
        """A page of ended jobs, newest first."""
        query = {"state": ",".join(states), "tenant": tenant, "user": user, "name": name, "limit": limit}
        more = {"cursor": cursor or "", "since_ms": "" if since_ms is None else since_ms}
        found = self._call("GET", f"{API}/history{_query(query | more)}")
        return Page(found["jobs"], found["next_cursor"])

    def queue(
        self,
        *,
        states: Sequence[str] = (),
        tenant: str = "",
        user: str = "",
        limit: int | None = None,
        wide: bool = False,
    ) -> Queue:
        """Live jobs in the order of the scheduler; wide: with more columns."""
        query = {"state": ",".join(states), "tenant": tenant, "user": user, "limit": limit or ""}
        query["wide"] = int(wide) or ""
        found: Queue = self._call("GET", f"{API}/queue{_query(query)}")
        return found

    def ask(self, verb: str, job_id: int | str) -> Asked:
        """`cancel`, `hold`, `release`, `suspend`, `continue` or `requeue` a job or an array."""
        done: Asked = self._call("POST", f"{API}/jobs/{_part(job_id)}/{_part(verb)}")
        return done

    def ask_many(self, verb: str, ids: Sequence[int | str]) -> list[Asked]:
        """The same for many jobs: an answer for each."""
        body = json.dumps({"ids": list(ids)}).encode()
        done: list[Asked] = self._call("POST", f"{API}/jobs/{_part(verb)}", body)["results"]
        return done

    def cancel(self, job_id: int | str) -> Asked:
        """Cancel a job, or all live tasks of an array."""
        done: Asked = self._call("DELETE", f"{API}/jobs/{_part(job_id)}")
        return done

    def checkpoint(self, job_id: int | str, saved_at_ms: int | None = None) -> dict[str, Any]:
        """Say that a running job has saved its work: now, or at that time."""
        body = None if saved_at_ms is None else json.dumps({"saved_at_ms": saved_at_ms}).encode()
        done: dict[str, Any] = self._call("POST", f"{API}/jobs/{_part(job_id)}/checkpoint", body)
        return done

    # -- nodes ---------------------------------------------------------------------------------------------------

    def nodes(self) -> list[Node]:
        """The fleet."""
        found: list[Node] = self._call("GET", f"{API}/nodes")["nodes"]
        return found

    def overview(self) -> Overview:
        """Every GPU and who is on it, every tenant and what it holds."""
        found: Overview = self._call("GET", f"{API}/overview")
        return found

    def drain(self, node: str, why: str = "") -> dict[str, Any]:
        """Let nothing new start on a node."""
        done: dict[str, Any] = self._call(
            "POST", f"{API}/nodes/{_part(node)}/drain", json.dumps({"why": why}).encode()
        )
        return done

    def resume(self, node: str) -> dict[str, Any]:
        """Let a node take work again."""
        done: dict[str, Any] = self._call("POST", f"{API}/nodes/{_part(node)}/resume")
        return done

    # -- what is written -----------------------------------------------------------------------------------------

    def log(
        self, job_id: int | str, *, stream: str = "stdout", attempt: int | None = None
    ) -> Iterator[bytes]:
        """What a job has written so far, piece by piece."""
        offset, limit = 0, 1024 * 1024
        while True:
            query = {"stream": stream, "offset": offset, "limit": limit, "attempt": attempt or ""}
            piece = self._raw("GET", f"{API}/jobs/{_part(job_id)}/logs{_query(query)}")
            if not piece:
                return
            yield piece
            offset += len(piece)

    def follow(self, job_id: int | str, *, stream: str = "stdout") -> Iterator[bytes | End]:
        """What a job writes, as it writes it; the last item is how it ended. Goes on after a lost connection."""
        attempt, offset, failures, lost_s = 0, 0, 0, 0.0
        while True:
            query = {"stream": stream, "follow": "true", "offset": offset, "attempt": attempt or ""}
            try:
                for name, data in self._events(f"{API}/jobs/{_part(job_id)}/logs{_query(query)}"):
                    failures = 0
                    if name == "log":
                        piece = _piece(data)
                        attempt, offset = data["attempt"], data["offset"] + len(piece)
                        yield piece
                    elif name == "attempt":
                        attempt, offset = data["attempt"], 0
                    elif name == "end":
                        yield data
                        return
            except OSError as error:
                if self._hung_up:
                    return
                failures += 1
                lost_s = time.monotonic() if failures == 1 else lost_s
                if time.monotonic() - lost_s > self._follow_patience_s:
                    raise NoServer(
                        f"the yard is gone: {error.strerror or error}; job {job_id} goes on without it",
                        f"Once the yard is up again: yard logs -f {job_id}",
                    ) from error
            time.sleep(min(1.0, _FIRST_PAUSE_S * 2**failures))

    def events(self, after: int | None = None) -> Iterator[dict[str, Any]]:
        """The log of the yard, as it grows."""
        query = {"after": "" if after is None else after}
        for _name, data in self._events(f"{API}/events{_query(query)}"):
            yield data

    def _events(self, path: str, body: bytes | None = None) -> Iterator[tuple[str, Any]]:
        """Server-sent events of a connection of their own."""
        connection = self._stream = Connection(self._address, _STREAM_TIMEOUT_S, self._tls)
        try:
            headers = {**self._headers, "Accept": "text/event-stream", "Content-Type": "application/json"}
            head = connection.send("GET" if body is None else "POST", path, headers, body)
            if head.status != 200:
                raise _refused(head, connection.body(head))
            buffer = b""
            for piece in connection.pieces(head):
                buffer += piece
                while b"\n\n" in buffer:
                    block, _, buffer = buffer.partition(b"\n\n")
                    fields = [line.partition(b": ") for line in block.split(b"\n")]
                    found = {name: value for name, _, value in fields if name}
                    if b"data" in found:
                        yield found.get(b"event", b"message").decode(), json.loads(found[b"data"])
        finally:
            connection.close()

    # -- the server ----------------------------------------------------------------------------------------------

    def ready(self) -> tuple[bool, dict[str, Any]]:
        """Whether the server can do its work, and how it stands."""
        head, body = self._exchange("GET", "/readyz", None, {})
        return head.status == 200, json.loads(body)

    def version(self) -> dict[str, Any]:
        """Which release the server is."""
        found: dict[str, Any] = self._call("GET", "/version")
        return found

    # -- the wire ------------------------------------------------------------------------------------------------

    def _call(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Any:
        return json.loads(self._raw(method, path, body, headers))

    def _raw(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> bytes:
        head, content = self._exchange(method, path, body, headers or {})
        if head.status >= 400:
            raise _refused(head, content)
        return content

    def _exchange(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> tuple[Head, bytes]:
        """One request and its answer; again on a new connection if the old one is lost, for a while."""
        sent = {**self._headers, **headers}
        if body is not None:
            sent["Content-Type"] = "application/json"
        until_s = time.monotonic() + self._patience_s
        pause_s, tried = _FIRST_PAUSE_S, False
        while True:
            try:
                if self._connection is None:
                    self._connection = Connection(self._address, self._timeout_s, self._tls)
                tried = True
                head = self._connection.send(method, path, sent, body)
                return head, self._connection.body(head)
            except OSError as error:
                self.close()
                # Who never got through at the first try finds nobody; who was cut off asks again.
                if not tried or time.monotonic() + pause_s > until_s:
                    raise _nobody(self._address, error) from error
                time.sleep(pause_s)
                pause_s = min(1.0, 2 * pause_s)


def _piece(data: Mapping[str, str]) -> bytes:
    if "text" in data:
        return data["text"].encode()
    import binascii  # noqa: PLC0415 (few logs need it)

    return binascii.a2b_base64(data["base64"])


def _refused(head: Head, content: bytes) -> Refused:
    with suppress(ValueError):
        body = json.loads(content)
        if isinstance(body, dict):
            return Refused(head.status, body)
    return Refused(head.status, {"detail": f"the server answered {head.status}"})


def _nobody(address: tuple[str, int] | str, error: OSError) -> NoServer:
    where = address if isinstance(address, str) else f"{address[0]}:{address[1]}"
    if isinstance(address, str) and isinstance(error, FileNotFoundError | ConnectionRefusedError):
        return NoServer("no yard is running here: start one with `yard up -d`")
    if type(error).__name__ == "SSLCertVerificationError":
        return NoServer(
            f"the certificate of {where} is not trusted: {getattr(error, 'verify_message', error)}",
            "Name the file that signed it: YARD_CA, or `yard login --ca FILE`.",
        )
    if isinstance(error, TimeoutError):
        return NoServer(
            f"the yard at {where} is there and does not answer",
            "It is stopped or overloaded: look at its log, yard.log in its data folder, and at `top`.",
        )
    if getattr(error, "reason", "") == "WRONG_VERSION_NUMBER":
        return NoServer(f"{where} does not speak TLS", "Say http:// instead of https://, or another port.")
    return NoServer(
        f"no yard answers at {where}: {error.strerror or error}", "Is it running? `yard up -d` starts one."
    )
