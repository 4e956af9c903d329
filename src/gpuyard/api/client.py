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

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from gpuyard.api.connecting.calling import FIRST_PAUSE_S, Caller, NoServer, Refused, StreamClosed
from gpuyard.errors import BadInput
from gpuyard.wire import endpoints
from gpuyard.wire.endpoints import API

if TYPE_CHECKING:
    # For the types alone: they are many, and a command that starts does not wait for them.
    from gpuyard.reports.report import Report
    from gpuyard.wire.replies.fleet import (
        DefragReply,
        DrainReply,
        GpusReply,
        LiveMarksReply,
        MarkedReply,
        MigPlanReply,
        MigReply,
        NodeMarksReply,
        NodeReply,
        NodesReply,
        OverviewReply,
        PinnedReply,
        ReleasedReply,
        SamplesReply,
    )  # fmt: skip
    from gpuyard.wire.replies.jobs import (
        AskedReply,
        CheckpointReply,
        CurvesReply,
        DryRunReply,
        End,
        EtaReply,
        ExplainedReply,
        JobReply,
        JobView,
        ManyReply,
        OneOfMany,
        QueueReply,
        ReadJobsReply,
        RecipeReply,
        RequestReply,
        Standing,
    )  # fmt: skip
    from gpuyard.wire.replies.people import (
        AuditReply,
        BrowserCodeReply,
        ClosedMonthReply,
        LoginReply,
        MeReply,
        NewTokenReply,
        ProjectionReply,
        PruneReply,
        ReadyReply,
        RevokedReply,
        TokenReply,
        UnboundReply,
        VersionReply,
    )  # fmt: skip
    from gpuyard.wire.replies.tenants import (
        AppliedReply,
        ConfigReply,
        ConfigVersionReply,
        DifferenceReply,
        ShareReply,
        TenantReply,
    )  # fmt: skip


R = TypeVar("R")
ASKED_AT_ONCE = 2000
"""Jobs in one request: few enough to be answered well within a client's timeout."""

__all__ = ["API", "Client", "NoServer", "Page", "Refused", "StreamClosed"]
_NOT_PASSED_ON = frozenset(
    {"YARD_TOKEN", "YARD_SERVER", "YARD_URL", "YARD_CA", "YARD_DATA", "CUDA_VISIBLE_DEVICES"}
)
_OF_A_JOB = ("SLURM_", "SLURMD_", "YARD_")
_OF_A_GANG = frozenset({"RANK", "LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})


class Page(tuple["list[JobView]", "str | None"]):
    """Some jobs, and the cursor of the next page; None: there are no more."""

    __slots__ = ()

    def __new__(cls, jobs: list[JobView], next_cursor: str | None) -> Page:
        """Written out: the first NamedTuple of a process takes 2 ms to make."""
        return tuple.__new__(cls, (jobs, next_cursor))

    @property
    def jobs(self) -> list[JobView]:
        """The jobs of this page."""
        return self[0]

    @property
    def next_cursor(self) -> str | None:
        """For the next page."""
        return self[1]


class Client(Caller):
    """A connection to a yard. Threads must not share one."""

    # -- jobs ----------------------------------------------------------------------------------------------------

    def submit(
        self,
        request: Mapping[str, Any] | None = None,
        *,
        key: str = "",
        **fields: Any,
    ) -> JobReply:
        """Submit a job: the fields of `POST /jobs`, as one mapping or by name (`klass` for `class`).

        It runs in this folder and with this environment and umask, as with `yard submit`, unless `cwd`, `env` and
        `read_umask` say otherwise.
        """
        wanted = {**(request or {}), **fields}
        if "cwd" not in wanted:
            wanted["cwd"] = current_folder()
        if "env" not in wanted:
            wanted["env"] = collect_environment()
        if "umask" not in wanted:
            wanted["umask"] = read_umask()
        if "klass" in wanted:
            wanted["class"] = wanted.pop("klass")
        return self.ask_for(endpoints.SUBMIT, wanted, {"Idempotency-Key": key or os.urandom(16).hex()})

    def job(self, job_id: int | str, *, explain: bool = True) -> JobView:
        """One job, live or ended."""
        return self.ask_for(endpoints.JOB, id=job_id, explain=str(explain).lower())

    def recipe(self, job_id: int | str) -> RecipeReply:
        """How a job is run: command or script, folder, environment. For its owner and administrators."""
        return self.ask_for(endpoints.RECIPE, id=job_id)

    def request(self, job_id: int | str) -> RequestReply:
        """The request that would submit a job or an array again. For its owner and administrators."""
        return self.ask_for(endpoints.REQUEST, id=job_id)

    def curves(self, job_id: int | str) -> CurvesReply:
        """What a job's last try did over time; without curves: nothing was measured."""
        return self.ask_for(endpoints.CURVES, id=job_id)

    def why(self, job_id: int | str, *, at_ms: int | None = None) -> ExplainedReply:
        """Why a job waits, or waited at a time in the past: `GET /jobs/{id}/why`."""
        return self.ask_for(endpoints.WHY, id=job_id, at_ms=at_ms)

    def share(self, tenant: str = "") -> ShareReply:
        """The tenants' shares, usage and guarantees: `GET /share`."""
        return self.ask_for(endpoints.SHARE, tenant=tenant)

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
        found = self.ask_for(
            endpoints.JOBS,
            state=",".join(states), tenant=tenant, user=user, name=name, limit=limit, cursor=cursor,
        )  # fmt: skip
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
        found = self.ask_for(
            endpoints.HISTORY,
            state=",".join(states), tenant=tenant, user=user, name=name, since_ms=since_ms, limit=limit, cursor=cursor,
        )  # fmt: skip
        return Page(found["jobs"], found["next_cursor"])

    def queue(
        self,
        *,
        states: Sequence[str] = (),
        tenant: str = "",
        user: str = "",
        name: str = "",
        cluster: str = "",
        limit: int | None = None,
        wide: bool = False,
    ) -> QueueReply:
        """Live jobs in the order of the scheduler; wide: with more columns."""
        return self.ask_for(
            endpoints.QUEUE,
            state=",".join(states), tenant=tenant, user=user, name=name, cluster=cluster, limit=limit,
            wide=int(wide) or None,
        )  # fmt: skip

    def ask(self, verb: str, job_id: int | str) -> AskedReply:
        """`cancel`, `hold`, `release`, `suspend`, `continue` or `requeue` a job or an array."""
        return self.ask_for(endpoints.ASK, id=job_id, verb=verb)

    def ask_many(
        self, verb: str, ids: Sequence[int | str], tell: Callable[[int, int], None] | None = None
    ) -> list[OneOfMany]:
        """The same for many jobs: an answer for each. If the connection is lost for good, the requests before that are
        done.

        `tell` is told again and again how many of how many are done.
        """
        return self._in_batches(
            ids, lambda some: self.ask_for(endpoints.ASK_MANY, {"ids": some}, verb=verb), tell
        )

    def update(
        self,
        ids: Sequence[int | str],
        change: Mapping[str, Any],
        tell: Callable[[int, int], None] | None = None,
    ) -> list[OneOfMany]:
        """Change jobs: an answer for each."""
        return self._in_batches(
            ids, lambda some: self.ask_for(endpoints.UPDATE, {"ids": some, "change": change}), tell
        )

    def rehearse_update(self, job_id: int | str, change: Mapping[str, Any]) -> DryRunReply:
        """What would become of a job with a change; nothing is changed."""
        return self.ask_for(endpoints.REHEARSE_UPDATE, change, id=job_id)

    def _in_batches(
        self,
        ids: Sequence[int | str],
        ask: Callable[[list[int | str]], ManyReply],
        tell: Callable[[int, int], None] | None,
    ) -> list[OneOfMany]:
        done: list[OneOfMany] = []
        for first in range(0, len(ids), ASKED_AT_ONCE):
            done += ask(list(ids[first : first + ASKED_AT_ONCE]))["results"]
            if tell is not None:
                tell(len(done), len(ids))
        return done

    def cancel(self, job_id: int | str) -> AskedReply:
        """Cancel a job, or all live tasks of an array."""
        return self.ask_for(endpoints.CANCEL, id=job_id)

    def checkpoint(self, job_id: int | str, saved_at_ms: int | None = None) -> CheckpointReply:
        """Report that a running job has saved its work: now, or at that time."""
        body = None if saved_at_ms is None else {"saved_at_ms": saved_at_ms}
        return self.ask_for(endpoints.CHECKPOINT, body, id=job_id)

    # -- nodes ---------------------------------------------------------------------------------------------------

    def nodes(self) -> list[NodeReply]:
        """The fleet."""
        return self.fleet()["nodes"]

    def fleet(self) -> NodesReply:
        """The fleet, and the names that scripts use for pools, tenants and classes."""
        return self.ask_for(endpoints.NODES)

    def overview(self) -> OverviewReply:
        """Every GPU and the jobs on it, every tenant and what it holds."""
        return self.ask_for(endpoints.OVERVIEW)

    def drain(self, node: str, why: str = "") -> DrainReply:
        """Stop new jobs from starting on a node."""
        return self.ask_for(endpoints.DRAIN, {"why": why}, name=node)

    def resume(self, node: str) -> DrainReply:
        """Let a node take work again."""
        return self.ask_for(endpoints.RESUME, name=node)

    def marks(self, node: str) -> NodeMarksReply:
        """All labels and taints of a node, and where they come from."""
        return self.ask_for(endpoints.MARKS, name=node)

    def live_marks(self) -> LiveMarksReply:
        """Labels and taints that were set live."""
        return self.ask_for(endpoints.LIVE_MARKS)

    def mark(self, wanted: Mapping[str, Any]) -> MarkedReply:
        """Set labels and taints of nodes: `nodes`, `pools`, `labels` (None: remove), `taints`, `untaint`, `reset`."""
        return self.ask_for(endpoints.MARK, dict(wanted))

    # -- what is written -----------------------------------------------------------------------------------------

    def log(
        self, job_id: int | str, *, stream: str = "stdout", attempt: int | None = None
    ) -> Iterator[bytes]:
        """A job's output so far, piece by piece."""
        place, read, limit = {"offset": "0"}, 0, 1024 * 1024
        while True:
            asked: dict[str, Any] = {
                "stream": stream,
                **place,
                "limit": limit,
                "attempt": attempt or None,
            }
            piece, place = self._piece_of_log(endpoints.LOGS.address(id=job_id, **asked))
            if not piece:
                return
            yield piece
            read += len(piece)
            place = place or {"offset": str(read)}

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
        attempt, failures, lost_s = 0, 0, 0.0
        place: dict[str, Any] = {"offset": 0}
        while True:
            asked: dict[str, Any] = {
                "stream": stream,
                "follow": "true",
                **place,
                "attempt": attempt or None,
            }
            asked["standing"] = None if standing is None else "true"
            try:
                for name, data in self._events(endpoints.LOGS.address(id=job_id, **asked)):
                    failures = 0
                    if name == "log":
                        piece = _piece(data)
                        attempt, place = data["attempt"], {}
                        if "offset" in data:
                            place["offset"] = data["offset"] + len(piece)
                        if "cursor" in data:
                            # An older server knows none, and ignores it.
                            place["cursor"] = data["cursor"]
                        yield piece
                    elif name == "attempt":
                        attempt, place = data["attempt"], {"offset": 0}
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

    def terminal(self, job_id: int | str) -> tuple[socket.socket, bytes]:
        """A WebSocket into a running job: `handlers/terminals.py` says what goes over it."""
        return self._upgraded(endpoints.TERMINAL.address(id=job_id))

    def events(self, after: int | None = None) -> Iterator[dict[str, Any]]:
        """The log of the yard, as it grows."""
        for _name, data in self._events(endpoints.LOG_EVENTS.address(after=after)):
            yield data

    def changes(self, after: str = "") -> Iterator[tuple[str, Any]]:
        """The queue as it changes: `start`, then `rows`, `order` and `again`, until the connection is lost.

        `after` is `seq` of a list; `api.connecting.mirror.Mirror` keeps the list up to date with them.
        """
        yield from self._events(endpoints.CHANGES.address(after=after))

    def wakes(self) -> Iterator[tuple[str, Any]]:
        """`start`, then `seq` after each change; the `start` of an older server lacks `wakes`."""
        yield from self._events(endpoints.CHANGES.address(rows=0))

    # -- the server ----------------------------------------------------------------------------------------------

    def ready(self) -> tuple[bool, ReadyReply]:
        """Whether the server can do its work, and its state."""
        head, body = self._exchange("GET", endpoints.READY.path, None, {})
        return head.status == 200, json.loads(body)

    def version(self) -> VersionReply:
        """Which release the server is."""
        return self.ask_for(endpoints.VERSION)

    def metrics(self) -> str:
        """The metrics that Prometheus reads, as text."""
        return self._content(endpoints.METRICS.path)[1].decode()

    # -- what lies ahead ----------------------------------------------------------------------------------------

    def eta(self, job_id: int | str) -> EtaReply:
        """By when a job starts: `starts_by_ms` has p50 and p90, or is None where that is unknown."""
        return self.ask_for(endpoints.ETA, id=job_id)

    def dry_run(self, request: Mapping[str, Any]) -> DryRunReply:
        """What would happen to a job: it takes the fields of a submission and writes nothing."""
        return self.ask_for(endpoints.DRY_RUN, request)

    def read_jobs(self, text: str, *, name: str = "pasted", cwd: str = "") -> ReadJobsReply:
        """What a file with jobs asks for, as `POST /jobs` takes it; nothing is submitted."""
        return self.ask_for(endpoints.READ, {"text": text, "name": name, "cwd": cwd})

    # -- people -------------------------------------------------------------------------------------------------

    def me(self) -> MeReply:
        """Your user, role and tenants, and what you may do."""
        return self.ask_for(endpoints.ME)

    def tokens(self) -> list[TokenReply]:
        """Your own tokens and those of the tenants that you administer, without their secrets."""
        return self.ask_for(endpoints.TOKENS)["tokens"]

    def hand_in(self, node: str, batch: Mapping[str, Any]) -> SamplesReply:
        """Send samples of a node, as its collector."""
        return self.ask_for(endpoints.SAMPLES, batch, name=node)

    def make_token(
        self,
        user: str,
        *,
        role: str | None = None,
        tenant: str | None = None,
        days: int | None = None,
        note: str = "",
    ) -> NewTokenReply:
        """A new token; its `secret` is shown only once."""
        wanted = {"user": user, "role": role, "tenant": tenant, "days": days, "note": note}
        body = {name: value for name, value in wanted.items() if value is not None}
        return self.ask_for(endpoints.MAKE_TOKEN, body)

    def revoke_token(self, token_id: str) -> RevokedReply:
        """Revoke a token, and those that were made with it."""
        plain = token_id.isascii() and token_id.isalnum()
        return self.ask_for(endpoints.REVOKE, id=token_id if plain else "-")

    def unbind_name(self, user: str) -> UnboundReply:
        """Unbind a name from the person of its first login; that person's logins end."""
        return self.ask_for(endpoints.UNBIND, user=user)

    def audit(self, *, user: str = "", limit: int = 100, cursor: str | None = None) -> AuditReply:
        """What each person did, newest first."""
        return self.ask_for(endpoints.AUDIT, user=user, limit=limit, cursor=cursor)

    def ways_to_log_in(self) -> LoginReply:
        """Whether a login is needed, and with which identity provider."""
        return self.ask_for(endpoints.LOGIN_WAYS)

    def log_in(self, id_token: str, nonce: str) -> NewTokenReply:
        """Trade an ID token of the identity provider for a token of the yard."""
        return self.ask_for(endpoints.LOGIN_OIDC, {"id_token": id_token, "nonce": nonce})

    def browser_code(self) -> BrowserCodeReply:
        """A code that signs a browser in as you, once, within a minute."""
        return self.ask_for(endpoints.BROWSER_CODE)

    # -- GPUs: what they do, MIG layouts, defragmentation -------------------------------------------------------

    def gpus(self) -> GpusReply:
        """How busy the GPUs are, and the jobs on them: `GET /gpus`."""
        return self.ask_for(endpoints.GPUS)

    def mig(self) -> MigReply:
        """How GPUs are cut: `GET /mig`."""
        return self.ask_for(endpoints.MIG)

    def mig_plan(self, node: str = "", layouts: Sequence[Mapping[str, Any]] = ()) -> MigPlanReply:
        """What layouts would do to a node; without any, what the queue would do."""
        return self.ask_for(endpoints.MIG_PLAN, {"node": node, "layouts": list(layouts)})

    def mig_apply(self, node: str, layouts: Sequence[Mapping[str, Any]]) -> PinnedReply:
        """Pin GPUs of a node to layouts. `mig` says when they are made."""
        return self.ask_for(endpoints.MIG_PIN, {"layouts": list(layouts)}, name=node)

    def mig_release(self, node: str, gpus: Sequence[int] | None = None) -> ReleasedReply:
        """Release pinned GPUs of a node, to be cut on demand again."""
        wanted = {"gpus": None if gpus is None else list(gpus)}
        return self.ask_for(endpoints.MIG_RELEASE, wanted, name=node)

    def defrag(self, moves: int | None = None) -> DefragReply:
        """Moves that would free whole GPUs or nodes."""
        return self.ask_for(endpoints.DEFRAG, moves=moves)

    # -- reports ------------------------------------------------------------------------------------------------

    def report(self, report: Report[R], **values: Any) -> R:
        """What a report tells, also one of a package of your own."""
        found: R = self.ask_for(report.endpoint, **values)
        return found

    # -- the configuration, and the upkeep of the store ---------------------------------------------------------

    def config(self, version: int | None = None) -> ConfigReply:
        """A version with its text; the one in force if none is named."""
        if version is None:
            return self.ask_for(endpoints.CONFIG)
        return self.ask_for(endpoints.CONFIG_VERSION, version=version)

    def config_versions(self, limit: int = 100) -> list[ConfigVersionReply]:
        """The last versions, newest first."""
        return self.ask_for(endpoints.VERSIONS, limit=limit)["versions"]

    def prune(self, *, older_than_s: int | None = None, dry_run: bool = False, after: str = "") -> PruneReply:
        """Remove files of jobs that ended long ago, as many as one request may: `after` is `next` of the previous
        reply."""
        wanted = {"older_than_s": older_than_s, "dry_run": dry_run, "next": after or None}
        return self.ask_for(endpoints.PRUNE, wanted)

    def projections(self) -> list[ProjectionReply]:
        """How much of the log each projection that follows it holds."""
        return self.ask_for(endpoints.PROJECTIONS)["projections"]

    def rebuild(self, name: str) -> ProjectionReply:
        """Have a projection filled again; gives its status."""
        return self.ask_for(endpoints.REBUILD, name=name)

    def close_month(self, month: str, dry_run: bool = False) -> ClosedMonthReply:
        """Close the books of a month such as `2026-11`, or only say which months that would be."""
        return self.ask_for(endpoints.CLOSE_MONTH, month=month, dry_run="true" if dry_run else "")

    def config_diff(self, **wanted: Any) -> DifferenceReply:
        """What would change, and what forbids it."""
        return self.ask_for(endpoints.DIFF, wanted)

    def config_preview(self, **wanted: Any) -> Iterator[tuple[str, Any]]:
        """What a configuration would have done: `progress` any number of times, then `preview`, or `error`."""
        yield from self._events(endpoints.PREVIEW.path, json.dumps(wanted).encode())

    def apply(self, **wanted: Any) -> AppliedReply:
        """Put a configuration in force."""
        return self.ask_for(endpoints.APPLY, wanted)

    def rollback(self, **wanted: Any) -> AppliedReply:
        """Put an earlier version in force again."""
        return self.ask_for(endpoints.ROLLBACK, wanted)

    def tenants(self) -> list[TenantReply]:
        """The tenant tree."""
        return self.ask_for(endpoints.TENANTS)["tenants"]


def _piece(data: Mapping[str, str]) -> bytes:
    if "text" in data:
        return data["text"].encode()
    import binascii  # noqa: PLC0415 (few logs need it)

    return binascii.a2b_base64(data["base64"])


def current_folder() -> str:
    """The current folder."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise BadInput(
            "the current folder no longer exists, and a job starts in the folder that it is submitted from",
            "Change to an existing folder: cd ~",
        ) from None


def read_umask() -> int:
    """The caller's umask."""
    found = os.umask(0o077)
    os.umask(found)
    return found


def collect_environment(more: Iterable[str] = (), *, export: bool = True) -> dict[str, str]:
    """This shell's variables (unless `export` is off), where the job comes from, and those given as NAME=VALUE."""
    env = {name: value for name, value in os.environ.items() if _goes_along(name)} if export else {}
    env |= {"SLURM_SUBMIT_DIR": current_folder(), "SLURM_SUBMIT_HOST": os.uname().nodename.partition(".")[0]}
    # A variable that is not text cannot go through JSON; it is of no use to most programs either.
    env = {name: value for name, value in env.items() if _is_text(name) and _is_text(value)}
    for each in more:
        name, sign, value = each.partition("=")
        if not sign or not name:
            raise BadInput(f"--env {each!r} is not NAME=VALUE", "For example: --env SEED=7")
        env[name] = value
    return env


def _goes_along(name: str) -> bool:
    """Whether a variable goes along: variables that the yard set for a job do not go to jobs that it submits."""
    told = name.startswith(_OF_A_JOB) or name in _OF_A_GANG
    return name not in _NOT_PASSED_ON and not (told and "YARD_JOB_ID" in os.environ)


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
