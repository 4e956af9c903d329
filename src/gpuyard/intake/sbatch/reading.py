"""What a script asks for in Slurm's terms, once its options are settled. Compared with real sbatch in tests/slurm.

All values are checked here, so that a user sees every mistake at once. `conclusions` draws the consequences, and
`shape` translates them to a yard.
"""

import re
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple, TypeVar

from gpuyard.errors import quote
from gpuyard.intake.sbatch import amounts
from gpuyard.intake.sbatch import gpus as gpu_amounts
from gpuyard.intake.sbatch.arrays import Array, parse_array
from gpuyard.intake.sbatch.dependencies import Dependencies, parse_dependencies
from gpuyard.intake.sbatch.exports import Export, export
from gpuyard.intake.sbatch.gpus import Gpus
from gpuyard.intake.sbatch.hostlists import expand
from gpuyard.intake.sbatch.layers import MEMORY, Setting
from gpuyard.intake.sbatch.moments import parse_moment
from gpuyard.intake.values import Warning

_SIGNAL = re.compile(r"(?:([RB]{1,2}):)?([A-Za-z0-9+]{1,12})(?:@([0-9]{0,5}))?", re.IGNORECASE)
_DEFAULT_S = 60
_AHEAD_S_MAX = 65_535
_NUMBER_MAX = 64


class Ahead(NamedTuple):
    """A signal ahead of the end."""

    number: int
    ahead_s: int
    shell_only: bool
    """`B:`: the batch shell gets it, and not the processes it started."""
    overlaps: bool
    """`R:`: the job may overlap with a reservation."""


def ahead(text: str) -> Ahead:
    """A signal; else `ValueError` with the rest of a sentence."""
    match = _SIGNAL.fullmatch(text)
    if not match:
        raise ValueError(f"must be written as USR1@60 or B:USR1@60, not {quote(text)}")
    marks = (match[1] or "").upper()
    seconds = int(match[3]) if match[3] else _DEFAULT_S
    if seconds > _AHEAD_S_MAX:
        raise ValueError(f"can come at most {_AHEAD_S_MAX} s ahead, not {seconds}")
    return Ahead(_number(match[2], text), seconds, "B" in marks, "R" in marks)


def _number(name: str, text: str) -> int:
    if name.isdecimal():
        if not 0 < int(name) <= _NUMBER_MAX:
            raise ValueError(f"must name a signal from 1 to {_NUMBER_MAX}, not {quote(text)}")
        return int(name)
    try:
        if name.upper().removeprefix("SIG").startswith("RT"):
            raise KeyError(name)
        return int(signal.Signals[f"SIG{name.upper().removeprefix('SIG')}"])
    except KeyError:
        raise ValueError(
            f"names no signal: {quote(name)}; for example USR1, USR2, TERM, INT or HUP"
        ) from None


T = TypeVar("T")

_NO_DEPENDENCIES = Dependencies((), False)
_EXPORT_ALL = Export(True, (), {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A batch job as Slurm understands it."""

    name: str = ""
    nodes_min: int = 0
    """0: not given."""
    nodes_max: int = 0
    ntasks: int = 0
    """0: not given, until it is concluded from the rest."""
    ntasks_per_node: int = 0
    cpus_per_task: int = 1
    cpus_per_gpu: int = 0
    overcommit: bool = False
    gpus: Gpus | None = None
    """Of the whole job."""
    gpus_per_node: Gpus | None = None
    gpus_per_task: Gpus | None = None
    memory_mib: int | None = None
    """None: not given; 0: all memory of a node."""
    memory_per: str = ""
    """`mem` (of a node), `mem-per-cpu` or `mem-per-gpu`."""
    switches: tuple[int, int] = (0, 0)
    """At most so many, and how long to wait for them in seconds (0: for good); 0 switches: not given."""
    minutes: int | None = None
    """None: not given; 0: no limit."""
    array: Array | None = None
    dependencies: Dependencies = _NO_DEPENDENCIES
    nodelist: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    licenses: Mapping[str, int] = field(default_factory=dict)
    gres_others: tuple[str, ...] = ()
    signal: Ahead | None = None
    begin: datetime | None = None
    deadline: datetime | None = None
    export: Export = _EXPORT_ALL


class Values:
    """Turns settings into values one by one and collects what is wrong with them."""

    def __init__(self, settings: Mapping[str, Setting]) -> None:
        self._settings = settings
        self.problems: list[tuple[int, str]] = []
        self.warnings: list[Warning] = []

    def get(self, name: str, parse: Callable[[str], T], default: T) -> T:
        """The value of an option, or the default if it is missing or wrong."""
        setting = self._settings.get(name)
        if setting is None:
            return default
        try:
            return parse(setting.value)
        except ValueError as error:
            self.problem(name, str(error))
            return default

    def text(self, name: str) -> str:
        """The text of an option; empty if it is missing."""
        return self._settings[name].value if name in self._settings else ""

    def has(self, name: str) -> bool:
        """Whether the option is given."""
        return name in self._settings

    def problem(self, name: str, text: str) -> None:
        """Note something about an option that cannot be served."""
        setting = self._settings[name]
        self.problems.append((setting.line, f"{setting.place} {text}"))

    def warn(self, name: str, text: str) -> None:
        """Note something about an option that is not as expected."""
        setting = self._settings[name]
        self.warnings.append(Warning(setting.line, f"{setting.place} {text}"))


def read(values: Values, name: str, now: datetime) -> Reading:
    """The reading; `values` has all problems afterwards. `name` is for a job without its own."""
    nodes_min, nodes_max = values.get("nodes", amounts.parse_node_range, (0, 0))
    nobody: list[str] = []
    gres = values.get("gres", gpu_amounts.parse_gres, gpu_amounts.Gres(None, ()))
    memory = next((each for each in MEMORY if values.has(each)), "")
    return Reading(
        name=values.text("job-name") or name,
        nodes_min=nodes_min,
        nodes_max=nodes_max,
        ntasks=values.get("ntasks", amounts.count, 0),
        ntasks_per_node=values.get("ntasks-per-node", amounts.count, 0),
        cpus_per_task=values.get("cpus-per-task", amounts.count, 1),
        cpus_per_gpu=values.get("cpus-per-gpu", amounts.count, 0),
        overcommit=values.has("overcommit"),
        gpus=values.get("gpus", gpu_amounts.parse_gpus, None),
        gpus_per_node=_per_node(values, gres.gpus),
        gpus_per_task=values.get("gpus-per-task", gpu_amounts.parse_gpus, None),
        memory_mib=values.get(memory, amounts.parse_memory_mib, 0) if memory else None,
        memory_per=memory,
        switches=values.get("switches", amounts.parse_switches, (0, 0)),
        minutes=values.get("time", amounts.parse_minutes, None),
        array=values.get("array", parse_array, None),
        dependencies=values.get("dependency", parse_dependencies, _NO_DEPENDENCIES),
        nodelist=tuple(values.get("nodelist", expand, nobody)),
        exclude=tuple(values.get("exclude", expand, nobody)),
        licenses=values.get("licenses", _licenses, {}),
        gres_others=gres.others,
        signal=values.get("signal", ahead, None),
        begin=values.get("begin", lambda text: parse_moment(text, now), None),
        deadline=values.get("deadline", lambda text: parse_moment(text, now), None),
        export=values.get("export", export, _EXPORT_ALL),
    )


def _per_node(values: Values, from_gres: Gpus | None) -> Gpus | None:
    """GPUs of a node: --gres, --gpus-per-node and --gpus-per-socket are three ways to give the same number."""
    per_node = values.get("gpus-per-node", gpu_amounts.parse_gpus, None)
    per_socket = values.get("gpus-per-socket", gpu_amounts.parse_gpus, None)
    if per_socket is not None:
        if not values.has("sockets-per-node"):
            values.problem("gpus-per-socket", "needs --sockets-per-node; or say --gpus-per-node")
            return None
        sockets = values.get("sockets-per-node", amounts.count, 1)
        per_socket = Gpus(per_socket.count * sockets, per_socket.kind)
    said = [each for each in (from_gres, per_node, per_socket) if each is not None]
    if len(set(said)) > 1:
        name = "gpus-per-node" if per_node is not None else "gpus-per-socket"
        values.problem(name, "asks for other GPUs of a node than --gres or another option; keep one of them")
        return None
    return said[0] if said else None


def _licenses(text: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for part in filter(None, text.replace("|", ",").split(",")):
        name, _, number = part.strip().partition(":")
        found[name] = amounts.count(number) if number else 1
    return found
