"""What a script asks for in Slurm's own words, once its options are settled. Compared with real sbatch in tests/slurm.

Values are checked here, all of them, so that a person sees every mistake at once. What the numbers come to on a yard
is the business of `shape`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeVar

from gpuyard.intake.sbatch import amounts
from gpuyard.intake.sbatch import gpus as gpu_amounts
from gpuyard.intake.sbatch.arrays import Array, array
from gpuyard.intake.sbatch.dependencies import Dependencies, dependencies
from gpuyard.intake.sbatch.exports import Export, export
from gpuyard.intake.sbatch.gpus import Gpus
from gpuyard.intake.sbatch.hostlists import expand
from gpuyard.intake.sbatch.layers import MEMORY, Setting
from gpuyard.intake.sbatch.moments import moment
from gpuyard.intake.sbatch.signals import Ahead, ahead
from gpuyard.intake.values import Warning

T = TypeVar("T")

_NO_DEPENDENCIES = Dependencies((), False)
_EXPORT_ALL = Export(True, (), {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A batch job as Slurm understands it."""

    name: str = ""
    nodes_min: int = 0
    """0: not said."""
    nodes_max: int = 0
    ntasks: int = 1
    """Said or concluded from the rest."""
    ntasks_per_node: int = 0
    cpus_per_task: int = 1
    cpus_per_gpu: int = 0
    overcommit: bool = False
    gpus: Gpus | None = None
    """Of the whole job."""
    gpus_per_node: Gpus | None = None
    gpus_per_task: Gpus | None = None
    memory_mib: int | None = None
    """None: not said; 0: all there is."""
    memory_per: str = ""
    """`mem` (of a node), `mem-per-cpu` or `mem-per-gpu`."""
    minutes: int | None = None
    """None: not said; 0: no limit."""
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
    """Turns settings into values one by one and keeps what is wrong with them."""

    def __init__(self, settings: Mapping[str, Setting]) -> None:
        self._settings = settings
        self.problems: list[tuple[int, str]] = []
        self.warnings: list[Warning] = []

    def get(self, name: str, parse: Callable[[str], T], default: T) -> T:
        """The value of an option, or the default where it is not given or wrong."""
        setting = self._settings.get(name)
        if setting is None:
            return default
        try:
            return parse(setting.value)
        except ValueError as error:
            self.problem(name, str(error))
            return default

    def text(self, name: str) -> str:
        """The value of an option as it is; empty if it is not given."""
        return self._settings[name].value if name in self._settings else ""

    def has(self, name: str) -> bool:
        """Whether it is given at all."""
        return name in self._settings

    def problem(self, name: str, text: str) -> None:
        """Something about an option that cannot be served."""
        setting = self._settings[name]
        self.problems.append((setting.line, f"{setting.place} {text}"))

    def warn(self, name: str, text: str) -> None:
        """Something about an option that is not as it may be expected."""
        setting = self._settings[name]
        self.warnings.append(Warning(setting.line, f"{setting.place} {text}"))


def read(values: Values, name: str, now: datetime) -> Reading:
    """The job; what is wrong with it stands in `values` afterwards. `name`: if the job has none of its own."""
    nodes_min, nodes_max = values.get("nodes", amounts.node_range, (0, 0))
    nobody: list[str] = []
    gres = values.get("gres", gpu_amounts.gres, gpu_amounts.Gres(None, ()))
    memory = next((each for each in MEMORY if values.has(each)), "")
    found = Reading(
        name=values.text("job-name") or name,
        nodes_min=nodes_min,
        nodes_max=nodes_max,
        ntasks=values.get("ntasks", amounts.count, 0),
        ntasks_per_node=values.get("ntasks-per-node", amounts.count, 0),
        cpus_per_task=values.get("cpus-per-task", amounts.count, 1),
        cpus_per_gpu=values.get("cpus-per-gpu", amounts.count, 0),
        overcommit=values.has("overcommit"),
        gpus=values.get("gpus", gpu_amounts.gpus, None),
        gpus_per_node=_per_node(values, gres.gpus),
        gpus_per_task=values.get("gpus-per-task", gpu_amounts.gpus, None),
        memory_mib=values.get(memory, amounts.memory_mib, 0) if memory else None,
        memory_per=memory,
        minutes=values.get("time", amounts.minutes, None),
        array=values.get("array", array, None),
        dependencies=values.get("dependency", dependencies, _NO_DEPENDENCIES),
        nodelist=tuple(values.get("nodelist", expand, nobody)),
        exclude=tuple(values.get("exclude", expand, nobody)),
        licenses=values.get("licenses", _licenses, {}),
        gres_others=gres.others,
        signal=values.get("signal", ahead, None),
        begin=values.get("begin", lambda text: moment(text, now), None),
        deadline=values.get("deadline", lambda text: moment(text, now), None),
        export=values.get("export", export, _EXPORT_ALL),
    )
    return found if values.problems else _concluded(found, values)


def _per_node(values: Values, from_gres: Gpus | None) -> Gpus | None:
    """GPUs of a node: --gres, --gpus-per-node and --gpus-per-socket say the same thing in three ways."""
    per_node = values.get("gpus-per-node", gpu_amounts.gpus, None)
    per_socket = values.get("gpus-per-socket", gpu_amounts.gpus, None)
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


def _concluded(found: Reading, values: Values) -> Reading:
    """What follows from the rest, as sbatch concludes it: the number of nodes, then that of tasks."""
    least, most = found.nodes_min, found.nodes_max
    if (
        found.nodelist
        and len(found.nodelist) > least
        and not (found.ntasks and found.ntasks < len(found.nodelist))
    ):
        if most and most < len(found.nodelist):
            values.problem("nodelist", f"names {len(found.nodelist)} nodes, and --nodes is {most}")
        least = len(found.nodelist)
    total, node = found.gpus, found.gpus_per_node
    if total and node and total.count and node.count:
        least, most = _from_gpus(found, values, least, most)
    tasks = found.ntasks or _tasks(found, values, max(1, least))
    if found.ntasks and found.ntasks < least:
        values.warn("ntasks", f"is {found.ntasks}: takes {found.ntasks} of the {least} nodes, as sbatch does")
        least = most = found.ntasks
    if found.cpus_per_gpu and values.has("cpus-per-task"):
        values.problem("cpus-per-gpu", "and --cpus-per-task exclude each other; keep one of them")
    return replace(found, nodes_min=least, nodes_max=max(least, most), ntasks=tasks)


def _from_gpus(found: Reading, values: Values, least: int, most: int) -> tuple[int, int]:
    """GPUs of the job and of a node together say how many nodes."""
    assert found.gpus
    assert found.gpus_per_node
    nodes, rest = divmod(found.gpus.count, found.gpus_per_node.count)
    if rest:
        values.problem("gpus", f"must be a multiple of the {found.gpus_per_node.count} GPUs of a node")
    elif least and not least <= nodes <= max(least, most):
        values.problem("gpus", f"and the GPUs of a node come to {nodes} nodes, which --nodes excludes")
    return max(1, nodes), max(1, nodes)


def _tasks(found: Reading, values: Values, nodes: int) -> int:
    gpus = found.gpus.count if found.gpus else found.gpus_per_node.count * nodes if found.gpus_per_node else 0
    if values.has("ntasks-per-gpu") and gpus:
        return gpus * values.get("ntasks-per-gpu", amounts.count, 1)
    if found.gpus_per_task and found.gpus_per_task.count:
        if found.gpus:
            if found.gpus.count % found.gpus_per_task.count:
                values.problem(
                    "gpus", f"must be a multiple of the {found.gpus_per_task.count} GPUs of a task"
                )
            return max(1, found.gpus.count // found.gpus_per_task.count)
        if not values.has("nodes") and not found.ntasks_per_node:
            values.problem("gpus-per-task", "needs to know how many tasks: add --ntasks")
    if found.ntasks_per_node:
        return found.ntasks_per_node * nodes
    return max(nodes, values.get("extra-node-info", _threads, 1))


def _threads(text: str) -> int:
    """`2:4:1`: sbatch starts one task for each thread it is told of; with less said it concludes nothing."""
    parts = text.split(":")
    if len(parts) < 3 or not all(part.isdecimal() and int(part) for part in parts):
        return 1
    threads = 1
    for part in parts:
        threads *= amounts.count(part)
    return threads
