"""A Slurm cluster that is only looked at: Slurm decides there, and nothing here changes anything.

Every command that is run is on a list of those that only read.
"""

import os
import pwd
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpuyard.engines.contract import LogPiece, NodeReport, Permanent, offset_of
from gpuyard.engines.machine.readers import Readers
from gpuyard.engines.observer import ForeignJobs, OwnScheduler
from gpuyard.engines.slurm.calls.commands import Commands, Refusal
from gpuyard.engines.slurm.foreign import read_foreign_jobs, report_nodes
from gpuyard.engines.slurm.site.accounting import (
    JobRow,
    Jobs,
    make_mark,
    queue_command,
    read_jobs,
    read_queue,
    remove_mark,
)
from gpuyard.engines.slurm.site.daemons import find_lines, log_files
from gpuyard.engines.slurm.site.gpu_types import GpuTypes
from gpuyard.engines.slurm.site.site import SlurmSite, history_command, mark_command, read
from gpuyard.engines.slurm.words.forms import Unreadable, parse_moment_ms, parse_settings

READING = frozenset({"squeue", "sacct", "sinfo"})
"""Commands that cannot change anything."""
SLURM = OwnScheduler(
    "Slurm",
    {
        "cancel": "scancel",
        "hold": "scontrol hold",
        "release": "scontrol release",
        "suspend": "scontrol suspend",
        "continue": "scontrol resume",
        "requeue": "scontrol requeue",
        "top": "scontrol top",
        "back": "scontrol update",
        "update": "scontrol update",
    },
    {
        "submit": "Submit it with sbatch: it shows up here by itself",
        "checkpoint": "Slurm knows nothing of checkpoints",
        "nodes": "Use scontrol update nodename=NAME state=drain reason=WHY, or state=resume",
        "logs": "Its jobs write where sbatch was told: scontrol show job ID names the file",
    },
    otherwise="move a partition to `mode: drive`",
)
HISTORY_S = 300.0
PATHS_MAX = 1000
"""Jobs whose files are remembered."""
_FILE = r"\s{}=(/\S[^\n]*?)(?=\s+[A-Z][A-Za-z]*=|\s*$)"


@dataclass(slots=True)
class ObservedSlurm:
    """The commands of a site, and what they last said."""

    cluster: str
    commands: Commands
    gpu_types: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    """Tenants by accounts and users, where their names differ."""
    name: str = "slurm"
    scheduler: OwnScheduler = SLURM
    _settings: dict[str, str] = field(default_factory=dict)
    _readers: Readers = field(default_factory=Readers)
    _paths: dict[str, dict[str, str]] = field(default_factory=dict)
    """Where jobs write, by key: Slurm forgets it minutes after a job's end."""

    # -- reading -----------------------------------------------------------------------------------------------

    def ask(self, *words: str, timeout_s: float = 0.0) -> str:
        """Run a command that only reads. Any other is a defect of ours, and is not run."""
        shows = words[0] in ("scontrol", "sacctmgr") and "show" in words[1:3]
        if words[0] not in READING and not shows:
            raise Permanent(f"{' '.join(words)}: an observed cluster is never touched")
        return self.commands.run(*words, timeout_s=timeout_s)

    def queue(self) -> Jobs:
        """Live jobs, and those that ended a moment ago."""
        mark = make_mark()
        text = self.ask(*queue_command(mark))
        try:
            return read_queue(remove_mark(text, mark))
        except Unreadable as wrong:
            raise Refusal(f"squeue: {wrong}") from None

    def history(self, from_ms: int) -> Jobs:
        """Jobs that were there after this time, one row for each try."""
        mark = make_mark()
        # sacct takes a time of day without a zone as this machine's own, which is UTC for our commands.
        words = mark_command(history_command(_stamp(from_ms)), mark)
        text = self.ask(*words, timeout_s=HISTORY_S)
        try:
            return read_jobs(remove_mark(text, mark))
        except Unreadable as wrong:
            raise Refusal(f"sacct: {wrong}") from None

    def site(self) -> SlurmSite:
        """Nodes and partitions."""
        texts = {
            "nodes.txt": self.ask("scontrol", "-o", "show", "node"),
            "partitions.txt": self.ask("scontrol", "-o", "show", "partition"),
        }
        try:
            return read(texts, {})
        except Unreadable as wrong:
            raise Refusal(f"scontrol: {wrong}") from None

    # -- the contract of observers -------------------------------------------------------------------------------

    def nodes(self) -> tuple[NodeReport, ...]:
        """Every node that Slurm names."""
        return report_nodes(self.site(), self.cluster, GpuTypes(self.gpu_types))

    def jobs(self) -> ForeignJobs:
        """What `squeue` shows."""
        return read_foreign_jobs(self.queue(), self.names)

    def ended(self, from_ms: int) -> ForeignJobs:
        """What `sacct` tells."""
        return read_foreign_jobs(self.history(from_ms), self.names)

    def output(self, key: str, user: str, stream: str, cursor: str, limit: int) -> LogPiece:
        """Part of what a job writes, read as its user: Slurm names the file, and the user's rights decide."""
        offset = offset_of(cursor)
        try:
            account = pwd.getpwnam(user)
        except KeyError:
            raise Permanent(
                f"this machine has no user {user}, with whose rights the output is read"
            ) from None
        if os.geteuid() not in (0, account.pw_uid):
            # A user could name a file that only the owner of this yard may read.
            raise Permanent(f"only a yard of root, or of {user}, may read what {user}'s jobs write")
        path = self._path(key, stream)
        content = self._readers.read(account.pw_uid, account.pw_gid, path, offset, limit) if path else b""
        return LogPiece(content, str(offset + len(content)))

    def daemon_lines(self, key: str, nodes: Sequence[str]) -> tuple[str, ...]:
        """What slurmctld and the slurmds of a job's nodes wrote about it."""
        if not self._settings:
            self._settings.update(parse_settings(self.ask("scontrol", "show", "config")))
        return find_lines(log_files(self._settings, nodes), [key.partition("@")[0]])

    def _path(self, key: str, stream: str) -> str:
        """The file of a stream; empty: it is in the other one's."""
        if key not in self._paths:
            label, _, submitted = key.partition("@")
            try:
                text = self.ask("scontrol", "-o", "show", "job", label)
            except Refusal as gone:
                raise Permanent(
                    f"Slurm no longer says where job {label} wrote ({gone}); it forgets jobs minutes after their end"
                ) from gone
            found = output_files(text, int(submitted))
            if not found:
                raise Permanent(f"Slurm does not say where job {label} writes")
            while len(self._paths) >= PATHS_MAX:
                del self._paths[next(iter(self._paths))]
            self._paths[key] = found
        paths = self._paths[key]
        out, err = paths.get("stdout", ""), paths.get("stderr", "")
        return out if stream == "stdout" else err if err != out else ""

    def close(self) -> None:
        """Let go."""
        self._readers.close()


def key_of(row: JobRow) -> str:
    """A try's key in the log: Slurm uses an id again, for a requeued job, and after a crash for another job."""
    return f"{row.label}@{row.submit_ms}"


def _stamp(at_ms: int) -> str:
    from datetime import UTC, datetime  # noqa: PLC0415

    return datetime.fromtimestamp(max(0, at_ms) / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def output_files(text: str, submitted_ms: int) -> dict[str, str]:
    """Where a job writes, by stream, as `scontrol show job` tells; empty: it tells of another job of that id.

    The job's name stands in the same line and may hold anything. Whatever it makes of the paths, files are read with
    the rights of the job's own user.
    """
    submitted = re.findall(r"\sSubmitTime=(\S+)", text)
    try:
        same = any(
            [parse_moment_ms(each, "SubmitTime") // 1000 == submitted_ms // 1000 for each in submitted]
        )
    except Unreadable:
        same = False
    if not same:
        return {}
    found = {}
    for stream, word in (("stdout", "StdOut"), ("stderr", "StdErr")):
        paths = re.findall(_FILE.format(word), text)
        if paths:
            found[stream] = paths[-1]
    return found
