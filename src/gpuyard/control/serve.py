"""One server process of a yard, without its HTTP face: store, replica, engine, the writing thread and the leader.

Every process answers questions and takes in jobs; one of them leads. On SQLite there is one process for one folder of
data; on PostgreSQL there may be several, which share the engine's folder.
"""

import ipaddress
import logging
import os
import socket
import stat
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from gpuyard import __version__
from gpuyard.config.reading import loads, text_of
from gpuyard.control.access.browsers import BrowserService
from gpuyard.control.access.oidc import Provider
from gpuyard.control.access.people import has_other_people, person
from gpuyard.control.access.people_in_force import PeopleInForce
from gpuyard.control.access.tokens import TokenService
from gpuyard.control.clock import Steady
from gpuyard.control.clock_record import ClockRecord
from gpuyard.control.commands.configs import Configurations, StartFile
from gpuyard.control.commands.observed import ObservedClusters
from gpuyard.control.commands.requests import RequestService
from gpuyard.control.fleet import Fleet, chosen
from gpuyard.control.loop.leading import Leader
from gpuyard.control.loop.memory import Witness, open_memory
from gpuyard.control.loop.several import SeveralEngines
from gpuyard.control.parsing import Parser
from gpuyard.control.places import PORT, SYSTEM_DATA, DataDir
from gpuyard.control.projections.following import Projection, checked, registered
from gpuyard.control.reading.model import unsaid
from gpuyard.control.replica.committer import Committer
from gpuyard.control.replica.follower import Follower
from gpuyard.control.replica.labels import attempt_key, key_of, numbers_named
from gpuyard.control.replica.replica import Replica
from gpuyard.control.replica.thought import QuestionRunner
from gpuyard.control.upkeep.filling import Filler
from gpuyard.control.upkeep.metering import Meter
from gpuyard.control.upkeep.reserve import Reserve
from gpuyard.control.upkeep.retention import Pruner
from gpuyard.control.upkeep.waiting import WaitMeter
from gpuyard.control.upkeep.watching import Watch
from gpuyard.control.views.curves import curves_view, kernel_lines_view
from gpuyard.control.views.views import Views
from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.state.dump import dump
from gpuyard.engines import apart
from gpuyard.engines.apart import Line
from gpuyard.engines.contract import Engine, EngineError, HasUsage, IsObserved, Phase, Usage
from gpuyard.engines.local.engine import LocalEngine
from gpuyard.engines.local.gpus.stand_in import COMMANDS
from gpuyard.engines.local.hosts import EMULATED
from gpuyard.engines.machine.installation import note_for_others
from gpuyard.engines.slurm.words.states import wait_cause
from gpuyard.errors import BadInput, YardError
from gpuyard.model import Node, WaitCause
from gpuyard.shipping.contract import Sends
from gpuyard.store import open_store
from gpuyard.telemetry.collector import PAUSE_S
from gpuyard.wire.replies.jobs import CurvesReply, KernelLineReply

_log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
CLOCK = "clock"
"""The reason of a yard that is ready: the machine's clock was set, as its notes say."""
EXAMINE_S = 3.0
"""How long a start waits for a look at every page of its store; a longer look goes on beside."""
STALE_S = 30.0
"""A leader whose last step ended longer ago is not ready."""


@dataclass(frozen=True, slots=True)
class Options:
    """What `yard up` was told."""

    data: Path
    port: int = PORT
    any_port: bool = False
    """Whether the next free port will do where that one is taken: it was not asked for by number."""
    port_taken: int = 0
    """The port that another program has, so that the next free one is used; 0: none."""
    config: Path | None = None
    store: str = ""
    """A URL; empty: a file in the data folder."""
    emulate: str = ""
    """GPUs to pretend to have, as in `8 x H100`; empty: as configured."""
    host: str = LOOPBACK
    """The address to listen at."""
    auth: bool = False
    """Whether people have to identify themselves, by a token or a login."""
    tls_cert: Path | None = None
    tls_key: Path | None = None
    older_log: bool = False
    """Whether to go on with a log that is behind what the engine's folder has seen."""
    insecure_http: bool = False
    """Whether to serve others without TLS: something before the server speaks it."""
    leads: bool = True
    """Whether this server may be elected; else it only answers."""
    look_s: float = PAUSE_S
    """Between two looks at what this machine does."""

    @property
    def url(self) -> str:
        """Where the server listens, for a browser on its machine."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls_cert else 'http'}://{host}:{self.port}"

    @property
    def shared(self) -> bool:
        """Whether other servers may work on the same store, in the same folder."""
        return "://" in self.store


def clock_ms() -> int:
    """Now."""
    return time.time_ns() // 1_000_000


NONE_LEADS = (
    "no server leads: nothing starts until one is started on the same store without --no-lead; jobs wait"
)
_QUESTIONS = ("gpuyard.control.views.views", "gpuyard.control.foresight.oracle")
"""Modules whose questions are answered beside the server: imported there, and not here."""

_READERS = ("gpuyard.config.reading", "gpuyard.intake.understood")
"""Modules that read the texts of people, likewise."""


class Yard:
    """A running server, apart from HTTP. `close` stops it and leaves jobs running."""

    def __init__(
        self,
        options: Options,
        *,
        now_ms: Callable[[], int] = clock_ms,
        projections: Sequence[Projection] | None = None,
    ) -> None:
        """`projections`: those that follow the log; None: all that are registered or installed."""
        found = registered() if projections is None else projections
        self._projections = tuple([checked(each) for each in found])
        self.options = options
        self.data = DataDir(options.data)
        self.now_ms = now_ms
        self.fleet, self._file = _fleet(options, self.data)
        self.data.prepare()
        self.instance = self.data.instance(options.port, options.shared)
        # Before anything is written: on a full disk there is then room to start.
        self.reserve = Reserve(self.data, self.instance.reserve)
        self.instance.hold({"port": options.port, "version": __version__})
        self._undo: list[Callable[[], None]] = [self.instance.release]
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        if self.options.config is not None:
            self.data.remember(self._file.text, self._file.name)
        elif not self._file.remembered:
            # The file in the data folder is found by itself; one that is taken away is not to come back.
            self.data.forget()
        self.token = self.data.token()
        spare = self._spare()
        self.reserve.open_on([self.data.database, self.instance.series])
        self.store = open_store(place := str(self.options.store or self.data.database), examine_s=EXAMINE_S)
        self._undo += [self.store.close, self.reserve.close]
        self.reserve.start(self.store)
        self.replica = Replica(self.store)
        self.replica.catch_up()
        record = ClockRecord(self.instance.clock, self.store.yard)
        state = self.replica.state
        before = record.found(state.skipped_ms)
        steady_ms = self._clock = Steady(self.now_ms, state.now_ms, before=before)
        self._open_engines()
        witnesses = self._compare_log()
        self.committer = Committer(self.replica, steady_ms)
        self._undo.append(self.committer.close)
        self.requests = RequestService(
            self.replica,
            self.committer,
            steady_ms,
            allow_root=self.fleet.allow_root,
            observed=self.observed,
            check_room=self.reserve.check,
        )
        self._open_beside(place)
        self.views = Views(
            self.replica, steady_ms, self.said if self.observed else unsaid, self.late, self.think
        )
        self._open_people(steady_ms)
        self._holder = f"{socket.gethostname()} pid {os.getpid()} port {self.options.port}"
        owner = person(os.geteuid(), os.getegid())
        self.projections = Filler(self.store, self._projections, self.now_ms, self.epoch, ahead=place)
        self._undo.append(self.projections.close)
        following = frozenset(self.projections.projections)
        self.leader = Leader(
            self.replica,
            {**self.engines, **self._apart(spare, witnesses)},
            self._file,
            owner.name,
            self._holder,
            steady_ms,
            witnesses,
            following,
            stands=self.options.leads,
            shared=self.options.shared,
            has_room=self.reserve.has_room,
            drop_unread=self.views.drop_unread,
            clock=steady_ms,
            keep_clock=record.keep,
        )
        self._undo.append(self.leader.stop)
        self.pruner = Pruner(self.replica, self.engine, self.now_ms, lambda: self.leader.standing.leads)
        self._undo.append(self.pruner.close)
        self._open_watch(steady_ms)
        self._open_shippers()
        self._closing = threading.Event()

    def read_up(self) -> None:
        """Fold what is written, and publish it for readers: what comes next has little in front of it."""
        self.requests.read_up()
        self.views.reading.keep_up()

    def _open_beside(self, place: str) -> None:
        """What is read and thought beside the server, in processes that are started when they are needed."""
        self.parse = Parser(_READERS)
        follower = Follower(place, _QUESTIONS)
        self._undo += [self.parse.close, follower.close]
        self.think = QuestionRunner(self.replica, follower)

    def _open_people(self, steady_ms: Callable[[], int]) -> None:
        """The people that may ask, and the configuration that says so."""
        self.people = PeopleInForce(
            self.replica,
            self.committer,
            steady_ms,
            self.fleet.access,
            auth=self.options.auth,
            parse=self.parse,
            valid_ms=self.valid_ms,
        )
        self._undo.append(self.people.close)
        self.browsers = BrowserService(self.replica, self.committer, steady_ms, self.people)
        self.configs = Configurations(
            self.replica,
            self.committer,
            self.fleet,
            self.options.emulate,
            steady_ms,
            self.people.looked_up,
            self.parse,
        )

    def _open_watch(self, steady_ms: Callable[[], int]) -> None:
        """The eyes on the machines of our own engines, and on what jobs wait for."""
        self.waits = WaitMeter(self.replica, self.epoch, steady_ms, self._cause_elsewhere)
        self._undo.append(self.waits.close)
        self.watch = Watch(
            str(self.instance.series),
            self._here,
            self.now_ms,
            self.reserve.has_room,
            self._cluster_of,
            self.options.look_s,
            Meter(self.replica, self.epoch, log_ms=steady_ms),
        )
        self._undo.append(self.watch.close)
        if self.fleet.prometheus is not None:
            from gpuyard.control.upkeep.asking import Asking  # noqa: PLC0415 (only where there is one)

            asking = Asking(self.fleet.prometheus, self.replica, self.watch, self.now_ms, list(self._here))
            self.watch.asking = asking
            self._undo.append(asking.close)

    def _open_shippers(self) -> None:
        """One for each receiver of logs; without any, nothing of it is loaded."""
        self.shippers: tuple[Sends, ...] = ()
        if not self.fleet.sinks:
            return
        from gpuyard.control.upkeep.shipping import Shipper  # noqa: PLC0415

        def leads() -> bool:
            return self.leader.standing.leads

        self.shippers = tuple(
            [
                Shipper(spec, self.data.shipping, self.replica, self.engine, self.now_ms, leads)
                for spec in self.fleet.sinks
            ]
        )
        self._undo += [shipper.close for shipper in self.shippers]

    def _open_engines(self) -> None:
        try:
            self.engines = self.fleet.engines(self.data)
        except EngineError as error:
            raise YardError(str(error)) from error
        self._undo += [engine.close for engine in self.engines.values()]
        (first, *others) = self.engines.values()
        looks = {name: each.scheduler for name, each in self.engines.items() if isinstance(each, IsObserved)}
        driven = {name: engine for name, engine in self.engines.items() if name not in looks}
        self.engine = cast(Engine, SeveralEngines(driven)) if others else first
        """What is known of attempts, whichever cluster they ran in."""
        self.observed = ObservedClusters(looks, only=not driven)

    def _spare(self) -> Line | None:
        """A process for the engine of this machine, made before anything is open that it must not have."""
        if not self.options.leads or not any([cluster.here for cluster in self.fleet.clusters]):
            return None
        spare = apart.spare()
        self._undo.append(lambda: apart.end(spare))
        return spare

    def _apart(self, spare: Line | None, witnesses: Mapping[str, Witness]) -> dict[str, apart.EngineApart]:
        """The engines of this machine as the leader has them: in processes of their own, which no request delays."""
        made = {}
        for cluster in self.fleet.clusters if spare is not None else ():
            if cluster.here:
                making = cluster.making(witnesses[cluster.name].adopted, self.data, self.fleet.settings)
                made[cluster.name] = apart.EngineApart(self.engines[cluster.name], making, spare)
                spare = None
        self._undo += [each.close for each in made.values()]
        return made

    def _compare_log(self) -> dict[str, Witness]:
        """Whether the log knows at least what the local engine's folder has seen."""
        self._behind = ""
        return {name: self._witness(engine) for name, engine in self._here.items()}

    @property
    def _here(self) -> dict[str, LocalEngine]:
        """The engines whose nodes are this machine, by cluster."""
        return {name: each for name, each in self.engines.items() if isinstance(each, LocalEngine)}

    def _witness(self, engine: LocalEngine) -> Witness:
        with self.replica.lock:
            self.replica.catch_up()
            owned = {key_of(self.store.yard, record) for record in self.replica.state.running.values()}
        alive = [report.key for report in engine.listing() if report.phase is not Phase.ENDED]
        strange = [key for key in alive if key not in owned]
        witness, self._behind = open_memory(
            self.data.engine, self.store, strange, told=self.options.older_log
        )
        engine.adopt(witness.adopted)
        return witness

    @property
    def token_service(self) -> TokenService | None:
        """Where tokens are made and looked at; None: without `--auth` there are none."""
        return self.people.token_service

    @property
    def oidc(self) -> Provider | None:
        """The identity provider, if there is one."""
        return self.people.oidc

    @property
    def notes(self) -> tuple[str, ...]:
        """What people should know about this yard, in sentences."""
        unused = self.fleet.access is not None and not self.options.auth
        auth = ("yard.yaml has `auth`: roles and tokens hold only with `yard up --auth`",) if unused else ()
        taken = self.options.port_taken
        port = (
            (
                f"port {taken} is taken, perhaps by {_another_yard(self.data)}: "
                f"this one listens at {self.options.port}",
            )
            if taken
            else ()
        )
        told = tuple(
            [
                note
                for note in (
                    self.leader.note,
                    self._behind,
                    _read_by_all(self.options.tls_key),
                    self._clock.note,
                )
                if note
            ]
        )
        of_engine = [note for engine in self.engines.values() for note in getattr(engine, "notes", ())]
        # Where the fleet has said which GPUs are emulated and why, the engine's own word is one too many.
        own = [
            note
            for note in of_engine
            if note != EMULATED or not any(["emulated" in said for said in self.fleet.notes])
        ]
        # Anybody may ask whether the server is ready; what the receiver said is for the server's own log.
        waits = [
            f"logs for {each.spec.name} wait: it does not take them now; the server's log says why"
            for each in self.shippers
            if each.trouble
        ]
        return (*port, *self.fleet.notes, *own, *auth, *self._of_root, *told, *waits)

    @property
    def _of_root(self) -> tuple[str, ...]:
        """What other people of the machine meet on a yard of root, where there are any."""
        runs = any([not cluster.observed for cluster in self.fleet.clusters])
        if os.geteuid() != 0 or not runs or not has_other_people():
            return ()
        fence = "jobs that root submits run as root: no fence keeps them from what other users of this machine have"
        hidden = note_for_others(str(DataDir(self.options.data).engine / COMMANDS))
        return tuple([note for note in ("" if self.fleet.allow_root else fence, hidden) if note])

    def said(self, record: JobRecord) -> str:
        """Why a job waits in the words of the scheduler that decides about it; empty: none does, or it does not say."""
        cluster, _, key = record.job.spec.origin.rpartition(":")
        engine = self.engines.get(cluster) if cluster else self.engine
        if isinstance(engine, IsObserved):
            return engine.reasons.get(key, "it waits there" if cluster else "")
        return ""

    def _cause_elsewhere(self, record: JobRecord) -> WaitCause:
        return wait_cause(self.said(record))

    def late(self, record: JobRecord) -> str:
        """Why a start has come to nothing yet, in the words of the engine; empty: it has not said."""
        late = self.leader.standing.late
        return late.get(key_of(self.store.yard, record), "") if late else ""

    def valid_ms(self) -> int:
        """The time by which tokens end: the machine's, and where its clock is behind, the time that has passed."""
        # The log stays ahead of a clock that was set ahead and back again.
        return max(self.now_ms(), self._clock() - self.replica.state.skipped_ms)

    def start(self) -> None:
        """Begin to write and to lead."""
        self.committer.start()
        self.leader.start()
        self.pruner.start()
        self.projections.start()
        self.watch.start()
        self.waits.start()
        for shipper in self.shippers:
            shipper.start()
        if self.options.shared:
            # Alone, this server puts every version in force itself.
            self.people.start()

    def epoch(self) -> int | None:
        """Of this process while it leads."""
        standing = self.leader.standing
        return standing.epoch if standing.leads else None

    def close(self) -> None:
        """Stop in the reverse order of the start. What runs goes on."""
        while self._undo:
            undo = self._undo.pop()
            with suppress(Exception):
                undo()

    def readiness(self) -> tuple[bool, dict[str, Any]]:
        """Whether this process can do its work, and how it stands."""
        standing = self.leader.standing
        since_s = time.monotonic() - standing.step_at_s if standing.step_at_s else None
        holder = ""
        error = standing.error
        reason = "fault" if error else ""
        leads = standing.leads
        if leads:
            try:
                # A process that was frozen finds out at its next step; the store knows already.
                leads = self.store.counters().epoch == standing.epoch
            except YardError as trouble:
                error, reason = error or trouble.message, reason or "store"
        if not leads:
            try:
                found = self.store.who_leads()
                # A process that was elected a moment ago has not looked at its nodes yet.
                holder = str(found) if found and found.pid and found.name != self._holder else ""
            except YardError as trouble:
                error, reason = error or trouble.message, reason or "store"
        self.reserve.look()
        if self.reserve.low:
            # Perhaps nothing was written since it filled up: the next write would fail.
            error, reason = error or self.reserve.low, "space"
        if (damage := self.store.damage) is not None:
            error, reason = f"{damage.message}: nothing is accepted or started. {damage.hint}", "damaged"
        alone = not (self.options.leads or holder or error)
        if alone and not self.replica.state.nodes.node:
            # Jobs are judged by the nodes, and no server that leads has ever told of any.
            error, reason = NONE_LEADS, "no leader"
        stale = leads and since_s is not None and since_s > STALE_S
        ready = not error and not stale and ((leads and standing.steps > 0) or bool(holder) or alone)
        return ready, {
            "ready": ready,
            "role": "leader" if leads else "follower",
            "reason": (CLOCK if self._clock.note else None)
            if ready
            else reason or ("stands still" if stale else "starting"),
            "leader": holder or None,
            "epoch": standing.epoch or None,
            "error": error or ("the loop stands still" if stale else None),
            "troubles": list(standing.troubles),
            "difference": standing.difference,
            "steps": standing.steps,
            "step_ms_p50": _percentile_ms(standing.step_s, 50),
            "step_ms_p99": _percentile_ms(standing.step_s, 99),
            "decide_ms_p50": _percentile_ms(standing.decide_s, 50),
            "decide_ms_p99": _percentile_ms(standing.decide_s, 99),
            "last_step_s_ago": round(since_s, 3) if since_s is not None else None,
            "events": self.replica.seq,
            "store": self.store.place,
            "notes": [*self.notes, *([NONE_LEADS] if alone else [])],
        }

    def snapshot(self) -> dict[str, Any]:
        """The whole state, to be replayed elsewhere."""
        with self.replica.lock:
            self.replica.catch_up()
            return {"version": __version__, "seq": self.replica.seq, "state": dump(self.replica.state)}

    def log_key(self, job_id: int, attempt: int, submitted_ms: int) -> str:
        """The engine's name of an attempt."""
        return attempt_key(self.store.yard, job_id, attempt, submitted_ms)

    def usage_of(self, view: Mapping[str, Any]) -> Callable[[int], Usage]:
        """What an attempt of a job, as it is shown, used; by its number, as far as the engine knows."""
        engine = self.engine
        if not isinstance(engine, HasUsage):
            return lambda _attempt: Usage()
        job_id, submitted_ms = view["id"], view["submitted_ms"]
        return lambda attempt: engine.usage(self.log_key(job_id, attempt, submitted_ms))

    def curves_of(self, view: Mapping[str, Any]) -> CurvesReply:
        """What the last try of a job, as it is shown, did over time."""

        def key(attempt: int) -> str:
            return self.log_key(view["id"], attempt, view["submitted_ms"])

        return curves_view(self.watch, view, key, self._nodes_of(view), self.now_ms())

    def kernel_lines(self, view: Mapping[str, Any]) -> list[KernelLineReply]:
        """Faults that the kernels of a job's nodes wrote during its last try."""
        key = self.log_key(view["id"], view["attempts"], view["submitted_ms"])
        return kernel_lines_view(self.watch, view, key, self._nodes_of(view), self.now_ms())

    def _nodes_of(self, view: Mapping[str, Any]) -> list[Node]:
        """The nodes that a job, as it is shown, has, or had: of an ended one all of these names."""
        with self.replica.lock:
            state = self.replica.state
            record = state.jobs.get(view["id"])
            if record is not None and record.grants:
                numbers = [grant.node for grant in record.grants]
            else:
                numbers = [number for name in view["nodes"] for number in numbers_named(state, name)]
            return [state.nodes.node[number] for number in numbers]

    def _cluster_of(self, node: str) -> str:
        """The cluster of the only node of this name; empty: there are several, or none."""
        with self.replica.lock:
            found = numbers_named(self.replica.state, node)
            return self.replica.state.nodes.node[found[0]].cluster if len(found) == 1 else ""

    def price_of_node(self, node: str, day: int) -> int:
        """What an hour of a GPU of a node costs on a day in micro-dollars; 0: it is not known."""
        with self.replica.lock:
            found = numbers_named(self.replica.state, node)
            return self.replica.state.gpu_price(found[0], day) if found else 0


def _percentile_ms(seconds: list[float], percent: int) -> float | None:
    if not seconds:
        return None
    return round(1000 * sorted(seconds)[len(seconds) * percent // 100], 3)


def _read_by_all(key: Path | None) -> str:
    """What is to be said about a TLS key; empty: nothing."""
    if key is None or not key.stat().st_mode & stat.S_IROTH:
        return ""
    return (
        f"every user of this machine can read the TLS key {key} and pretend to be this yard: `chmod o= {key}`"
    )


def check_address(options: Options) -> None:
    """A server that other machines can reach wants tokens, and TLS so that nothing is read on the way."""
    if (options.tls_cert is None) != (options.tls_key is None):
        raise BadInput("--tls-cert and --tls-key belong together", "Give both, or neither.")
    if is_loopback(options.host):
        return
    if not options.auth:
        raise BadInput(
            f"{options.host} can be reached from other machines, and without --auth they all could submit jobs",
            "Add --auth, or listen at 127.0.0.1.",
        )
    if options.tls_cert is None and not options.insecure_http:
        raise BadInput(
            f"{options.host} can be reached from other machines, and without TLS tokens can be read on the way",
            "Add --tls-cert FILE --tls-key FILE; or --insecure-http, if a proxy before the server speaks TLS.",
        )


def check_shared(options: Options) -> None:
    """A server that does not lead needs another one that does, on the same store."""
    if not (options.leads or options.shared):
        raise BadInput(
            "with --no-lead this server would wait for another one to decide, and a store in a file has one server",
            "Leave --no-lead out, or name a database that several servers share: --store postgresql://…",
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _another_yard(own: DataDir) -> str:
    """Which yard may have the port that this one wanted: that of the machine, where it answers."""
    machine = DataDir(SYSTEM_DATA)
    if own.root != machine.root and any([each.socket.exists() for each in machine.instances()]):
        return f"the machine's yard, in {SYSTEM_DATA}"
    return "another user's yard"


def _fleet(options: Options, data: DataDir) -> tuple[Fleet, StartFile]:
    path = options.config
    if path is None and data.config.is_file():
        path = data.config
    if path is None:
        last = data.remembered()
        if last is not None:
            fleet = chosen(loads(*last), options.emulate)
            names = [cluster.name for cluster in fleet.clusters]
            plural = "s" if len(names) > 1 else ""
            what = f"cluster{plural} {', '.join(names)}{' and `auth`' if fleet.access is not None else ''}"
            where = f"as at the last start, from {last[1]}; another: `yard up --config FILE`"
            note = f"no yard.yaml was given: {what} {where}"
            return replace(fleet, notes=(*fleet.notes, note)), StartFile(
                fleet.settings, *last, remembered=True
            )
        fleet = chosen(None, options.emulate)
        return fleet, StartFile(fleet.settings)
    text = text_of(path, lasting=True)
    fleet = chosen(loads(text, str(path)), options.emulate)
    return fleet, StartFile(fleet.settings, text, str(path))


def check(options: Options) -> None:
    """Raise what is wrong with the options, before a process is made for them."""
    check_address(options)
    check_shared(options)
    _fleet(options, DataDir(options.data))
