"""`yard config`: the configuration in force and the versions before it."""

import sys
from typing import Annotated

from gpuyard.cli.connection.places import open_client
from gpuyard.cli.line.options import Argument, Option, OutputOption
from gpuyard.cli.listings.listing import Output
from gpuyard.errors import BadInput


def config(
    version: Annotated[
        int | None,
        Argument(metavar="VERSION", min=1, help="The version to print. Default: the one in force."),
    ] = None,
    listed: Annotated[bool, Option("-l", "--list", help="List the versions instead.")] = False,
    limit: Annotated[
        int, Option("--limit", metavar="N", min=1, max=1000, help="With --list: show at most N versions.")
    ] = 50,
    output: OutputOption = Output.TABLE,
) -> None:
    """Print the yard.yaml in force, or an earlier version of it.

    \b
    Examples:
      yard config > yard.yaml
      yard config --list
    """
    if listed and version is not None:
        raise BadInput("config takes either a VERSION or --list, not both")
    if not listed:
        with open_client() as yard:
            sys.stdout.write(yard.config(version)["yaml"])
        return
    with open_client() as yard:
        found = yard.config_versions(limit)
    from gpuyard.cli.listings.tables import print_records
    from gpuyard.reports.table import clock
    from gpuyard.tables import Column

    live = found[0]["version"] if found else 0
    columns = [
        Column("VERSION", lambda each: str(each["version"]), right=True),
        Column("SINCE", lambda each: clock(each["at_ms"])),
        Column("BY", lambda each: each["by"]),
        Column("HOW", lambda each: f"rollback to {each['restores']}" if each["restores"] else each["how"]),
        Column("IN FORCE", lambda each: "yes" if each["version"] == live else "-"),
        Column("TEXT", lambda each: each["hash"][:12], wide=True),
    ]
    print_records(found, columns, output)
