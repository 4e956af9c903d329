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
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gpuyard.api.answers import Asked, End, Fleet, Job, Node, Overview, Page, Queue, Standing, Submitted
from gpuyard.api.calling import API, FIRST_PAUSE_S, NoServer, Refused
from gpuyard.api.client_foresight import ForesightCalls
from gpuyard.api.client_people import PeopleCalls
from gpuyard.api.client_sharing import SharingCalls
from gpuyard.api.config_calls import ConfigCalls
from gpuyard.api.quoting import part as _part
from gpuyard.api.quoting import query as _query
from gpuyard.api.surroundings import environment, here, umask

ASKED_AT_ONCE = 2000
"""Jobs in one request: it is answered long before anybody would give up waiting."""

__all__ = ["API", "Client", "NoServer", "Refused"]


class Client(ConfigCalls, ForesightCalls, PeopleCalls, SharingCalls):
    """A connection to a yard. Not to be shared between threads."""

    # -- jobs ----------------------------------------------------------------------------------------------------

    def submit(
        self,
        request: Mapping[str, Any] | None = None,
        *,
        key: str = "",
        **fields: Any,
    ) -> Submitted:
        """Submit a job: the fields of `POST /jobs`, as one mapping or by name (`klass` for `class`).

        It runs in this folder and with this environment and umask, as with `yard submit`, unless `cwd`, `env` and
        `umask` say otherwise.
        """
        wanted = {**(request or {}), **fields}
        if "cwd" not in wanted:
            wanted["cwd"] = here()
        if "env" not in wanted:
            wanted["env"] = environment()
        if "umask" not in wanted:
            wanted["umask"] = umask()
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

    def recipe(self, job_id: int | str) -> dict[str, Any]:
        """How a job is run: command or script, folder, environment. For its owner and administrators."""
        found: dict[str, Any] = self._call("GET", f"{API}/jobs/{_part(job_id)}/recipe")
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
        name: str = "",
        limit: int | None = None,
        wide: bool = False,
    ) -> Queue:
        """Live jobs in the order of the scheduler; wide: with more columns."""
        query = {
            "state": ",".join(states),
            "tenant": tenant,
            "user": user,
            "name": name,
            "limit": limit or "",
        }
        query["wide"] = int(wide) or ""
        found: Queue = self._call("GET", f"{API}/queue{_query(query)}")
        return found

    def ask(self, verb: str, job_id: int | str) -> Asked:
        """`cancel`, `hold`, `release`, `suspend`, `continue` or `requeue` a job or an array."""
        done: Asked = self._call("POST", f"{API}/jobs/{_part(job_id)}/{_part(verb)}")
        return done

    def ask_many(self, verb: str, ids: Sequence[int | str]) -> list[Asked]:
        """The same for many jobs: an answer for each. What was asked before a connection is lost for good is done."""
        done: list[Asked] = []
        for first in range(0, len(ids), ASKED_AT_ONCE):
            body = json.dumps({"ids": list(ids[first : first + ASKED_AT_ONCE])}).encode()
            done += self._call("POST", f"{API}/jobs/{_part(verb)}", body)["results"]
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
        return self.fleet()["nodes"]

    def fleet(self) -> Fleet:
        """The fleet, and what scripts call pools, tenants and classes."""
        found: Fleet = self._call("GET", f"{API}/nodes")
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
            piece, after = self._piece_of_log(f"{API}/jobs/{_part(job_id)}/logs{_query(query)}")
            if not piece:
                return
            yield piece
            offset = after if after >= 0 else offset + len(piece)

    def follow(
        self,
        job_id: int | str,
        *,
        stream: str = "stdout",
        standing: Callable[[Standing], None] | None = None,
    ) -> Iterator[bytes | End]:
        """What a job writes, as it writes it; the last item is how it ended. Goes on after a lost connection.

        `standing` is called with how the job stands, while it waits and when it runs.
        """
        attempt, offset, failures, lost_s = 0, 0, 0, 0.0
        while True:
            query = {"stream": stream, "follow": "true", "offset": offset, "attempt": attempt or ""}
            query["standing"] = "" if standing is None else "true"
            try:
                for name, data in self._events(f"{API}/jobs/{_part(job_id)}/logs{_query(query)}"):
                    failures = 0
                    if name == "log":
                        piece = _piece(data)
                        attempt, offset = data["attempt"], data["offset"] + len(piece)
                        yield piece
                    elif name == "attempt":
                        attempt, offset = data["attempt"], 0
                    elif name == "standing" and standing is not None:
                        standing(data)
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
            time.sleep(min(1.0, FIRST_PAUSE_S * 2**failures))

    def events(self, after: int | None = None) -> Iterator[dict[str, Any]]:
        """The log of the yard, as it grows."""
        query = {"after": "" if after is None else after}
        for _name, data in self._events(f"{API}/events{_query(query)}"):
            yield data

    # -- the server ----------------------------------------------------------------------------------------------

    def ready(self) -> tuple[bool, dict[str, Any]]:
        """Whether the server can do its work, and how it stands."""
        head, body = self._exchange("GET", "/readyz", None, {})
        return head.status == 200, json.loads(body)

    def version(self) -> dict[str, Any]:
        """Which release the server is."""
        found: dict[str, Any] = self._call("GET", "/version")
        return found


def _piece(data: Mapping[str, str]) -> bytes:
    if "text" in data:
        return data["text"].encode()
    import binascii  # noqa: PLC0415 (few logs need it)

    return binascii.a2b_base64(data["base64"])
