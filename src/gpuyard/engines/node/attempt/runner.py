"""The runner of one attempt, on every machine: time limit, warning, stop, leftovers, true exit code.

A runner gets a plan, and hands that do things to the job's processes: a crew on this machine, or one on each of several
nodes. It heeds wishes that an engine leaves in files, and writes an end. What engines do differently they override:
where wishes come from, where news goes, what else there is to see to.

Runs in supervisors and, copied, on the nodes of a cluster: only the standard library, little of it, and nothing newer
than Python 3.6.
"""

import os
import signal
import time
from typing import Any, Dict, Optional

from ..files import read_mark, tell_trouble
from ..kernel.processes import cut_short, error_text
from .tasks import Failure

NEVER = float("inf")
BROKE = "its runner failed"
"""Why an attempt has ended that nobody foresaw; what it was follows."""
_RETRY_S = 1.0
_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", 7)
"""Python 3.6 has no name for it."""


class Runner:
    """The attempt while it runs."""

    def __init__(self, plan: Dict[str, Any], hands: Any) -> None:
        self.plan, self.hands = plan, hands
        self.started_ms = self.began_ms = 0
        """When it started: by the clock of people, and by the one that cannot be set."""
        self.verdict = self.why = ""
        """How its end is reported, once something other than the job has decided it."""
        self.failure: Optional[Failure] = None
        """Why its program could not be run."""
        self.running = False
        """Whether its tasks were let go."""
        self.stopping = False
        """Whether the tasks are being stopped because one has failed."""
        self.warned = False
        """Once is enough: a job that has saved its work and asks to be requeued is not warned again."""
        self.unvisited = ""
        """Why there is no keeper for clients that want to come in."""
        self.unmet = (0, 0)
        """The mark of the wish for one that could not be met."""
        self.frozen_at: Optional[float] = None
        self.lost_s = 0.0
        """How long nothing of it ran, all together: its time limit has waited."""
        self.limit_at = self.warn_at = self.term_at = self.kill_at = NEVER
        self.limit_from: Optional[float] = None
        """Where the time limit began; later by what it has waited."""

    # ---- what an engine says

    def start(self) -> Optional[Failure]:
        """Start the tasks; why they do not run, if so."""
        raise NotImplementedError

    def wait(self) -> None:
        """Wait for something to happen, and no longer than until the next deadline."""
        raise NotImplementedError

    def obey(self) -> None:
        """Do what the engine's files ask for."""
        raise NotImplementedError

    def see_to(self) -> None:
        """Whatever else is due at every turn."""

    def judge(self, failed: Failure) -> Failure:
        """Take a closer look at a failure: it may set another verdict than FAILED, and other words."""
        return failed

    def finish(self, end: Dict[str, Any]) -> int:
        """Write the end, and go; the exit code of this process."""
        raise NotImplementedError

    # ---- from its start to its end

    def run(self) -> int:
        """Run to the end; gives the exit code of this process."""
        try:
            self.failure = self.start()
            while self.hands.alive() or self._lingers():
                self.wait()
                self.hands.reap()
                self.obey()
                self.notice()
                self.keep_time()
                self.see_to()
        except Exception as error:  # whatever it is, the job must not outlive its runner unseen
            self.verdict, self.why = "NODE_FAIL", "{}: {}".format(BROKE, error_text(error))
        self.hands.sweep()
        self.last_word()
        return self.finish(self.end())

    def let_in(self, wish: str) -> None:
        """Have a keeper for clients that want to come in, if there is this wish for one.

        Where there can be none, they do not, and the job goes on. The wish is tried again when it is made anew.
        """
        if read_mark(wish) in ((0, 0), self.unmet):
            return
        try:
            self.hands.keep()
            self.unvisited = ""
        except Exception as error:
            why = error_text(error)
            tell_trouble(why)
            self.unmet = read_mark(wish)
            if why != self.unvisited:
                self.unvisited = why
                self.note("{}: nobody can come in: {}".format(self.plan["key"], why))

    def note(self, text: str) -> None:
        """Write down what went wrong beside the job."""
        os.write(2, "{}\n".format(text).encode("utf-8", "replace"))

    def last_word(self) -> None:
        """A last look whether something else has decided its end."""

    def _lingers(self) -> bool:
        """Whether processes of a job that is being stopped still use their grace, though its tasks have ended."""
        if not self.verdict or time.monotonic() >= self.kill_at or self.kill_at == NEVER:
            return False
        return bool(self.hands.lingers())

    def end(self) -> Dict[str, Any]:
        """How it ended, for all to read."""
        failed = self.failure or self.hands.failed
        outcome, why = "COMPLETED", ""
        if failed is not None and not self.verdict:
            outcome, why = "FAILED", self.judge(failed).why
        if self.verdict:
            outcome, why = self.verdict, self.why
        for_good = outcome == "FAILED" and failed is not None and failed.for_good
        return {
            "outcome": outcome,
            "exit_code": failed.exit_code if failed is not None else 0,
            "why": cut_short(why),
            "for_good": for_good,
            "started_ms": self.started_ms,
            # Its length is what it ran, whatever became of the clock of people meanwhile.
            "ended_ms": self.started_ms + steady_ms() - self.began_ms if self.started_ms else now_ms(),
        }

    # ---- wishes and deadlines

    def begin(self) -> None:
        """It starts now."""
        self.started_ms, self.began_ms = now_ms(), steady_ms()

    def set_limit(self) -> None:
        """Begin the time limit now."""
        self.limit_from = time.monotonic()
        self._place_limit()

    def change_limit(self, limit_ms: int) -> bool:
        """Have another time limit from now on, counted from where the first one began; whether it is another."""
        if limit_ms == self.plan["limit_ms"] or self.verdict:
            return False
        self.plan["limit_ms"] = limit_ms
        if self.limit_from is not None:
            self._place_limit()
        return True

    def _place_limit(self) -> None:
        plan, now = self.plan, time.monotonic()
        self.limit_at = self.warn_at = NEVER
        if plan["limit_ms"] > 0 and self.limit_from is not None:
            self.limit_at = self.limit_from + plan["limit_ms"] / 1000
            if plan["warn_signal"] and plan["warn_ms"] > 0 and not self.warned:
                self.warn_at = max(now, self.limit_at - plan["warn_ms"] / 1000)

    def halt(self, halt: Dict[str, Any]) -> None:
        """Stop it as somebody wishes."""
        now = time.monotonic()
        if self.running:
            # A job that ended by itself before the stop keeps its own end.
            self.hands.reap()
        if self.verdict or self.failure or self.hands.failed or (self.running and not self.hands.alive()):
            self.kill_at = min(self.kill_at, now + halt["grace_ms"] / 1000)
            return
        self.verdict, self.why = halt["outcome"], halt.get("why", "")
        self.kill_at = now + halt["grace_ms"] / 1000
        self.term_at = now
        if self.plan["warn_signal"] and not self.warned:
            self.warn()
            if self.verdict == "PREEMPTED":
                # It asked for this much warning; half of the grace is left for what TERM makes it do.
                self.term_at = now + min(self.plan["warn_ms"], halt["grace_ms"] // 2) / 1000
        self.thaw()

    def warn(self) -> None:
        """Warn the job as it asked."""
        self.warned = True
        self.hands.warn(self.plan["warn_signal"])

    def notice(self) -> None:
        """All or none: without one of its tasks the job is over, and the others are stopped."""
        if self.hands.failed is None or self.stopping:
            return
        self.stopping = True
        if self.hands.alive() and not self.verdict:
            self.term_at = time.monotonic()
            self.kill_at = min(self.kill_at, self.term_at + self.plan["grace_ms"] / 1000)
        self.thaw()

    def keep_time(self) -> None:
        """Do what is due. The time limit, the warning and TERM wait while it is frozen."""
        now = time.monotonic()
        if self.frozen_at is None:
            if now >= self.warn_at:
                self.warn_at = NEVER
                self.warn()
            if now >= self.limit_at:
                self.limit_at = NEVER
                if not self.verdict and self.hands.failed is None:
                    self.verdict = "TIMEOUT"
                    self.why = "time limit of {:g} s reached".format(self.plan["limit_ms"] / 1000)
                    self.term_at = now
                    self.kill_at = min(self.kill_at, now + self.plan["grace_ms"] / 1000)
            if now >= self.term_at:
                self.term_at = NEVER
                self.hands.signal(signal.SIGTERM)
        if now >= self.kill_at:
            # Again and again until all are gone: a process that is being forked now may be missed once.
            self.kill_at = now + self.hands.kill()

    def freeze(self) -> None:
        """Stop every process where it is, unless it is ending."""
        if self.running and self.frozen_at is None and not self.verdict and not self.hands.failed:
            self.frozen_at = time.monotonic()
            self.hands.freeze()

    def thaw(self) -> None:
        """Let them go on; the time limit has waited."""
        if self.frozen_at is not None:
            self.lose(time.monotonic() - self.frozen_at)
            self.frozen_at = None
            self.hands.thaw()

    def lose(self, lost_s: float) -> None:
        """Let the time limit wait for as long as nothing ran."""
        self.lost_s += lost_s
        self.limit_at += lost_s
        self.warn_at += lost_s
        if self.limit_from is not None:
            self.limit_from += lost_s


def now_ms() -> int:
    """The time of this machine's clock."""
    return int(time.time() * 1000)


def steady_ms() -> int:
    """Time since this machine was started, also while it slept: a clock that nobody can set."""
    return int(time.clock_gettime(_BOOTTIME) * 1000)


def insist(write: Any, is_lost: Any) -> bool:
    """Write an end, however long it takes: on disk others can read it, and now only this process knows it.

    Whether it is written: where the folder was removed there is no place left for it.
    """
    while True:
        try:
            write()
            return True
        except OSError as error:
            if is_lost(error):
                return False
            time.sleep(_RETRY_S)
