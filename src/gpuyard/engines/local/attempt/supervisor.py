"""One attempt on this machine, from claim to end: it outlives the server, and keeps limits, fence and checkpoints.

Commands reach it as files in the attempt's folder, announced by SIGUSR1; news goes out the same way. So nothing is lost
if the server dies, and a server that comes back finds everything. Only the standard library, and little of it: there is
one of these processes for every running attempt.

A supervisor is whole before it enters a job's view of the file system: from then on it loads no code. Behind a fence a
path may lead to files of the job's own, and a supervisor of root that imported one of them would run it as root. An
upgrade takes the files away under the jobs that run. So the process that forks supervisors loads all that any of them
will ever need, also what Python and the C library would load when it is first used, and then gives up the means to load
more (`seal`). What is missing after that is an error where it is missed, and no file is looked for.
"""

import array
import codecs
import gc
import os
import pwd
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any

from gpuyard.engines.local.attempt import room, v1
from gpuyard.engines.local.attempt.cgroups import Cgroup
from gpuyard.engines.local.attempt.devices import refuse
from gpuyard.engines.local.attempt.tasks import Fenced, become_looker, enter_fence, own_output
from gpuyard.engines.machine import files, peeking, processes
from gpuyard.engines.node.attempt.crew import Crew
from gpuyard.engines.node.attempt.fence import UNFENCED
from gpuyard.engines.node.attempt.runner import NEVER, Runner, insist, now_ms, steady_ms
from gpuyard.engines.node.attempt.tasks import Failure
from gpuyard.engines.node.containers import image, podman, runtimes
from gpuyard.engines.node.files import WISH
from gpuyard.engines.node.kernel.processes import adopt_orphans
from gpuyard.engines.node.visits import copying, inside, keeper, visitors
from gpuyard.errors import error_text, printable_text

SIGNALS = (signal.SIGCHLD, signal.SIGUSR1)
"""Blocked from before the claim on, and taken one at a time."""

CLAIMED, TAKEN = "claimed", "taken"
"""A supervisor's answer to `start`; anything else is why it could not."""

UNLIMITED = "cannot set limits"
"""How the reason begins of an attempt that was not run for want of them."""
NO_ROOM = "has no room to start"
"""The same where the disk is full, or a quota: it is none of the job's failures."""
NEEDED = (array, copying, image, inside, keeper, podman, runtimes, subprocess, visitors)
"""What is imported where it is first needed: by visits, by jobs in images, and by Python itself to send descriptors."""
_CODECS = ("ascii", "latin-1", "utf-8")
LOG_BYTES_MAX = 1 << 20
"""Of the log of supervisors. One that has grown to this is put aside when the next spawner is started."""
_ERROR_CHARS_MAX = 300
_PLACES_MAX = 30
_WITHOUT_FILES = ("BuiltinImporter", "FrozenImporter")
"""These find only what is in the program of Python itself."""
_WAIT_S_MAX = 3600.0
_LOOK_S = 5.0
"""How often to look for a checkpoint outside the engine's folder."""
_MEMORY_S = 1.0
"""How often to look whether the kernel has killed a process for memory, where it does not kill the others with it."""
_LAST_LOOK_S_MAX = 1.0
_LOOKING_S = 0.01


def supervise(folder: str, starter: socket.socket) -> None:
    """The whole life of a supervisor, in a process just forked. Returns when the end is on disk."""
    os.setsid()
    processes.keep_first()
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
        files.keep_halt(".")
        slot = files.EndSlot(".")
        me = processes.identify_self(plan["boot"])
        claim = {"pid": me.pid, "ticks": me.ticks, "boot": me.boot, "claimed_ms": now_ms()}
        mine = False
        try:
            mine = files.create(files.CLAIM, claim, durable=False)
        finally:
            if not mine:
                slot.drop()
        if not mine:
            answer(TAKEN)
            return
    except (OSError, ValueError, KeyError) as error:
        answer(f"{error_text(error)}")
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


class Supervisor(Runner):
    """The attempt while it runs."""

    hands: Crew

    def __init__(self, plan: dict[str, Any], slot: files.EndSlot, root: str) -> None:
        self.group = Cgroup(plan["cgroup"]) if plan["cgroup"] else None
        self.entry = Fenced(plan, self.group)
        super().__init__(plan, Crew(self.entry, self.group, lambda: self._tell("STOPPING")))
        self.inside = peeking.Inside(root)
        self.slot = slot
        self.v1: dict[str, str] = plan.get("v1") or {}
        """Its groups of cgroup v1, by controller."""
        self.look_at = self.memory_at = NEVER
        self.before_ms = 0
        """When an earlier attempt saved its work, if the file lies where this process may look."""
        self.saved = (0, 0)
        """The last time of the file of its checkpoint that was seen, and when that was by the clock of its start."""

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
            if self.v1:
                v1.make(plan)
            if (plan.get("fence") or {}).get("devices"):
                refuse(plan)
        except OSError as error:
            self.verdict, self.why = "NODE_FAIL", f"{UNLIMITED}: {error_text(error)}"

    def start(self) -> Failure | None:
        """Start the tasks; why they do not run, if so."""
        try:
            return self._start()
        except OSError as error:
            if error.errno not in files.FULL:
                raise
            self.verdict, self.why = "NODE_FAIL", f"{NO_ROOM}: {error_text(error)}"
            # Tasks may run already, and nobody would hold them to their limits.
            self.hands.kill()
            return None

    def _start(self) -> Failure | None:
        plan = self.plan
        self.begin()
        self.before_ms = self._inside_ms() or 0
        self.obey()
        if self.verdict:
            self.started_ms, self.why = 0, self.why or "stopped before it ran"
            return None
        if plan.get("image"):
            # To pull an image may take long.
            self._tell("STARTING", "its image is made ready")
        self.set_limit()
        failure = enter_fence(plan, self.hands.tasks, self._heed)
        if self._told():
            self.hands.kill()
            return None
        if failure is not None:
            self.verdict, self.why = "NODE_FAIL", f"{UNFENCED}: {failure.why}"
            return None
        failure = self._launch()
        if failure is not None:
            self.hands.kill()
        self._tell("RUNNING")
        if self._inside_ms() is None:
            self.look_at = time.monotonic() + _LOOK_S
        # A job that was stopped while it started did not fail by itself.
        return None if self._told() else failure

    def _launch(self) -> Failure | None:
        crew, log = self.hands, own_output(self.plan)
        crew.entry.output = (log, log)
        if self.plan.get("terminal"):
            crew.give_terminal(log)
        room.prepare(self.plan)
        failure = crew.start(self._heed)
        if failure is None:
            failure = crew.go(self._heed)
            self.running = True
            if "memory" in self.v1:
                self.memory_at = time.monotonic() + _MEMORY_S
        else:
            crew.give_up()
        if crew.pty is None:
            os.close(log)
        elif failure is None:
            crew.keep()
        return failure

    def note(self, text: str) -> None:
        """Write down what went wrong beside the job, as errors are."""
        note(text)

    def _told(self) -> bool:
        return bool(self.verdict)

    def _heed(self) -> None:
        """Heed stops and time limits while tasks start: a start may hang, and a stop must not wait for it."""
        halt = files.read_small(files.HALT)
        if halt is not None:
            self.halt(halt)
        self.keep_time()

    # ---- checkpoints

    def _inside_ms(self) -> int | None:
        """When it last saved its work, if the file lies where this process may look."""
        return self.inside.time_ms(self.plan["checkpoint"], self.plan["job_id"])

    def _look(self) -> None:
        """Let another process look for it. If that hangs, there is no further look."""
        self.look_at = time.monotonic() + _LOOK_S
        if not self.hands.looker:
            with suppress(OSError):
                self.hands.looker = peeking.look_outside(
                    self.plan["checkpoint"], lambda: become_looker(self.plan)
                )

    def _checkpoint_ms(self) -> int:
        """When it last saved its work, at its end, by the clock of its start."""
        found = self._inside_ms()
        saved_ms = self._outside_ms() if found is None else found
        return self._by_start(saved_ms)

    def _by_start(self, saved_ms: int) -> int:
        """A time of that file by the clock of its start, reckoned when it is first seen: that may be set again."""
        if self.started_ms and saved_ms != self.saved[0]:
            start, now = (self.started_ms, self.began_ms), (now_ms(), steady_ms())
            self.saved = (saved_ms, peeking.date_by_start(saved_ms, start, self.before_ms, now))
        return self.saved[1]

    def _outside_ms(self) -> int:
        """The same of a file that another process looks at."""
        self._look()
        until = time.monotonic() + _LAST_LOOK_S_MAX
        while self.hands.looker and time.monotonic() < until:
            signal.sigtimedwait(SIGNALS, _LOOKING_S)
            self.hands.reap()
        if self.hands.looker:
            with suppress(ProcessLookupError):
                os.kill(self.hands.looker, signal.SIGKILL)
        return peeking.read_saved_ms()

    def _tell(self, phase: str, why: str = "") -> None:
        news = {
            "phase": phase,
            "started_ms": self.started_ms,
            "began_ms": self.began_ms,
            "before_ms": self.before_ms,
            "lost_ms": int(self.lost_s * 1000),
            "limit_ms": self.plan["limit_ms"],
            "pids": [task.pid for task in self.hands.tasks],
            "why": self.hands.resists or why,
        }
        # On a full disk the news is missing; the claim alone says that it runs.
        with suppress(OSError):
            files.replace(files.RUNNING, news)

    # ---- waiting, and what one wakes up for

    def wait(self) -> None:
        """Wait for something to happen, and no longer than until the next deadline."""
        until = self.kill_at
        if self.frozen_at is None:
            until = min(until, self.limit_at, self.warn_at, self.term_at, self.look_at, self.memory_at)
        signal.sigtimedwait(SIGNALS, min(max(0.0, until - time.monotonic()), _WAIT_S_MAX))

    def obey(self) -> None:
        """Do what the files in the folder ask for."""
        halt = files.read_small(files.HALT)
        if halt is not None:
            self.halt(halt)
            return
        if self.hands.keeper is None and self.running:
            self.let_in(WISH)
        wanted, frozen = os.path.exists(files.FREEZE), self.frozen_at is not None
        if wanted and not frozen:
            self.freeze()
        elif not wanted and frozen:
            self.thaw()
        limit = files.read_small(files.LIMIT)
        changed = limit is not None and self.change_limit(limit["limit_ms"])
        if changed or frozen is not (self.frozen_at is not None):
            self._tell("RUNNING" if self.frozen_at is None else "SUSPENDED")

    def see_to(self) -> None:
        """Look for a checkpoint, and for what the kernel has killed, when that is due."""
        now = time.monotonic()
        if self.frozen_at is None and now >= self.look_at:
            found = self._inside_ms()
            self._by_start(peeking.read_saved_ms() if found is None else found)
            self._look()
        if now >= self.memory_at:
            self.memory_at = now + _MEMORY_S
            self._end_over_memory()

    # ---- the end

    def _end_over_memory(self) -> None:
        """End an attempt of which the kernel has killed a process for memory: cgroup v2 kills all of them with it.

        Its other processes would go on, and a script that does not look at how its child ended would end well.
        """
        over = self.group is not None and self.group.killed_for_memory()
        if self.verdict or self.failure is not None or not (over or v1.killed_for_memory(self.v1)):
            return
        # A plan from a release without several nodes has one.
        nodes = self.plan.get("nodes") or [self.plan["node"]]
        on = f"node {nodes[0]}" if len(nodes) == 1 else f"nodes {', '.join(nodes)} together"
        self.verdict = "OUT_OF_MEMORY"
        self.why = f"killed for memory on {on}: over {self.plan['memory_mib']} MiB"
        self.hands.failed = self.hands.failed or Failure(128 + signal.SIGKILL, self.why)
        self.kill_at = time.monotonic()

    def last_word(self) -> None:
        """Whether the kernel has killed a process of it for memory since the last look."""
        self._end_over_memory()

    def finish(self, end: dict[str, Any]) -> int:
        """Write the end when nothing of the attempt is left."""
        end["checkpoint_ms"] = self._tried(self._checkpoint_ms, 0)
        end["usage"] = self._tried(self._usage, {})
        if facts := self._tried(lambda: self.hands.facts(0), {}):
            end["image"] = facts
        self.hands.part(end["exit_code"])
        self._tried(self._clear, None)
        if insist(lambda: self.slot.write(end), lambda _error: not os.stat(".").st_nlink):
            files.knock(f"../../{files.WAKE}")
        self.hands.await_keeper()
        return 0

    def _tried(self, work: Callable[[], Any], otherwise: Any) -> Any:
        """What comes of some work at the end. Whatever fails there, the end itself is told."""
        try:
            return work()
        except Exception as error:
            self.note(f"{self.plan['key']}: at its end: {error_text(error)}")
            return otherwise

    def _clear(self) -> None:
        """Remove what is not needed afterwards."""
        if self.group is not None:
            self.group.remove()
        if self.v1:
            v1.remove(self.v1)
        room.sweep(self.plan)

    def _usage(self) -> dict[str, int]:
        """What its processes took; without a cgroup, the memory of the largest one only."""
        taken = resource.getrusage(resource.RUSAGE_CHILDREN)
        found = {
            "cpu_ms": round(1000 * (taken.ru_utime + taken.ru_stime)),
            "process_mib": taken.ru_maxrss >> 10,
        }
        if self.group is not None:
            found |= self.group.usage()
        return found | v1.read_usage(self.v1) if self.v1 else found


_MESSAGE_BYTES_MAX = 8192


def spawn() -> None:
    """Fork a supervisor for every message until the engine goes: a fork costs a millisecond, a new Python fifteen.

    Standard input is a socket to the engine. One message is the folder of one attempt; the supervisor forked for it
    answers on the same socket. This process ends when the engine does; supervisors do not, since they are in sessions
    of their own. Started as `python -I -S -c "…" [GROUP]`, without site-packages; all of them live in that cgroup. What
    they need is loaded here, once, and they load nothing themselves (`seal`).
    """
    report_errors()
    # Blocked before any fork, so that no supervisor can get a signal before it listens.
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # supervisors are reaped by the kernel
    processes.keep_first()
    engine = socket.socket(fileno=0)
    if len(sys.argv) > 1:
        # Out of the server's own group, which a service manager kills as a whole when the server stops.
        with suppress(OSError):
            group = Cgroup(sys.argv[1])
            group.make(memory_mib=0, cpu_milli=0)
            group.join()
    processes.learn_limits()
    seal()
    gc.collect()
    gc.freeze()
    gc.disable()
    while message := engine.recv(_MESSAGE_BYTES_MAX):
        try:
            pid = os.fork()
        except OSError as error:
            folder = message.decode()
            engine.send(f"{os.path.basename(folder)}\n{error_text(error)}".encode())
            continue
        if pid == 0:
            code = 1
            try:
                supervise(message.decode(), engine)
                code = 0
            except BaseException:  # a supervisor must never come back as a second spawner
                sys.excepthook(*sys.exc_info())
            finally:
                os._exit(code)


def report_errors() -> None:
    """Have every error written down in one form, whenever it comes."""
    # To show a line of the source its file would be opened.
    sys.excepthook = report
    threading.excepthook = lambda told: report(told.exc_type, told.exc_value, told.exc_traceback)
    sys.unraisablehook = lambda told: report(told.exc_type, told.exc_value, told.exc_traceback)


def seal() -> None:
    """Load what is loaded on first use; then nothing more, in this process and in all that it forks."""
    for name in _CODECS:
        codecs.lookup(name)
    # The C library has its sources of users in files of their own.
    with suppress(KeyError):
        os.getgrouplist(pwd.getpwuid(os.geteuid()).pw_name, os.getegid())
    warnings.simplefilter("ignore")
    sys.meta_path[:] = [each for each in sys.meta_path if getattr(each, "__name__", "") in _WITHOUT_FILES]
    sys.path.clear()
    sys.path_hooks.clear()
    sys.path_importer_cache.clear()


def report(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
    """Write down an error and where it was, without a look at any file."""
    places = []
    while trace is not None:
        code = trace.tb_frame.f_code
        places.append(f"{code.co_filename}:{trace.tb_lineno} {code.co_name}")
        trace = trace.tb_next
    if len(places) > _PLACES_MAX:
        places = [*places[: _PLACES_MAX // 2], "…", *places[-_PLACES_MAX // 2 :]]
    note(f"{kind.__name__}: {error}", places)


def note(what: str, places: Sequence[str] = ()) -> None:
    """Write down what went wrong, and where."""
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    line = f"{when} ERROR supervisor {os.getpid()}: {printable_text(what, _ERROR_CHARS_MAX)}"
    text = "\n".join([line, *[f"    | {printable_text(place, _ERROR_CHARS_MAX)}" for place in places], ""])
    with suppress(OSError):
        # A job that makes its supervisor fail over and over fills no disk.
        if os.fstat(2).st_size < LOG_BYTES_MAX:
            os.write(2, text.encode("utf-8", "backslashreplace"))
