"""A Slurm site as its own commands describe it: controller, partitions, nodes, reservations, accounts, history.

The commands are listed once, here. They are run where Slurm is, or a person ran them there and saved the output;
either way the same readers make a `SlurmSite` of it. What could not be read is kept with the reason: a site without its
accounting is still a site.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpuyard.engines.contract import EngineError
from gpuyard.engines.slurm.calls.commands import Commands, Refusal
from gpuyard.engines.slurm.site import accounts
from gpuyard.engines.slurm.site.accounting import JOB_FIELDS, Jobs, new_mark, read_jobs, told_mark, unmarked
from gpuyard.engines.slurm.site.accounting_json import read_jobs_json
from gpuyard.engines.slurm.site.accounts import Association, Qos, read_associations, read_qos
from gpuyard.engines.slurm.words.forms import (
    Gres,
    Unreadable,
    given,
    gres,
    hosts,
    limit_ms,
    matching,
    moment_ms,
    node_features,
    node_size,
    pairs,
    settings,
    tres_map,
    whole,
)
from gpuyard.engines.slurm.words.states import CLOSED, DOWN, node_states

ENVIRONMENT = {"SLURM_TIME_FORMAT": "%s", "TZ": "UTC", "LC_ALL": "C.UTF-8"}
"""So that moments are numbers and words are English."""
FILE_BYTES_MAX = 2 << 30


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """A machine of the cluster."""

    name: str
    state: str
    """Slurm's words, joined by `+`: `MIXED+DRAIN`."""
    cpus: int
    memory_mib: int
    gres: tuple[Gres, ...]
    features: tuple[str, ...]
    partitions: tuple[str, ...]
    reason: str = ""
    reason_ms: int = 0
    """When it was given; 0: unknown."""
    version: str = ""
    alloc: Mapping[str, str] = field(default_factory=dict)
    sockets: int = 1
    boot_ms: int = 0

    @property
    def states(self) -> frozenset[str]:
        """Its words, without the marks behind them."""
        return node_states(self.state)

    @property
    def up(self) -> bool:
        """Whether it takes work."""
        return not self.states & {*DOWN, *CLOSED, "POWERED_DOWN"}

    def gpus(self) -> tuple[int, str]:
        """Number and type; of several types the most common one, with all GPUs counted as that."""
        found = [each for each in self.gres if each.name == "gpu"]
        if not found:
            return 0, ""
        most = max(found, key=lambda each: (each.number, each.type))
        return sum(each.number for each in found), most.type


@dataclass(frozen=True, slots=True)
class Partition:
    """A set of nodes that jobs are sent to."""

    name: str
    nodes: tuple[str, ...]
    default: bool = False
    state: str = "UP"
    max_ms: int = 0
    """The longest time limit; 0: none."""
    default_ms: int = 0
    accounts: tuple[str, ...] = ()
    """The accounts that may use it; empty: all."""
    qos: str = ""
    priority_tier: int = 1
    oversubscribe: str = "NO"
    tres: Mapping[str, str] = field(default_factory=dict)
    default_memory: bool = False
    """Whether a job that names no memory gets some of it, rather than all of its node's."""
    billing: Mapping[str, str] = field(default_factory=dict)
    """How much a unit of each resource counts as usage; empty: cores count."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """Nodes kept for some, or for maintenance."""

    name: str
    start_ms: int
    end_ms: int
    nodes: tuple[str, ...]
    flags: tuple[str, ...]
    users: tuple[str, ...]
    accounts: tuple[str, ...]


@dataclass(slots=True)
class SlurmSite:
    """All of it."""

    version: str = ""
    config: dict[str, str] = field(default_factory=dict)
    partitions: list[Partition] = field(default_factory=list)
    nodes: list[SlurmNode] = field(default_factory=list)
    reservations: list[Reservation] = field(default_factory=list)
    associations: list[Association] = field(default_factory=list)
    qos: list[Qos] = field(default_factory=list)
    jobs: Jobs = field(default_factory=Jobs)
    jobs_text: str = ""
    """The output of sacct, to be kept."""
    missing: dict[str, str] = field(default_factory=dict)
    """Sources that could not be read, by name, and why."""
    untold: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Limits that a source has no column for: it is unknown whether they are set."""

    @property
    def name(self) -> str:
        """The name of the cluster."""
        return self.setting("ClusterName") or "slurm"

    def setting(self, name: str) -> str:
        """A value of slurm.conf as the controller has it; empty: not set."""
        return given(matching(self.config, name))


# -- where it comes from -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Source:
    """A command, and the file that may hold its saved output."""

    file: str
    words: tuple[str, ...]
    what: str
    needed: bool = False
    """Whether there is nothing to say without it."""
    otherwise: tuple[str, ...] = ()
    """The words to use instead where an older release refuses those; empty: none."""
    marked: bool = False
    """Whether users can write lines into its output, so that a mark has to separate the columns."""


def sources(since_days: int) -> tuple[Source, ...]:
    """Everything that is asked of a site."""
    return (
        Source("version.txt", ("sinfo", "--version"), "the version"),
        Source("config.txt", ("scontrol", "show", "config"), "the configuration", needed=True),
        Source("partitions.txt", ("scontrol", "-o", "show", "partition"), "the partitions", needed=True),
        Source("nodes.txt", ("scontrol", "-o", "show", "node"), "the nodes", needed=True),
        Source("reservations.txt", ("scontrol", "-o", "show", "reservation"), "the reservations"),
        Source(
            "associations.txt",
            _listing("assoc", accounts.ASSOCIATION_FIELDS),
            "accounts and users",
            otherwise=_listing("assoc", accounts.ASSOCIATION_FIELDS_OLD),
        ),
        Source(
            "qos.txt",
            _listing("qos", accounts.QOS_FIELDS),
            "the QOS",
            otherwise=_listing("qos", accounts.QOS_FIELDS_OLD),
        ),
        Source("jobs.txt", history_words(f"now-{since_days}days"), "the history", marked=True),
    )


def _listing(what: str, fields: tuple[str, ...]) -> tuple[str, ...]:
    return "sacctmgr", "--parsable2", "show", what, "format=" + ",".join(fields)


def history_words(since: str) -> tuple[str, ...]:
    """The command that shows jobs of the past, one row for each try."""
    format_ = "--format=" + ",".join(JOB_FIELDS)
    return (
        "sacct", "--allusers", "--allocations", "--duplicates", "--parsable2", f"--starttime={since}", format_,
    )  # fmt: skip


def marked_words(words: tuple[str, ...], mark: str) -> tuple[str, ...]:
    """The same command of `sacct`, with a mark between the columns."""
    return *words, f"--delimiter={mark}"


def answer(source: Source, run: Callable[..., str]) -> str:
    """A command's output now, its columns separated by `|`. Raises what `run` raises, or `Unreadable`."""
    if source.marked:
        mark = new_mark()
        return unmarked(run(*marked_words(source.words, mark)), mark)
    try:
        return run(*source.words)
    except Refusal:
        if not source.otherwise:
            raise
        return run(*source.otherwise)


def from_commands(commands: Commands, since_days: int) -> SlurmSite:
    """Ask a running cluster. Raises what the first needed command raised; the rest is noted."""
    texts, missing = {}, {}

    def run(*words: str) -> str:
        return commands.run(*words, timeout_s=600.0)

    for source in sources(since_days):
        try:
            texts[source.file] = answer(source, run)
        except EngineError as error:
            if source.needed:
                raise
            missing[source.file] = str(error)
    return read(texts, missing)


def from_files(folder: Path, since_days: int = 0) -> SlurmSite:
    """Read saved output. Raises `Unreadable` for a folder that lacks what is needed."""
    texts, missing = {}, {}
    for source in sources(since_days):
        path = folder / source.file
        try:
            if path.stat().st_size > FILE_BYTES_MAX:
                raise Unreadable(f"{path} is larger than {FILE_BYTES_MAX >> 30} GiB")
            texts[source.file] = path.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            if source.needed:
                raise Unreadable(f"{path}: {error.strerror}; it holds {source.what}") from None
            missing[source.file] = f"{path}: {error.strerror}"
    json_path = folder / "jobs.json"
    if "jobs.txt" in missing and json_path.is_file():
        del missing["jobs.txt"]
        texts["jobs.json"] = json_path.read_text(encoding="utf-8", errors="replace")
    return read(texts, missing, folder)


def read(texts: Mapping[str, str], missing: Mapping[str, str], folder: Path | None = None) -> SlurmSite:
    """A site from what its commands printed; `Unreadable` names the file that is not what it should be."""
    site = SlurmSite(missing=dict(missing))
    for file, text in texts.items():
        try:
            _take(site, file, text)
        except Unreadable as wrong:
            raise Unreadable(f"{folder / file if folder else file}: {wrong}") from None
    return site


def _take(site: SlurmSite, file: str, text: str) -> None:
    match file:
        case "version.txt":
            site.version = (text.split() or [""])[-1]
        case "config.txt":
            site.config = settings(text)
            if not site.setting("ClusterName"):
                raise Unreadable("has no ClusterName; it should hold what `scontrol show config` prints")
        case "partitions.txt":
            site.partitions = [_partition(found) for found in _lines(text, "PartitionName")]
        case "nodes.txt":
            site.nodes = [_node(found) for found in _lines(text, "NodeName")]
        case "reservations.txt":
            site.reservations = [
                _reservation(pairs(line)) for line in text.splitlines() if "ReservationName=" in line
            ]
        case "associations.txt":
            site.associations = read_associations(text)
            site.untold[file] = accounts.untold_associations(text)
        case "qos.txt":
            site.qos = read_qos(text)
            site.untold[file] = accounts.untold_qos(text)
        case "jobs.txt":
            mark = told_mark(text)
            text = unmarked(text, mark) if mark else text
            site.jobs, site.jobs_text = read_jobs(text), text
        case "jobs.json":
            try:
                document = json.loads(text)
            except ValueError as error:
                raise Unreadable(f"is no JSON: {error}") from None
            site.jobs = read_jobs_json(document if isinstance(document, dict) else {})


def _lines(text: str, key: str) -> list[dict[str, str]]:
    """The lines of `scontrol -o`, each with the key that it must have."""
    found = [pairs(line) for line in text.splitlines() if line.strip()]
    if not found or any(key not in each for each in found):
        raise Unreadable(f"should hold lines that begin with {key}=, as `scontrol -o show …` prints them")
    return found


# -- rows ----------------------------------------------------------------------------------------------------------


def _node(found: Mapping[str, str]) -> SlurmNode:
    reason, _, when = found.get("Reason", "").partition(" [")
    cpus, memory_mib = node_size(found)
    return SlurmNode(
        name=found["NodeName"],
        state=found.get("State", "UNKNOWN").split()[0] if found.get("State") else "UNKNOWN",
        cpus=cpus,
        memory_mib=memory_mib,
        gres=gres(found.get("Gres", "")),
        features=node_features(found),
        partitions=_names(found.get("Partitions", "")),
        reason=given(reason),
        reason_ms=_reason_ms(when),
        version=given(found.get("Version", "")),
        alloc=tres_map(found.get("AllocTRES", "")),
        sockets=whole(found.get("Sockets") or "1", "Sockets"),
        boot_ms=moment_ms(found.get("BootTime", ""), "BootTime"),
    )


def _reason_ms(text: str) -> int:
    """`root@2026-11-15T10:30:00]` or `root@1794738498]`."""
    try:
        return moment_ms(text.rpartition("@")[2].rstrip("] "), "the time of a reason")
    except Unreadable:
        return 0


def _partition(found: Mapping[str, str]) -> Partition:
    accounts = given(found.get("AllowAccounts", ""))
    return Partition(
        name=found["PartitionName"],
        nodes=tuple(hosts(found.get("Nodes", ""))),
        default=found.get("Default", "").upper() == "YES",
        state=found.get("State", "UP").upper(),
        max_ms=limit_ms(found.get("MaxTime", ""), "MaxTime"),
        default_ms=limit_ms(found.get("DefaultTime", ""), "DefaultTime"),
        accounts=() if accounts.upper() == "ALL" else _names(accounts),
        qos=given(found.get("QoS", "")),
        priority_tier=whole(found.get("PriorityTier") or "1", "PriorityTier"),
        oversubscribe=found.get("OverSubscribe", "NO").upper(),
        tres=tres_map(found.get("TRES", "")),
        default_memory=_has_default(found),
        billing=tres_map(found.get("TRESBillingWeights", "")),
    )


def _has_default(found: Mapping[str, str]) -> bool:
    own = [given(found.get(name, "")) for name in ("DefMemPerNode", "DefMemPerCPU")]
    return any(each and each.upper() != "UNLIMITED" for each in own) or "DefMemPerGPU" in found.get(
        "JobDefaults", ""
    )


def _reservation(found: Mapping[str, str]) -> Reservation:
    return Reservation(
        name=found["ReservationName"],
        start_ms=moment_ms(found.get("StartTime", ""), "StartTime"),
        end_ms=moment_ms(found.get("EndTime", ""), "EndTime"),
        nodes=tuple(hosts(found.get("Nodes", ""))),
        flags=_names(found.get("Flags", "")),
        users=_names(found.get("Users", "")),
        accounts=_names(found.get("Accounts", "")),
    )


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in given(text).split(",") if name.strip())
