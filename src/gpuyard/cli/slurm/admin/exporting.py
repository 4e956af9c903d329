"""`yard slurm export`: the policy of a yard.yaml for Slurm itself."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from gpuyard.cli.line.options import Option
from gpuyard.cli.slurm.admin.site_options import ForceOption, GpuTypeOption, parse_types, write_new
from gpuyard.errors import BadInput

if TYPE_CHECKING:
    from gpuyard.config import Config
    from gpuyard.engines.slurm.site.notes import Notes

ClusterOption = Annotated[
    str, Option("--cluster", metavar="NAME", help="Slurm's name of the cluster. Default: the file's.")
]
NodesOption = Annotated[
    list[str] | None,
    Option(
        "--nodes",
        metavar="POOL=HOSTS",
        help="The real names of a pool's nodes, as in h100=gpu[01-08]; may be repeated.",
    ),
]
UserOption = Annotated[
    list[str] | None,
    Option(
        "--user",
        metavar="NAME",
        help="A tenant of the file that is a user, not an account; may be repeated.",
    ),
]


def run(
    dir: Annotated[Path, Option("--dir", metavar="DIR", help="The folder to write into.")],
    config: Annotated[Path, Option("--config", metavar="FILE", help="A yard.yaml.")] = Path("yard.yaml"),
    cluster: ClusterOption = "",
    gpu_type: GpuTypeOption = None,
    nodes: NodesOption = None,
    user: UserOption = None,
    force: ForceOption = False,
) -> None:
    """Write the policy of a yard.yaml as parts of slurm.conf and gres.conf and a script for sacctmgr.

    The command changes nothing on any cluster. It lists what Slurm cannot express, also in DIR/notes.txt.

    \b
    Example:
      yard slurm export --dir out --config yard.yaml --nodes h100=gpu[01-08]
    """
    from gpuyard.config.reading import load
    from gpuyard.config.slurm.exporting import Wishes, export
    from gpuyard.engines.slurm.site.notes import Notes

    found, notes = load(config), Notes()
    if not found.pools:
        raise BadInput(f"{config} describes no nodes", "Add pools to its cluster.")
    wishes = Wishes(
        cluster=cluster,
        types=parse_types(gpu_type or []) or _configured(found),
        hosts=_hosts(nodes or []),
        users=tuple(user or ()),
        source=config.name,
    )
    texts = export(found, wishes, notes)
    texts["notes.txt"] = notes.text(f"What {config.name} says and Slurm cannot, or not quite.")
    _write(dir, texts, force)
    _tell(dir, notes)


def _configured(found: "Config") -> dict[str, str]:
    """The types that the file itself has for its models."""
    from gpuyard.engines.slurm.cluster import SlurmCluster

    return {
        kind: model
        for cluster in found.clusters.values()
        if isinstance(cluster.own, SlurmCluster)
        for kind, model in cluster.own.gpu_types.items()
    }


def _write(folder: Path, texts: dict[str, str], force: bool) -> None:
    write_new(folder, texts, force)
    (folder / "sacctmgr.sh").chmod(0o755)


def _tell(folder: Path, notes: "Notes") -> None:
    print(f"wrote {folder}/slurm.conf and gres.conf (lines to take over), sacctmgr.sh (to be run), notes.txt")
    for title, found in (("Slurm cannot say", notes.unsaid), ("Not quite the same", notes.guessed)):
        if found:
            print(f"\n{title}:")
            print("\n".join(f"  - {text}" for text in found))


def _hosts(words: list[str]) -> dict[str, str]:
    from gpuyard.engines.slurm.words.forms import Unreadable, parse_hosts

    found = {}
    for word in words:
        pool, sign, names = word.partition("=")
        if not sign or not pool:
            raise BadInput(f"--nodes {word!r} is not POOL=HOSTS", "For example: --nodes h100=gpu[01-08]")
        try:
            parse_hosts(names)
        except Unreadable as wrong:
            raise BadInput(f"--nodes {pool}: {wrong}") from None
        found[pool] = names
    return found
