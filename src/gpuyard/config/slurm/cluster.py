"""The keys of a Slurm cluster: whether the yard drives or observes it, and which part of it the yard has."""

from typing import Annotated

from gpuyard.config.fields import (
    Boolean,
    Name,
    OrNothing,
    PositiveMs,
    Word,
    YamlMapping,
    choice,
    key,
    required,
)
from gpuyard.config.findings import Findings
from gpuyard.config.problems import Path, described
from gpuyard.durations import duration_text
from gpuyard.engines.slurm.keys import PYTHON, ContainerRuntime, Mode, Rest, SlurmCluster
from gpuyard.errors import quoted

HANDOFF_MS = 60_000

ModeName = Annotated[str, *choice([each.value for each in Mode], "mode", "modes")]


RuntimeName = Annotated[str, *choice([each.value for each in ContainerRuntime], "runtime", "runtimes")]


class RestEntry(YamlMapping):
    """slurmrestd, instead of Slurm's commands."""

    url: Word = required("Where it listens.", example="http://127.0.0.1:6820")
    token_file: Word = required("A file with a JSON web token of Slurm.", example="/etc/gpuyard/slurm.jwt")
    user: Word | None = key("Whose token it is.", default="root")


class SlurmKeys(YamlMapping):
    """What only a Slurm cluster has."""

    mode: ModeName | None = key(
        "drive: jobs wait in the yard, which decides; observe: Slurm decides.",
        default=Mode.DRIVE.value,
    )
    partitions: list[Name] | None = key(
        "Partitions whose nodes are the yard's. Left out: Slurm's default one.", example=["gpu"]
    )
    reservation: Word | None = key("A reservation that is the yard's. Left out: none.", example="yard")
    account: Word | None = key(
        "The account that jobs are charged to. Left out: each user's default.", example="research"
    )
    shared_folder: Word | None = key(
        "A folder that the server and all nodes see under this path. Left out: it cannot be driven.",
        example="/shared/gpuyard",
    )
    handoff: PositiveMs | None = key(
        "A job that Slurm has not started after so long is taken back and decided again.",
        default=duration_text(HANDOFF_MS),
    )
    gpu_types: Annotated[dict[str, Word], OrNothing()] | None = key(
        "GPU models by the types that Slurm has for them. Left out: by their names.",
        example={"a100": "A100-80GB"},
    )
    names: Annotated[dict[str, Name], OrNothing()] | None = key(
        "Observed: tenants by the accounts and users that Slurm has for them. Left out: by their names.",
        example={"jane@uni.edu": "jane-uni.edu"},
    )
    count_quotas: Boolean | None = key(
        "Observed beside other clusters: its jobs count against quotas, budgets and shares of tenants.",
        default=False,
    )
    conf: Word | None = key(
        "Its slurm.conf. Left out: where Slurm looks by itself.", example="/etc/slurm/slurm.conf"
    )
    programs: Word | None = key(
        "The folder of its commands. Left out: on the PATH.", example="/opt/slurm/bin"
    )
    python: Word | None = key("Python 3.6 or newer on the nodes.", default=PYTHON)
    containers: RuntimeName | None = key(
        "What runs jobs in images on its nodes: podman, Slurm's own support (oci), pyxis or Apptainer.",
        default=ContainerRuntime.PODMAN.value,
    )
    rest: RestEntry | None = key("Speak to slurmrestd. Left out: Slurm's commands are used.")


def check_slurm(cluster: Path, entry: SlurmKeys, is_slurm: bool, simulated: bool, findings: Findings) -> None:
    """Refuse what does not fit together."""
    path: Path = (*cluster, "slurm")
    if not is_slurm:
        for name in _given(entry):
            text = f"{described((*path, name))} is for engine slurm only; remove it, or add 'engine: slurm'"
            findings.at((*path, name), text)
        return
    drives = (entry.mode or Mode.DRIVE.value) == Mode.DRIVE.value
    if drives and entry.count_quotas:
        text = f"{described((*path, 'count_quotas'))} is for `mode: observe`; the jobs of a driven cluster always count"
        findings.at((*path, "count_quotas"), f"{text}; remove it")
    if drives and entry.shared_folder is None and not simulated:
        text = f"{described(cluster)} has no 'shared_folder'; add 'shared_folder: /shared/gpuyard', which all nodes see"
        findings.at_key(cluster, f"{text}; or 'mode: observe'; or 'pools' to simulate it")
    for name in ("shared_folder", "conf", "programs"):
        value = getattr(entry, name)
        if value is not None and not value.startswith("/"):
            findings.at(
                (*path, name), f"{described((*path, name))} must be an absolute path, not {quoted(value)}"
            )
    if entry.rest is not None and not entry.rest.url.startswith(("http://", "https://")):
        where = (*path, "rest", "url")
        findings.at(
            where, f"{described(where)} must begin with http:// or https://, not {quoted(entry.rest.url)}"
        )


def _given(entry: SlurmKeys) -> list[str]:
    """Keys with a value other than the default."""
    defaults = {
        "mode": Mode.DRIVE.value,
        "handoff": HANDOFF_MS,
        "python": PYTHON,
        "count_quotas": False,
        "containers": ContainerRuntime.PODMAN.value,
    }
    return [name for name in SlurmKeys.model_fields if getattr(entry, name) not in (None, defaults.get(name))]


def build_slurm(entry: SlurmKeys, simulated: bool) -> SlurmCluster | None:
    """The values; None for a cluster that is only described, to be simulated."""
    if simulated and not _given(entry):
        return None
    rest = entry.rest
    return SlurmCluster(
        mode=Mode(entry.mode) if entry.mode else Mode.DRIVE,
        partitions=tuple(entry.partitions or ()),
        reservation=entry.reservation or "",
        account=entry.account or "",
        shared_folder=entry.shared_folder or "",
        handoff_ms=entry.handoff or HANDOFF_MS,
        gpu_types=dict(entry.gpu_types or {}),
        names=dict(entry.names or {}),
        count_quotas=bool(entry.count_quotas),
        conf=entry.conf or "",
        programs=entry.programs or "",
        python=entry.python or PYTHON,
        containers=ContainerRuntime(entry.containers) if entry.containers else ContainerRuntime.PODMAN,
        rest=Rest(rest.url, rest.token_file, rest.user or "root") if rest is not None else None,
    )
