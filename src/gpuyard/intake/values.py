"""The result of every form of intake: a job in native fields, and what was not taken over.

The native fields are those of `JobRequest` on the wire. A job written for Slurm or Kubernetes may need more than these:
such fields are added under the names in `PROPOSED`, so that nothing in the file is lost and the submitting code can
refuse what the yard cannot do yet.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any

from gpuyard.errors import BadInput
from gpuyard.wire.job_fields import JOB_FIELDS

PROPOSED = {name: says.text for name, says in JOB_FIELDS.items() if not says.wire}
"""Fields that a job may need and `JobRequest` does not have yet, with the meaning of each."""

PROBLEMS_SHOWN_MAX = 50


class Form(Enum):
    """What a file is written for."""

    SBATCH = "sbatch"
    """A batch script with #SBATCH directives."""
    KUBERNETES = "kubernetes"
    """Manifests of Pods and Jobs."""
    NATIVE = "native"
    """Jobs as gpuyard itself writes them."""


@dataclass(frozen=True, slots=True, order=True)
class Warning:
    """Something in the file that will not be as its author may expect."""

    line: int
    """Line of the file; 0: it does not come from the file."""
    text: str

    def located(self, file: str) -> str:
        """The warning as `file:line: text`."""
        return f"{file}:{self.line}: {self.text}" if self.line else self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """What is known besides the file: time, folder, options and environment of the user who submits it."""

    now: datetime
    """With a zone: `16:00` is a moment only in a zone."""
    cwd: str = ""
    """The folder that relative paths start from."""
    arguments: tuple[str, ...] = ()
    """Options of sbatch on the command line."""
    script_arguments: tuple[str, ...] = ()
    """What follows the script on the command line."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Where SBATCH_* variables are looked up."""
    slurm_output: bool = False
    """Whether output goes to slurm-ID.out by default, as with sbatch."""
    host_process: bool = False
    """Whether the user knows that a container's command runs as a process of the node, without its image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitOptions:
    """How to submit the job, apart from what it is: options of sbatch for the moment of submission."""

    test_only: bool = False
    """Say when it would start, and submit nothing."""
    parsable: bool = False
    """Print the job's id alone."""
    quiet: bool = False
    wait: bool = False
    """Return when the job has ended, with its exit code."""
    export_all: bool = True
    """Whether the submitter's environment is passed on."""
    export_names: tuple[str, ...] = ()
    """The submitter's variables that are passed on if not all are."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Variables that give the job its own options."""
    nodes_most: int = 0
    """The most nodes, if the job is read as the least of a range; 0: it is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """One job as it was understood."""

    form: Form
    file: str
    line: int
    """The line at which it begins in the file."""
    job: dict[str, Any]
    """Fields by their native names; those that equal the default are left out."""
    warnings: tuple[Warning, ...] = ()
    options: SubmitOptions = field(default_factory=SubmitOptions)
    lines: Mapping[str, int] = field(default_factory=dict)
    """The lines that ask for fields that the yard lacks, as far as known; 0: not in the file."""

    def place(self, name: str) -> str:
        """The place that asks for a field, as the start of a message: `job.sh:3: `."""
        line = self.lines.get(name, self.line)
        return f"{self.file}:{line}: " if line else ""

    @property
    def lacking(self) -> tuple[str, ...]:
        """Fields that it needs and the yard does not have yet."""
        return tuple(name for name in self.job if name in PROPOSED)

    def request(self) -> dict[str, Any]:
        """The job for the wire; `BadInput` if it needs something that the yard does not have."""
        if self.lacking:
            needs = [
                f"{self.place(name)}{name!r} is not there yet: {PROPOSED[name]}" for name in self.lacking
            ]
            raise BadInput(
                "\n".join(needs), "Leave these out, or keep the job on the system it was written for."
            )
        return dict(self.job)

    def environment(self, submitter: dict[str, str]) -> dict[str, str]:
        """The variables that the job gets, given those of the user who submits it."""
        if self.options.export_all:
            passed = submitter
        elif self.form is Form.KUBERNETES:
            # A container has what its manifest says, and nothing from the submitter.
            passed = {}
        else:
            wanted = set(self.options.export_names)
            passed = {
                name: value
                for name, value in submitter.items()
                if name in wanted or name.startswith("SLURM_")
            }
        return {**passed, **self.options.variables, **self.job.get("env", {})}


def refuse(problems: Iterable[tuple[int, str]], file: str, hint: str = "") -> BadInput:
    """One error for all problems of a file, each with its line; line 0 is outside of the file."""
    found = sorted(dict.fromkeys(problems))
    lines = [f"{file}:{line}: {text}" if line else text for line, text in found[:PROBLEMS_SHOWN_MAX]]
    if len(found) > PROBLEMS_SHOWN_MAX:
        lines.append(f"{file}: and more problems; mend these first")
    return BadInput("\n".join(lines), hint)
