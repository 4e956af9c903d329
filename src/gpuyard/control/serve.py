"""One server process of a yard, without its HTTP face: store, replica, engines, the writing thread, the leader, duties.

Every process answers questions and takes in jobs; one of them leads. On SQLite there is one process for one folder of
data; on PostgreSQL there may be several, which share the engine's folder. This file says what is made of what, and in
which order it begins and ends; what the parts do is in their own files.
"""

import logging
import os
import socket
from collections.abc import Callable, Sequence

from gpuyard import __version__
from gpuyard.control.access.browsers import BrowserService
from gpuyard.control.access.oidc import Provider
from gpuyard.control.access.people import find_person
from gpuyard.control.access.people_in_force import PeopleInForce
from gpuyard.control.access.tokens import TokenService
from gpuyard.control.attempts import Attempts, Measures, find_cluster
from gpuyard.control.clock import ClockRecord, Steady, clock_ms
from gpuyard.control.commands.configs import Configurations
from gpuyard.control.commands.requests import RequestService
from gpuyard.control.duties.duty import Duties
from gpuyard.control.duties.logs import make_senders
from gpuyard.control.duties.projections import Filler
from gpuyard.control.duties.registry import DutyParts, duties_of
from gpuyard.control.duties.reserve import Reserve
from gpuyard.control.duties.retention import Pruner
from gpuyard.control.loop.leading import Leader
from gpuyard.control.notes import Notes
from gpuyard.control.open_engines import OpenEngines, fork_spare_process
from gpuyard.control.options import Options
from gpuyard.control.parsing import Parser
from gpuyard.control.places import DataDir
from gpuyard.control.projections.following import Projection
from gpuyard.control.projections.registry import check_projection, list_projections
from gpuyard.control.readiness import Readiness
from gpuyard.control.reading.model import no_reason
from gpuyard.control.replica.committer import Committer
from gpuyard.control.replica.follower import Follower
from gpuyard.control.replica.labels import current_key
from gpuyard.control.replica.questions import QuestionRunner
from gpuyard.control.replica.replica import Replica
from gpuyard.control.starting import read_fleet, remember
from gpuyard.control.upkeep.metering import Meter
from gpuyard.control.upkeep.watching import Watch
from gpuyard.control.views.views import Views
from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.state.dump import dump
from gpuyard.errors import error_text
from gpuyard.store import open_store
from gpuyard.wire.replies.people import SnapshotReply

_log = logging.getLogger(__name__)

EXAMINE_S = 3.0
"""How long a start waits for a look at every page of its store; a longer look goes on beside."""
_QUESTIONS = ("gpuyard.control.views.views", "gpuyard.control.foresight.oracle")
"""Modules whose questions are answered beside the server: imported there, and not here."""
_READERS = ("gpuyard.config.reading", "gpuyard.intake.job_texts")
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
        following = [
            check_projection(each) for each in (list_projections() if projections is None else projections)
        ]
        self.options = options
        self.data = DataDir(options.data)
        self.now_ms = now_ms
        self.fleet, self._file = read_fleet(options, self.data)
        self.data.prepare()
        self.instance = self.data.instance(options.port, options.shared)
        # Before anything is written: on a full disk there is then room to start.
        self.reserve = Reserve(self.data, self.instance.reserve)
        self.instance.hold({"port": options.port, "version": __version__})
        self._undo: list[Callable[[], None]] = [self.instance.release]
        try:
            self._open(following)
        except BaseException:
            self.close()
            raise

    def _open(self, following: Sequence[Projection]) -> None:
        remember(self._file, self.options, self.data)
        self.token = self.data.token()
        if (spare := fork_spare_process(self.fleet, self.options.leads)) is not None:
            self._undo.append(spare.end)
        self.reserve.open_on([self.data.database, self.instance.series])
        place = str(self.options.store or self.data.database)
        self.store = open_store(place, examine_s=EXAMINE_S)
        self._undo += [self.store.close, self.reserve.close]
        self.reserve.keep_for(self.store)
        self.replica = Replica(self.store)
        self.replica.catch_up()
        record = ClockRecord(self.instance.clock, self.store.yard)
        state = self.replica.state
        self._clock = Steady(self.now_ms, state.now_ms, before=record.found(state.skipped_ms))
        self.opened = OpenEngines(self.fleet, self.data, lambda: self.leader.standing.waiting)
        self._undo += self.opened.closing
        self.engines = self.opened.by_cluster
        witnesses = self.opened.compare_log(self.replica, self.options.older_log)
        self.committer = Committer(self.replica, self._clock)
        self._undo.append(self.committer.close)
        self._open_beside(place)
        self._open_requests()
        self._open_people()
        driven = self.opened.apart(spare, witnesses)
        self._undo += [each.close for each in driven.values()]
        self._holder = f"{socket.gethostname()} pid {os.getpid()} port {self.options.port}"
        self.leader = Leader(
            self.replica,
            {**self.engines, **driven},
            self._file,
            find_person(os.geteuid(), os.getegid()).name,
            self._holder,
            self._clock,
            witnesses,
            stands=self.options.leads,
            shared=self.options.shared,
            has_room=self.reserve.has_room,
            drop_unread=self.views.drop_unread,
            clock=self._clock,
            keep_clock=record.keep,
        )
        self._undo.append(self.leader.stop)
        self._open_duties(following, place)
        self._open_answers()

    def _open_beside(self, place: str) -> None:
        """What is read and thought beside the server, in processes that are started when they are needed."""
        self.parse = Parser(_READERS)
        follower = Follower(place, _QUESTIONS)
        self._undo += [self.parse.close, follower.close]
        self.think = QuestionRunner(self.replica, follower)

    def _open_requests(self) -> None:
        """What people ask for, and what they see."""
        observed = self.opened.observed
        self.requests = RequestService(
            self.replica,
            self.committer,
            self._clock,
            allow_root=self.fleet.allow_root,
            observed=observed,
            check_room=self.reserve.check,
        )
        reason = self.opened.named_reason if observed else no_reason
        self.views = Views(self.replica, self._clock, reason, self._late, self.think)

    def _open_people(self) -> None:
        """The people that may ask, and the configuration that says so."""
        self.people = PeopleInForce(
            self.replica,
            self.committer,
            self._clock,
            self.fleet.access,
            auth=self.options.auth,
            parse=self.parse,
            valid_ms=self.valid_ms,
        )
        self.browsers = BrowserService(self.replica, self.committer, self._clock, self.people)
        self.configs = Configurations(
            self.replica,
            self.committer,
            self.fleet,
            self.options.emulate,
            self._clock,
            self.people.looked_up,
            self.parse,
        )

    def _open_duties(self, following: Sequence[Projection], place: str) -> None:
        """What the server does by itself, from its start on."""
        replica, now_ms, here = self.replica, self.now_ms, self.opened.here
        self.projections = Filler(self.store, following, now_ms, ahead=place)
        self.pruner = Pruner(replica, self.engines, now_ms)
        self.watch = Watch(
            str(self.instance.series),
            here,
            now_ms,
            self.reserve.has_room,
            lambda node: find_cluster(replica, node),
            self.options.look_s,
            Meter(replica, self.leader.epoch, log_ms=self._clock),
        )
        self.shippers = make_senders(self.fleet.sinks, self.data.shipping, replica, self.engines, now_ms)
        parts = DutyParts(
            replica=replica,
            epoch=self.leader.epoch,
            now_ms=now_ms,
            log_ms=self._clock,
            reserve=self.reserve,
            pruner=self.pruner,
            filler=self.projections,
            watch=self.watch,
            people=self.people,
            senders=self.shippers,
            prometheus=self.fleet.prometheus,
            here=here,
            elsewhere=self.opened.cause,
            shared=self.options.shared,
        )
        self.duties = Duties(duties_of(parts), self.leader.epoch)
        self._undo.append(self.duties.close)

    def _open_answers(self) -> None:
        """What is told about jobs and about the server itself."""
        self.attempts = Attempts(self.replica, self.views.reading, self.engines)
        self.measures = Measures(self.replica, self.attempts, self.watch, self.now_ms)
        self._notes = Notes(self.options, self.data, self.fleet, self.engines, self._clock, self.shippers)
        self.readiness = Readiness(
            self.replica,
            self.leader,
            self._holder,
            self.options.leads,
            self.reserve,
            self.duties,
            self._clock,
            lambda: self.notes,
        )

    def start(self) -> None:
        """Begin to write, to lead, and with the duties."""
        self.committer.start()
        self.leader.start()
        self.duties.start()

    def close(self) -> None:
        """Stop in the reverse order of the start. What runs goes on."""
        while self._undo:
            undo = self._undo.pop()
            try:
                undo()
            except Exception as error:
                # What comes after it is still to be closed.
                _log.warning("the server did not end well: %s", error_text(error), exc_info=error)

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
        return self._notes.all(self.leader.note, self.opened.behind)

    def valid_ms(self) -> int:
        """The time by which tokens end: the machine's, and where its clock is behind, the time that has passed."""
        # The log stays ahead of a clock that was set ahead and back again.
        return max(self.now_ms(), self._clock() - self.replica.state.skipped_ms)

    def read_up(self) -> None:
        """Fold what is written, and publish it for readers: what comes next has little in front of it."""
        self.requests.read_up()
        self.views.reading.keep_up()

    def snapshot(self) -> SnapshotReply:
        """The whole state, to be replayed elsewhere."""
        with self.replica.lock:
            self.replica.catch_up()
            return {"version": __version__, "seq": self.replica.seq, "state": dump(self.replica.state)}

    def _late(self, record: JobRecord) -> str:
        """Why a start has come to nothing yet, in the words of the engine; empty: it has not said."""
        late = self.leader.standing.late
        return late.get(current_key(self.store.yard, record), "") if late else ""
