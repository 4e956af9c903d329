"""When one job breaks an MPS server, the jobs that share it fail too. Finds the one to blame; the others run again.

The daemon's log names the processes that lost their GPU. A process is matched to its job by the pid that it had when
it connected, or the pid that its job was started with. If the log names no process, the jobs that failed soon after
count. They lost their GPU as if their node had failed, and run again until it is known which job broke the server
(`Inquiry`): that job has failed. A process that has lost its GPU and does not notice keeps new clients out, so it is
ended.

A daemon that dies takes all its clients with it, and nothing is logged; each of them gets one more try.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from gpuyard.engines.local.client import Data
from gpuyard.engines.local.gpus.mps import Daemon, Mps, pid_of
from gpuyard.engines.local.gpus.mps_inquiry import SLACK_MS, Inquiry
from gpuyard.engines.local.gpus.mps_log import DaemonLog, Fault
from gpuyard.engines.local.translate import FOLDER_VARIABLE
from gpuyard.engines.machine import files
from gpuyard.engines.machine.launches import find_key_flaw
from gpuyard.model import Outcome

WINDOW_MS = 30_000
"""How long after a fault an end is put down to it, if the log does not name the processes."""
LATELY_MS = 3_600_000
"""The jobs of a fault are looked up only if it is no older than this: an old log may hold many faults."""
NOTICE_MS = 5_000
"""How long a process without its GPU may take to notice."""
SAVE_MS_MAX = 10_000
"""The most time that it gets to save its work when it is ended."""

_SCENES_MAX = 4096
_LOST = "the MPS server that it shared with other jobs broke by a fault of one of them"
_DIED = "the MPS daemon that it computed through died"
_BROKE = "a fatal error of its work on the GPU, which broke the MPS server"


class Faults:
    """Knows which attempt a client of a daemon belongs to, and remembers which jobs were in which fault."""

    def __init__(
        self,
        data: Data,
        daemons: Callable[[], list[Daemon]],
        daemon: Callable[[str, int], Daemon],
        now_ms: Callable[[], int],
    ) -> None:
        self._data = data
        self._daemons = daemons
        self._daemon = daemon
        self._now_ms = now_ms
        self._logs: dict[str, DaemonLog] = {}
        self._whose: dict[int, str] = {}
        """The attempt that a client belongs to. Kept past the client's end, which is when it is needed."""
        self._deaths: dict[str, dict[int, int]] = {}
        """By the folder of a daemon's log: the pids that were found dead, and when."""
        self._scenes: dict[tuple[str, int], dict[str, int]] = {}
        """By log and time of a fault: the jobs that were there, and since when. An ended one is soon forgotten."""
        self._settled: dict[tuple[str, int], str] = {}
        """By log and time of a fault: the job that is to blame."""
        self._inquiry = Inquiry(data.root, now_ms)

    def look(self) -> bool:
        """Note the attempts of new clients, while their processes can still be read. Whether there are daemons."""
        there = self._daemons()
        for daemon in there:
            log = self._log(daemon.log)
            for pid in log.look():
                self._whose.pop(pid, None)
                if key := find_attempt(pid):
                    self._whose[pid] = key
            for fault in log.faults:
                if (daemon.log, fault.at_ms) not in self._scenes:
                    lately = abs(self._now_ms() - fault.at_ms) <= LATELY_MS
                    scene = self._there(daemon.log, fault.at_ms) if lately else {}
                    self._scenes[daemon.log, fault.at_ms] = scene
                    while len(self._scenes) > _SCENES_MAX:
                        del self._scenes[next(iter(self._scenes))]
            if Mps.dead(daemon):
                self._deaths.setdefault(daemon.log, {}).setdefault(pid_of(daemon), self._now_ms())
        for folder in self._logs.keys() - {daemon.log for daemon in there}:
            del self._logs[folder]
            self._deaths.pop(folder, None)
        if not there:
            self._whose.clear()
            self._scenes.clear()
            self._settled.clear()
        return bool(there)

    def _there(self, log: str, at_ms: int, *, ended: bool = True) -> dict[str, int]:
        """The jobs that had a share through a daemon at a time, and since when; also those that have ended since."""
        found: dict[str, int] = {}
        for key in self._data.attempts():
            folder = self._data.attempt(key)
            plan = files.read(os.path.join(folder, files.LAUNCH)) or {}
            if log not in [self._daemon(gpu, uid).log for gpu, uid in plan.get("held", {}).get("mps", ())]:
                continue
            end = files.read(os.path.join(folder, files.END))
            news = end or files.read(os.path.join(folder, files.RUNNING)) or {"started_ms": at_ms}
            lived = end is None or (ended and end["ended_ms"] >= at_ms - SLACK_MS)
            if lived and news["started_ms"] <= at_ms:
                found[job_of(key)] = news["started_ms"]
        return found

    def held_back(self, key: str, gpu: str, uid: int) -> str:
        """Why an attempt must not start on a daemon yet; empty: it may."""
        self.look()
        log = self._daemon(gpu, uid).log
        if self._log(log).recovering():
            return "the MPS server of its GPU waits for the jobs that lost it in a fault"
        if self._inquiry.waits(job_of(key), self._there(log, self._now_ms(), ended=False)):
            return "the jobs that were there when an MPS server broke run one by one until it is plain which broke it"
        return ""

    def end_unaware(self, tell: Callable[[str], None]) -> None:
        """End attempts that lost their GPU a while ago and have not noticed, through their supervisors."""
        for folder, log in self._logs.items():
            for pid in sorted(log.recovering()):
                key = self._whose.get(pid) or find_attempt(pid)
                fault = next((each for each in reversed(log.faults) if pid in each.named), None)
                late = fault is not None and self._now_ms() >= fault.at_ms + NOTICE_MS
                if key and fault is not None and late and (plan := self._plan_for(key, folder)):
                    guilty = self._guilty(key, folder, fault, {})
                    outcome, why = (Outcome.FAILED, _BROKE) if guilty else (Outcome.NODE_FAIL, _LOST)
                    grace_ms = min(plan["grace_ms"], SAVE_MS_MAX)
                    wish = {"outcome": outcome.value, "why": why, "grace_ms": grace_ms}
                    path = os.path.join(self._data.attempt(key), files.HALT)
                    # On a full disk it is written another time.
                    with suppress(OSError):
                        if files.create(path, wish, durable=False):
                            tell(key)

    def _plan_for(self, key: str, log: str) -> dict[str, Any]:
        """The plan of an attempt that shares through this daemon and is neither over nor stopping; else empty."""
        folder = self._data.attempt(key)
        plan = files.read(os.path.join(folder, files.LAUNCH)) or {}
        theirs = [self._daemon(gpu, uid).log for gpu, uid in plan.get("held", {}).get("mps", ())]
        over = [name for name in (files.END, files.HALT) if os.path.lexists(os.path.join(folder, name))]
        return plan if log in theirs and not over else {}

    def _guilty(self, key: str, log: str, fault: Fault, end: dict[str, Any]) -> bool:
        """Whether an attempt that was in a fault is to blame for it."""
        job, place = job_of(key), (log, fault.at_ms)
        if place in self._settled:
            return self._settled[place] == job
        there = dict(self._scenes.get(place, {}))
        there.setdefault(job, end.get("started_ms", fault.at_ms))
        if fault.named - self._mine(key, fault):
            # Another process was there, though its job may no longer be known.
            there.setdefault("", 0)
        named = {job_of(self._whose[pid]) for pid in fault.culprits if pid in self._whose}
        guilty = self._inquiry.guilty(job, fault.at_ms, there, named)
        if guilty:
            self._settled[place] = job
        return guilty

    def judged(self, key: str, plan: dict[str, Any], end: dict[str, Any]) -> dict[str, Any]:
        """The end of an attempt as it is to be reported."""
        shares = plan.get("held", {}).get("mps", ())
        if end["outcome"] != Outcome.FAILED.value or not shares:
            return end
        gpu, uid = shares[0]
        self.look()
        fault = self._fault(key, gpu, uid, end)
        if end["why"].endswith(_BROKE):
            # A server that comes back judges again what it had not reported.
            return end
        if fault is None:
            # Only once: the job itself may be what kills it.
            died = not plan.get("restarts") and self._died(gpu, uid, end)
            return _again(end, _DIED) if died else end
        if self._of(key) & fault.refused:
            return _again(end, _LOST)
        known = bool(fault.culprits) and not self._strangers(fault)
        late = end["ended_ms"] - fault.at_ms > WINDOW_MS
        if not self._mine(key, fault) and (known or late):
            return end
        if self._guilty(key, self._daemon(gpu, uid).log, fault, end):
            return end | {"why": f"{end['why']}: {_BROKE}"}
        return _again(end, _LOST)

    def _mine(self, key: str, fault: Fault) -> set[int]:
        """The processes of an attempt that were in a fault."""
        return fault.named & self._of(key)

    def _of(self, key: str) -> set[int]:
        """The processes of an attempt, as far as they are known."""
        news = files.read(os.path.join(self._data.attempt(key), files.RUNNING)) or {}
        started = {int(pid) for pid in news.get("pids", ())}
        return started | {pid for pid, whose in self._whose.items() if whose == key}

    def _strangers(self, fault: Fault) -> set[int]:
        """Processes of a fault that are not known to belong to any attempt."""
        return fault.named - self._whose.keys()

    def _fault(self, key: str, gpu: str, uid: int, end: dict[str, Any]) -> Fault | None:
        """The last fault that may have caused an end; None: there was none.

        A fault that names the attempt comes before others: a server that ends after a fault logs it once more.
        """
        able = [
            fault
            for fault in self._log(self._daemon(gpu, uid).log).faults
            if end["started_ms"] - SLACK_MS <= fault.at_ms <= end["ended_ms"] + SLACK_MS
        ]
        return max(able, key=lambda fault: (bool(self._mine(key, fault)), fault.at_ms), default=None)

    def _died(self, gpu: str, uid: int, end: dict[str, Any]) -> bool:
        """Whether the daemon of an attempt died while it ran."""
        deaths = self._deaths.get(self._daemon(gpu, uid).log, {}).values()
        return any([end["started_ms"] <= ms <= end["ended_ms"] + SLACK_MS for ms in deaths])

    def _log(self, folder: str) -> DaemonLog:
        return self._logs.setdefault(folder, DaemonLog(folder))


def _again(end: dict[str, Any], why: str) -> dict[str, Any]:
    return end | {"outcome": Outcome.NODE_FAIL.value, "why": f"{why} ({end['why']})"}


def job_of(key: str) -> str:
    """The job of an attempt, by its key."""
    return key.rpartition("-")[0]


def find_attempt(pid: int) -> str:
    """The attempt that a process was started by; empty: none of ours, or it is gone."""
    wanted = f"{FOLDER_VARIABLE}=".encode()
    with suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
        for each in file.read().split(b"\0"):
            if each.startswith(wanted):
                key = os.path.basename(os.fsdecode(each[len(wanted) :]))
                return "" if find_key_flaw(key) else key
    return ""
