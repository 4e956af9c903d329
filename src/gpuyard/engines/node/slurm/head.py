"""One attempt inside a Slurm job, as the shared folder tells it: wishes, news, signs of life, the end.

A copy of `engines/node` lies in the yard's shared folder, and the nodes' own Python runs it as the job's user: only
the standard library, nothing newer than Python 3.6. Wishes reach it as files in the attempt's folder; news goes out as
files in the folder `run` below it. Of several nodes the first is the head, which starts the others by `srun`.
"""

import os
import signal
import sys
import time
from typing import Any, Dict, Optional, Tuple, Union

from .. import files
from ..attempt.crew import Crew
from ..attempt.runner import Runner, insist, now_ms
from ..attempt.tasks import Failure, open_output, write_script
from ..kernel.processes import adopt_orphans, boot_id
from .allotted import Allotted, own_gpus
from .spread import POLL_S as _POLL_NODE_S
from .spread import SIGNALS, Remote, make_boxes, run_on_node

_POLL_S = 1.0
_TERM_RACE_S, _END_RACE_S = 0.5, 0.015
_LINGER_S, _LOOK_S = 0.5, 0.005
_GAP_S = 2.0
_KILLED, _TERMINATED = 128 + signal.SIGKILL, 128 + signal.SIGTERM


class Head(Runner):
    """The attempt while it runs in a job of Slurm."""

    hands: Union[Remote, Crew]

    def __init__(self, plan: Dict[str, Any], node: str) -> None:
        self.node = node
        port = _free_port() if plan["world"] > 1 else 0
        apart = len(plan["order"]) > 1 and not plan["batch"]
        Runner.__init__(self, plan, Remote(plan, port) if apart else Crew(Allotted(plan, node, port)))
        self.beat_at, self.beaten_at = 0.0, time.monotonic()

    def start(self) -> Optional[Failure]:
        """Start the tasks; why they do not run, if so."""
        plan = self.plan
        self.see_to()
        self.begin()
        self.obey()
        if self.verdict:
            self.started_ms, self.why = 0, "stopped before it ran"
            return None
        self.set_limit()
        try:
            if plan["script"]:
                write_script(files.SCRIPT, plan["script"])
            failure = self._start_hands(self._output())
        except OSError as error:
            why = "cannot open standard input and output {}: {}".format(error.filename, error.strerror)
            failure = Failure(126, why)
        self.obey()
        if isinstance(self.hands, Remote):
            # Nothing ran before all nodes were there, so the start is now.
            self.begin()
            self.set_limit()
        if failure is None and not self.verdict:
            failure = self.hands.go()
            self.running = True
            if failure is None and plan.get("terminal") and isinstance(self.hands, Crew):
                self.hands.keep()
        if failure is not None or self.verdict:
            # Those at the gate have nothing to save.
            self.kill_at = time.monotonic()
        gpus = self.hands.gpus() if isinstance(self.hands, Remote) else {self.node: own_gpus()}
        files.write(files.NEWS, {"started_ms": self.started_ms, "gpus": gpus})
        return failure

    def _start_hands(self, output: Tuple[int, int]) -> Optional[Failure]:
        if isinstance(self.hands, Remote):
            return self.hands.start(output, self.see_to)
        self.hands.entry.output = output
        if self.plan.get("terminal"):
            self.hands.give_terminal(os.dup(output[0]))
        return make_boxes(self.plan, self.node) or self.hands.start(self._heed)

    def _heed(self) -> None:
        """Heed stops and time limits while tasks start: a start may hang, and a stop must not wait for it."""
        self.obey()
        if signal.sigtimedwait((signal.SIGTERM,), 0) is not None:
            self._told()
        self.keep_time()
        self.see_to()

    def _output(self) -> Tuple[int, int]:
        """Standard output and standard error: the recipe's files, or one of our own."""
        plan = self.plan
        path, append = plan["stdout"] or plan["run"] + "/stdout", plan["append"] or not plan["stdout"]
        out = open_output(plan["cwd"], path, append)
        if not plan["stderr"] or plan["stderr"] == plan["stdout"]:
            return out, out
        return out, open_output(plan["cwd"], plan["stderr"], plan["append"])

    # ---- waiting, and what one wakes up for

    def wait(self) -> None:
        """Wait for something to happen, and no longer than until the next deadline."""
        until = min(self.kill_at, self.limit_at, self.warn_at, self.term_at)
        began = time.monotonic()
        wait_s = min(max(0.0, until - began), _POLL_NODE_S if isinstance(self.hands, Remote) else _POLL_S)
        info = signal.sigtimedwait(SIGNALS, wait_s)
        now = time.monotonic()
        suspended_at: Optional[float] = None
        if info is not None and info.si_signo == signal.SIGTSTP:
            # Slurm suspends with this one first, and stops everything a moment later.
            suspended_at = now
            signal.sigtimedwait((signal.SIGCONT,), _GAP_S * 5)
            now = time.monotonic()
        lost_s = now - (suspended_at if suspended_at is not None else began + wait_s)
        if suspended_at is not None or lost_s > _GAP_S:
            # The time limit waits while nothing runs.
            self.lose(lost_s)
        if info is not None and info.si_signo == signal.SIGTERM:
            self._told()

    def _told(self) -> None:
        """Slurm wants it to end: cancelled, out of time or preempted there, or its node goes."""
        if not self.verdict and self.hands.failed is None and files.HALT not in files.list_names(".."):
            self.verdict = files.TOLD
            self.term_at = time.monotonic()
            self.kill_at = self.term_at + self.plan["grace_ms"] / 1000

    def notice(self) -> None:
        """End all with the first task that failed, unless that was Slurm's doing."""
        failed = self.hands.failed
        ended = failed is not None and failed.exit_code == _TERMINATED
        if (
            ended
            and not (self.stopping or self.verdict)
            and signal.sigtimedwait((signal.SIGTERM,), _TERM_RACE_S)
        ):
            # Slurm signals tasks and wrapper at once, and the task was quicker.
            self.hands.failed = None
            self._told()
            self.hands.failed = failed
        Runner.notice(self)

    def obey(self) -> None:
        """Do what the files ask for."""
        above = files.list_names("..")
        if files.DEAD in above:
            self.verdict, self.why, self.kill_at = "NODE_FAIL", "a node of it is lost", time.monotonic()
            return
        # A job that is spread over several nodes has none.
        if (
            files.WISH in above
            and self.running
            and isinstance(self.hands, Crew)
            and self.hands.keeper is None
        ):
            self.let_in("../" + files.WISH)
        limit = files.read("../" + files.LIMIT) if files.LIMIT in above else None
        if limit is not None:
            self.change_limit(limit["limit_ms"])
        halt = files.read("../" + files.HALT) if files.HALT in above else None
        if halt is not None:
            self.halt(halt)

    def see_to(self) -> None:
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

    def last_word(self) -> None:
        """Slurm signals one process after another: a job may end of it, even well, before the signal comes here."""
        told = self.verdict or files.HALT in files.list_names("..")
        if self.running and not told and signal.sigtimedwait((signal.SIGTERM,), _END_RACE_S):
            self.verdict = files.TOLD

    def judge(self, failed: Failure) -> Failure:
        """Whether it was Slurm: a job that it has not let run waits again, and of one that it ended it knows why."""
        if self._never_ran(failed):
            # Not the job's fault: it waits again, and its nodes are left out for a while.
            self.verdict, self.started_ms = "NODE_FAIL", 0
        elif self._was_it_slurm(failed):
            self.verdict = files.TOLD
        self.why = failed.why
        return failed

    def _was_it_slurm(self, failed: Failure) -> bool:
        """Whether Slurm may have ended a task: for memory, or on other nodes because it has lost this one."""
        if not isinstance(self.hands, Remote):
            return failed.exit_code == _KILLED
        return self.hands.lost or failed.exit_code in (_KILLED, _TERMINATED)

    def _never_ran(self, failed: Failure) -> bool:
        """Whether not all nodes came to the gate, and Slurm had not said that it is to end."""
        lost = isinstance(self.hands, Remote) and self.hands.lost and not self.running
        return lost and failed.exit_code != _TERMINATED

    def finish(self, end: Dict[str, Any]) -> int:
        """Write the end, and stay a moment; the exit code for Slurm."""
        end["checkpoint_ms"] = _saved_ms(self.plan["checkpoint"])
        end["slurm_id"] = int(os.environ["SLURM_JOB_ID"])
        if "folder" in self.plan.get("image", ()):
            from . import images  # most jobs run in none

            if isinstance(self.hands, Crew):
                end["image"] = self.hands.facts(0)

            images.clear(self.plan["image"])
        if isinstance(self.hands, Crew):
            self.hands.part(end["exit_code"])
        if not insist(lambda: files.write(files.END, end, once=True), _is_gone):
            return 1
        files.touch(self.plan["knock"])
        if isinstance(self.hands, Crew):
            self.hands.await_keeper()
        _linger()
        return 0 if end["outcome"] == "COMPLETED" else (end["exit_code"] & 255 or 1)


def _is_gone(error: OSError) -> bool:
    return isinstance(error, FileNotFoundError)


def _linger() -> None:
    """Stay a moment until the engine has read the end, which it shows by clearing this folder.

    Slurm looks for the next job when one leaves. By then the yard has handed in the next job for these GPUs, and it
    starts at once; handed in later, it would wait for a pass of Slurm's scheduler, once in a second or a minute.
    """
    until = time.monotonic() + _LINGER_S
    while files.PLAN in files.list_names(".") and time.monotonic() < until:
        time.sleep(_LOOK_S)


def _saved_ms(path: str) -> int:
    return int(files.read_change_s(path) * 1000) if files.read_change_s(path) > 0 else 0


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
        return run_on_node(plan, node)
    claim = {
        "slurm_id": int(os.environ["SLURM_JOB_ID"]),
        "node": node,
        "boot": boot_id(),
        "pid": os.getpid(),
        "at_ms": now_ms(),
    }
    if not files.write(files.CLAIM, claim, once=True):
        # Another run of the same key has it, or a stop came before this one.
        return 0
    return Head(plan, node).run()
