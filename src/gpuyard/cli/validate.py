"""`yard validate`: is this configuration file right, and if not, where and what to do."""

from pathlib import Path
from typing import Annotated

import typer

from gpuyard.errors import BadInput


def validate(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="A yard.yaml.", show_default=False)
    ] = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON Schema of yard.yaml, for editors.")
    ] = False,
) -> None:
    """Check a yard.yaml: every mistake with its line and what to do.

    Exit code 0 if it can be used, 2 if not.
    """
    if schema == (file is not None):
        raise BadInput(
            "validate takes one of the two: a FILE or --schema",
            "For example: yard validate yard.yaml",
        )
    if file is None:
        import json

        from gpuyard.config import json_schema

        print(json.dumps(json_schema(), indent=2, ensure_ascii=False))
        return
    from gpuyard.config import load

    config = load(file)
    gpus = sum(node.gpus for pool in config.pools for node in pool.nodes)
    print(
        f"{file}: ok — {_counted(len(config.settings.tenants), 'tenant')}, {_counted(gpus, 'GPU')} "
        f"in {_counted(len(config.pools), 'pool')}, policy {config.settings.policy.name}"
    )


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
