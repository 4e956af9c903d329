"""The Python client: typed, synchronous, without dependencies, and light, since every command starts with it.

    from gpuyard.api.client import Client

    with Client() as yard:
        job = yard.submit(command=["python3", "train.py"], gpus=2)
        for piece in yard.follow(job["id"]):
            ...

It finds the yard of this machine by itself, or the one given by `server` and `token` (or YARD_URL and YARD_TOKEN), or
the one of the last `yard login`. A submission carries an idempotency key and is sent again if the connection is lost,
so it happens once.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gpuyard.api.answers import Asked, End, Fleet, Job, Node, Overview, Page, Queue, Standing, Submitted
from gpuyard.api.calling import API, FIRST_PAUSE_S, Caller, NoServer, Refused
from gpuyard.api.surroundings import environment, here, umask

ASKED_AT_ONCE = 2000
"""Jobs in one request: few enough to be answered well within a client's timeout."""

_CONFIG = f"{API}/config"

__all__ = ["API", "Client", "NoServer", "Refused"]


class Client(Caller):
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
        """Why a job waits, or waited at a time in the past: `GET /jobs/{id}/why`."""
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
        """The same for many jobs: an answer for each. Requests before a connection is lost for good are done."""
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
        """Every GPU and the jobs on it, every tenant and what it holds."""
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
        """A job's output so far, piece by piece."""
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
        """A job's output, as it is written; the last item is how it ended. Goes on after a lost connection.

        `standing` is called with the job's state, while it waits and when it runs.
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

    def changes(self, after: str = "") -> Iterator[tuple[str, Any]]:
        """The queue as it changes: `start`, then `rows`, `order` and `again`, until the connection is lost.

        `after` is `seq` of a list; `api.replica.Replica` keeps the list up to date with them.
        """
        yield from self._events(f"{API}/changes{_query({'after': after})}")

    # -- the server ----------------------------------------------------------------------------------------------

    def ready(self) -> tuple[bool, dict[str, Any]]:
        """Whether the server can do its work, and its state."""
        head, body = self._exchange("GET", "/readyz", None, {})
        return head.status == 200, json.loads(body)

    def version(self) -> dict[str, Any]:
        """Which release the server is."""
        found: dict[str, Any] = self._call("GET", "/version")
        return found

    # -- what lies ahead ----------------------------------------------------------------------------------------

    def eta(self, job_id: int | str) -> dict[str, Any]:
        """By when a job starts: `starts_by_ms` has p50 and p90, or is None where that is unknown."""
        found: dict[str, Any] = self._call("GET", f"{API}/jobs/{_part(job_id)}/eta")
        return found

    def dry_run(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """What would become of a job: the fields of a submission, of which nothing is written."""
        found: dict[str, Any] = self._call("POST", f"{API}/jobs/dry-run", json.dumps(request).encode())
        return found

    # -- people -------------------------------------------------------------------------------------------------

    def me(self) -> dict[str, Any]:
        """The asker, and what they may do."""
        found: dict[str, Any] = self._call("GET", f"{API}/me")
        return found

    def tokens(self) -> list[dict[str, Any]]:
        """Tokens that concern you, without their secrets."""
        found: list[dict[str, Any]] = self._call("GET", f"{API}/tokens")["tokens"]
        return found

    def make_token(
        self,
        user: str,
        *,
        role: str | None = None,
        tenant: str | None = None,
        days: int | None = None,
        note: str = "",
    ) -> dict[str, Any]:
        """A new token; its `secret` is shown this once."""
        wanted = {"user": user, "role": role, "tenant": tenant, "days": days, "note": note}
        body = json.dumps({name: value for name, value in wanted.items() if value is not None}).encode()
        made: dict[str, Any] = self._call("POST", f"{API}/tokens", body)
        return made

    def revoke_token(self, token_id: str) -> dict[str, Any]:
        """Revoke a token, and those that were made with it."""
        if not token_id.isascii() or not token_id.isalnum():
            token_id = "-"
        done: dict[str, Any] = self._call("DELETE", f"{API}/tokens/{token_id}")
        return done

    def unbind_name(self, user: str) -> dict[str, Any]:
        """Unbind a name from the person of its first login; that person's logins end."""
        done: dict[str, Any] = self._call("DELETE", f"{API}/logins/{_part(user)}")
        return done

    def audit(self, *, user: str = "", limit: int = 100, cursor: str | None = None) -> dict[str, Any]:
        """What each person did, newest first."""
        parts = {"user": user, "limit": str(limit), "cursor": cursor or ""}
        query = "&".join(f"{name}={_part(value)}" for name, value in parts.items() if value)
        found: dict[str, Any] = self._call("GET", f"{API}/audit?{query}")
        return found

    def ways_to_log_in(self) -> dict[str, Any]:
        """Whether a login is needed, and with which identity provider."""
        found: dict[str, Any] = self._call("GET", f"{API}/login")
        return found

    def log_in(self, id_token: str, nonce: str) -> dict[str, Any]:
        """Trade what the identity provider said for a token."""
        body = json.dumps({"id_token": id_token, "nonce": nonce}).encode()
        made: dict[str, Any] = self._call("POST", f"{API}/login/oidc", body)
        return made

    # -- GPUs: what they do, MIG layouts, defragmentation -------------------------------------------------------

    def gpus(self) -> dict[str, Any]:
        """What GPUs do now, and the jobs on them: `GET /gpus`."""
        found: dict[str, Any] = self._call("GET", f"{API}/gpus")
        return found

    def mig(self) -> dict[str, Any]:
        """How GPUs are cut: `GET /mig`."""
        found: dict[str, Any] = self._call("GET", f"{API}/mig")
        return found

    def mig_plan(self, node: str = "", layouts: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
        """What layouts would do to a node; without any, what the queue leads to."""
        body = json.dumps({"node": node, "layouts": list(layouts)}).encode()
        found: dict[str, Any] = self._call("POST", f"{API}/mig/plan", body)
        return found

    def mig_apply(self, node: str, layouts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Pin GPUs of a node to layouts. `mig` says when they are made."""
        body = json.dumps({"layouts": list(layouts)}).encode()
        done: dict[str, Any] = self._call("POST", f"{API}/nodes/{_part(node)}/mig", body)
        return done

    def mig_release(self, node: str, gpus: Sequence[int] | None = None) -> dict[str, Any]:
        """Let GPUs of a node be cut by demand again."""
        body = json.dumps({"gpus": None if gpus is None else list(gpus)}).encode()
        done: dict[str, Any] = self._call("POST", f"{API}/nodes/{_part(node)}/mig/release", body)
        return done

    def defrag(self, moves: int | None = None) -> dict[str, Any]:
        """Moves that would free whole GPUs or nodes."""
        asked = _query({"moves": "" if moves is None else moves})
        found: dict[str, Any] = self._call("GET", f"{API}/defrag{asked}")
        return found

    # -- the configuration, and the upkeep of the store ---------------------------------------------------------

    def config(self, version: int | None = None) -> dict[str, Any]:
        """A version with its text; the one in force if none is named."""
        found: dict[str, Any] = self._call(
            "GET", _CONFIG if version is None else f"{_CONFIG}/versions/{version}"
        )
        return found

    def config_versions(self, limit: int = 100) -> list[dict[str, Any]]:
        """The last versions, newest first."""
        found: list[dict[str, Any]] = self._call("GET", f"{_CONFIG}/versions?limit={limit}")["versions"]
        return found

    def prune(
        self, *, older_than_s: int | None = None, dry_run: bool = False, after: str = ""
    ) -> dict[str, Any]:
        """Remove what is kept of old jobs, as much as one request may: `after` is `next` of the reply before."""
        wanted = {"older_than_s": older_than_s, "dry_run": dry_run, "next": after or None}
        done: dict[str, Any] = self._call("POST", f"{API}/prune", json.dumps(wanted).encode())
        return done

    def projections(self) -> list[dict[str, Any]]:
        """How far the projections that follow the log have come."""
        found: list[dict[str, Any]] = self._call("GET", f"{API}/projections")["projections"]
        return found

    def rebuild(self, name: str) -> dict[str, Any]:
        """Have a projection filled again; gives its status."""
        done: dict[str, Any] = self._call("POST", f"{API}/projections/{_part(name)}/rebuild")
        return done

    def config_diff(self, **wanted: Any) -> dict[str, Any]:
        """What would change, and what is against it."""
        found: dict[str, Any] = self._call("POST", f"{_CONFIG}/diff", json.dumps(wanted).encode())
        return found

    def config_preview(self, **wanted: Any) -> Iterator[tuple[str, Any]]:
        """What it would have done: `progress` any number of times, then `preview`, or `error`."""
        yield from self._events(f"{_CONFIG}/preview", json.dumps(wanted).encode())

    def apply(self, **wanted: Any) -> dict[str, Any]:
        """Put a configuration in force."""
        done: dict[str, Any] = self._call("PUT", _CONFIG, json.dumps(wanted).encode())
        return done

    def rollback(self, **wanted: Any) -> dict[str, Any]:
        """Put an earlier version in force again."""
        done: dict[str, Any] = self._call("POST", f"{_CONFIG}/rollback", json.dumps(wanted).encode())
        return done

    def tenants(self) -> list[dict[str, Any]]:
        """The tree of tenants."""
        found: list[dict[str, Any]] = self._call("GET", "/api/v1/tenants")["tenants"]
        return found


def _piece(data: Mapping[str, str]) -> bytes:
    if "text" in data:
        return data["text"].encode()
    import binascii  # noqa: PLC0415 (few logs need it)

    return binascii.a2b_base64(data["base64"])


# -- parts of an address, quoted: the standard library's own takes longer to import than a request takes -------------


def _query(parts: Mapping[str, Any]) -> str:
    """A query of the values that are not empty. Only letters, digits and a few signs are unquoted."""
    said = [f"{name}={_quoted(str(value))}" for name, value in parts.items() if value != ""]
    return f"?{'&'.join(said)}" if said else ""


def _part(text: object) -> str:
    """One part of a path, with any content."""
    return _quoted(str(text)).replace("/", "%2F")


def _quoted(text: str) -> str:
    """Text for a path or a query. Slashes and commas stand."""
    plain = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/,")
    return "".join(
        [char if char in plain else "".join(f"%{byte:02X}" for byte in char.encode()) for char in text]
    )
