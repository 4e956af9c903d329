"""When one job breaks an MPS server, whoever shares it fails too: who is to blame, and who is to run again.

Where the daemon's log names processes, that is who: the job whose work it was has failed; the others lost their GPU
under them, as if their node had failed, and run again. A process is known by the number that it had when it connected,
or by the number its job was started with. One that has lost its GPU and does not notice keeps everybody new out, so it
is ended.

A daemon that dies takes all its clients with it, and nothing is logged; each of them gets one more try.

Where nobody is named, who failed first by a clear margin is taken for the cause. Where several failed at the same
moment nobody can tell: each of them gets one more try.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from gpuyard.engines.local import files
from gpuyard.engines.local.client import Data
from gpuyard.engines.local.mps import Daemon, Mps, pid_of
from gpuyard.engines.local.mps_log import DaemonLog, Fault
from gpuyard.engines.local.translate import FOLDER_VARIABLE, flaw_of_key
from gpuyard.model import Outcome

SETTLE_MS = 1_000
"""How long the others are waited for before the first one is judged, where nobody is named."""
SAME_MS = 500
"""Ends that are no further apart came at the same moment."""
SLACK_MS = 2_000
"""How far the daemon's clock and ours may differ."""
WINDOW_MS = 30_000
"""How long after a fault an end is put down to it, where nobody is named."""
NOTICE_MS = 5_000
"""How long a process without its GPU may take to notice."""
SAVE_MS_MAX = 10_000
"""The most time that it gets to save its work when it is ended."""

_LOST = "a fault of another job broke the MPS server that they shared"
_DIED = "the MPS daemon that it computed through died"
_BROKE = "a fatal error of its work on the GPU, which broke the MPS server"


class Faults:
    """Knows whose processes compute through which daemon, and remembers who failed in which fault."""

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
        """The attempt that a client belongs to. Kept past its end, which is when it is asked for."""
        self._deaths: dict[str, dict[int, int]] = {}
        """By the folder of a daemon's log: which of its processes was found dead, and when."""
        self._failed: dict[tuple[str, int], dict[str, int]] = {}
        """By GPU and user: when each attempt failed in a fault that names nobody."""

    def look(self) -> bool:
        """See who has connected since: who is gone can no longer be asked whose it is. Whether there are daemons."""
        there = self._daemons()
        for daemon in there:
            for pid in self._log(daemon.log).look():
                self._whose.pop(pid, None)
                if key := attempt_of(pid):
                    self._whose[pid] = key
            if Mps.dead(daemon):
                self._deaths.setdefault(daemon.log, {}).setdefault(pid_of(daemon), self._now_ms())
        for folder in self._logs.keys() - {daemon.log for daemon in there}:
            del self._logs[folder]
            self._deaths.pop(folder, None)
        if not there:
            self._whose.clear()
            self._failed.clear()
        return bool(there)

    def recovering(self, gpu: str, uid: int) -> bool:
        """Whether a broken server still waits for those who lost their GPU, and so lets nobody in."""
        self.look()
        return bool(self._log(self._daemon(gpu, uid).log).recovering())

    def end_unaware(self, tell: Callable[[str], None]) -> None:
        """End what has lost its GPU for a while and has not noticed; its supervisor is told."""
        for folder, log in self._logs.items():
            for pid in sorted(log.recovering()):
                key = self._whose.get(pid) or attempt_of(pid)
                fault = next((each for each in reversed(log.faults) if pid in each.named), None)
                if key and fault is not None and self._now_ms() >= fault.at_ms + NOTICE_MS:
                    guilty = pid in fault.culprits
                    outcome, why = (Outcome.FAILED, _BROKE) if guilty else (Outcome.NODE_FAIL, _LOST)
                    if self._end(key, folder, {"outcome": outcome.value, "why": why}):
                        tell(key)

    def _end(self, key: str, log: str, wish: dict[str, Any]) -> bool:
        """Write down that an attempt is to end; whether that is new, and this daemon's to say."""
        folder = self._data.attempt(key)
        plan = files.read(os.path.join(folder, files.LAUNCH)) or {}
        theirs = [self._daemon(gpu, uid).log for gpu, uid in plan.get("held", {}).get("mps", ())]
        if log not in theirs or os.path.exists(os.path.join(folder, files.END)):
            return False
        wish["grace_ms"] = min(plan["grace_ms"], SAVE_MS_MAX)
        # On a full disk it is written another time. Whoever wanted it ended before has said so, and that is its end.
        with suppress(OSError):
            return files.create(os.path.join(folder, files.HALT), wish, durable=False)
        return False

    def judged(self, key: str, plan: dict[str, Any], end: dict[str, Any]) -> dict[str, Any] | None:
        """The end of an attempt as it is to be reported; None: it is too early to say."""
        shares = plan.get("held", {}).get("mps", ())
        if end["outcome"] != Outcome.FAILED.value or not shares:
            return end
        gpu, uid = shares[0]
        self.look()
        fault = self._fault(key, gpu, uid, end)
        if end["why"].endswith(_BROKE):
            # A server that comes back judges again whatever it had not told of.
            return end
        if fault is None:
            # Not for ever: it may be the job itself that kills it.
            died = not plan.get("append") and self._died(gpu, uid, end)
            return _again(end, _DIED) if died else end
        if fault.culprits:
            mine = self._mine(key, fault)
            if mine & fault.culprits:
                return end | {"why": f"{end['why']}: {_BROKE}"}
            if mine & fault.victims:
                return _again(end, _LOST)
            if not self._strangers(fault):
                return end
        return self._judged_by_time(key, plan, end, fault.at_ms)

    def _judged_by_time(
        self, key: str, plan: dict[str, Any], end: dict[str, Any], at_ms: int
    ) -> dict[str, Any] | None:
        """Where it is not known whose the processes were."""
        ended_ms: int = end["ended_ms"]
        if ended_ms - at_ms > WINDOW_MS:
            return end
        gpu, uid = plan["held"]["mps"][0]
        row = self._failed.setdefault((gpu, uid), {})
        row[key] = ended_ms
        if self._now_ms() < ended_ms + SETTLE_MS:
            return None
        same = {other: ms for other, ms in row.items() if at_ms - SLACK_MS <= ms <= at_ms + WINDOW_MS}
        first_ms = min(same.values())
        suspects = [other for other, ms in same.items() if ms <= first_ms + SAME_MS]
        if key in suspects and (len(suspects) == 1 or plan.get("append")):
            return end
        return _again(end, _LOST)

    def _mine(self, key: str, fault: Fault) -> set[int]:
        """The processes of an attempt that were in a fault."""
        known = {pid for pid in fault.named if self._whose.get(pid) == key}
        news = files.read(os.path.join(self._data.attempt(key), files.RUNNING)) or {}
        return known | (fault.named & {int(pid) for pid in news.get("pids", ())})

    def _strangers(self, fault: Fault) -> set[int]:
        """Processes of a fault that are not known to be anybody's."""
        return fault.named - self._whose.keys()

    def _fault(self, key: str, gpu: str, uid: int, end: dict[str, Any]) -> Fault | None:
        """The last fault to which an end can be put down; None: there was none.

        One that names the attempt goes before one that does not: a server that ends after a fault is told of once more.
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


def attempt_of(pid: int) -> str:
    """The attempt that a process was started by; empty: none of ours, or it is gone."""
    wanted = f"{FOLDER_VARIABLE}=".encode()
    with suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
        for each in file.read().split(b"\0"):
            if each.startswith(wanted):
                key = os.path.basename(os.fsdecode(each[len(wanted) :]))
                return "" if flaw_of_key(key) else key
    return ""
