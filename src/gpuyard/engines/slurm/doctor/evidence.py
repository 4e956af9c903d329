"""What a look at a site found, and what a finding is made of."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from gpuyard.engines.slurm.site.accounting import JobRow
from gpuyard.engines.slurm.site.site import SlurmSite
from gpuyard.engines.slurm.words.forms import drop_null, find_setting


class Level(Enum):
    """How bad it is."""

    FAULT = "fault"
    """Something does not work, or does not do what people think it does."""
    ADVICE = "advice"
    """It works, and could be better."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found."""

    code: str
    """A short name that stays the same, for scripts."""
    level: Level
    seen: str
    why: str
    change: str
    """What to do: a line of slurm.conf, or a command."""


@dataclass(frozen=True, slots=True)
class Used:
    """What a job asked for and what it needed."""

    label: str
    user: str
    limit_ms: int
    """0: none."""
    elapsed_ms: int
    asked_mib: int
    used_mib: int
    """0: it was not measured."""


@dataclass(slots=True)
class Evidence:
    """Everything that the rules may look at."""

    site: SlurmSite = field(default_factory=SlurmSite)
    errors: dict[str, str] = field(default_factory=dict)
    """Sources that could not be asked, with Slurm's complaint."""
    unread: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Rows that could not be read, by program: how many, and what is wrong with the first."""
    now_ms: int = 0
    controller: str = ""
    """Why the controller does not answer; empty: it does."""
    client_version: str = ""
    database: Mapping[str, str] = field(default_factory=dict)
    """slurmdbd's own configuration."""
    munge: str | None = None
    """What is wrong with munge here; empty: nothing; None: not looked at."""
    conf_file: str = ""
    """The file that settings were read from because Slurm did not answer."""
    queue: list[JobRow] = field(default_factory=list)
    used: list[Used] = field(default_factory=list)
    host: str = ""
    host_gpus: int | None = None
    """GPUs that the driver of this machine shows; None: there is none."""
    rest: str | None = None
    """What is wrong with slurmrestd; empty: nothing; None: not looked at."""
    rest_url: str = ""

    def setting(self, name: str) -> str:
        """A value of slurm.conf; empty: not set."""
        return self.site.setting(name)

    def database_setting(self, name: str) -> str:
        """A value of slurmdbd.conf; empty: not set."""
        return drop_null(find_setting(self.database, name))
