"""The tasks of one node: forked up to a gate, released together, signalled, swept away at the end.

Runs on the nodes as the job's user: only the standard library, nothing newer than Python 3.6.
"""

import ctypes
import errno
import os
import signal
import time
from typing import Any, Callable, Dict, List, NoReturn, Optional, Set, Tuple

from . import dispositions
from .files import SCRIPT, names

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_NOT_RUN, _NOT_FOUND = 126, 127
_SWEEP_S = 0.01
_PART_S = 6.0

Failure = Tuple[int, str]
"""Exit code and, in words, why."""

_libc = ctypes.CDLL(None)


def adopt_orphans() -> None:
    """Become the parent of every orphan below, so that none gets away."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants() -> Set[int]:
    """Every process below this one, zombies left out."""
    parents = {}
    for name in names("/proc"):
        if name.isdigit():
            try:
                with open("/proc/{}/stat".format(name), "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            if fields[0] not in (b"Z", b"X"):
                parents[int(name)] = int(fields[1])
    me = os.getpid()
    below: Set[int] = set()
    for pid in parents:
        path = [pid]
        while path[-1] in parents and path[-1] not in below and parents[path[-1]] not in path:
            above = parents[path[-1]]
            if above == me or above in below:
                below.update(path)
                break
            path.append(above)
    return below


def kill(pid: int, number: int, group: bool = False) -> None:
    """Send a signal; it is no error if the process has gone."""
    try:
        (os.killpg if group else os.kill)(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def own_gpus() -> List[int]:
    """Indices of the GPUs that Slurm gave on this node."""
    for name in ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "CUDA_VISIBLE_DEVICES"):
        words = os.environ.get(name, "").split(",")
        if words != [""] and all([word.isdigit() for word in words]):
            return [int(word) for word in words]
    return []


class Crew:
    """The tasks of one node, each the head of its own session, all or none."""

    def __init__(self, plan: Dict[str, Any], node: str, port: int) -> None:
        self.plan, self.node, self.port = plan, node, port
        self.status: Dict[int, Optional[int]] = {}
        """By pid, how it ended, as `waitpid` says; None: it lives."""
        self.ranks: Dict[int, int] = {}
        self.failed: Optional[Failure] = None
        self.mouths: List[int] = []
        self.gate = (-1, -1)
        self.pty: Optional[Tuple[int, int]] = None
        """The terminal of its first task, and the file that keeps what is shown there."""
        self.log = -1
        self.keeper: Any = None
        """The process that keeps its terminals, if there are any."""

    def give_terminal(self, log: int) -> None:
        """Let its task have a terminal."""
        from . import terminal

        self.pty, self.log = terminal.open_pty(), os.dup(log)

    def keep(self) -> None:
        """Start the keeper of its terminals: the job's own, if it has one, and those of shells beside it."""
        from . import terminal

        own = terminal.Session(terminal.OWN, self.pty, log=self.log) if self.pty is not None else None
        env = self._environment(0, self.plan["parts"][self.node]["first"])
        self.keeper = terminal.keep(self._beside, env, None, own)

    def _beside(self, work: Callable[[], None], complain: Callable[[str], None]) -> int:
        """Fork a process that does some work as one of the job's own."""
        above = os.getpid()
        pid = os.fork()
        if pid:
            return pid
        try:
            _alone(above, self.plan)
            dispositions.reset()
            dispositions.unblock()
            work()
        except OSError as error:
            complain("cannot enter folder {}: {}".format(self.plan["cwd"], error.strerror))
        except BaseException as error:  # a child must never go on as a second keeper
            complain(repr(error))
        finally:
            os._exit(_NOT_RUN)

    def part(self) -> None:
        """Wait for the keeper: it goes once its clients have seen the rest."""
        until = time.monotonic() + _PART_S
        while self.keeper is not None and self.reap() and time.monotonic() < until:
            signal.sigtimedwait((signal.SIGCHLD,), _SWEEP_S)

    def _below(self) -> Set[int]:
        """Every process of the job; the keeper is none."""
        return descendants() - ({self.keeper.pid} if self.keeper is not None else set())

    def start(self, output: Tuple[int, int]) -> Optional[Failure]:
        """Fork every task up to the gate; what went wrong, if something did."""
        part = self.plan["parts"][self.node]
        count = 1 if self.plan["batch"] else part["tasks"]
        self.gate = os.pipe()
        try:
            for local in range(count):
                self._fork(local, part["first"] + local, output)
        except OSError as error:
            return _NOT_RUN, "cannot start a task: {}".format(error.strerror)
        for ears in self.mouths:
            said = os.read(ears, 1000)
            if said != b"r":
                return _heard(said)
        return None

    def go(self) -> Optional[Failure]:
        """Let all of them run; what went wrong, if something did."""
        os.write(self.gate[1], b"g" * len(self.mouths))
        failure = None
        for ears in self.mouths:
            said = os.read(ears, 1000)
            failure = failure or (_heard(said) if said else None)
            os.close(ears)
        self.mouths = []
        return failure

    def _fork(self, local: int, rank: int, output: Tuple[int, int]) -> None:
        ears, mouth = os.pipe()
        above = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._become(local, rank, output, mouth, above)
        os.close(mouth)
        self.mouths.append(ears)
        self.status[pid], self.ranks[pid] = None, rank

    def _become(self, local: int, rank: int, output: Tuple[int, int], mouth: int, above: int) -> NoReturn:
        doing, code, plan = "start", _NOT_RUN, self.plan
        try:
            os.close(self.gate[1])
            doing = "enter folder " + plan["cwd"]
            _alone(above, plan)
            doing = "open standard input and output"
            if self.pty is not None:
                from . import terminal

                terminal.take(self.pty[1])
            else:
                fds = [os.dup(fd) for fd in (os.open(os.devnull, os.O_RDONLY), output[0], output[1])]
                for target, fd in enumerate(fds):
                    os.dup2(fd, target)
            dispositions.reset()
            argv = plan["argv"]
            if plan["script"]:
                argv = [plan["run"] + "/" + SCRIPT] + argv
            doing = "wait for the other tasks"
            os.write(mouth, b"r")
            if os.read(self.gate[0], 1) != b"g":
                os._exit(code)
            doing = "run " + argv[0]
            dispositions.unblock()
            os.execvpe(argv[0], argv, self._environment(local, rank))
        except OSError as error:
            if doing.startswith("run ") and error.errno in (errno.ENOENT, errno.ENOTDIR):
                code = _NOT_FOUND
            hint = (
                " (is the program of its first line there?)" if plan["script"] and code == _NOT_FOUND else ""
            )
            os.write(mouth, "{} cannot {}{}: {}".format(code, doing, hint, error.strerror).encode()[:900])
        except BaseException as error:  # a child must never go on as a second wrapper
            os.write(mouth, "{} cannot {}: {!r}".format(code, doing, error).encode()[:900])
        finally:
            os._exit(code)

    def _environment(self, local: int, rank: int) -> Dict[str, str]:
        """The yard's variables over Slurm's over a clean base; GPUs as Slurm gave them."""
        plan, part = self.plan, self.plan["parts"][self.node]
        env = dict(plan["env"])
        for name, value in os.environ.items():
            if name.startswith(("SLURM", "CUDA_", "ROCR_", "ZE_", "GPU_")) and name not in plan["dropped"]:
                env[name] = value
        env.update(plan["yard"])
        devices = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if part["gpus"] else []
        each, rest = divmod(len(devices), part["tasks"])
        alone = plan["batch"] or bool(rest)
        env["CUDA_VISIBLE_DEVICES"] = env["YARD_GPUS"] = ",".join(devices)
        env["YARD_TASK_GPUS"] = ",".join(devices if alone else devices[local * each : (local + 1) * each])
        env["YARD_NODE"] = self.node
        if not plan["batch"]:
            env.update(SLURM_PROCID=str(rank), SLURM_LOCALID=str(local), SLURM_NTASKS=str(plan["world"]))
            env.update(SLURM_NPROCS=str(plan["world"]), SLURM_NODEID=str(plan["order"].index(self.node)))
            if plan["world"] > 1:
                env.update(RANK=str(rank), LOCAL_RANK=str(local), WORLD_SIZE=str(plan["world"]))
                env["NODE_RANK"] = env["SLURM_NODEID"]
                env.update(MASTER_ADDR=plan["address"], MASTER_PORT=str(self.port))
        return env

    def reap(self) -> bool:
        """Take in every child that ended, adopted ones too; whether any child is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if self.keeper is not None and pid == self.keeper.pid:
                os.close(self.keeper.control)
                self.keeper = None
            if pid in self.status:
                self.status[pid] = status
                if status and self.failed is None:
                    self.failed = _failure(status, self.ranks[pid] if self.plan["world"] > 1 else None)

    def alive(self) -> bool:
        """Whether any task still runs."""
        return any([status is None for status in self.status.values()])

    def signal(self, number: int) -> None:
        """Signal every task and the first group of its session; KILL goes to everything below."""
        for pid, status in self.status.items():
            if status is None:
                kill(pid, number, group=True)
                if number == signal.SIGTERM and self.pty is not None:
                    # An interactive shell heeds no TERM, and goes when its terminal does.
                    kill(pid, signal.SIGHUP, group=True)
        if number == signal.SIGTERM and self.keeper is not None:
            self.keeper.hang_up()
        if number == signal.SIGKILL:
            for pid in self._below():
                kill(pid, number)

    def warn(self, number: int) -> None:
        """The job's warning: to its first process alone, to its steps, or to all, as in the local engine."""
        alive = [pid for pid, status in self.status.items() if status is None]
        if self.plan.get("warn_shell"):
            for pid in alive:
                kill(pid, number)
            return
        steps = _starters()
        for pid in steps:
            # Slurm's own `srun` passes it on.
            kill(pid, number)
        if not steps:
            self.signal(number)

    def sweep(self) -> None:
        """Kill what the job left behind: orphans become children of this process, so without a child none is left."""
        while self.reap():
            below = self._below()
            if self.keeper is not None and not below:
                # It waits for the end.
                return
            for pid in below:
                kill(pid, signal.SIGKILL)
            signal.sigtimedwait((signal.SIGCHLD,), _SWEEP_S)


def _alone(above: int, plan: Dict[str, Any]) -> None:
    """Begin a session in the job's folder, for as long as the process above lives."""
    os.setsid()
    _libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != above:
        os._exit(_NOT_RUN)
    # A plan that an older yard wrote says nothing of it.
    os.umask(plan.get("umask", 0o022))
    os.chdir(plan["cwd"])


def _starters() -> List[int]:
    """Processes of the job that are `srun`; its helper, which it starts itself, is left out."""
    found = []
    for pid in sorted(descendants()):
        try:
            with open("/proc/{}/comm".format(pid), "rb") as file:
                name = file.read().strip()
            with open("/proc/{}/stat".format(pid), "rb") as file:
                parent = int(file.read().rpartition(b")")[2].split()[1])
        except OSError:
            continue
        if name == b"srun":
            found.append((pid, parent))
    numbers = {pid for pid, _ in found}
    return [pid for pid, parent in found if parent not in numbers]


def _heard(said: bytes) -> Failure:
    code, _, why = said.decode(errors="replace").partition(" ")
    return (int(code), why) if why else (_NOT_RUN, "killed before its program ran")


def _failure(status: int, rank: Optional[int]) -> Failure:
    task = "" if rank is None else "task {} ".format(rank)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        try:
            name = signal.Signals(number).name
        except ValueError:
            name = "signal {}".format(number)
        return 128 + number, "{}killed by {}".format(task, name)
    return os.WEXITSTATUS(status), "{}exit code {}".format(task, os.WEXITSTATUS(status))
