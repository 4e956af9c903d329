"""The state of attempts, from files of their supervisors and from /proc, and where their processes are.

Cheap enough to ask for all at once.
"""

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from gpuyard.engines.contract import Answer, AttemptReport, NewLimit, Phase, Reply, Whereabouts
from gpuyard.engines.local import translate
from gpuyard.engines.local.attempt import v1
from gpuyard.engines.local.attempt.cgroups import Cgroup
from gpuyard.engines.local.attempt.supervisor import NO_ROOM, UNLIMITED
from gpuyard.engines.local.client import Data
from gpuyard.engines.machine import files, peeking, processes
from gpuyard.engines.machine.backoff import NodeBackoff
from gpuyard.engines.machine.launches import find_key_flaw
from gpuyard.engines.machine.processes import Identity
from gpuyard.engines.node import files as node_files
from gpuyard.engines.node.attempt.fence import UNFENCED, UNSHOWN
from gpuyard.engines.node.attempt.runner import BROKE, steady_ms
from gpuyard.engines.node.kernel.processes import signal_seen
from gpuyard.errors import error_text
from gpuyard.model import Outcome

_LOST_SUPERVISOR = "its supervisor was killed"
_LOST_MAX = 3
"""After this many attempts that lost their supervisors, or did not run because of these, a job has failed."""
_NOT_RUN = (BROKE, f"{UNFENCED}: {UNSHOWN}")
"""How the reasons begin of attempts that their own jobs may have kept from running."""
_OF_THE_MACHINE = (UNLIMITED, UNFENCED, NO_ROOM)
"""How the reasons begin that lie with the machine, but for those above: another job would fare no better."""
_LOST_BOOT = "the machine was restarted"
_CLEAR_S_MAX = 0.5
_PAUSE_S = 0.005
_WHOLE_LOOK_S = 0.5
"""How often an attempt is looked at as a whole while nothing changes in its folder."""
_SETTLED_NS = 50_000_000
"""A folder that changed less than this before a look may change once more without another time of its last change."""


Judge = Callable[[str, dict[str, Any], dict[str, Any]], dict[str, Any]]
"""The end of an attempt that failed, as it is to be reported."""


@dataclass(slots=True)
class _Seen:
    """What does not change about a claimed attempt, and the last news read, with the mark of its file."""

    identity: Identity
    claimed_ms: int
    checkpoint: str
    job_id: int
    mark: tuple[int, int] = (0, 0)
    news: dict[str, Any] | None = None
    report: AttemptReport | None = None
    """What the last look as a whole found; it holds until `report_s`, while the folder has this mark."""
    report_s: float = 0.0
    folder_mark: tuple[int, int] = (0, 0)
    saved: tuple[int, int] = (0, 0)
    """The time of the file of its checkpoint, and when that was by the clock of its start."""


class AttemptMonitor:
    """Answers for attempts. Not for several threads at once: the engine holds a lock."""

    def __init__(
        self,
        data: Data,
        boot: str,
        base: str,
        now_ms: Callable[[], int],
        judge: Judge,
        aside: NodeBackoff,
    ) -> None:
        self._data = data
        self._boot = boot
        self._base = base
        self._now_ms = now_ms
        self._judge = judge
        self._aside = aside
        self._ended: dict[str, AttemptReport] = {}
        self._seen: dict[str, _Seen] = {}

    def look(self, key: str) -> AttemptReport:
        """The state of one attempt."""
        if report := self._ended.get(key):
            return report
        folder = self._data.attempt(key)
        mark = (0, 0) if find_key_flaw(key) else node_files.read_mark(f"{folder}/.")
        if mark == (0, 0):
            return AttemptReport(key, Phase.UNKNOWN)
        seen = self._seen.get(key)
        now_s = time.monotonic()
        if (
            seen is not None
            and seen.report is not None
            and mark == seen.folder_mark
            and now_s < seen.report_s
        ):
            return seen.report
        settled = mark[1] < time.time_ns() - _SETTLED_NS
        if report := self._read_end(key, folder):
            return report
        seen = seen or self._read_claim(key, folder)
        if seen is None:
            return self._unclaimed(key, folder)
        if not processes.is_alive(seen.identity, self._boot):
            return self._lost(key, folder, seen)
        report = self._alive(key, folder, seen)
        if report.phase is Phase.RUNNING:
            self._ran(folder, report)
        if settled:
            # One question to the file system for each look, not six: what a supervisor tells appears in its folder.
            seen.report, seen.report_s, seen.folder_mark = report, now_s + _WHOLE_LOOK_S, mark
        return report

    def tell(self, key: str) -> None:
        """Make a supervisor look at the wishes in its folder. If it is gone, `look` finds out."""
        seen = self._seen.get(key) or self._read_claim(key, self._data.attempt(key))
        if seen is not None:
            processes.signal_to(seen.identity, signal.SIGUSR1, self._boot)

    def drop(self, key: str) -> None:
        """Forget what is remembered of an attempt."""
        self._ended.pop(key, None)
        self._seen.pop(key, None)

    def supervisors(self) -> set[int]:
        """Process numbers of the supervisors that live."""
        found = set()
        for key in os.listdir(os.path.join(self._data.root, files.ATTEMPTS)):
            folder = self._data.attempt(key)
            if os.path.exists(os.path.join(folder, files.END)):
                continue
            claim = files.read(os.path.join(folder, files.CLAIM))
            if claim and processes.is_alive(_identity(claim), self._boot):
                found.add(claim["pid"])
        return found

    # ---- the cases

    def _read_end(self, key: str, folder: str) -> AttemptReport | None:
        path = os.path.join(folder, files.END)
        end = files.read(path)
        if end is None:
            return None
        judged = end
        if end["outcome"] == Outcome.FAILED.value:
            judged = self._judge(key, files.read(os.path.join(folder, files.LAUNCH)) or {}, end)
        elif end["outcome"] == Outcome.NODE_FAIL.value and end["why"].startswith(_NOT_RUN):
            judged = self._enough(key, end, _NOT_RUN)
        elif end["outcome"] == Outcome.NODE_FAIL.value and end["why"].startswith(_OF_THE_MACHINE):
            # Everybody may see why a node is left out; a path at the end is the job's own matter.
            self._aside.put(self._nodes(folder), end["why"].partition(": '")[0])
        if judged != end:
            # For good: a later look may no longer know which jobs were there.
            with suppress(OSError):
                files.replace(path, judged, durable=True)
            end = judged
        self._seen.pop(key, None)
        report = self._ended[key] = translate.read_end(key, end)
        if end["outcome"] != Outcome.NODE_FAIL.value:
            self._ran(folder, report)
        return report

    def _ran(self, folder: str, report: AttemptReport) -> None:
        """What runs, or has run, speaks for its node."""
        if self._aside and report.started_ms:
            self._aside.clear(self._nodes(folder), report.started_ms)

    @staticmethod
    def _nodes(folder: str) -> tuple[str, ...]:
        return tuple((files.read(os.path.join(folder, files.LAUNCH)) or {}).get("nodes", ()))

    def _read_claim(self, key: str, folder: str) -> _Seen | None:
        claim = files.read(os.path.join(folder, files.CLAIM))
        if claim is None:
            return None
        plan = files.read(os.path.join(folder, files.LAUNCH)) or {}
        seen = _Seen(_identity(claim), claim["claimed_ms"], plan.get("checkpoint", ""), plan.get("job_id", 0))
        self._seen[key] = seen
        return seen

    def _unclaimed(self, key: str, folder: str) -> AttemptReport:
        """Written down, but not run: asking for it again starts it, unless that was before a restart."""
        plan = files.read(os.path.join(folder, files.LAUNCH))
        if plan is None or plan["boot"] == self._boot:
            return AttemptReport(key, Phase.UNKNOWN)
        return self._settle(key, folder, None, 0, _LOST_BOOT)

    def _lost(self, key: str, folder: str, seen: _Seen) -> AttemptReport:
        """The supervisor is gone. If it did not write the end, kill what it left, and write it."""
        if report := self._read_end(key, folder):
            return report
        if not seen.identity.pid:
            return self._unborn(key, folder)
        news = files.read(os.path.join(folder, files.RUNNING))
        if seen.identity.boot != self._boot:
            by_ms = self._latest_end_ms(folder, news, seen.claimed_ms)
            return self._settle(key, folder, news, seen.claimed_ms, _LOST_BOOT, by_ms=by_ms)
        if not self.clear(key):
            return AttemptReport(
                key, Phase.STOPPING, started_ms=(news or {}).get("started_ms", seen.claimed_ms)
            )
        # By the clock that cannot be set, since its supervisor began: it cannot have run for longer.
        age_ms = steady_ms() - seen.identity.ticks * 1000 // os.sysconf("SC_CLK_TCK")
        return self._settle(
            key, folder, news, seen.claimed_ms, _LOST_SUPERVISOR, by_ms=seen.claimed_ms + max(0, age_ms)
        )

    def _unborn(self, key: str, folder: str) -> AttemptReport:
        """A stop has claimed it, so that it never runs, and there was no room on disk for the end that goes with it."""
        halt = files.read_small(os.path.join(folder, files.HALT)) or {}
        end = translate.make_unborn_end(halt.get("outcome", Outcome.NODE_FAIL.value), self._now_ms())
        with suppress(OSError):
            files.create(os.path.join(folder, files.END), end, durable=True)
        return self._read_end(key, folder) or translate.read_end(key, end)

    def _latest_end_ms(self, folder: str, news: dict[str, Any] | None, claimed_ms: int) -> int:
        """By when an attempt was over that ended with an earlier boot: it ran no longer than that and its time limit.

        Both are by the clock of people: no other has seen its start and this boot.
        """
        by_ms = self._now_ms() - steady_ms()
        plan = files.read(os.path.join(folder, files.LAUNCH)) or {}
        limit_ms = (news or {}).get("limit_ms", plan.get("limit_ms", 0))
        # How long its time limit waits while it is suspended, nobody knows; nor does a supervisor of an older release.
        if limit_ms > 0 and news is not None and news["phase"] != "SUSPENDED" and "lost_ms" in news:
            longest_ms = limit_ms + plan["grace_ms"] + news["lost_ms"]
            by_ms = min(by_ms, max(claimed_ms, news["started_ms"]) + longest_ms)
        return max(claimed_ms, by_ms)

    def _enough(self, key: str, end: dict[str, Any], how: str | tuple[str, ...]) -> dict[str, Any]:
        """The end of an attempt; of a job that ended so again and again, as its own failure.

        The job itself may be what kills or breaks its supervisor, or its paths what cannot be shown in a fence: it
        would be tried again forever.
        """
        job, _, attempt = key.rpartition("-")
        earlier = [f"{job}-{number}" for number in range(1, int(attempt))] if attempt.isdecimal() else []
        folders = [place for each in earlier for place in (self._data.attempt(each), self._data.kept(each))]
        ends = [found for folder in folders if (found := files.read(os.path.join(folder, files.END)))]
        before = len(list(takewhile(lambda found: found["why"].startswith(how), reversed(ends))))
        if before + 1 < _LOST_MAX:
            return end
        return end | {
            "outcome": Outcome.FAILED.value,
            "why": f"{end['why']}, in each of {before + 1} attempts",
        }

    def _settle(
        self, key: str, folder: str, news: dict[str, Any] | None, claimed_ms: int, why: str, *, by_ms: int = 0
    ) -> AttemptReport:
        """Write the end of what is lost; it ended by then, or by now.

        That time may lie ahead of a clock that was set back meanwhile, and the attempt ran until then all the same.
        """
        end = translate.make_lost_end(news, claimed_ms, by_ms or self._now_ms(), why)
        if why == _LOST_SUPERVISOR:
            end = self._enough(key, end, why)
        with suppress(OSError):
            files.create(os.path.join(folder, files.END), end, durable=True)
        # Read back, since another process may have written it first; on a full disk it is written another time.
        return self._read_end(key, folder) or translate.read_end(key, end)

    def clear(self, key: str) -> bool:
        """Kill what is left of an attempt without supervisor; whether nothing is."""
        plan = files.read(os.path.join(self._data.attempt(key), files.LAUNCH)) or {}
        path = plan.get("cgroup") or (os.path.join(self._base, key) if self._base else "")
        group = Cgroup(path) if path else None
        until = time.monotonic() + _CLEAR_S_MAX
        seen_none = 0
        while True:
            left = signal_seen(
                lambda: processes.find_carrying(translate.FOLDER_VARIABLE, self._data.attempt(key)),
                signal.SIGKILL,
            )
            if group is not None:
                with suppress(OSError):
                    group.kill()
            seen_none = 0 if left else seen_none + 1
            # Without a group, a process that was being forked may be missed once.
            if (seen_none and group.empty()) if group is not None else seen_none > 1:
                if group is not None:
                    group.remove()
                v1.remove(plan.get("v1") or {})
                return True
            if time.monotonic() > until:
                return False
            time.sleep(_PAUSE_S)

    def set_limit(self, wish: NewLimit) -> Reply:
        """Write down an attempt's time limit for its supervisor."""
        if self.look(wish.key).phase not in (Phase.RUNNING, Phase.SUSPENDED):
            return Reply(Answer.UNSURE, "it does not run")
        try:
            files.replace(f"{self._data.attempt(wish.key)}/{files.LIMIT}", {"limit_ms": wish.limit_ms})
        except OSError as error:
            return Reply(Answer.UNSURE, f"it cannot be written: {error_text(error)}")
        self.tell(wish.key)
        return Reply(Answer.DONE)

    def _alive(self, key: str, folder: str, seen: _Seen) -> AttemptReport:
        news = self._news(folder, seen)
        phase = Phase[news["phase"]] if news else Phase.STARTING
        if os.path.lexists(f"{folder}/{files.HALT}"):
            phase = Phase.STOPPING
        saved_ms = self._data.inside.time_ms(seen.checkpoint, seen.job_id)
        # Outside the folder a process of the supervisor looks: a path of a job may hang the process that touches it.
        checkpoint_ms = peeking.read_saved_ms(folder) if saved_ms is None else saved_ms
        started_ms, now_ms = news["started_ms"] if news else 0, self._now_ms()
        if news and "began_ms" in news:
            if checkpoint_ms != seen.saved[0]:
                # Once, when it is new: the clock may be set again while the file stays as it is.
                start, before_ms = (started_ms, news["began_ms"]), news["before_ms"]
                at_ms = peeking.date_by_start(checkpoint_ms, start, before_ms, (now_ms, steady_ms()))
                seen.saved = (checkpoint_ms, at_ms)
            checkpoint_ms = seen.saved[1]
        else:
            # It has not started, or began under an earlier release.
            checkpoint_ms = min(checkpoint_ms, now_ms)
        why = news.get("why", "") if news else ""
        # A supervisor of an earlier release says nothing of it, and heeds no other.
        limit_ms = news.get("limit_ms") if news else None
        return AttemptReport(
            key, phase, started_ms=started_ms, checkpoint_ms=checkpoint_ms, why=why, limit_ms=limit_ms
        )

    @staticmethod
    def _news(folder: str, seen: _Seen) -> dict[str, Any] | None:
        path = f"{folder}/{files.RUNNING}"
        mark = node_files.read_mark(path)
        if mark == (0, 0):
            return None
        if mark != seen.mark:
            seen.news, seen.mark = files.read(path), mark
        return seen.news


def _identity(claim: dict[str, Any]) -> Identity:
    return Identity(claim["pid"], claim["ticks"], claim["boot"])


LOAD_VARIABLE = "YARD_EMULATED_LOAD"
"""What a job on emulated GPUs pretends to do there."""

MIG = "MIG-"
"""How UUIDs of slices begin."""


class Tracker:
    """Where the processes of attempts are, for the eyes that watch them: groups, supervisors, GPUs.

    Reads the plan of each attempt once: nothing of it changes while the attempt runs.
    """

    def __init__(self, data: Data) -> None:
        self._data = data
        self._known: dict[str, Whereabouts] = {}
        self._lock = threading.Lock()

    def look(self) -> list[Whereabouts]:
        """The attempts that have a supervisor and have not ended, by key. Any thread may ask."""
        with self._lock:
            return self._look()

    def _look(self) -> list[Whereabouts]:
        keys = self._data.attempts()
        for gone in self._known.keys() - set(keys):
            del self._known[gone]
        found = []
        for key in keys:
            if os.path.exists(os.path.join(self._data.attempt(key), files.END)):
                self._known.pop(key, None)
                continue
            each = self._known.get(key) or self._read(key)
            if each is not None:
                self._known[key] = each
                found.append(each)
        return found

    def _read(self, key: str) -> Whereabouts | None:
        folder = self._data.attempt(key)
        launch = os.path.join(folder, files.LAUNCH)
        plan, work, claim = (
            files.read(os.path.join(folder, name)) for name in (files.LAUNCH, files.WORK, files.CLAIM)
        )
        if plan is None or work is None or not claim or not claim.get("pid"):
            # It has no supervisor yet, or is about to go.
            return None
        try:
            started_ms = os.stat(launch).st_mtime_ns // 1_000_000
        except FileNotFoundError:
            return None
        nodes = (work.get("room") or {}).get("nodes", ())
        environment: dict[str, str] = next(iter(work.get("envs") or ()), {})
        return Whereabouts(
            key=key,
            devices={node["name"]: tuple([gpu["device"] for gpu in node["gpus"]]) for node in nodes},
            cut={
                node["name"]: tuple([gpu["index"] for gpu in node["gpus"] if gpu["device"].startswith(MIG)])
                for node in nodes
            },
            group=plan.get("cgroup") or "",
            groups_v1=plan.get("v1") or {},
            pids=(claim["pid"],),
            milli=plan.get("milli", 1000),
            started_ms=started_ms,
            load=environment.get(LOAD_VARIABLE, ""),
        )
