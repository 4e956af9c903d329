"""The Slurm engine: the contract of engines over a Slurm cluster, where jobs wait in the yard and not in Slurm."""

import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gpuyard.engines.contract import (
    Answer,
    AttemptReport,
    Launch,
    Leftover,
    LogPiece,
    NewLimit,
    NodeReport,
    NoMig,
    Permanent,
    Phase,
    Reply,
    StopRequest,
    Usage,
    offset_of,
)
from gpuyard.engines.machine import files as whole
from gpuyard.engines.machine.backoff import NodeBackoff
from gpuyard.engines.machine.files import STREAMS, read_own
from gpuyard.engines.machine.keeper_link import KeeperLink
from gpuyard.engines.machine.launches import find_key_flaw, read_image_use
from gpuyard.engines.machine.leftovers import Leftovers
from gpuyard.engines.node import files
from gpuyard.engines.node.containers.image import keep_sane
from gpuyard.engines.node.kernel.processes import boot_id
from gpuyard.engines.node.visits import frames
from gpuyard.engines.slurm import fleet
from gpuyard.engines.slurm.calls.client import Client
from gpuyard.engines.slurm.calls.commands import OutOfReach, Refusal
from gpuyard.engines.slurm.calls.submission import Submission, slurm_minutes
from gpuyard.engines.slurm.fleet import ASIDE_S_MAX, FIRST_ASIDE_S, ClusterSnapshot, ForeignUse, SlurmSettings
from gpuyard.engines.slurm.folder import KEPT, SUBMIT, Folder, check_end, read_of
from gpuyard.engines.slurm.site.daemons import find_lines, log_files
from gpuyard.engines.slurm.submitter import Submitter
from gpuyard.engines.slurm.watching import SURE_S, AttemptMonitor, KnownAttempt
from gpuyard.engines.slurm.words.queue import SlurmJob
from gpuyard.errors import error_text
from gpuyard.model import Capability, Outcome

_DONE = Reply(Answer.DONE)
_LISTEN_S = 0.01
_OVERDUE_S = 30.0
"""How long after the grace Slurm carries out a stop that the wrapper has not carried out."""


class SlurmEngine(NoMig):
    """Hands attempts to Slurm, each with its nodes and counts named. Any number of objects may share one folder."""

    name = "slurm"

    def __init__(
        self,
        folder: Path,
        client: Client,
        site: SlurmSettings,
        *,
        yard: Path | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._folder = Folder(folder)
        self._client = client
        self._site = site
        self._now_ms = now_ms
        self._mutex = threading.RLock()
        self._scene: ClusterSnapshot | None = None
        self._limits: bool | None = None
        self._settings: dict[str, str] | None = None
        self._aside, self._others = NodeBackoff(FIRST_ASIDE_S, ASIDE_S_MAX, now_ms), ForeignUse()
        self._leftovers = Leftovers(self._folder.root)
        self._monitor = AttemptMonitor(self._folder, client, site.handoff_ms, self._aside.put, now_ms)
        self._submitter = Submitter(
            self._folder, client, site, self._monitor, self._aside, str(yard or ""), now_ms
        )
        self._able = {Capability.GANG, Capability.IMAGES, Capability.NEW_LIMITS} | (
            {Capability.SUSPEND} if os.geteuid() == 0 else set()
        )

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What this cluster can do, as far as it is known."""
        return frozenset(self._able | ({Capability.LIMITS} if self._limits else set()))

    @property
    def notes(self) -> tuple[str, ...]:
        """What people should know about this cluster, in sentences."""
        if self._scene is None:
            return ()
        lacking = "jobs may use more memory and CPU than they ask for: Slurm's TaskPlugin is not task/cgroup"
        return fleet.list_notes(self._site, self._scene) + ((lacking,) if self._limits is False else ())

    # ---- nodes

    def nodes(self) -> tuple[NodeReport, ...]:
        """The nodes of our partitions, and what others use of them."""
        client = self._client
        scene = fleet.take_snapshot(self._site, client.nodes(), client.partitions(), client.reservations())
        if self._limits is None:
            self._limits = client.holds_limits()
        with self._mutex:
            self._scene = scene
            keys = self._folder.keys()
            queue = self._monitor.queue()
            held: dict[str, set[int]] = {}
            for key in keys:
                known = self._monitor.known(key)
                if known is None or self._folder.end(key, known.uid):
                    continue
                for node, gpus in known.parts.items():
                    held.setdefault(node, set()).update(gpus)
            foreign: dict[str, list[SlurmJob]] = {}
            for job in queue.jobs:
                if job.lives and not self._is_ours(job):
                    for node in job.nodes:
                        foreign.setdefault(node, []).append(job)
            self._monitor.tidy(self._outlived)
            return fleet.report_nodes(
                self._site, scene, self._aside, self._others, held, foreign, self._now_ms()
            )

    def _is_ours(self, job: SlurmJob) -> bool:
        known = self._monitor.known(self._folder.key_of(job.comment))
        return (known is not None and known.uid == job.uid) or self._outlived(job)

    def _outlived(self, job: SlurmJob) -> bool:
        """Whether this is a job of ours with an attempt that is over: it was recorded when it was handed in."""
        key = self._folder.key_of(job.comment)
        if not key:
            return False
        known = self._monitor.known(key)
        over = known is None or self._folder.end(key, known.uid) is not None
        folder = self._folder.kept(key) if known is None else self._folder.attempt(key)
        submit = whole.read(os.path.join(folder, SUBMIT)) if over else None
        return submit is not None and job.first_id in submit.get("ids", ())

    def _sight(self) -> ClusterSnapshot:
        if self._scene is None:
            self.nodes()
        assert self._scene is not None, "looking at the nodes fills in the scene"
        return self._scene

    # ---- starting

    def start(self, epoch: int, launches: Sequence[Launch]) -> list[Reply]:
        """Start attempts. DONE: Slurm has it, or has had it."""
        with self._folder.acting(epoch), self._mutex:
            try:
                scene = self._sight()
            except OutOfReach as error:
                return [Reply(Answer.UNSURE, str(error)) for _ in launches]
            replies: dict[int, Reply] = {}
            jobs: dict[str, Submission] = {}
            for number, launch in enumerate(launches):
                reply = self._submitter.prepare(launch, scene)
                if isinstance(reply, Reply):
                    replies[number] = reply
                else:
                    jobs[launch.key] = reply
            answers = self._submitter.hand_in(jobs)
        return [
            replies[number] if number in replies else answers[launch.key]
            for number, launch in enumerate(launches)
        ]

    # ---- stopping

    def stop(self, epoch: int, halts: Sequence[StopRequest]) -> list[Reply]:
        """Stop attempts; one that no node has claimed will then never run. Works while Slurm is out of reach."""
        with self._folder.acting(epoch), self._mutex:
            pokes: list[str] = []
            replies = [self._stop(halt, pokes) for halt in halts]
            self._poke(pokes)
        return replies

    def _stop(self, halt: StopRequest, pokes: list[str]) -> Reply:
        key, folder = halt.key, self._folder
        known = self._monitor.known(key)
        if find_key_flaw(key) or (known is not None and folder.end(key, known.uid)):
            return _DONE
        if known is None:
            return self._bar(key)
        wish: dict[str, Any] = {
            "outcome": halt.outcome.value,
            "grace_ms": max(0, halt.grace_ms),
            "at_ms": self._now_ms(),
        }
        try:
            if earlier := folder.own(key, files.HALT):
                # The first wish names the end; a later one can only be more urgent.
                wish = earlier | {"grace_ms": min(earlier["grace_ms"], wish["grace_ms"])}
            folder.put(key, files.HALT, wish)
            if self._monitor.withdraw(key, known, halt.outcome, "stopped before it ran").phase is Phase.ENDED:
                pokes.append(key)
                return _DONE
        except OSError as error:
            return Reply(Answer.UNSURE, f"the stop cannot be written: {error_text(error)}")
        pokes.append(key)
        traces = self._monitor.traces(key, known)
        silent_s = self._monitor.silent_s(key, known)
        if silent_s > SURE_S + wish["grace_ms"] / 1000 and not self._in_slurm(key, known):
            # No wrapper, no job in Slurm, and a wrapper cut off from here would have ended itself.
            return self._bar(key, known, halt.outcome)
        return _DONE if traces.claimed_by is not None else Reply(Answer.UNSURE)

    def _in_slurm(self, key: str, known: KnownAttempt) -> bool:
        try:
            jobs = self._monitor.queue(fresh=True).jobs
        except OutOfReach:
            return True
        mark = self._folder.mark(key)
        return any(
            [job.comment == mark and job.uid == known.uid and (job.lives or job.waits) for job in jobs]
        )

    def _bar(
        self, key: str, known: KnownAttempt | None = None, outcome: Outcome = Outcome.PREEMPTED
    ) -> Reply:
        """Bar a key that was never started, or of which nothing is left, so that it never starts."""
        try:
            if known is not None:
                self._monitor.give_up(key, known, outcome)
            os.makedirs(self._folder.kept(key), mode=0o711, exist_ok=True)
            whole.sync(os.path.join(self._folder.root, KEPT))
        except OSError as error:
            return Reply(Answer.UNSURE, f"the stop cannot be written: {error_text(error)}")
        return Reply(Answer.BARRED)

    def _poke(self, keys: Sequence[str]) -> None:
        """Wake and thaw wrappers that are to stop, cancel jobs that still wait, end those that are overdue."""
        if not keys:
            return
        try:
            jobs = self._monitor.queue(fresh=True).jobs
            cancel, poke = [], []
            for job in jobs:
                key = self._folder.key_of(job.comment)
                known = self._monitor.known(key) if key in keys else None
                # Only jobs that match in key, user and, through the claim, in number.
                if known is None or known.uid != job.uid or not (job.lives or job.waits):
                    continue
                traces = self._monitor.traces(key, known)
                late_ms = self._now_ms() - (traces.halt or {}).get("at_ms", self._now_ms())
                grace_ms = (traces.halt or {}).get("grace_ms", 0)
                if traces.claimed_by != job.first_id or late_ms > grace_ms + _OVERDUE_S * 1000:
                    cancel.append(job.first_id)
                elif job.state == "SUSPENDED":
                    self._client.resume(job.first_id)
                else:
                    poke.append(job.first_id)
            if cancel:
                self._client.cancel(list(dict.fromkeys(cancel)))
            if poke:
                self._client.poke(list(dict.fromkeys(poke)))
        except (OutOfReach, Refusal):
            # The wish is on disk, and the wrappers look for it by themselves.
            return

    # ---- freezing

    def suspend(self, epoch: int, keys: Sequence[str]) -> list[Reply]:
        """Freeze attempts. The time limit waits with them."""
        return self._freeze(epoch, keys, Phase.SUSPENDED)

    def resume(self, epoch: int, keys: Sequence[str]) -> list[Reply]:
        """Let frozen attempts go on."""
        return self._freeze(epoch, keys, Phase.RUNNING)

    def _freeze(self, epoch: int, keys: Sequence[str], wanted: Phase) -> list[Reply]:
        replies = []
        call = self._client.suspend if wanted is Phase.SUSPENDED else self._client.resume
        with self._folder.acting(epoch), self._mutex:
            for key, report in zip(keys, self._monitor.look(keys), strict=True):
                if report.phase not in (Phase.RUNNING, Phase.SUSPENDED):
                    replies.append(Reply(Answer.REFUSED, "it does not run"))
                    continue
                try:
                    if report.phase is not wanted:
                        call(self._number_of(key))
                    replies.append(_DONE)
                except OutOfReach as error:
                    replies.append(Reply(Answer.UNSURE, str(error)))
                except Refusal as error:
                    replies.append(Reply(Answer.REFUSED, f"Slurm refused it: {error}"))
        return replies

    def limit(self, epoch: int, limits: Sequence[NewLimit]) -> list[Reply]:
        """Give running attempts other time limits: Slurm first, which may refuse it, then their wrappers."""
        with self._folder.acting(epoch), self._mutex:
            reports = self._monitor.look([wish.key for wish in limits])
            return [self._limit(wish, report) for wish, report in zip(limits, reports, strict=True)]

    def _limit(self, wish: NewLimit, report: AttemptReport) -> Reply:
        known = self._monitor.known(wish.key)
        if known is None or report.phase not in (Phase.RUNNING, Phase.SUSPENDED):
            return Reply(Answer.UNSURE, "it does not run")
        try:
            self._client.set_limit(self._number_of(wish.key), slurm_minutes(wish.limit_ms, known.grace_ms))
            self._folder.put(wish.key, files.LIMIT, {"limit_ms": wish.limit_ms})
        except OutOfReach as error:
            return Reply(Answer.UNSURE, str(error))
        except Refusal as error:
            return Reply(Answer.REFUSED, f"Slurm refused it: {error}")
        except OSError as error:
            return Reply(Answer.UNSURE, f"it cannot be written: {error_text(error)}")
        return _DONE

    def _number_of(self, key: str) -> int:
        """The number of the Slurm job that runs an attempt, as Slurm has it now: numbers are used again."""
        known = self._monitor.known(key)
        assert known is not None, "what runs has a folder"
        claimed_by, mark = self._monitor.traces(key, known).claimed_by, self._folder.mark(key)
        for job in self._monitor.queue(fresh=True).jobs:
            if job.first_id == claimed_by and job.comment == mark and job.lives:
                return job.first_id
        raise OutOfReach("Slurm does not know it")

    # ---- looking

    def status(self, keys: Sequence[str]) -> list[AttemptReport]:
        """What is known of these attempts, from their folders and one call to Slurm."""
        with self._mutex:
            reports = self._monitor.look(keys)
            for report in reports:
                if report.phase is Phase.RUNNING and (known := self._monitor.known(report.key)):
                    self._aside.clear(known.parts, report.started_ms)
            return reports

    def listing(self) -> list[AttemptReport]:
        """Every attempt that has not been forgotten."""
        return [report for report in self.status(self._folder.keys()) if report.phase is not Phase.UNKNOWN]

    def wait(self, timeout_s: float) -> bool:
        """Wait until some attempt has ended; whether one has. One waiter for a folder."""
        until_s = time.monotonic() + timeout_s
        while not (heard := self._folder.listen()):
            rest_s = until_s - time.monotonic()
            if rest_s <= 0:
                return False
            time.sleep(min(_LISTEN_S, rest_s))
        return heard

    def forget(self, epoch: int, keys: Sequence[str]) -> None:
        """Keep only the output of ended attempts, and a trace that they existed."""
        with self._folder.acting(epoch), self._mutex:
            for key in keys:
                if find_key_flaw(key) or self._monitor.look([key])[0].phase is not Phase.ENDED:
                    continue
                self._folder.forget(key)
                self._monitor.drop(key)

    def usage(self, key: str) -> Usage:
        """The image of an ended attempt and its times, as its node wrote them; the rest is Slurm's to know."""
        for folder in () if find_key_flaw(key) else (self._folder.attempt(key), self._folder.kept(key)):
            plan = whole.read(os.path.join(folder, files.LAUNCH))
            if plan is not None and "uid" in plan:
                told = read_of(os.path.join(folder, files.RUN, files.END), plan["uid"])
                end = check_end(told) or {}
                if facts := keep_sane(end.get("image")):
                    return Usage(image=read_image_use(facts, end["started_ms"]))
        return Usage()

    def log(self, key: str, stream: str, cursor: str, limit: int) -> LogPiece:
        """Part of an attempt's output; empty at the end, and for an unknown attempt. Cursors are offsets."""
        offset = offset_of(cursor)
        content = self._read(key, stream, offset, limit)
        return LogPiece(content, str(offset + len(content)))

    def _read(self, key: str, stream: str, offset: int, limit: int) -> bytes:
        if find_key_flaw(key) or stream not in STREAMS or limit <= 0:
            return b""
        for folder in (self._folder.attempt(key), self._folder.kept(key)):
            plan = whole.read(os.path.join(folder, files.LAUNCH))
            if plan is None or "uid" not in plan:
                continue
            named = plan[stream]
            path = os.path.join(plan["cwd"], named) if named else os.path.join(folder, files.RUN, stream)
            if plan["uid"] == os.geteuid():
                piece = read_own(path, offset, limit)
            else:
                piece = self._monitor.readers.read(plan["uid"], plan["gid"], path, offset, limit)
            # The folder of a forgotten attempt moves, once: a file that is missing in the first place is in the
            # second.
            if piece or named or os.path.isdir(folder):
                return piece
        return b""

    def daemon_lines(self, key: str, nodes: Sequence[str]) -> tuple[str, ...]:
        """What slurmctld and the slurmds of an attempt's nodes wrote about its jobs in Slurm."""
        if find_key_flaw(key):
            return ()
        folders = (self._folder.attempt(key), self._folder.kept(key))
        submits = [whole.read(os.path.join(folder, SUBMIT)) for folder in folders]
        ids = [str(number) for submit in submits if submit for number in submit.get("ids", ())]
        if self._settings is None and ids:
            self._settings = self._client.settings()
        return find_lines(log_files(self._settings or {}, nodes), ids)

    def terminal(self, key: str, *, own: bool) -> KeeperLink | None:
        """A link to the keeper of an attempt's terminals, where its node is this machine."""
        plan = None if find_key_flaw(key) else self._folder.own(key, files.LAUNCH)
        if plan is None or self.status([key])[0].phase not in (Phase.RUNNING, Phase.SUSPENDED):
            return None
        if plan.get("spread"):
            raise Permanent("its tasks run on several nodes of Slurm: `srun --jobid` enters one of them")
        if own and not plan.get("terminal"):
            raise Permanent("it was started without a terminal")
        found = frames.reach_keeper(self._folder.run(key), plan["uid"])
        if found is None and os.path.lexists(os.path.join(self._folder.run(key), frames.SOCKET)):
            claim = self._folder.told(key, files.CLAIM, plan["uid"]) or {}
            if claim.get("boot") == boot_id():
                # It has just ended here, which Slurm has not told yet.
                return None
            raise Permanent(
                f"its terminals are on node {claim.get('node')}, and this server is another machine: there, "
                f"`srun --jobid={claim.get('slurm_id')} --overlap --pty bash` opens a shell beside it"
            )
        if found is None and not own:
            if why := files.find_trouble(self._folder.run(key), plan["uid"]):
                raise Permanent(f"nobody can be let in: {why}")
            self._folder.put(key, files.WISH, {})
        return KeeperLink(found) if found is not None else None

    def leftovers(self, what: Leftover, names: Sequence[str]) -> dict[str, int]:
        """What ended jobs have left, in bytes on disk."""
        return self._leftovers.sizes(what, names)

    def remove(self, what: Leftover, names: Sequence[str]) -> None:
        """Remove it."""
        self._leftovers.remove(what, names)

    def close(self) -> None:
        """Let go. What runs goes on under Slurm."""
        self._submitter.close()
        self._monitor.readers.close()
        self._leftovers.close()
        self._client.close()
