"""What every engine promises. `tests/contract` holds each of them to it, by effects seen outside the engine's books.

Lists in, lists out, order kept: an engine answers for many attempts in one call. Absent is UNKNOWN, never success.
A call that failed may have happened: it answers UNSURE, and the caller looks again (`status`, `listing`) before it
concludes anything. Every call that changes the world carries the leader's epoch, and an engine refuses an epoch older
than the newest it has seen, so that a leader that was paused cannot act when it wakes up.

A job finds its GPUs in `CUDA_VISIBLE_DEVICES`, and in `YARD_CHECKPOINT_FILE` the file that it writes when it saves its
work; each task of a gang finds its number in `RANK`.

What looks on at a cluster whose own scheduler decides has a contract of its own: `observer.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Protocol, runtime_checkable

from gpuyard.model import Capability, Node, Outcome
from gpuyard.model.mig import Slice


@dataclass(frozen=True, slots=True)
class Part:
    """What an attempt gets on one node."""

    node: str
    gpus: tuple[int, ...]
    """Indices of its GPUs on that node."""
    milli: int
    """How much of each of them: 1000 for whole GPUs."""
    cpu_milli: int
    memory_mib: int
    tasks: int
    slices: tuple[Slice, ...] = ()
    """MIG slices of those GPUs, where it gets these instead of whole ones."""


UMASK = 0o022


@dataclass(frozen=True, slots=True)
class Container:
    """One container of a job that runs in images."""

    image: str
    name: str = ""
    entrypoint: tuple[str, ...] = ()
    """In place of the image's own; empty: the image's."""
    argv: tuple[str, ...] = ()
    """Arguments of the entrypoint; empty: the image's. Of the job's own container, the recipe has them."""
    env: dict[str, str] = field(default_factory=dict)
    """Besides those of the job."""
    workdir: str = ""
    volumes: tuple[str, ...] = ()
    """`/source:/target[:ro]`, or `name:/target` for an empty folder that goes with the attempt."""
    init: bool = False
    """Whether it runs to its end before the others start."""
    pull: str = ""
    """`always` or `never`; empty: where the image is missing."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to run a job: everything that is not needed to decide about it. Kept as a blob, by its hash."""

    argv: tuple[str, ...] = ()
    script: str = ""
    """A script with its #! line, run in place of `argv[0]`; `argv` are then its arguments."""
    env: dict[str, str] = field(default_factory=dict)
    cwd: str = ""
    umask: int = UMASK
    """What other users may not do with the files that the job makes, as its owner's shell had it."""
    stdout: str = ""
    """File for standard output; empty: the engine's own, from which `logs` reads."""
    stderr: str = ""
    """File for standard error; empty: together with standard output."""
    open_mode: str = ""
    """`append` to these files, or `truncate` them; empty: a first attempt truncates, a later one appends."""
    uid: int = 0
    """With `user` empty, 0 is the user the engine itself runs as."""
    gid: int = 0
    user: str = ""
    warn_signal: int = 0
    """Sent ahead of TERM when time is up or room is needed; 0: none."""
    warn_ms: int = 0
    """How long ahead of the time limit it is sent; ahead of TERM too when preempted, up to half of the grace."""
    warn_shell: bool = False
    """Whether the warning is for the job's first process alone, and not for processes that it has started."""
    slurm_commands: bool = False
    """Whether the yard's own Slurm commands are on its PATH. On an engine that is Slurm they are Slurm's."""
    batch: bool = False
    """Run it once, in the first task: the others only hold room for processes that it starts there."""
    ranks: int = 0
    """How many processes it means to start in all; 0: as many as it has tasks."""
    containers: tuple[Container, ...] = ()
    """The job's own container, then the others; none: it is a process of the node."""
    terminal: bool = False
    """Whether its first task has a terminal for its input and output, where the engine has terminals."""
    asked: str = ""
    """Fields of the request that were made concrete on the fleet (`exclusive`, GPU memory), as they were sent: JSON."""


@dataclass(frozen=True, slots=True)
class Launch:
    """Start this attempt. The same key twice starts it once, whatever happened to the first call."""

    key: str
    """Names this attempt alone: `<yard>-<job>-<attempt>`, letters, digits and dashes. Never used again."""
    job_id: int
    attempt: int
    label: str
    """The id people use, `17` or `12_3`."""
    name: str
    recipe: Recipe
    parts: tuple[Part, ...]
    limit_ms: int
    """Time limit, enforced by the engine; 0: none."""
    grace_ms: int
    """Between TERM and KILL."""
    restarts: int = 0
    """How many attempts ran before this one."""
    array_id: int = 0
    array_index: int = 0
    cluster: str = ""
    partition: str = ""
    """The pool where it runs."""
    account: str = ""
    """The tenant that it counts for."""
    qos: str = ""
    """Its class."""

    def letters(self, user: str) -> dict[str, str | int]:
        """What the letters in a file name stand for (`patterns.expand`), now that the attempt has its nodes."""
        found: dict[str, str | int] = {
            "j": self.job_id,
            # A batch script is no step with a number.
            "J": self.job_id,
            "s": "batch",
            "A": self.array_id or self.job_id,
            "x": self.name,
            "N": self.parts[0].node.partition(".")[0],
            "u": user,
            "n": 0,
            "t": 0,
        }
        if self.array_id:
            found |= {"a": self.array_index, "b": self.array_index % 10}
        return found


@dataclass(frozen=True, slots=True)
class StopRequest:
    """Stop this attempt: warn signal and TERM, then KILL after the grace. Unknown is no error.

    A second stop changes little: the first one names the end, a later one can only shorten the grace.
    """

    key: str
    outcome: Outcome
    """How its end is reported if the attempt was still running: CANCELLED or PREEMPTED."""
    grace_ms: int


@dataclass(frozen=True, slots=True)
class NewLimit:
    """The time limit that an attempt is to have from now on, counted from where its first one began."""

    key: str
    limit_ms: int
    """0: none."""


class Answer(Enum):
    """The result of a call for one attempt."""

    DONE = "done"
    """It is so now, or will be without another call."""
    BARRED = "barred"
    """Only to a stop: nothing runs under the key, and nothing ever will."""
    REFUSED = "refused"
    """It did not happen and will not, however often it is asked: `Reply.why` says what is wrong."""
    UNSURE = "unsure"
    """It may or may not have happened."""
    LATER = "later"
    """Only to a start: it did not happen; ask again until it does. `Reply.why` says what the start waits for."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, and in words why."""

    answer: Answer
    why: str = ""
    exit_code: int = 0
    """Of an attempt that is refused: what it ends with."""


class Phase(Enum):
    """What an engine sees of an attempt."""

    UNKNOWN = "UNKNOWN"
    """The engine does not know it: never started, or forgotten. Says nothing about whether it ran."""
    STARTING = "STARTING"
    """Taken on, not running yet. It may hold its GPUs."""
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    STOPPING = "STOPPING"
    """It was asked to stop and is not gone yet."""
    ENDED = "ENDED"
    """Every process of it is gone, and will not come back."""


@dataclass(frozen=True, slots=True)
class AttemptReport:
    """What an engine knows of an attempt. Times are the engine's own and never go back."""

    key: str
    phase: Phase
    outcome: Outcome | None = None
    """How it ended; only with ENDED."""
    exit_code: int = 0
    """The exit code of the first task that failed, 128 + signal if a signal ended it; 0 otherwise."""
    started_ms: int = 0
    ended_ms: int = 0
    checkpoint_ms: int = 0
    """When it last saved its work, if it says so; as all these times, by the clock of its start."""
    saved_by_now: bool = False
    """Whether that time is by the clock as it goes now instead, as files of other machines have it."""
    why: str = ""
    """More about the end, for people: `killed for memory on node a`, `its supervisor was killed`; or, before the end,
    what delays it.
    """
    for_good: bool = False
    """Whether another attempt would fail alike: its image does not exist. Only with FAILED."""
    gpus: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """Indices of its GPUs on each node, where the engine chose others than the launch names (see INDICES)."""
    limit_ms: int | None = None
    """The time limit that it is held to, 0 for none; None: not told. Told of what runs, with NEW_LIMITS."""


@dataclass(frozen=True, slots=True)
class ForeignProcess:
    """A GPU in use by a process outside the yard. It is not free."""

    gpu: int
    pid: int
    user: str


@dataclass(frozen=True, slots=True)
class NodeReport:
    """A node as the engine finds it."""

    node: Node
    up: bool
    why: str = ""
    """What is wrong with it, if it is not up."""
    busy: tuple[ForeignProcess, ...] = ()
    layouts: Mapping[int, tuple[Slice, ...]] | None = None
    """How each GPU is cut, where the engine keeps its hands off them; None: it cuts them as jobs need."""
    drained: str = ""
    """Why its cluster closed it to new work though it is up. Only observers tell: for an engine that is driven it is
    not up."""


class EngineError(Exception):
    """A call got no answer."""


class Transient(EngineError):
    """Asking again later may help."""


class Permanent(EngineError):
    """Asking again will not help: a person has to mend something. The message says what."""


class Stale(EngineError):
    """The epoch is older than one seen before: another leader is in charge."""


_DIGITS_MAX = 18


class NoSuchPlace(Permanent):
    """A cursor that this engine has not given, and that counts no bytes."""


class LogPiece(NamedTuple):
    """Part of what an attempt wrote."""

    content: bytes
    """Empty where nothing more is there now."""
    after: str
    """The cursor behind it."""
    left_out: int = 0
    """How many bytes the log no longer has in this place; the content is empty then, and the log goes on behind it."""


def offset_of(cursor: str) -> int:
    """The bytes in front of a place, for engines whose cursors count them."""
    if not cursor:
        return 0
    if not (cursor.isascii() and cursor.isdecimal() and len(cursor) <= _DIGITS_MAX):
        raise NoSuchPlace(f"{cursor[:40]!r} is no place in this log")
    return int(cursor)


class Engine(Protocol):
    """The contract."""

    name: str

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What it can do."""
        ...

    def nodes(self) -> tuple[NodeReport, ...]:
        """Capacity and health, as found now."""
        ...

    def start(self, epoch: int, launches: Sequence[Launch]) -> list[Reply]:
        """Start attempts."""
        ...

    def stop(self, epoch: int, halts: Sequence[StopRequest]) -> list[Reply]:
        """Stop attempts. DONE means the attempt was asked to stop, not that it is gone: `status` says when.

        BARRED is the answer for a key that the engine does not know: it can never start any more, not even by a call
        that is still on its way, so the attempt is gone. An attempt that is only out of reach is UNSURE.
        """
        ...

    def pin(self, epoch: int, node: str, layouts: Mapping[int, tuple[Slice, ...]]) -> Mapping[int, Reply]:
        """Keep these layouts on these GPUs of a node, and none on its others, until the next call.

        A GPU without slices stays whole. Slices that attempts use are not touched. DONE: it is so. UNSURE: it may be
        half done, and asking again goes on from there.
        """
        ...

    def cuts(self) -> Mapping[str, tuple[Slice, ...]]:
        """The slices that are there now by node, in use or not."""
        ...

    def suspend(self, epoch: int, keys: Sequence[str]) -> list[Reply]:
        """Freeze attempts."""
        ...

    def resume(self, epoch: int, keys: Sequence[str]) -> list[Reply]:
        """Let frozen attempts go on."""
        ...

    def status(self, keys: Sequence[str]) -> list[AttemptReport]:
        """What is known of these attempts: one report for each, in this order."""
        ...

    def listing(self) -> list[AttemptReport]:
        """Every attempt of this yard that the engine knows, ended ones until they are forgotten."""
        ...

    def forget(self, epoch: int, keys: Sequence[str]) -> None:
        """The ends of these attempts are in the log: what was kept for their sake may go. Logs stay.

        They are UNKNOWN from then on, and a start under such a key is refused. An attempt that has not ended is not
        forgotten.
        """
        ...

    def wait(self, timeout_s: float) -> bool:
        """Wait until some attempt may have ended; whether one has. May miss one, so look now and then anyway."""
        ...

    def log(self, key: str, stream: str, cursor: str, limit: int) -> LogPiece:
        """What an attempt wrote to `stdout` or `stderr` behind a cursor: so many bytes, fewer only where no more are
        there now or a part is left out.

        An empty cursor is the beginning. Others are the engine's own words: at most 200 printable characters of ASCII
        without a space, that stand for the same place as long as the log is kept, also for another server and after a
        restart of what runs the attempt. A number of bytes from the beginning is understood too: people and earlier
        releases have these. `NoSuchPlace`: it is neither.
        """
        ...

    def close(self) -> None:
        """Let go of the engine. What runs goes on."""
        ...


class ChangesLimits(Protocol):
    """An engine with NEW_LIMITS."""

    def limit(self, epoch: int, limits: Sequence[NewLimit]) -> list[Reply]:
        """Give running attempts other time limits; one that has run for longer already is over at once, as at any
        limit.

        DONE: the report says so once the attempt is held to it. REFUSED: it has its limit as before. UNSURE: the report
        will tell.
        """
        ...


@runtime_checkable
class Adopts(Protocol):
    """An engine that keeps the GPUs of attempts which no log knows any more."""

    def adopt(self, keys: Sequence[str]) -> None:
        """Their GPUs are not free until they have ended."""
        ...


@runtime_checkable
class ReadsOutputs(Protocol):
    """An observer that reads what jobs of its cluster write, where that can be seen from here."""

    def output(self, key: str, user: str, stream: str, cursor: str, limit: int) -> LogPiece:
        """What a job of this user writes, read as that user; cursors are as in `Engine.log`.

        `Permanent`: it cannot be read from here; it says why.
        """
        ...


@runtime_checkable
class HasDaemonLogs(Protocol):
    """An engine or an observer over a scheduler whose daemons write logs of their own."""

    def daemon_lines(self, key: str, nodes: Sequence[str]) -> tuple[str, ...]:
        """What these logs say of a job, oldest first; empty where they cannot be read from here."""
        ...


@dataclass(frozen=True, slots=True)
class GpuSignals:
    """What a GPU does now. None: it is not known; a GPU that is cut does not say how busy it is."""

    node: str
    gpu: int
    memory_mib: int
    busy_pct: int | None = None
    memory_used_mib: int | None = None
    power_w: int | None = None
    temperature_c: int | None = None
    attempts: tuple[tuple[str, int], ...] = ()
    """Memory that the processes of attempts use, by key, in MiB."""
    others_mib: int | None = None
    """Memory of processes that are not the yard's."""
    emulated: bool = False


@runtime_checkable
class HasTelemetry(Protocol):
    """An engine that can see what its GPUs do."""

    def signals(self) -> tuple[GpuSignals, ...]:
        """GPU by GPU, as found now."""
        ...


@dataclass(frozen=True, slots=True)
class GpuPlace:
    """Where a GPU is on its node: how it is linked to the others there, and what is next to it."""

    node: str
    gpu: int
    memory_mib: int
    links: tuple[str, ...]
    """To each GPU of the node, in the words of `nvidia-smi topo -m`: X, NV18, PIX, PXB, PHB, NODE, SYS. NV: NVLink, of
    how many links is not known. Empty: nobody knows."""
    pcie: str = ""
    """Generation and width, `5.0 x16`; empty: not known."""
    numa: int | None = None
    cores: str = ""
    """Those of its NUMA domain, `0-3,8`; empty: not known."""
    emulated: bool = False


@runtime_checkable
class HasTopology(Protocol):
    """An engine that can see how its GPUs are linked."""

    def topology(self) -> tuple[GpuPlace, ...]:
        """GPU by GPU, as found now."""
        ...


@dataclass(frozen=True, slots=True)
class ImageUse:
    """The image of an attempt, and how long it took to come to its container. None: it did not come to that, or had no
    need to."""

    image: str
    """Its full name."""
    digest: str = ""
    pull_ms: int | None = None
    """How long its images were pulled; None: they were there."""
    start_ms: int | None = None
    """From the start of the attempt until the job's own container ran."""
    line_ms: int | None = None
    """From the start of the attempt until it wrote something."""


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """Where a running attempt is on the machine of its engine, for those who watch it there."""

    key: str
    devices: Mapping[str, tuple[str, ...]]
    """UUIDs of its GPUs or MIG devices on each of its nodes."""
    cut: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Numbers of the GPUs on each node of which it has slices."""
    group: str = ""
    """The folder of its cgroup of v2; empty: it has none."""
    groups_v1: Mapping[str, str] = field(default_factory=dict)
    """Those of v1, by controller."""
    pids: tuple[int, ...] = ()
    """Processes below which everything is its own."""
    milli: int = 1000
    """How much of each GPU it has."""
    started_ms: int = 0
    load: str = ""
    """What it says that it does on emulated GPUs; empty: it does not say."""


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU time and memory that the processes of an attempt took. None: not known."""

    cpu_ms: int | None = None
    memory_mib: int | None = None
    """The most at a time, of all of them together."""
    process_mib: int | None = None
    """The same of the largest process."""
    image: ImageUse | None = None
    """None: it ran in no image."""


@dataclass(frozen=True, slots=True)
class Protection:
    """What keeps a job to one kind of thing that it asks for, or others from it."""

    kind: str
    """What is asked for: `whole GPU`, `memory`."""
    enforced: str
    """`yes`, `partly` or `no`."""
    by: str
    """By what means, or why not, in words."""


@runtime_checkable
class HasFence(Protocol):
    """An engine that fences jobs itself."""

    def protections(self) -> tuple[Protection, ...]:
        """What is enforced, kind by kind."""
        ...


@runtime_checkable
class HasUsage(Protocol):
    """An engine that knows how much the processes of an attempt used."""

    def usage(self, key: str) -> Usage:
        """The usage of an ended attempt, even after it is forgotten; of a running one, as far as it can be seen."""
        ...


class LinkEnd(Enum):
    """How a link into an attempt has ended."""

    DONE = "done"
    """What was asked for has come to its end; the content of the frame says with what, as JSON."""
    REFUSED = "refused"
    """It is not done; the content says why, in words."""
    LOST = "lost"
    """The other end is gone without a word: with the attempt, or with what kept its terminals."""


class LinkFrame(NamedTuple):
    """One thing that is said over a link: a letter of `engines/node/visits/frames.py`, and its content."""

    kind: bytes
    content: bytes
    end: LinkEnd | None = None
    """None: more follows. Where the link is lost, kind and content are empty."""


class TerminalLink(Protocol):
    """A client's way into a running attempt, used within one event loop, where nothing of it blocks.

    What is wanted is sent first (`HELLO`). Sending and receiving may go on side by side.
    """

    async def send(self, kind: bytes, content: bytes = b"") -> None:
        """Pass on what the client says, at the pace of the other end. Over a link that has ended it goes nowhere."""
        ...

    async def receive(self) -> LinkFrame:
        """What the other end says next. The last frame has an `end`: a link never falls silent without one."""
        ...

    async def close(self, *, drop: bool = False) -> None:
        """Let go. What was sent still arrives, as long as it is taken; with `drop` it need not."""
        ...


@runtime_checkable
class HasTerminals(Protocol):
    """An engine through which a client comes to terminals of a running attempt."""

    def terminal(self, key: str, *, own: bool) -> TerminalLink | None:
        """A new link to the terminals of an attempt; None: they are not there yet, or no longer.

        `own`: the job's own terminal is wanted. `Permanent`: there is none, nor will there be; it says why.
        """
        ...


class Leftover(Enum):
    """What jobs that ended leave in the folder of an engine."""

    LOGS = "logs"
    """An attempt's output where the job named no file, and a note of where it wrote otherwise; by its key."""
    FOLDERS = "folders"
    """What all attempts of a job share, its checkpoint and the files that it made there; by the job's id."""


@runtime_checkable
class KeepsLeftovers(Protocol):
    """An engine with a folder in which ended jobs leave something."""

    def leftovers(self, what: Leftover, names: Sequence[str]) -> dict[str, int]:
        """The bytes on disk of those that exist."""
        ...

    def remove(self, what: Leftover, names: Sequence[str]) -> None:
        """Remove them, each whole or not at all; what cannot be removed now is tried another time."""
        ...


@runtime_checkable
class KeepsImages(Protocol):
    """An engine that keeps the images of jobs."""

    def prune_images(self, before_ms: int, *, dry_run: bool) -> dict[str, int]:
        """Remove those that no job has needed since then, and no job needs or pulls now; their bytes, by name."""
        ...


class NoMig:
    """The part of the contract that is about slices, for engines that cut no GPUs."""

    def pin(self, _epoch: int, _node: str, layouts: Mapping[int, tuple[Slice, ...]]) -> dict[int, Reply]:
        """Refused, GPU by GPU."""
        return dict.fromkeys(layouts, Reply(Answer.REFUSED, "this engine does not cut GPUs"))

    def cuts(self) -> dict[str, tuple[Slice, ...]]:
        """None."""
        return {}
