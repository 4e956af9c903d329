"""Job ids as Slurm's commands take them: 17, 17_3, 17_[1-5,9], several with commas."""

import os
import pwd
import re
from typing import NamedTuple

from gpuyard.cli.slurm.language.jobs import SlurmJob
from gpuyard.cli.slurm.language.stopping import Stop, make_stop

_ID = re.compile(r"([1-9][0-9]{0,17})(?:_(?:([0-9]{1,9})|\[([0-9,:-]+)(?:%[0-9]+)?\]))?(?:\.[A-Za-z0-9]+)?")


class WantedJobs(NamedTuple):
    """Jobs that were asked for by one id."""

    id: int
    indices: tuple[int, ...] = ()
    """Indices of the tasks; empty: all, or no array."""

    @property
    def label(self) -> int | str:
        """As the yard is asked for it, if it is one job or a whole array: SLURM_JOB_ID of a task is a number too."""
        return f"{self.id}_{self.indices[0]}" if len(self.indices) == 1 else self.id

    def labels(self) -> list[int | str]:
        """As the yard is asked for them."""
        return [f"{self.id}_{index}" for index in self.indices] or [self.id]

    def holds(self, job: SlurmJob) -> bool:
        """Whether this includes a job. A task has an id of its own as well."""
        if self.indices:
            return job.array_id == self.id and job.array_index in self.indices
        return self.id in (job.id, job.array_id)


def parse_id(text: str) -> WantedJobs | None:
    """One id; None: it is none."""
    match = _ID.fullmatch(text)
    if match is None:
        return None
    if match[2]:
        return WantedJobs(int(match[1]), (int(match[2]),))
    if match[3]:
        from gpuyard.intake.sbatch.arrays import parse_array

        try:
            written = parse_array(match[3]).text
        except ValueError:
            return None
        found: list[int] = []
        for part in written.split(","):
            span, _, step = part.partition(":")
            first, _, last = span.partition("-")
            found += range(int(first), int(last or first) + 1, int(step or 1))
        return WantedJobs(int(match[1]), tuple(sorted(set(found))))
    return WantedJobs(int(match[1]))


def split_ids(text: str) -> list[str]:
    """Parts at commas that are not in brackets."""
    return [part for part in re.split(r",(?![^\[]*\])", text) if part]


def parse_ids(program: str, text: str) -> list[WantedJobs]:
    """Several, with commas; `Stop` if one is none."""
    found = []
    for part in split_ids(text):
        wanted = parse_id(part)
        if wanted is None:
            raise bad_id(program, part)
        found.append(wanted)
    return found


def bad_id(program: str, text: str) -> Stop:
    """It is no id."""
    return make_stop(program, f"Invalid job id: {text}" if program == "squeue" else f"Invalid job id {text}")


def user_name() -> str:
    """The name of the calling user."""
    uid = os.geteuid()
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return os.environ.get("USER", str(uid))
