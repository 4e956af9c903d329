"""Runs one attempt from claim to end and outlives the server: time limit, stop, leftovers, true exit code.

Commands reach it as files in the attempt's folder, announced by SIGUSR1; news goes out the same way. So nothing is lost
if the server dies, and a server that comes back finds everything. Only the standard library, and little of it: there is
one of these processes for every running attempt.
"""

import os
import resource
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from gpuyard.engines.local.attempt import room, v1
from gpuyard.engines.local.attempt.cgroups import Group
from gpuyard.engines.local.attempt.devices import refuse
from gpuyard.engines.local.attempt.tasks import (
    Failure,
    Task,
    adopt_orphans,
    become_looker,
    enter_fence,
    fork_beside,
    launch,
    own_output,
)
from gpuyard.engines.machine import files, peeking, processes

SIGNALS = (signal.SIGCHLD, signal.SIGUSR1)
"""Blocked from before the claim on, and taken one at a time."""

CLAIMED, TAKEN = "claimed", "taken"
"""A supervisor's answer to `start`; anything else is why it could not."""

_WAIT_S_MAX = 3600.0
_SWEEP_S = 0.01
_SWEEP_S_MAX = 0.5
_RESISTS_S = 3.0
"""How long after the first kill to report processes that do not end."""
_NAMED_MAX = 3
_LOOK_S = 5.0
"""How often to look for a checkpoint outside the engine's folder."""
_LAST_LOOK_S_MAX = 1.0
_KEEPER_S_MAX = 6.0
"""How long the keeper of its terminals may take after the end, for clients that are slow to fetch the rest."""
_RETRY_S = 1.0


def supervise(folder: str, starter: socket.socket) -> None:
    """The whole life of a supervisor, in a process just forked. Returns when the end is on disk."""
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    key = os.path.basename(folder)

    def answer(word: str) -> None:
        with suppress(OSError):
            starter.send(f"{key}\n{word}".encode())

    try:
        os.chdir(folder)
        plan = files.read(files.LAUNCH)
        if plan is None:
            raise FileNotFoundError(f"{folder}/{files.LAUNCH}")
        # Earlier yards wrote all of it into one file.
        plan |= files.read(files.WORK) or {}
        adopt_orphans()
        slot = files.EndSlot(".")
        me = processes.myself(plan["boot"])
        claim = {"pid": me.pid, "ticks": me.ticks, "boot": me.boot, "claimed_ms": _now_ms()}
        if not files.create(files.CLAIM, claim, durable=False):
            slot.drop()
            answer(TAKEN)
            return
    except (OSError, ValueError, KeyError) as error:
        answer(f"{error}")
        return
    supervisor = Supervisor(plan, slot, os.path.dirname(os.path.dirname(folder)))
    # The group is made before the answer: until then the engine holds the lock that keeps its parent in place.
    supervisor.make_group()
    answer(CLAIMED)
    starter.close()
    # The server's log is not the job's, and a descriptor kept here would keep the server's pipe open.
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1):
        os.dup2(null, fd)
    supervisor.run()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class Supervisor:
    """The attempt while it runs."""

    def __init__(self, plan: dict[str, Any], slot: files.EndSlot, root: str) -> None:
        self.plan = plan
        self.inside = peeking.Inside(root)
        self.slot = slot
        self.group = Group(plan["cgroup"]) if plan["cgroup"] else None
        self.v1: dict[str, str] = plan.get("v1") or {}
        """Its groups of cgroup v1, by controller."""
        self.tasks: list[Task] = []
        self.started_ms = 0
        self.verdict = ""
        """How its end is reported, once something other than the job has decided it."""
        self.why = ""
        self.failed: Task | None = None
        """The first task that ended badly."""
        self.killed_at: float | None = None
        """When it was first killed."""
        self.resists = ""
        """The processes that have not ended since then."""
        self.warned = False
        """Once is enough: a job that has saved its work and asks to be requeued is not warned again."""
        self.told_all = False
        """Whether processes that outlived the tasks were sent TERM, too: they may be in groups of their own."""
        self.frozen_at: float | None = None
        self.limit_at = self.warn_at = self.term_at = self.kill_at = self.look_at = float("inf")
        self.looker = 0
        """The process that looks for a checkpoint now; 0: there is none."""
        self.keeper: Any = None
        """The process that keeps its terminals, if there are any."""

    def make_group(self) -> None:
        """Set the limits; without them the job does not run."""
        plan = self.plan
        try:
            if self.group is not None:
                self.group.make(
                    memory_mib=plan["memory_mib"] if "memory" not in self.v1 else 0,
                    cpu_milli=plan["cpu_milli"] if "cpu" not in self.v1 else 0,
                    cpus=plan["cpus"] if plan.get("bound") else "",
                )
            v1.make(plan)
            refuse(plan)
        except OSError as error:
            self.verdict, self.why = "NODE_FAIL", f"cannot set limits: {error}"

    def run(self) -> None:
        """From here to the end."""
        failure = None
        try:
            failure = self._start()
            while any([task.status is None for task in self.tasks]) or self._lingers():
                self._wait()
                self._reap()
                self._obey()
                self._keep_time()
        except Exception as error:  # whatever it is, the job must not outlive its supervisor unseen
            self.verdict, self.why = "NODE_FAIL", f"its supervisor failed: {error!r}"
        self._sweep()
        self._end(failure)
        self._part()

    def _lingers(self) -> bool:
        """Whether processes of a job that is being stopped still use their grace, though its tasks have ended.

        A shell without a trap dies of TERM at once, and the training that it started is saving its work.
        """
        if (
            not self.verdict
            or not self.tasks
            or time.monotonic() >= self.kill_at
            or self.kill_at == float("inf")
        ):
            return False
        left = self._below() - {self.looker}
        if left and not self.told_all:
            self.told_all = True
            processes.signal_all(left, signal.SIGTERM)
        return bool(left)

    def _start(self) -> Failure | None:
        plan = self.plan
        self.started_ms = _now_ms()
        self._obey()
        if self.verdict:
            self.started_ms, self.why = 0, self.why or "stopped before it ran"
            return None
        now = time.monotonic()
        if plan.get("image"):
            # Loaded now, for behind the fence, and for the job's user, it may not be found.
            from gpuyard.engines.node import image  # noqa: PLC0415, F401 (most jobs run in none)

            # To pull an image may take long.
            self._tell("STARTING", "its image is made ready")
        if plan["limit_ms"] > 0:
            self.limit_at = now + plan["limit_ms"] / 1000
            if plan["warn_signal"] and plan["warn_ms"] > 0:
                self.warn_at = max(now, self.limit_at - plan["warn_ms"] / 1000)
        failure = enter_fence(plan, self.tasks, self._heed)
        if self._told():
            self._kill()
            return None
        if failure is not None:
            self.verdict, self.why = "NODE_FAIL", f"cannot raise its fence: {failure.why}"
            return None
        failure = self._launch()
        if failure is not None:
            self._kill()
        self._tell("RUNNING")
        if self._inside_ms() is None:
            self.look_at = time.monotonic() + _LOOK_S
        # A job that was stopped while it started did not fail by itself.
        return None if self._told() else failure

    def _launch(self) -> Failure | None:
        if not self.plan.get("terminal"):
            return launch(self.plan, self.group, self.tasks, self._heed)
        from gpuyard.engines.node import terminal  # noqa: PLC0415 (most jobs have none)

        pty, log = terminal.open_pty(self._owner()), own_output(self.plan)
        failure = launch(self.plan, self.group, self.tasks, self._heed, os.dup(pty[1]))
        if failure is None:
            self._keep(terminal.Session(terminal.OWN, pty, log=log))
        return failure

    def _owner(self) -> tuple[int, int] | None:
        return (self.plan["uid"], self.plan["gid"]) if self.plan["drop"] else None

    def _keep(self, own: Any = None) -> None:
        """Start the keeper of its terminals: the job's own, if it has one, and those of shells beside it."""
        from gpuyard.engines.node import terminal  # noqa: PLC0415 (most jobs have none)

        plan, group = self.plan, self.group

        def beside(work: Callable[[], None], complain: Callable[[str], None]) -> int:
            return fork_beside(plan, group, work, complain)

        container = ""
        if plan.get("image"):
            from gpuyard.engines.node import image  # noqa: PLC0415 (most jobs run in none)

            container = image.first_process(plan["image"]["folder"], self.tasks[0].pid)
        self.keeper = terminal.keep(beside, plan["envs"][0], self._owner(), own, container)

    def _told(self) -> bool:
        return bool(self.verdict)

    def _heed(self) -> None:
        """Heed stops and time limits while tasks start: a start may hang, and a stop must not wait for it."""
        halt = files.read_small(files.HALT)
        if halt is not None:
            self._halt(halt)
        self._keep_time()

    # ---- checkpoints

    def _inside_ms(self) -> int | None:
        """When it last saved its work, if the file lies where this process may look."""
        return self.inside.time_ms(self.plan["checkpoint"], self.plan["job_id"])

    def _look(self) -> None:
        """Let another process look for it. If that hangs, there is no further look."""
        self.look_at = time.monotonic() + _LOOK_S
        if not self.looker:
            with suppress(OSError):
                self.looker = peeking.look_outside(self.plan["checkpoint"], lambda: become_looker(self.plan))

    def _checkpoint_ms(self) -> int:
        """When it last saved its work, at its end."""
        found = self._inside_ms()
        if found is not None:
            return found
        self._look()
        until = time.monotonic() + _LAST_LOOK_S_MAX
        while self.looker and time.monotonic() < until:
            signal.sigtimedwait(SIGNALS, _SWEEP_S)
            self._reap()
        if self.looker:
            with suppress(ProcessLookupError):
                os.kill(self.looker, signal.SIGKILL)
        return peeking.saved_ms()

    def _tell(self, phase: str, why: str = "") -> None:
        news = {
            "phase": phase,
            "started_ms": self.started_ms,
            "pids": [task.pid for task in self.tasks],
            "why": self.resists or why,
        }
        # On a full disk the news is missing; the claim alone says that it runs.
        with suppress(OSError):
            files.replace(files.RUNNING, news)

    # ---- waiting, and what one wakes up for

    def _wait(self) -> None:
        until = self.kill_at
        if self.frozen_at is None:
            until = min(until, self.limit_at, self.warn_at, self.term_at, self.look_at)
        signal.sigtimedwait(SIGNALS, min(max(0.0, until - time.monotonic()), _WAIT_S_MAX))

    def _reap(self) -> bool:
        """Take in every child that ended, adopted ones too; whether any child is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.looker:
                self.looker = 0
            if self.keeper is not None and pid == self.keeper.pid:
                os.close(self.keeper.control)
                self.keeper = None
            for task in self.tasks:
                if task.pid == pid:
                    task.status = status
                    if status != 0 and self.failed is None:
                        self._task_failed(task)

    def _task_failed(self, task: Task) -> None:
        """All or none: without one of its tasks the job is over, and the others are stopped."""
        self.failed = task
        others = [each for each in self.tasks if each.status is None]
        if others and self.kill_at == float("inf"):
            self._signal(signal.SIGTERM)
            self.kill_at = time.monotonic() + self.plan["grace_ms"] / 1000
        self._thaw()

    def _obey(self) -> None:
        """Do what the files in the folder ask for."""
        halt = files.read_small(files.HALT)
        if halt is not None:
            self._halt(halt)
            return
        if self.keeper is None and self.tasks and os.path.exists(files.KEEPER):
            with suppress(OSError):
                self._keep()
        wanted = os.path.exists(files.FREEZE)
        if wanted and self.frozen_at is None and self.tasks and not self.verdict and not self.failed:
            self.frozen_at = time.monotonic()
            self._freeze()
            self._tell("SUSPENDED")
        elif not wanted and self.frozen_at is not None:
            self._thaw()
            self._tell("RUNNING")

    def _halt(self, halt: dict[str, Any]) -> None:
        now = time.monotonic()
        running = not self.tasks or any([task.status is None for task in self.tasks])
        # A job that ended by itself before the stop keeps its own end.
        if self.verdict or self.failed is not None or not running:
            if self.tasks:
                self.kill_at = min(self.kill_at, now + halt["grace_ms"] / 1000)
            return
        self.verdict, self.why = halt["outcome"], halt.get("why", "")
        self.kill_at = now + halt["grace_ms"] / 1000
        self.term_at = now
        if self.plan["warn_signal"] and not self.warned:
            self._warn()
            if self.verdict == "PREEMPTED":
                # It asked for this much warning; half of the grace is left for what TERM makes it do.
                self.term_at = now + min(self.plan["warn_ms"], halt["grace_ms"] // 2) / 1000
        self._thaw()

    def _keep_time(self) -> None:
        now = time.monotonic()
        if self.frozen_at is None:
            if now >= self.warn_at:
                self.warn_at = float("inf")
                self._warn()
            if now >= self.limit_at and not self.verdict and self.failed is None:
                self.verdict, self.why = (
                    "TIMEOUT",
                    f"time limit of {self.plan['limit_ms'] / 1000:g} s reached",
                )
                self.term_at = now
                self.kill_at = min(self.kill_at, now + self.plan["grace_ms"] / 1000)
            if now >= self.limit_at:
                self.limit_at = float("inf")
            if now >= self.term_at:
                self.term_at = float("inf")
                self._signal(signal.SIGTERM)
            if now >= self.look_at:
                self._look()
        if now >= self.kill_at:
            # Again and again until all are gone: a process that is being forked now may be missed once.
            self._kill()
            self.kill_at = now + self._insist()

    # ---- what is done to the job's processes

    def _signal(self, number: int) -> None:
        if number == signal.SIGTERM and self.keeper is not None:
            self.keeper.hang_up()
        for task in self.tasks:
            if task.status is None:
                with suppress(ProcessLookupError):
                    os.killpg(task.pid, number)
                    if number == signal.SIGTERM and self.plan.get("terminal"):
                        # An interactive shell heeds no TERM, and goes when its terminal does.
                        os.killpg(task.pid, signal.SIGHUP)

    def _warn(self) -> None:
        """Send the warning to its target: the first process alone, or the steps, or all of them.

        A signal without a trap ends a shell, so the shell is left alone when its steps are meant, as Slurm does.
        """
        number = self.plan["warn_signal"]
        self.warned = True
        if self.plan.get("warn_shell"):
            processes.signal_all({task.pid for task in self.tasks if task.status is None}, number)
            return
        named = room.starters(self.plan)
        # The job's own file is believed only about processes of the job.
        if steps := named & self._below() if named else named:
            processes.signal_all(steps, number)
        else:
            self._signal(number)

    def _below(self) -> set[int]:
        """Every process of the attempt: its keeper is none, and what the keeper has started is."""
        found = processes.descendants({os.getpid()})
        return found if self.keeper is None else found - {self.keeper.pid}

    def _freeze(self) -> None:
        if self.group is not None:
            self.group.freeze(True)
            return
        seen: set[int] = set()
        # Processes forked while the others were being stopped are found in the next round.
        while new := self._below() - seen:
            processes.signal_all(new, signal.SIGSTOP)
            seen |= new

    def _thaw(self) -> None:
        if self.frozen_at is None:
            return
        lost_s = time.monotonic() - self.frozen_at
        self.frozen_at = None
        self.limit_at += lost_s
        self.warn_at += lost_s
        if self.group is not None:
            self.group.freeze(False)
        else:
            processes.signal_all(self._below(), signal.SIGCONT)

    def _kill(self) -> None:
        if self.group is not None:
            self.group.kill()
        self._signal(signal.SIGKILL)
        if self.group is None:
            processes.signal_all(self._below(), signal.SIGKILL)

    def _insist(self) -> float:
        """How long to wait before the next kill. Processes that survive it are reported: the job keeps its GPUs."""
        now = time.monotonic()
        self.killed_at = now if self.killed_at is None else self.killed_at
        for_s = now - self.killed_at
        if for_s >= _RESISTS_S:
            left = sorted(
                (self._below() - {self.looker}) | set(self.group.pids() if self.group is not None else ())
            )
            named = ", ".join([processes.described(pid) for pid in left[:_NAMED_MAX]])
            more = f" and {len(left) - _NAMED_MAX} more" if len(left) > _NAMED_MAX else ""
            resists = f"killed, and has not ended: process {named}{more}" if left else ""
            if resists != self.resists:
                self.resists = resists
                self._tell("STOPPING")
        return min(_SWEEP_S_MAX, max(_SWEEP_S, for_s / 4))

    def _sweep(self) -> None:
        """Kill what the job left behind. Orphans become children of this process: without a child, none is left."""
        if self.group is not None and not self.group.empty():
            self.group.kill()
        while self._reap():
            if self.group is not None:
                self.group.kill()
            below = self._below()
            processes.signal_all(below, signal.SIGKILL)
            others = self.looker or self.keeper is not None
            if others and below <= {self.looker} and (self.group is None or self.group.empty()):
                # These are none of the job's processes; a look may hang indefinitely, and a keeper waits for the end.
                return
            signal.sigtimedwait(SIGNALS, self._insist())

    # ---- the end

    def _end(self, failure: Failure | None) -> None:
        end = self._verdict(failure)
        if self.keeper is not None:
            self.keeper.end(end["exit_code"])
        if self.group is not None:
            self.group.remove()
        v1.remove(self.v1)
        room.sweep(self.plan)
        while True:
            try:
                self.slot.write(end)
                break
            except OSError:
                if not os.stat(".").st_nlink:
                    # The folder was removed: there is no place left to write the end.
                    return
                # Without the end on disk only this process knows it, so it stays.
                time.sleep(_RETRY_S)
        files.knock(f"../../{files.WAKE}")

    def _part(self) -> None:
        """Wait for the keeper of its terminals: it goes once its clients have seen the rest."""
        until = time.monotonic() + _KEEPER_S_MAX
        while self.keeper is not None and self._reap() and time.monotonic() < until:
            signal.sigtimedwait(SIGNALS, _SWEEP_S_MAX)
        if self.keeper is not None:
            with suppress(ProcessLookupError):
                os.kill(self.keeper.pid, signal.SIGKILL)

    def _verdict(self, failure: Failure | None) -> dict[str, Any]:
        exit_code = self.failed.exit_code() if self.failed is not None else 0
        outcome, why = "COMPLETED" if self.failed is None else "FAILED", ""
        if failure is not None:
            outcome, exit_code, why = "FAILED", failure.exit_code, failure.why
        elif self.verdict:
            outcome, why = self.verdict, self.why
        elif self.failed is not None:
            why = self._why_failed(self.failed)
            if (self.group is not None and self.group.killed_for_memory()) or v1.killed_for_memory(self.v1):
                outcome = "OUT_OF_MEMORY"
                # A plan from a release without several nodes has one.
                nodes = self.plan.get("nodes") or [self.plan["node"]]
                on = f"node {nodes[0]}" if len(nodes) == 1 else f"nodes {', '.join(nodes)} together"
                why = f"killed for memory on {on}: over {self.plan['memory_mib']} MiB"
        return {
            "outcome": outcome,
            "exit_code": exit_code,
            "why": why,
            "started_ms": self.started_ms,
            "ended_ms": max(_now_ms(), self.started_ms),
            "checkpoint_ms": self._checkpoint_ms(),
            "usage": self._usage(),
            **({"image": facts} if (facts := self._facts(0)) else {}),
        }

    def _facts(self, rank: int) -> dict[str, Any]:
        """What a task has noted of its containers; nothing where it runs in no image."""
        if not self.plan.get("image") or rank >= len(self.tasks):
            return {}
        from gpuyard.engines.node import image  # noqa: PLC0415 (most jobs run in none)

        return image.facts_of(self.plan["image"]["folder"], self.tasks[rank].pid)

    def _usage(self) -> dict[str, int]:
        """What its processes took; without a cgroup, the memory of the largest one only."""
        taken = resource.getrusage(resource.RUSAGE_CHILDREN)
        found = {
            "cpu_ms": round(1000 * (taken.ru_utime + taken.ru_stime)),
            "process_mib": taken.ru_maxrss >> 10,
        }
        return found | (self.group.usage() if self.group is not None else {}) | v1.usage(self.v1)

    def _why_failed(self, task: Task) -> str:
        assert task.status is not None, "a task that failed has ended"
        rank = self.tasks.index(task)
        prefix = f"task {rank} " if len(self.tasks) > 1 else ""
        if why := self._facts(rank).get("why"):
            return f"{prefix}{why}"
        if os.WIFSIGNALED(task.status):
            number = os.WTERMSIG(task.status)
            with suppress(ValueError):
                return f"{prefix}killed by {signal.Signals(number).name}"
            return f"{prefix}killed by signal {number}"
        return f"{prefix}exit code {os.WEXITSTATUS(task.status)}"
