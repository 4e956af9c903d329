"""How an engine speaks to Slurm: the calls that it makes, and the way through Slurm's commands.

`rest.py` is the other way. An engine does not know which one it has; both answer in the same rows. What the
commands of this release can do is tried out, not derived from its number.
"""

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from gpuyard.engines.contract import Transient
from gpuyard.engines.slurm.calls import submission
from gpuyard.engines.slurm.calls.commands import Commands, OutOfReach, Refusal
from gpuyard.engines.slurm.calls.submission import Submission
from gpuyard.engines.slurm.words.forms import Unreadable, parse_settings
from gpuyard.engines.slurm.words.queue import PAST_FIELDS, SlurmJob, queue_format, read_past, read_queue
from gpuyard.engines.slurm.words.rows import (
    Partition,
    Reservation,
    SlurmNode,
    read_nodes,
    read_partitions,
    read_reservations,
)

_FIRST_REST_S, _REST_S_MAX = 0.5, 10.0
_PAST_S = 5.0
_Row = TypeVar("_Row")
_IDS_MAX = 500
"""Job numbers in one command line."""


@dataclass(frozen=True, slots=True)
class Queue:
    """Every job that Slurm knew at one moment."""

    jobs: tuple[SlurmJob, ...]
    asked_ms: int
    """When the question was put: later submissions are not in the answer."""
    took_s: float


class Client(Protocol):
    """What an engine asks of Slurm. Every call may raise `OutOfReach` or `Refusal`."""

    def queue(self) -> Queue:
        """Every job there is, and those that ended not long ago."""
        ...

    def past(self, job_id: int) -> list[SlurmJob]:
        """The accounting's rows for this number, for jobs that Slurm itself no longer knows."""
        ...

    def nodes(self) -> list[SlurmNode]: ...
    def partitions(self) -> list[Partition]: ...
    def reservations(self) -> list[Reservation]: ...

    def holds_limits(self) -> bool:
        """Whether memory and cores of a job are limits, and not only counted."""
        ...

    def settings(self) -> dict[str, str]:
        """Slurm's configuration, by the names of its settings."""
        ...

    def submit(self, job: Submission) -> int:
        """Hand in a job; gives its number."""
        ...

    def cancel(self, ids: Sequence[int]) -> None:
        """End jobs, or take them back where they wait. It is no error if a job is gone."""
        ...

    def poke(self, ids: Sequence[int]) -> None:
        """Wake the wrappers of these jobs."""
        ...

    def suspend(self, job_id: int) -> None: ...
    def resume(self, job_id: int) -> None: ...
    def set_limit(self, job_id: int, minutes: int) -> None:
        """Give a job another time limit; 0: none."""
        ...

    def close(self) -> None: ...


class Reach:
    """Whether Slurm can be reached. After a call without an answer, others fail at once for a while."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._until_s = self._pause_s = 0.0
        self._said = ""
        self.returned_s: float | None = None
        """When it was last reached again after it had been out of reach."""

    def check(self) -> None:
        """Raise what the last call raised, if that was a moment ago."""
        if self._clock_s() < self._until_s:
            raise OutOfReach(self._said)

    def lost(self, error: OutOfReach) -> None:
        """A call came to no answer."""
        self._pause_s = min(_REST_S_MAX, 2 * self._pause_s or _FIRST_REST_S)
        self._until_s, self._said = self._clock_s() + self._pause_s, str(error)

    def found(self) -> None:
        """A call was answered."""
        if self._pause_s:
            self.returned_s = self._clock_s()
        self._until_s = self._pause_s = 0.0


class CommandClient:
    """Slurm through its commands."""

    def __init__(self, commands: Commands, *, as_user: bool, reach: Reach | None = None) -> None:
        self.commands = commands
        self.as_user = as_user
        """Whether jobs are submitted as other users, which only root may do."""
        self.reach = reach or Reach()

    def _run(self, name: str, *words: str, text: str = "", bare: bool = False) -> str:
        self.reach.check()
        try:
            said = self.commands.run(
                name, *words, text=text, environment=self.bare_environment() if bare else None
            )
        except OutOfReach as error:
            self.reach.lost(error)
            raise
        except Refusal:
            self.reach.found()
            raise
        self.reach.found()
        return said

    def bare_environment(self) -> dict[str, str]:
        """The environment of a job's wrapper: nothing of the server's but where Slurm is."""
        kept = ("PATH", "SLURM_CONF", "LC_ALL")
        found = {name: self.commands.environment[name] for name in kept if name in self.commands.environment}
        if self.commands.folder:
            # The wrapper of a gang calls srun.
            found["PATH"] = f"{self.commands.folder}:{found.get('PATH', '/usr/bin:/bin')}"
        return found

    def queue(self) -> Queue:
        """One `squeue` for everything. Its text is read ten times as fast as its JSON."""
        nonce = secrets.token_hex(8)
        asked_ms, began_s = time.time_ns() // 1_000_000, time.monotonic()
        text = self._run("squeue", "--all", "--noheader", "--states=all", "-O", queue_format(nonce))
        return Queue(tuple(read_queue(text, nonce)), asked_ms, time.monotonic() - began_s)

    def past(self, job_id: int) -> list[SlurmJob]:
        """By `sacct`. Whether the accounting answers says nothing about whether Slurm does."""
        words = ("--noheader", "--parsable2", "--allocations", "--duplicates", f"--jobs={job_id}")
        fields = f"--format={','.join(PAST_FIELDS)}"
        # The engine waits for it, and with the engine everything else.
        text = self.commands.run("sacct", *words, fields, timeout_s=_PAST_S)
        return read_past(text)

    def nodes(self) -> list[SlurmNode]:
        """As `scontrol` describes them."""
        return self._rows("node", read_nodes)

    def partitions(self) -> list[Partition]:
        """As `scontrol` describes them."""
        return self._rows("partition", read_partitions)

    def reservations(self) -> list[Reservation]:
        """As `scontrol` describes them."""
        return self._rows("reservation", read_reservations)

    def _rows(self, what: str, read: Callable[[str], list[_Row]]) -> list[_Row]:
        text = self._run("scontrol", "--oneliner", "--all", "show", what)
        try:
            return read(text)
        except Unreadable as wrong:
            raise Transient(f"scontrol show {what}: {wrong}") from None

    def holds_limits(self) -> bool:
        """Whether the nodes put jobs into cgroups."""
        return "cgroup" in self.settings().get("TaskPlugin", "")

    def settings(self) -> dict[str, str]:
        """`scontrol show config`."""
        return parse_settings(self._run("scontrol", "show", "config"))

    def submit(self, job: Submission) -> int:
        """`sbatch`, with the script on its standard input."""
        words = submission.sbatch_words(job, self.as_user)
        said = self._run("sbatch", *words, text=job.script, bare=True)
        number = said.strip().partition(";")[0]
        if not number.isdecimal():
            raise OutOfReach(f"sbatch answered {said.strip()[:200]!r} instead of a job's number")
        return int(number)

    def cancel(self, ids: Sequence[int]) -> None:
        """`scancel`, which is silent about jobs that have ended."""
        for some in _batches(ids):
            self._run("scancel", "--quiet", *some)

    def poke(self, ids: Sequence[int]) -> None:
        """Send a signal that the wrapper waits for, and no other process of the job."""
        for some in _batches(ids):
            self._run("scancel", "--quiet", "--batch", "--signal=USR1", *some)

    def suspend(self, job_id: int) -> None:
        """Slurm stops every process of the job, and its time limit pauses."""
        self._run("scontrol", "suspend", str(job_id))

    def resume(self, job_id: int) -> None:
        """Let them go on."""
        self._run("scontrol", "resume", str(job_id))

    def set_limit(self, job_id: int, minutes: int) -> None:
        """`scontrol update`: a longer limit takes an operator or administrator of Slurm."""
        self._run("scontrol", "update", f"JobId={job_id}", f"TimeLimit={minutes or 'UNLIMITED'}")

    def close(self) -> None:
        """Nothing is held."""


def _batches(ids: Sequence[int]) -> list[list[str]]:
    words = [str(each) for each in ids]
    return [words[at : at + _IDS_MAX] for at in range(0, len(words), _IDS_MAX)]
