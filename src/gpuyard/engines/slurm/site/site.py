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
from gpuyard.engines.slurm.site.accounting import (
    JOB_FIELDS,
    Jobs,
    find_mark,
    make_mark,
    read_jobs,
    remove_mark,
)
from gpuyard.engines.slurm.site.accounting_json import read_jobs_json
from gpuyard.engines.slurm.site.accounts import Association, Qos, read_associations, read_qos
from gpuyard.engines.slurm.words.forms import Unreadable, drop_null, find_setting, parse_settings
from gpuyard.engines.slurm.words.rows import (
    Partition,
    Reservation,
    SlurmNode,
    check_lines,
    read_nodes,
    read_partitions,
    read_reservations,
)

ENVIRONMENT = {"SLURM_TIME_FORMAT": "%s", "TZ": "UTC", "LC_ALL": "C.UTF-8"}
"""So that moments are numbers and words are English."""
FILE_BYTES_MAX = 2 << 30


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
        return drop_null(find_setting(self.config, name))


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


def list_sources(since_days: int) -> tuple[Source, ...]:
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
        Source("jobs.txt", history_command(f"now-{since_days}days"), "the history", marked=True),
    )


def _listing(what: str, fields: tuple[str, ...]) -> tuple[str, ...]:
    return "sacctmgr", "--parsable2", "show", what, "format=" + ",".join(fields)


def history_command(since: str) -> tuple[str, ...]:
    """The command that shows jobs of the past, one row for each try."""
    format_ = "--format=" + ",".join(JOB_FIELDS)
    return (
        "sacct", "--allusers", "--allocations", "--duplicates", "--parsable2", f"--starttime={since}", format_,
    )  # fmt: skip


def mark_command(words: tuple[str, ...], mark: str) -> tuple[str, ...]:
    """The same command of `sacct`, with a mark between the columns."""
    return *words, f"--delimiter={mark}"


def answer(source: Source, run: Callable[..., str]) -> str:
    """A command's output now, its columns separated by `|`. Raises what `run` raises, or `Unreadable`."""
    if source.marked:
        mark = make_mark()
        return remove_mark(run(*mark_command(source.words, mark)), mark)
    try:
        return run(*source.words)
    except Refusal:
        if not source.otherwise:
            raise
        return run(*source.otherwise)


def read_running_site(commands: Commands, since_days: int) -> SlurmSite:
    """Ask a running cluster. Raises what the first needed command raised; the rest is noted."""
    texts, missing = {}, {}

    def run(*words: str) -> str:
        return commands.run(*words, timeout_s=600.0)

    for source in list_sources(since_days):
        try:
            texts[source.file] = answer(source, run)
        except EngineError as error:
            if source.needed:
                raise
            missing[source.file] = str(error)
    return read(texts, missing)


def read_saved_site(folder: Path) -> SlurmSite:
    """Read saved output. Raises `Unreadable` for a folder that lacks what is needed."""
    texts, missing = {}, {}
    for source in list_sources(since_days=0):
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
            site.config = parse_settings(text)
            if not site.setting("ClusterName"):
                raise Unreadable("has no ClusterName; it should hold what `scontrol show config` prints")
        case "partitions.txt":
            check_lines(text, "PartitionName")
            site.partitions = read_partitions(text)
        case "nodes.txt":
            check_lines(text, "NodeName")
            site.nodes = read_nodes(text)
        case "reservations.txt":
            site.reservations = read_reservations(text)
        case "associations.txt":
            site.associations = read_associations(text)
            site.untold[file] = accounts.find_untold_associations(text)
        case "qos.txt":
            site.qos = read_qos(text)
            site.untold[file] = accounts.find_untold_qos(text)
        case "jobs.txt":
            mark = find_mark(text)
            text = remove_mark(text, mark) if mark else text
            site.jobs, site.jobs_text = read_jobs(text), text
        case "jobs.json":
            try:
                document = json.loads(text)
            except ValueError as error:
                raise Unreadable(f"is no JSON: {error}") from None
            site.jobs = read_jobs_json(document if isinstance(document, dict) else {})
