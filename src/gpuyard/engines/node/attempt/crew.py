"""The tasks of one node: started together, signalled, frozen, and swept away at the end with all that they left.

Runs in supervisors and, copied, on the nodes of a cluster: only the standard library, little of it, and nothing newer
than Python 3.6.
"""

import os
import signal
import time
from typing import Any, Callable, Dict, List, Optional, Set

from ..kernel.processes import NOT_RUN, find_descendants, process_text, signal_all, signal_below
from .tasks import Failure, Start, Task, TaskEntry, fork_beside, hear_task

_SWEEP_S, _SWEEP_S_MAX = 0.01, 0.5
_RESISTS_S = 3.0
"""How long after the first kill to report processes that do not end."""
_NAMED_MAX = 3
_PART_S_MAX = 6.0
"""How long the keeper of its terminals may take after the end, for clients that are slow to fetch the rest."""


def _nothing() -> None:
    return


class Crew:
    """The tasks of one node, all or none."""

    def __init__(self, entry: TaskEntry, group: Any = None, tell: Callable[[], None] = _nothing) -> None:
        """`group`: the kernel's own group of all its processes, where it has one; `tell`: called when `resists` has
        changed.
        """
        self.entry, self.plan, self.group, self.tell = entry, entry.plan, group, tell
        self.tasks: List[Task] = []
        self.failed: Optional[Failure] = None
        """How the first task ended that ended badly."""
        self.looker = 0
        """A child that is none of the job's processes, and may hang; 0: there is none."""
        self.keeper: Any = None
        """The process that keeps its terminals, if there are any."""
        self.pty: Any = None
        """The terminal of its first task, and the file that keeps what is shown there."""
        self.log = -1
        self.killed_at: Optional[float] = None
        """When it was first killed."""
        self.resists = ""
        """The processes that have not ended since then, in words."""
        self.told_all = False
        """Whether processes that outlived the tasks were sent TERM, too: they may be in groups of their own."""
        self.waits = False
        """Whether its tasks are at the gate."""
        self._start: Optional[Start] = None

    # ---- its start

    def give_terminal(self, log: int) -> None:
        """Let its tasks have a terminal; what is shown there is kept in this file."""
        from ..kernel import terminals

        self.pty, self.log = terminals.open_pty(self.entry.owner()), log
        self.entry.output = (self.pty[1], self.pty[1])

    def start(self, heed: Callable[[], None] = _nothing) -> Optional[Failure]:
        """Fork every task up to the gate; what went wrong, if something did.

        A task may hang before its program runs, in its folder or its output. `heed` is called now and then until it has
        said something: it may kill those in `tasks`.
        """
        self._start = Start(self.entry)
        self.waits = True
        try:
            for index, rank in enumerate(self.entry.ranks()):
                self.tasks.append(self._start.fork(index, rank))
        except OSError as error:
            return Failure(NOT_RUN, "cannot start task {}: {}".format(len(self.tasks), error.strerror))
        failure = None
        for task in self.tasks:
            failure = failure or hear_task(task, heed, whole=False)
        return failure

    def go(self, heed: Callable[[], None] = _nothing) -> Optional[Failure]:
        """Let all of them run; what went wrong, if something did."""
        failure = None
        self._leave_gate(len(self.tasks))
        for task in self.tasks:
            failure = failure or hear_task(task, heed, whole=True)
            os.close(task.ears)
        return failure

    def give_up(self) -> None:
        """Let none of them run."""
        if self.waits:
            self._leave_gate(0)
            for task in self.tasks:
                os.close(task.ears)

    def _leave_gate(self, count: int) -> None:
        assert self._start is not None, "tasks wait at a gate only after their start"
        self._start.open(count)
        self.waits = False

    # ---- what became of it

    def reap(self) -> bool:
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
                    if status and self.failed is None:
                        self.failed = self._failure(task)

    def _failure(self, task: Task) -> Failure:
        several = self.plan.get("world", len(self.tasks)) > 1
        failure = task.failure(several)
        why = self.facts(self.tasks.index(task)).get("why")
        prefix = "task {} ".format(task.rank) if several else ""
        return failure._replace(why=prefix + str(why)) if why else failure

    def facts(self, index: int) -> Dict[str, Any]:
        """What a task has noted of its containers; nothing where it runs in no image."""
        if not self.plan.get("image") or index >= len(self.tasks):
            return {}
        from ..containers import image  # most jobs run in none

        return image.read_facts(self.plan["image"]["folder"], self.tasks[index].pid)

    def alive(self) -> bool:
        """Whether any task still runs."""
        return any([task.status is None for task in self.tasks])

    def lingers(self) -> bool:
        """Whether processes of a job that is being stopped are left, though its tasks have ended.

        A shell without a trap dies of TERM at once, and the training that it started is saving its work.
        """
        left = self.below() - {self.looker}
        if left and not self.told_all:
            self.told_all = True
            signal_below(os.getpid(), left, signal.SIGTERM)
        return bool(left)

    def below(self) -> Set[int]:
        """Every process of the attempt: its keeper is none, and what the keeper has started is."""
        found = find_descendants({os.getpid()})
        return found if self.keeper is None else found - {self.keeper.pid}

    # ---- what is done to its processes

    def signal(self, number: int) -> None:
        """Signal every task and the first group of its session."""
        if number == signal.SIGTERM and self.keeper is not None:
            self.keeper.hang_up()
        live = [task.pid for task in self.tasks if task.status is None]
        signal_all(live, number, group=True)
        if number == signal.SIGTERM and self.plan.get("terminal"):
            # An interactive shell heeds no TERM, and goes when its terminal does.
            signal_all(live, signal.SIGHUP, group=True)

    def warn(self, number: int) -> None:
        """Send the warning to its target: the first process alone, or the steps, or all of them.

        A signal without a trap ends a shell, so the shell is left alone when its steps are meant, as Slurm does.
        """
        if self.plan.get("warn_shell"):
            signal_all([task.pid for task in self.tasks if task.status is None], number)
            return
        steps = self.entry.starters(self.below)
        if steps:
            signal_below(os.getpid(), steps, number)
        else:
            self.signal(number)

    def freeze(self) -> None:
        """Stop every process where it is."""
        if self.group is not None:
            self.group.freeze(True)
            return
        seen: Set[int] = set()
        new = self.below()
        # Processes forked while the others were being stopped are found in the next round.
        while new:
            signal_below(os.getpid(), new, signal.SIGSTOP)
            seen |= new
            new = self.below() - seen

    def thaw(self) -> None:
        """Let them go on."""
        if self.group is not None:
            self.group.freeze(False)
        else:
            signal_below(os.getpid(), self.below(), signal.SIGCONT)

    def kill(self) -> float:
        """Kill every process; how long to wait before the next kill, for one that is being forked may be missed."""
        if self.group is not None:
            self.group.kill()
        self.signal(signal.SIGKILL)
        if self.group is None:
            signal_below(os.getpid(), self.below(), signal.SIGKILL)
        return self._insist()

    def _insist(self) -> float:
        """How long to wait before the next kill. Processes that survive it are reported: the job keeps its GPUs."""
        now = time.monotonic()
        self.killed_at = now if self.killed_at is None else self.killed_at
        for_s = now - self.killed_at
        if for_s >= _RESISTS_S:
            left = sorted(
                (self.below() - {self.looker}) | set(self.group.pids() if self.group is not None else ())
            )
            named = ", ".join([process_text(pid) for pid in left[:_NAMED_MAX]])
            more = " and {} more".format(len(left) - _NAMED_MAX) if len(left) > _NAMED_MAX else ""
            resists = "killed, and has not ended: process {}{}".format(named, more) if left else ""
            if resists != self.resists:
                self.resists = resists
                self.tell()
        return min(_SWEEP_S_MAX, max(_SWEEP_S, for_s / 4))

    def sweep(self) -> None:
        """Kill what the job left behind. Orphans become children of this process: without a child, none is left."""
        self.give_up()
        if self.group is not None and not self.group.empty():
            self.group.kill()
        while self.reap():
            if self.group is not None:
                self.group.kill()
            below = self.below()
            signal_below(os.getpid(), below, signal.SIGKILL)
            others = self.looker or self.keeper is not None
            if others and below <= {self.looker} and (self.group is None or self.group.empty()):
                # These are none of the job's processes; a look may hang indefinitely, and a keeper waits for the end.
                return
            signal.sigtimedwait((signal.SIGCHLD,), self._insist())

    # ---- its terminals

    def keep(self) -> None:
        """Start the keeper of its terminals: the job's own, if it has one, and those of shells beside it."""
        from ..visits import frames, keeper

        entry = self.entry

        def fork(work: Callable[[], None], complain: Callable[[str], None]) -> int:
            return fork_beside(entry, work, complain)

        own = keeper.Session(frames.OWN, self.pty, log=self.log) if self.pty is not None else None
        container = ""
        if self.plan.get("image"):
            from ..containers import image  # most jobs run in none

            container = image.first_process(self.plan["image"]["folder"], self.tasks[0].pid)
        self.keeper = keeper.keep(fork, entry.environment(0), entry.owner(), own, container)

    def part(self, exit_code: int) -> None:
        """Tell the keeper how it ended."""
        if self.keeper is not None:
            self.keeper.end(exit_code)

    def await_keeper(self) -> None:
        """Wait for the keeper: it goes once its clients have seen the rest."""
        until = time.monotonic() + _PART_S_MAX
        while self.keeper is not None and self.reap() and time.monotonic() < until:
            signal.sigtimedwait((signal.SIGCHLD,), _SWEEP_S_MAX)
        if self.keeper is not None:
            signal_all([self.keeper.pid], signal.SIGKILL)
