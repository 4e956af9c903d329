"""One attempt inside a Slurm job: claim, tasks, time limit, stop, leftovers, true exit code.

A copy of this folder lies in the yard's shared folder, and the nodes' own Python runs it as the job's user: only the
standard library, nothing newer than Python 3.6. Wishes reach it as files in the attempt's folder; news go out as files
in the folder `run` below it. Of several nodes the first is the head, which starts the others by `srun`.
"""

import os
import signal
import socket
import stat
import subprocess
import sys
import time
from typing import Any, Dict, List, Optional, Tuple, Union

from . import files
from .crew import Crew, Failure, adopt_orphans, own_gpus

SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1, signal.SIGTSTP, signal.SIGCONT)
"""Blocked from before the claim on, and taken one at a time."""
_POLL_S, _POLL_NODE_S, _RETRY_S = 1.0, 0.25, 1.0
_READY_S_MAX = 300.0
_TERM_RACE_S = 0.5
_GAP_S = 2.0
_KILL_S = 15.0
_NEVER = float("inf")


class Remote:
    """The tasks of several nodes: one `srun` for each group of nodes, whose ends say that all of theirs are gone."""

    def __init__(self, plan: Dict[str, Any], port: int) -> None:
        self.plan, self.port = plan, port
        self.sruns: List[subprocess.Popen[bytes]] = []
        self.failed: Optional[Failure] = None
        self.lost = False
        """Whether Slurm ended some of it, so that Slurm knows why."""
        self.orders = 0
        self.kill_at = 0.0

    def start(self, output: Tuple[int, int]) -> Optional[Failure]:
        """A crew on every node, waiting at its gate; what went wrong, if something did."""
        env = {name: value for name, value in os.environ.items() if name not in self.plan["dropped"]}
        env.update(YARD_PORT=str(self.port), YARD_HEAD=self.plan["order"][0])
        for words in self.plan["sruns"]:
            command = [
                *words,
                sys.executable,
                "-I",
                "-S",
                "-c",
                self.plan["program"],
                self.plan["folder"],
                "node",
            ]
            self.sruns.append(
                subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=output[0], stderr=output[1], env=env
                )
            )
        until = time.monotonic() + _READY_S_MAX
        while time.monotonic() < until:
            here = files.names(".")
            if all([files.READY + node in here for node in self.plan["order"]]):
                return None
            self.reap()
            info = signal.sigtimedwait((signal.SIGCHLD, signal.SIGUSR1, signal.SIGTERM), 0.05)
            if info is not None and info.si_signo == signal.SIGTERM:
                self.failed, self.lost = (128 + signal.SIGTERM, "Slurm ended it before it ran"), True
            if self.failed or files.HALT in files.names(".."):
                return self.failed
        self.lost = True
        return 1, "not all nodes were ready within {:g} s".format(_READY_S_MAX)

    def go(self) -> Optional[Failure]:
        """Let all of them run."""
        files.touch(files.GO)
        return None

    def reap(self) -> bool:
        """Look what became of the nodes; whether any is left."""
        for name in sorted(files.names(".")):
            if name.startswith(files.FAILED) and name.endswith(".json") and self.failed is None:
                said = files.read(name)
                if said is not None:
                    self.failed = (said["exit_code"], said["why"])
        for each in self.sruns:
            if each.poll() and self.failed is None:
                # No task has failed, so it was not the job: a node went, or Slurm ended the step.
                self.failed, self.lost = (1, "srun ended with exit code {}".format(each.returncode)), True
        return self.alive()

    def alive(self) -> bool:
        """Whether any node still has tasks."""
        return any([each.poll() is None for each in self.sruns])

    def signal(self, number: int) -> None:
        """Have every node pass a signal on."""
        if number == signal.SIGKILL:
            self.kill_at = self.kill_at or time.monotonic() + _KILL_S
            if time.monotonic() > self.kill_at:
                # A node that does not answer: Slurm clears away what is left when this job has ended.
                for each in self.sruns:
                    each.kill()
        self.orders += 1
        files.touch("{}{}.{}".format(files.ORDER, self.orders, int(number)))

    def sweep(self) -> None:
        """Nodes sweep for themselves before their `srun` ends."""

    def gpus(self) -> Dict[str, List[int]]:
        """What each node has, as it said when it was ready."""
        return {node: (files.read(files.READY + node) or {"gpus": []})["gpus"] for node in self.plan["order"]}


class Head:
    """The attempt while it runs."""

    def __init__(self, plan: Dict[str, Any], node: str) -> None:
        self.plan, self.node = plan, node
        port = _free_port() if plan["world"] > 1 else 0
        apart = len(plan["order"]) > 1 and not plan["batch"]
        self.hands: Union[Remote, Crew] = Remote(plan, port) if apart else Crew(plan, node, port)
        self.started_ms = 0
        self.verdict = self.why = ""
        """What its end is to be called, once someone other than the job has decided it."""
        self.stopping = False
        self.frozen_at: Optional[float] = None
        self.limit_at = self.warn_at = self.term_at = self.kill_at = _NEVER
        self.beat_at, self.beaten_at = 0.0, time.monotonic()

    def run(self) -> int:
        """From here to the end; gives what Slurm is to see as exit code."""
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
            failure = self.hands.start(self._output())
        except OSError as error:
            failure = (
                126,
                "cannot open standard input and output {}: {}".format(error.filename, error.strerror),
            )
        self._obey()
        if failure is None and not self.verdict:
            failure = self.hands.go()
        now = time.monotonic()
        self.started_ms = files.now_ms()
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
        """Slurm wants it to end: cancelled there, out of time there, preempted there, or its node goes."""
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
            # Slurm tells tasks and wrapper at once, and the task was quicker.
            self.hands.failed = None
            self._told()
            self.hands.failed = failed
            return
        self.stopping = True
        if self.hands.alive():
            self.term_at = time.monotonic()
            self.kill_at = min(self.kill_at, self.term_at + self.plan["grace_ms"] / 1000)

    def _obey(self) -> None:
        halt = files.read("../" + files.HALT) if files.HALT in files.names("..") else None
        if halt is None:
            return
        now = time.monotonic()
        if self.verdict or self.stopping or self.hands.failed is not None:
            self.kill_at = min(self.kill_at, now + halt["grace_ms"] / 1000)
            return
        self.verdict = halt["outcome"]
        self.kill_at = now + halt["grace_ms"] / 1000
        self.term_at = now
        if self.plan["warn_signal"]:
            self.hands.signal(self.plan["warn_signal"])
            if self.verdict == "PREEMPTED":
                # It asked to be warned so long ahead; half of the grace is left for what TERM makes it do.
                self.term_at = now + min(self.plan["warn_ms"], halt["grace_ms"] // 2) / 1000

    def _keep_time(self) -> None:
        now = time.monotonic()
        if now >= self.warn_at:
            self.warn_at = _NEVER
            self.hands.signal(self.plan["warn_signal"])
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
            # Again and again until all are gone: one that is being forked now may be missed once.
            self.kill_at = now + 0.25
            self.hands.signal(signal.SIGKILL)

    def _beat(self) -> None:
        """Show a sign of life; without one for too long others may think it dead, so it has to be."""
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

    def _end(self, failure: Optional[Failure]) -> int:
        failed = failure or self.hands.failed
        outcome, why = ("COMPLETED", "") if failed is None else ("FAILED", failed[1])
        if self.verdict:
            outcome, why = self.verdict, self.why
        elif isinstance(self.hands, Remote) and self.hands.lost:
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
        while True:
            try:
                files.write(files.END, end, once=True)
                break
            except FileNotFoundError:
                # Somebody has removed the folder: there is no place left to tell it.
                return 1
            except OSError:
                # Without the end on disk this process is all that knows it, so it stays.
                time.sleep(_RETRY_S)
        files.touch(self.plan["knock"])
        return 0 if outcome == "COMPLETED" else (end["exit_code"] & 255 or 1)


def on_node(plan: Dict[str, Any], node: str) -> int:
    """The part of one node: its tasks at the gate, then running, passing on what the head orders."""
    crew = Crew(plan, node, int(os.environ.get("YARD_PORT", "0")))
    failure = crew.start((1, 2))
    told = False
    done, dying = 0, failure is not None
    if failure is None:
        files.write(files.READY + node, {"gpus": own_gpus()})
    seen, seen_at, gone = -1.0, time.monotonic(), False
    while crew.alive() or crew.mouths:
        here = files.names(".")
        if files.GO in here and crew.mouths and not dying:
            failure = crew.go()
        orders = sorted([int(each.split(".")[1]) for each in here if each.startswith(files.ORDER)])
        for number in [each for each in orders if each > done]:
            done = number
            for order in [each for each in here if each.startswith("{}{}.".format(files.ORDER, number))]:
                crew.signal(int(order.split(".")[2]))
            dying = dying or bool(crew.mouths)
        beat = files.changed(files.BEAT)
        if beat != seen:
            seen, seen_at = beat, time.monotonic()
        gone = files.END in here or time.monotonic() - seen_at > files.LEASE_S
        if dying or failure is not None or gone:
            crew.signal(signal.SIGKILL)
            crew.mouths = []
        crew.reap()
        failed = failure or crew.failed
        if failed is not None and not told:
            told = files.write(
                files.FAILED + node + ".json",
                {"exit_code": failed[0], "why": failed[1], "at_ms": files.now_ms()},
            )
        if crew.alive() or crew.mouths:
            signal.sigtimedwait(SIGNALS, _POLL_NODE_S)
    crew.sweep()
    return 0 if crew.failed is None and failure is None else 1


def _opened(cwd: str, path: str, append: bool) -> int:
    # Without O_NONBLOCK a named pipe that nobody reads would hold the wrapper for ever.
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | (0 if append else os.O_TRUNC)
    fd = os.open(os.path.join(cwd, path), flags, 0o644)
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
    plan = files.read("../" + files.LAUNCH)
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
