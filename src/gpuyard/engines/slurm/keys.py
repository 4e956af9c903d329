"""The keys of a Slurm cluster: whether the yard drives or observes it, and which part of it the yard has."""

from typing import Annotated

from gpuyard.engines.slurm.cluster import HANDOFF_MS, PYTHON, ContainerRuntime, Mode, Rest, SlurmCluster
from gpuyard.errors import quote
from gpuyard.keys.fields import (
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
from gpuyard.keys.findings import KeyFindings
from gpuyard.quantities import duration_text

ModeName = Annotated[str, *choice([each.value for each in Mode], "mode", "modes")]
RuntimeName = Annotated[str, *choice([each.value for each in ContainerRuntime], "runtime", "runtimes")]


class RestEntry(YamlMapping):
    """slurmrestd, instead of Slurm's commands."""

    url: Word = required("The address that slurmrestd listens on.", example="http://127.0.0.1:6820")
    token_file: Word = required("A file with a JSON web token of Slurm.", example="/etc/gpuyard/slurm.jwt")
    user: Word | None = key("The user of that token.", default="root")


class SlurmKeys(YamlMapping):
    """The keys of a Slurm cluster."""

    mode: ModeName | None = key(
        "drive: jobs wait in the yard, which decides; observe: Slurm decides.",
        default=Mode.DRIVE.value,
    )
    partitions: list[Name] | None = key(
        "Partitions whose nodes the yard uses. Default: Slurm's default partition.", example=["gpu"]
    )
    reservation: Word | None = key("A Slurm reservation that the yard uses. Default: none.", example="yard")
    account: Word | None = key(
        "The account that jobs are charged to. Default: each user's default.", example="research"
    )
    shared_folder: Word | None = key(
        "A folder that the server and all nodes see under this path; a driven cluster needs one. "
        "Default: none.",
        example="/shared/gpuyard",
    )
    handoff: PositiveMs | None = key(
        "How long Slurm may take to start a job before the yard takes the job back and decides again.",
        default=duration_text(HANDOFF_MS),
    )
    gpu_types: Annotated[dict[str, Word], OrNothing()] | None = key(
        "GPU models by Slurm's types. Default: types are the models' names.",
        example={"a100": "A100-80GB"},
    )
    names: Annotated[dict[str, Name], OrNothing()] | None = key(
        "Observed clusters: tenants by Slurm's accounts and users. Default: accounts and users are the "
        "tenants' names.",
        example={"jane@uni.edu": "jane-uni.edu"},
    )
    count_quotas: Boolean | None = key(
        "Observed beside other clusters: whether its jobs count against quotas, budgets and shares of "
        "tenants.",
        default=False,
    )
    conf: Word | None = key(
        "The cluster's slurm.conf. Default: Slurm's own search path.", example="/etc/slurm/slurm.conf"
    )
    programs: Word | None = key(
        "The folder of Slurm's commands. Default: the PATH.", example="/opt/slurm/bin"
    )
    python: Word | None = key("Python 3.6 or newer on the nodes.", default=PYTHON)
    containers: RuntimeName | None = key(
        "What runs images on its nodes: podman, Slurm's own support (oci), pyxis or Apptainer.",
        default=ContainerRuntime.PODMAN.value,
    )
    rest: RestEntry | None = key("Use slurmrestd. Default: Slurm's commands.")


def check_fit(keys: SlurmKeys, found: KeyFindings) -> None:
    """Refuse what does not fit together."""
    drives = (keys.mode or Mode.DRIVE.value) == Mode.DRIVE.value
    if drives and keys.count_quotas:
        text = f"{found.described('count_quotas')} is for `mode: observe`; the jobs of a driven cluster always count"
        found.at("count_quotas", text=f"{text}; remove it")
    if drives and keys.shared_folder is None and not found.has_pools:
        text = f"{found.described()} has no 'shared_folder'; add 'shared_folder: /shared/gpuyard', which all nodes see"
        found.at_cluster(f"{text}; or 'mode: observe'; or 'pools' to simulate it")
    for name in ("shared_folder", "conf", "programs"):
        value = getattr(keys, name)
        if value is not None and not value.startswith("/"):
            text = f"{found.described(name)} must be an absolute path, not {quote(value)}"
            found.at(name, text=text)
    if keys.rest is not None and not keys.rest.url.startswith(("http://", "https://")):
        text = f"{found.described('rest', 'url')} must begin with http:// or https://"
        found.at("rest", "url", text=f"{text}, not {quote(keys.rest.url)}")
    for kind, model in (keys.gpu_types or {}).items():
        found.check_model("gpu_types", kind, model=model)


def settle_keys(keys: SlurmKeys, has_pools: bool) -> SlurmCluster | None:
    """The values; None for a cluster that is only described, to be simulated."""
    if has_pools and not keys.beyond_defaults():
        return None
    rest = keys.rest
    return SlurmCluster(
        mode=Mode(keys.mode) if keys.mode else Mode.DRIVE,
        partitions=tuple(keys.partitions or ()),
        reservation=keys.reservation or "",
        account=keys.account or "",
        shared_folder=keys.shared_folder or "",
        handoff_ms=keys.handoff or HANDOFF_MS,
        gpu_types=dict(keys.gpu_types or {}),
        names=dict(keys.names or {}),
        count_quotas=bool(keys.count_quotas),
        conf=keys.conf or "",
        programs=keys.programs or "",
        python=keys.python or PYTHON,
        containers=ContainerRuntime(keys.containers) if keys.containers else ContainerRuntime.PODMAN,
        rest=Rest(rest.url, rest.token_file, rest.user or "root") if rest is not None else None,
    )
