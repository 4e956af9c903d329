"""Tasks on several nodes: what the head does to run them, and what each node does for the head.

They communicate through the attempt's folder, by names of files alone. Runs on the nodes as the job's user:
only the standard library, nothing newer than Python 3.6.
"""

import os
import signal
import sys
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

from .. import files
from ..attempt.crew import Crew
from ..attempt.runner import now_ms
from ..attempt.tasks import Failure
from .allotted import Allotted, own_gpus

SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1, signal.SIGTSTP, signal.SIGCONT)
"""Blocked from before the claim on, and taken one at a time."""
POLL_S = 0.25
_TURN_S = POLL_S + 2.0
"""A turn of a node's loop that took longer was frozen, together with the head."""
_READY_S_MAX, _READY_IMAGE_S_MAX = 300.0, 86400.0
_KILL_S = 15.0
_WARNING = "warn"
"""At the end of an order: the signal is the job's warning, and not for every process."""


class Remote:
    """The tasks of several nodes: one `srun` for each group of nodes, which ends when its tasks are gone."""

    def __init__(self, plan: Dict[str, Any], port: int) -> None:
        self.plan, self.port = plan, port
        self.sruns: List[Any] = []
        self.failed: Optional[Failure] = None
        self.lost = False
        """Whether Slurm ended some of it, so that Slurm knows why."""
        self.orders = 0
        self.kill_at = 0.0

    def start(self, output: Tuple[int, int], see_to: Callable[[], None]) -> Optional[Failure]:
        """A crew on every node, waiting at its gate; what went wrong, if something did.

        `see_to` is called now and then meanwhile.
        """
        import subprocess

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
            try:
                child = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=output[0], stderr=output[1], env=env
                )
            except OSError as error:
                self.lost = True
                return Failure(
                    126, "cannot run srun on node {}: {}".format(self.plan["order"][0], error.strerror)
                )
            self.sruns.append(child)
        # An image may be pulled for hours, and the job's own limits end that.
        until = time.monotonic() + (_READY_IMAGE_S_MAX if self.plan.get("image") else _READY_S_MAX)
        while time.monotonic() < until:
            here = files.list_names(".")
            if all([files.READY + node in here for node in self.plan["order"]]):
                return None
            self.reap()
            see_to()
            info = signal.sigtimedwait((signal.SIGCHLD, signal.SIGUSR1, signal.SIGTERM), 0.05)
            if info is not None and info.si_signo == signal.SIGTERM:
                self.failed = Failure(128 + signal.SIGTERM, "Slurm ended it before it ran")
                self.lost = True
            if self.failed or files.HALT in files.list_names(".."):
                return self.failed
        self.lost = True
        return Failure(1, "not all nodes were ready in time")

    def go(self) -> Optional[Failure]:
        """Let all of them run."""
        files.touch(files.GO)
        return None

    def reap(self) -> bool:
        """Look what became of the nodes; whether any is left."""
        for name in sorted(files.list_names(".")):
            if name.startswith(files.FAILED) and name.endswith(".json") and self.failed is None:
                said = files.read(name)
                if said is not None:
                    self.failed = Failure(said["exit_code"], said["why"], said.get("for_good") is True)
        for each in self.sruns:
            if each.poll() and self.failed is None:
                # No task has failed, so it was not the job: a node went, or Slurm ended the step.
                self.failed = Failure(1, "srun ended with exit code {}".format(each.returncode))
                self.lost = True
        return self.alive()

    def alive(self) -> bool:
        """Whether any node still has tasks."""
        return any([each.poll() is None for each in self.sruns])

    def lingers(self) -> bool:
        """What a node's tasks leave behind is swept away there, before its `srun` ends."""
        return False

    def signal(self, number: int) -> None:
        """Have every node pass a signal on."""
        self._order(str(int(number)))

    def kill(self) -> float:
        """Have every node kill its part; how long to wait before that is done again."""
        self.kill_at = self.kill_at or time.monotonic() + _KILL_S
        if time.monotonic() > self.kill_at:
            # A node that does not answer: Slurm clears away what is left when this job has ended.
            for each in self.sruns:
                each.kill()
        self.signal(signal.SIGKILL)
        return POLL_S

    def warn(self, number: int) -> None:
        """Have every node warn the tasks that are to be warned."""
        self._order("{}.{}".format(int(number), _WARNING))

    def _order(self, text: str) -> None:
        self.orders += 1
        files.touch("{}{}.{}".format(files.ORDER, self.orders, text))

    def sweep(self) -> None:
        """Nodes sweep for themselves before their `srun` ends."""
        if self.alive():
            self.kill()

    def gpus(self) -> Dict[str, List[int]]:
        """The GPUs of each node, as it reported them when it was ready."""
        return {node: (files.read(files.READY + node) or {"gpus": []})["gpus"] for node in self.plan["order"]}


class _Orders:
    """What the head orders on one node, and whether the head is still there."""

    def __init__(self, crew: Crew) -> None:
        self.crew, self.here, self.done = crew, files.list_names("."), 0
        self.dying = False
        """Whether an order came before the tasks ran: they have nothing to save."""
        self.gone = False
        self.stopping = False
        """Whether its tasks were told to end, and what they have left behind may use the grace that is left."""
        self.seen, self.seen_at = -1.0, time.monotonic()
        self.turned_at = self.seen_at

    def look(self) -> None:
        """See what is new. Time in which this node was frozen together with the head does not count."""
        now = time.monotonic()
        self.seen_at += max(0.0, now - self.turned_at - _TURN_S)
        self.turned_at = now
        self.here = files.list_names(".")
        beat = files.read_change_s(files.BEAT)
        if beat != self.seen:
            self.seen, self.seen_at = beat, now
        ended = files.END in self.here or files.DEAD in files.list_names("..")
        self.gone = ended or now - self.seen_at > files.LEASE_S

    def follow(self) -> None:
        """Pass on what is ordered."""
        found = [each.split(".") for each in self.here if each.startswith(files.ORDER)]
        for words in sorted(found, key=lambda each: int(each[1])):
            if int(words[1]) > self.done:
                self.done, number, is_warning = int(words[1]), int(words[2]), words[3:] == [_WARNING]
                _pass_on(self.crew, number, is_warning)
                if not is_warning:
                    # The head orders the kill when the grace is over.
                    self.stopping = number == signal.SIGTERM
                self.dying = self.dying or self.crew.waits

    def lingers(self) -> bool:
        """Whether processes that tasks have left behind still use their grace."""
        return self.stopping and not (self.dying or self.gone) and self.crew.lingers()

    def heed(self) -> None:
        """The same while tasks start, which takes long where an image is pulled."""
        if time.monotonic() - self.turned_at >= POLL_S:
            self.look()
            self.follow()
            if self.dying or self.gone:
                self.crew.kill()


def run_on_node(plan: Dict[str, Any], node: str, crew: Optional[Crew] = None) -> int:
    """The part of one node: its tasks at the gate, then running, passing on what the head orders.

    `crew`: what runs them; left out, processes of this node.
    """
    crew = crew or Crew(Allotted(plan, node, int(os.environ.get("YARD_PORT", "0")), (1, 2)))
    orders = _Orders(crew)
    failure = make_boxes(plan, node) or crew.start(orders.heed)
    told = False
    orders.dying = orders.dying or failure is not None
    if not orders.dying:
        files.write(files.READY + node, {"gpus": own_gpus()})
    if failure is not None:
        told = _tell(node, failure)
    while crew.alive() or crew.waits or orders.lingers():
        orders.look()
        if files.GO in orders.here and crew.waits and not orders.dying:
            failure = crew.go()
        orders.follow()
        if orders.dying or failure is not None or orders.gone:
            crew.give_up()
            crew.kill()
        crew.reap()
        failed = failure or crew.failed
        if failed is not None and not told:
            told = _tell(node, failed)
        if crew.alive() or crew.waits or orders.stopping:
            signal.sigtimedwait(SIGNALS, POLL_S)
    crew.sweep()
    if "folder" in plan.get("image", ()):
        from . import images  # most jobs run in none

        images.clear(plan["image"])
    return 0 if crew.failed is None and failure is None else 1


def _tell(node: str, failed: Failure) -> bool:
    """Tell the head what failed here; whether that could be written."""
    said = dict(failed._asdict(), at_ms=now_ms())
    return files.write(files.FAILED + node + ".json", said)


def make_boxes(plan: Dict[str, Any], node: str) -> Optional[Failure]:
    """Make what containers need on this node; why they cannot run here, if so."""
    if not plan.get("image"):
        return None
    from ..containers import image, runtimes  # most jobs run in none
    from . import images

    try:
        plan["image"] = images.plan_images(plan, node)
        images.make(plan["image"])
    except runtimes.Failed as failed:
        return Failure(image.NOT_RUN, str(failed))
    return None


def _pass_on(crew: Crew, number: int, is_warning: bool) -> None:
    if is_warning:
        crew.warn(number)
    elif number == signal.SIGKILL:
        crew.kill()
    else:
        crew.signal(number)
