"""How a process becomes a task of a job: up to a gate, where all tasks wait for each other, and on to its program.

Each is the head of its own session. What an engine does in the process beforehand is in its `TaskEntry`: limits, user,
image, terminal. Runs in supervisors and, copied, on the nodes of a cluster: only the standard library, little of it,
and nothing newer than Python 3.6.
"""

import errno
import os
import select
import signal
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, NoReturn, Optional, Set, Tuple

from ..kernel.processes import NOT_FOUND, NOT_RUN, die_with, error_text, reset_signals, unblock_signals

_READY, _GO = b"r", b"g"
_MESSAGE_BYTES_MAX = 1000
_HEED_MS = 50


class Failure(NamedTuple):
    """Why the job's program does not run, or how a task of it ended badly."""

    exit_code: int
    why: str
    for_good: bool = False
    """Whether another attempt would fail alike."""


class NotReady(Exception):
    """A task that cannot run its program; its argument is the failure."""


class Task:
    """One process of the job, the head of its own session."""

    def __init__(self, pid: int, ears: int, rank: int = 0) -> None:
        self.pid, self.rank = pid, rank
        self.ears = ears
        """Where the task says that it is ready, or why it cannot be; at end of file once the program runs."""
        self.status: Optional[int] = None
        """How it ended, as `waitpid` says; None: it lives."""

    def failure(self, several: bool) -> Failure:
        """How it ended, in words that name the task where there are several; 128 + signal if a signal ended it."""
        assert self.status is not None, "only an ended task has an exit code"
        task = "task {} ".format(self.rank) if several else ""
        if not os.WIFSIGNALED(self.status):
            code = os.WEXITSTATUS(self.status)
            return Failure(code, "{}exit code {}".format(task, code))
        number = os.WTERMSIG(self.status)
        try:
            name = signal.Signals(number).name
        except ValueError:
            name = "signal {}".format(number)
        return Failure(128 + number, "{}killed by {}".format(task, name))


class TaskEntry:
    """How a process becomes one of the job's. An engine overrides what it does otherwise."""

    def __init__(self, plan: Dict[str, Any]) -> None:
        self.plan = plan
        self.output = (-1, -1)
        """Where its tasks write: standard output and standard error. A terminal is both."""

    def argv(self) -> List[str]:
        """The program and its arguments."""
        return list(self.plan["argv"])

    def ranks(self) -> List[int]:
        """The numbers of its tasks on this node, among those of the whole job."""
        return [0]

    def environment(self, index: int) -> Dict[str, str]:
        """The variables of a task on this node."""
        raise NotImplementedError

    def at_start(self) -> Dict[str, str]:
        """Variables that are known only in the task, when it starts."""
        return {}

    def starters(self, below: Callable[[], Set[int]]) -> Set[int]:
        """The processes that started the job's steps, among those of the job."""
        return set()

    def owner(self) -> Optional[Tuple[int, int]]:
        """User and group of the job's processes, where they are others than those of this process."""
        return None

    def fork(self) -> int:
        """Fork; 0 in the child."""
        return os.fork()

    def admit(self, boxed: bool) -> Iterator[str]:
        """Come under the job's limits and become its user; tells what comes next, step by step."""
        yield from ()

    def enter(self, above: int, boxed: bool = False) -> Iterator[str]:
        """Become a process of the job, for as long as the process above lives; tells what comes next, step by step.

        `boxed`: it is to run containers.
        """
        os.setsid()
        die_with(above, NOT_RUN)
        yield from self.admit(boxed)
        # A change of user takes this wish back.
        die_with(above, NOT_RUN)
        # A plan that an older yard wrote says nothing of it.
        os.umask(self.plan.get("umask", 0o022))
        yield "enter folder {}".format(self.plan["cwd"])
        os.chdir(self.plan["cwd"])

    def open_streams(self) -> Tuple[int, int]:
        """Standard output and standard error of a task, opened in the task."""
        return self.output

    def contain(self, env: Dict[str, str]) -> Any:
        """The containers that run the program, with their images on this machine; None: it runs in none."""
        image = self.plan.get("image")
        if not image:
            return None
        from ..containers import image as images  # its runner has loaded both
        from ..containers import runtimes

        try:
            return images.prepare(image, env)
        except runtimes.Failed as failed:
            raise NotReady(Failure(images.NOT_RUN, str(failed), failed.for_good)) from failed


class Start:
    """The tasks of one node on their way to their programs."""

    def __init__(self, entry: TaskEntry) -> None:
        self.entry = entry
        self.gate = os.pipe()
        self.argv = entry.argv()

    def fork(self, index: int, rank: int) -> Task:
        """Fork a task, which goes as far as the gate."""
        ears, mouth = os.pipe()
        above = os.getpid()
        pid = self.entry.fork()
        if pid == 0:
            self._become(index, mouth, above)
        os.close(mouth)
        return Task(pid, ears, rank)

    def open(self, count: int) -> None:
        """Open the gate for all of them, or, for none, close it."""
        if count:
            os.write(self.gate[1], _GO * count)
        for fd in self.gate:
            os.close(fd)

    def _become(self, index: int, mouth: int, above: int) -> NoReturn:
        """The child: become the task. Any failure is reported to the process above, and nothing is run."""
        doing, code, plan, argv = "start", NOT_RUN, self.entry.plan, self.argv
        try:
            # The gate opens or closes for all; a write end kept here would hold it half open.
            os.close(self.gate[1])
            for doing in self.entry.enter(above, bool(plan.get("image"))):  # noqa: B007 (it is in the message where a step fails)
                pass
            doing = "open standard input and output"
            connect(plan, self.entry.open_streams())
            reset_signals()
            env = dict(self.entry.environment(index), **self.entry.at_start())
            doing = "make its image ready"
            containers = self.entry.contain(env)
            doing = "wait for the other tasks"
            os.write(mouth, _READY)
            if os.read(self.gate[0], 1) != _GO:
                os._exit(NOT_RUN)
            unblock_signals()
            if containers is not None:
                os.close(mouth)
                containers.run(argv, bool(plan["script"]), plan.get("umask", 0o022))
            doing = "run {}".format(argv[0])
            os.execvpe(argv[0], argv, env)
        except NotReady as failed:
            code = failed.args[0].exit_code
            say(mouth, failed.args[0])
        except OSError as error:
            if doing.startswith("run ") and error.errno in (errno.ENOENT, errno.ENOTDIR):
                code = NOT_FOUND
            named = " {}".format(error.filename) if doing.startswith("open ") else ""
            if plan["script"] and code == NOT_FOUND:
                named = " (is the program of its first line there?)"
            say(mouth, Failure(code, "cannot {}{}: {}".format(doing, named, error.strerror)))
        except BaseException as error:  # a child must never go on as a second runner
            say(mouth, Failure(code, "cannot {}: {}".format(doing, error_text(error))))
        finally:
            os._exit(code)


def fork_beside(entry: TaskEntry, work: Callable[[], None], complain: Callable[[str], None]) -> int:
    """Fork a process that does some work as one of the job's own. The caller has entered its fence.

    `complain` is called in it with what went wrong, in words.
    """
    above = os.getpid()
    pid = entry.fork()
    if pid:
        return pid
    doing = "start"
    try:
        for doing in entry.enter(above):  # noqa: B007 (as for a task)
            pass
        reset_signals()
        unblock_signals()
        doing = "run it"
        work()
    except OSError as error:
        complain("cannot {}: {}".format(doing, error.strerror or error))
    except BaseException as error:  # a child must never go on as a second keeper
        complain("cannot {}: {}".format(doing, error_text(error)))
    finally:
        os._exit(NOT_RUN)


def hear_task(task: Task, heed: Callable[[], None], whole: bool) -> Optional[Failure]:
    """Listen to a task until it is ready (or, `whole`, until its program runs); what went wrong, if something did.

    `heed` is called now and then until the task has said something: it may kill it.
    """
    ears = select.poll()
    ears.register(task.ears, select.POLLIN)
    while not ears.poll(_HEED_MS):
        heed()
    said = os.read(task.ears, _MESSAGE_BYTES_MAX)
    if said == (b"" if whole else _READY):
        return None
    if not said:
        return Failure(NOT_RUN, "killed before its program ran")
    code, for_good, why = said.decode(errors="replace").split(" ", 2)
    return Failure(int(code), why, bool(int(for_good)))


def say(mouth: int, failure: Failure) -> None:
    """Tell the process above why the program cannot be run."""
    text = "{} {:d} {}".format(failure.exit_code, failure.for_good, failure.why)
    try:
        os.write(mouth, text.encode(errors="replace")[:_MESSAGE_BYTES_MAX])
    except OSError:
        # It has gone, or a signal has ended all of it.
        pass


def say_ready(mouth: int) -> None:
    """Tell the process above that all is ready."""
    os.write(mouth, _READY)


def connect(plan: Dict[str, Any], streams: Tuple[int, int]) -> None:
    """Standard input from nowhere, output to these; a job with a terminal has that for all three."""
    if plan.get("terminal"):
        from ..kernel import terminals  # most jobs have none

        terminals.take(streams[0])
        return
    # Copies lie above 2, so that none is overwritten while it is still needed.
    high = [os.dup(fd) for fd in (os.open(os.devnull, os.O_RDONLY), streams[0], streams[1])]
    for target, fd in enumerate(high):
        os.dup2(fd, target)


def open_output(cwd: str, path: str, append: bool) -> int:
    """Open a file for a job's output, as its user."""
    # Without O_NONBLOCK a named pipe without a reader would block the task, and its runner, forever.
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | (0 if append else os.O_TRUNC)
    whole = os.path.join(cwd, path)
    try:
        fd = os.open(whole, flags, 0o644)
    except FileNotFoundError:
        # `--output=logs/%j.out` means that the folder is to be there.
        os.makedirs(os.path.dirname(whole) or ".", exist_ok=True)
        fd = os.open(whole, flags, 0o644)
    os.set_blocking(fd, True)
    return fd


def write_script(path: str, text: str, owner: Optional[Tuple[int, int]] = None) -> str:
    """Write a job's script where its tasks run it."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o500)
    with os.fdopen(fd, "wb") as file:
        file.write(text.encode("utf-8", "surrogateescape"))
        if owner is not None:
            os.fchown(fd, *owner)
    return path
