"""`yard validate`: is this configuration file right, and if not, where and what to do; what it can be used for."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from gpuyard.cli.line.options import Argument, Option
from gpuyard.errors import BadInput, count_text

if TYPE_CHECKING:
    from gpuyard.config import Config


def validate(
    file: Annotated[Path | None, Argument(metavar="FILE", help="A yard.yaml.")] = None,
    schema: Annotated[
        bool, Option("--schema", help="Print the JSON Schema of yard.yaml, for editors.")
    ] = False,
) -> None:
    """Check a yard.yaml, and report every mistake with its line and a remedy.

    For a valid file it says which commands can use it: `yard simulate`, `yard up`. Exit code 0: the file is valid, 2:
    it is not.
    """
    if schema == (file is not None):
        raise BadInput("validate takes either a FILE or --schema", "For example: yard validate yard.yaml")
    if file is None:
        import json

        from gpuyard.config.editors import json_schema

        print(json.dumps(json_schema(), indent=2, ensure_ascii=False))
        return
    from gpuyard.cli.terminal.streams import result
    from gpuyard.config.reading import load

    config = load(file)
    tenants = count_text(len(config.settings.tenants), "tenant")
    result(f"{file}: ok — {tenants}, {_fleet(config)}, policy {config.settings.policy.name}")
    result(f"simulate: {_simulates(config, file)}")
    result(f"up: {_runs(config)}")
    for note in config.notes:
        result(f"note: {note}")


def _simulates(config: "Config", file: Path) -> str:
    from gpuyard.cli.commands.foresight.fleet import check_simulation

    try:
        check_simulation(config, str(file))
    except BadInput as refusal:
        return _no(refusal)
    return "yes"


def _runs(config: "Config") -> str:
    """Whether `yard up` would take the file, by the checks of `yard up`."""
    from gpuyard.control.fleet import choose_fleet

    try:
        fleet = choose_fleet(config, "")
    except BadInput as refusal:
        return _no(refusal)
    return f"yes, {fleet.words()}"


def _no(refusal: BadInput) -> str:
    return f"no, because {refusal.message}. {refusal.hint}"


def _fleet(config: "Config") -> str:
    """The GPUs of its pools, of the machine on which the yard runs, and of clusters that know their own nodes."""
    from gpuyard.engines.registry import runnable

    parts = []
    if config.pools:
        gpus = sum(node.gpus for pool in config.pools for node in pool.nodes)
        parts.append(f"{count_text(gpus, 'GPU')} in {count_text(len(config.pools), 'pool')}")
    for cluster in config.clusters.values():
        if cluster.gpus:
            parts.append(count_text(cluster.gpus[0], "emulated GPU"))
        elif not cluster.pools:
            kind = runnable(cluster.engine)
            parts.append(f"the GPUs of {kind.title or kind.name if kind else cluster.engine}")
    return " and ".join(parts)
