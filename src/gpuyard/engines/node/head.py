"""One attempt inside a Slurm job: claim, tasks, time limit, stop, leftovers, true exit code.

A copy of this folder lies in the yard's shared folder, and the nodes' own Python runs it as the job's user: only the
standard library, nothing newer than Python 3.6. Wishes reach it as files in the attempt's folder; news goes out as
files in the folder `run` below it. Of several nodes the first is the head, which starts the others by `srun`.
"""

import os
import signal
import stat
import sys
import time
from typing import Any, Dict, Optional, Tuple, Union

from . import files
from .crew import Crew, Failure, adopt_orphans, own_gpus
from .spread import POLL_S as _POLL_NODE_S
from .spread import SIGNALS, Remote, on_node
from .terminal import WISH

_POLL_S, _RETRY_S = 1.0, 1.0
_TERM_RACE_S, _END_RACE_S = 0.5, 0.015
_LINGER_S, _LOOK_S = 0.5, 0.005
_GAP_S = 2.0
_NEVER = float("inf")


class Head:
    """The attempt while it runs."""

    def __init__(self, plan: Dict[str, Any], node: str) -> None:
        self.plan, self.node = plan, node
        port = _free_port() if plan["world"] > 1 else 0
        apart = len(plan["order"]) > 1 and not plan["batch"]
        self.hands: Union[Remote, Crew] = Remote(plan, port) if apart else Crew(plan, node, port)
        self.started_ms = 0
        self.verdict = self.why = ""
        """How its end is reported, once something other than the job has decided it."""
        self.stopping = self.running = self.warned = False
        self.frozen_at: Optional[float] = None
        self.limit_at = self.warn_at = self.term_at = self.kill_at = _NEVER
        self.beat_at, self.beaten_at = 0.0, time.monotonic()

    def run(self) -> int:
        """Run to the end; gives the exit code for Slurm."""
        failure = None
        try:
            failure = self._start()
            while self.hands.alive():
                self._wait()
                self.hands.reap()
                self._notice()
                self._keep_time()
                self._beat()
        except Exception as error:  # whatever it is, the job must not outlive its wrapper unseen
            self.verdict, self.why = "NODE_FAIL", "its wrapper failed: {!r}".format(error)
            self.hands.signal(signal.SIGKILL)
        self.hands.sweep()
        self._heed_late_word()
        return self._end(failure)

    def _start(self) -> Optional[Failure]:
        plan = self.plan
        self._beat()
        self.started_ms = files.now_ms()
        self._obey()
        if self.verdict:
            self.started_ms, self.why = 0, "stopped before it ran"
            return None
        try:
            if plan["script"]:
                _write_script(plan["script"])
            output = self._output()
            if plan.get("terminal") and isinstance(self.hands, Crew):
                self.hands.give_terminal(output[0])
            failure = self.hands.start(output)
        except OSError as error:
            failure = (
                126,
                "cannot open standard input and output {}: {}".format(error.filename, error.strerror),
            )
        self._obey()
        if isinstance(self.hands, Remote):
            # Nothing ran before all nodes were there, so the start is now.
            self.started_ms = files.now_ms()
        if failure is None and not self.verdict:
            failure = self.hands.go()
            self.running = True
            if failure is None and plan.get("terminal"):
                self._keep()
        now = time.monotonic()
        if plan["limit_ms"] > 0:
            self.limit_at = now + plan["limit_ms"] / 1000
            if plan["warn_signal"] and plan["warn_ms"] > 0:
                self.warn_at = max(now, self.limit_at - plan["warn_ms"] / 1000)
        if failure is not None or self.verdict:
            # Those at the gate have nothing to save.
            self.kill_at = now
        gpus = self.hands.gpus() if isinstance(self.hands, Remote) else {self.node: own_gpus()}
        files.write(files.NEWS, {"started_ms": self.started_ms, "gpus": gpus})
        return failure

    def _keep(self) -> None:
        """Start the keeper of its terminals, unless it is there, or the job is spread over several nodes."""
        if isinstance(self.hands, Crew) and self.hands.keeper is None:
            self.hands.keep()

    def _output(self) -> Tuple[int, int]:
        """Standard output and standard error: the recipe's files, or one of our own."""
        plan = self.plan
        out = _opened(
            plan["cwd"], plan["stdout"] or plan["run"] + "/stdout", plan["append"] or not plan["stdout"]
        )
        if not plan["stderr"] or plan["stderr"] == plan["stdout"]:
            return out, out
        return out, _opened(plan["cwd"], plan["stderr"], plan["append"])

    # ---- waiting, and what one wakes up for

    def _wait(self) -> None:
        until = min(self.kill_at, self.limit_at, self.warn_at, self.term_at)
        began = time.monotonic()
        wait_s = min(max(0.0, until - began), _POLL_NODE_S if isinstance(self.hands, Remote) else _POLL_S)
        info = signal.sigtimedwait(SIGNALS, wait_s)
        now = time.monotonic()
        if info is not None and info.si_signo == signal.SIGTSTP:
            # Slurm suspends with this one first, and stops everything a moment later.
            self.frozen_at = now
            signal.sigtimedwait((signal.SIGCONT,), _GAP_S * 5)
            now = time.monotonic()
        lost_s = now - (self.frozen_at if self.frozen_at is not None else began + wait_s)
        if self.frozen_at is not None or lost_s > _GAP_S:
            # The time limit waits while nothing runs.
            self.limit_at += lost_s
            self.warn_at += lost_s
            self.frozen_at = None
        if info is not None and info.si_signo == signal.SIGTERM:
            self._told()

    def _told(self) -> None:
        """Slurm wants it to end: cancelled, out of time or preempted there, or its node goes."""
        if not self.verdict and self.hands.failed is None and files.HALT not in files.names(".."):
            self.verdict = files.TOLD
            self.term_at = time.monotonic()
            self.kill_at = self.term_at + self.plan["grace_ms"] / 1000

    def _notice(self) -> None:
        """Do what the files ask for, and end all with the first task that failed."""
        self._obey()
        failed = self.hands.failed
        if failed is None or self.stopping or self.verdict:
            return
        if failed[0] == 128 + signal.SIGTERM and signal.sigtimedwait((signal.SIGTERM,), _TERM_RACE_S):
            # Slurm signals tasks and wrapper at once, and the task was quicker.
            self.hands.failed = None
            self._told()
            self.hands.failed = failed
            return
        self.stopping = True
        if self.hands.alive():
            self.term_at = time.monotonic()
            self.kill_at = min(self.kill_at, self.term_at + self.plan["grace_ms"] / 1000)

    def _obey(self) -> None:
        above = files.names("..")
        if files.DEAD in above:
            self.verdict, self.why, self.kill_at = "NODE_FAIL", "a node of it is lost", time.monotonic()
            return
        if WISH in above and self.running:
            self._keep()
        halt = files.read("../" + files.HALT) if files.HALT in above else None
        if halt is None:
            return
        now = time.monotonic()
        if self.running:
            # A job that ended by itself before the stop keeps its own end.
            self.hands.reap()
        if self.verdict or self.stopping or self.hands.failed is not None or self._over():
            self.kill_at = min(self.kill_at, now + halt["grace_ms"] / 1000)
            return
        self.verdict = halt["outcome"]
        self.kill_at = now + halt["grace_ms"] / 1000
        self.term_at = now
        if self.plan["warn_signal"] and not self.warned:
            self.hands.warn(self.plan["warn_signal"])
            if self.verdict == "PREEMPTED":
                # It asked for this much warning; half of the grace is left for what TERM makes it do.
                self.term_at = now + min(self.plan["warn_ms"], halt["grace_ms"] // 2) / 1000

    def _over(self) -> bool:
        return self.running and not self.hands.alive()

    def _keep_time(self) -> None:
        now = time.monotonic()
        if now >= self.warn_at:
            self.warn_at = _NEVER
            self.warned = True
            self.hands.warn(self.plan["warn_signal"])
        if now >= self.limit_at:
            self.limit_at = _NEVER
            if not self.verdict and self.hands.failed is None:
                self.verdict = "TIMEOUT"
                self.why = "time limit of {:g} s reached".format(self.plan["limit_ms"] / 1000)
                self.term_at = now
                self.kill_at = min(self.kill_at, now + self.plan["grace_ms"] / 1000)
        if now >= self.term_at:
            self.term_at = _NEVER
            self.hands.signal(signal.SIGTERM)
        if now >= self.kill_at:
            # Again and again until all are gone: a process that is being forked now may be missed once.
            self.kill_at = now + 0.25
            self.hands.signal(signal.SIGKILL)

    def _beat(self) -> None:
        """Give a sign of life; without one for too long others may think it dead, so it has to end."""
        now = time.monotonic()
        if now < self.beat_at:
            return
        self.beat_at = now + files.BEAT_S
        if files.touch(files.BEAT):
            self.beaten_at = now
        elif now - self.beaten_at > files.LEASE_S:
            self.verdict, self.why = "NODE_FAIL", "the shared folder could not be written"
            self.kill_at = now

    # ---- the end

    def _heed_late_word(self) -> None:
        """Slurm signals one process after another: a job may end of it, even well, before the signal comes here."""
        told = self.verdict or files.HALT in files.names("..")
        if self.running and not told and signal.sigtimedwait((signal.SIGTERM,), _END_RACE_S):
            self.verdict = files.TOLD

    def _was_it_slurm(self, failed: Failure) -> bool:
        """Whether Slurm may have ended a task: for memory, or on other nodes because it has lost this one."""
        if not isinstance(self.hands, Remote):
            return failed[0] == 128 + signal.SIGKILL
        return self.hands.lost or failed[0] in (128 + signal.SIGKILL, 128 + signal.SIGTERM)

    def _never_ran(self, failed: Failure) -> bool:
        """Whether not all nodes came to the gate, and Slurm had not said that it is to end."""
        lost = isinstance(self.hands, Remote) and self.hands.lost and not self.running
        return lost and failed[0] != 128 + signal.SIGTERM

    def _end(self, failure: Optional[Failure]) -> int:
        failed = failure or self.hands.failed
        outcome, why = ("COMPLETED", "") if failed is None else ("FAILED", failed[1])
        if self.verdict:
            outcome, why = self.verdict, self.why
        elif failed is not None and self._never_ran(failed):
            # Not the job's fault: it waits again, and its nodes are left out for a while.
            outcome, self.started_ms = "NODE_FAIL", 0
        elif failed is not None and self._was_it_slurm(failed):
            outcome = files.TOLD
        end: Dict[str, Any] = {
            "outcome": outcome,
            "exit_code": failed[0] if failed is not None else 0,
            "why": why,
            "started_ms": self.started_ms,
            "ended_ms": max(files.now_ms(), self.started_ms),
            "checkpoint_ms": _saved_ms(self.plan["checkpoint"]),
            "slurm_id": int(os.environ["SLURM_JOB_ID"]),
        }
        if isinstance(self.hands, Crew) and self.hands.keeper is not None:
            self.hands.keeper.end(end["exit_code"])
        while True:
            try:
                files.write(files.END, end, once=True)
                break
            except FileNotFoundError:
                # The folder was removed: there is no place left to write the end.
                return 1
            except OSError:
                # Without the end on disk only this process knows it, so it stays.
                time.sleep(_RETRY_S)
        files.touch(self.plan["knock"])
        if isinstance(self.hands, Crew):
            self.hands.part()
        _linger()
        return 0 if outcome == "COMPLETED" else (end["exit_code"] & 255 or 1)


def _linger() -> None:
    """Stay a moment until the engine has read the end, which it shows by clearing this folder.

    Slurm looks for the next job when one leaves. By then the yard has handed in the next job for these GPUs, and it
    starts at once; handed in later, it would wait for a pass of Slurm's scheduler, once in a second or a minute.
    """
    until = time.monotonic() + _LINGER_S
    while files.PLAN in files.names(".") and time.monotonic() < until:
        time.sleep(_LOOK_S)


def _opened(cwd: str, path: str, append: bool) -> int:
    # Without O_NONBLOCK a named pipe without a reader would block the wrapper forever.
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | (0 if append else os.O_TRUNC)
    whole = os.path.join(cwd, path)
    try:
        fd = os.open(whole, flags, 0o644)
    except FileNotFoundError:
        # `--output=logs/%j.out` means that the folder is to be there.
        os.makedirs(os.path.dirname(whole), exist_ok=True)
        fd = os.open(whole, flags, 0o644)
    os.set_blocking(fd, True)
    return fd


def _write_script(text: str) -> None:
    fd = os.open(files.SCRIPT, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o700)
    with os.fdopen(fd, "wb") as file:
        file.write(text.encode("utf-8", "surrogateescape"))
    os.chmod(files.SCRIPT, stat.S_IRUSR | stat.S_IXUSR)


def _saved_ms(path: str) -> int:
    return int(files.changed(path) * 1000) if files.changed(path) > 0 else 0


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def arrange(plan: Dict[str, Any], head: str) -> None:
    """Number the tasks, beginning on the node that Slurm made the first."""
    plan["order"] = [head] + [name for name in plan["parts"] if name != head]
    first = 0
    for name in plan["order"]:
        plan["parts"][name]["first"] = first
        first += plan["parts"][name]["tasks"]
    plan["address"] = plan["addresses"][head] if len(plan["order"]) > 1 else "127.0.0.1"


def main() -> int:
    """As `python3 -c … FOLDER [node]`, in a job of Slurm or a step of one."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    folder, node = sys.argv[1], os.environ["SLURMD_NODENAME"]
    try:
        os.chdir(os.path.join(folder, files.RUN))
    except FileNotFoundError:
        # It was stopped and is forgotten.
        return 0
    plan = files.read(files.PLAN)
    if plan is None:
        return 0
    adopt_orphans()
    arrange(plan, os.environ.get("YARD_HEAD", node))
    if len(sys.argv) > 2:
        return on_node(plan, node)
    claim = {
        "slurm_id": int(os.environ["SLURM_JOB_ID"]),
        "node": node,
        "pid": os.getpid(),
        "at_ms": files.now_ms(),
    }
    if not files.write(files.CLAIM, claim, once=True):
        # Another run of the same key has it, or a stop came before this one.
        return 0
    return Head(plan, node).run()
