"""`yard config`: the configuration in force and the versions before it."""

import sys
from typing import TYPE_CHECKING, Annotated

from gpuyard.cli.connection.places import open_client
from gpuyard.cli.line.options import Argument, Option, OutputOption
from gpuyard.cli.listings.listing import Output
from gpuyard.errors import BadInput

if TYPE_CHECKING:
    from gpuyard.wire.replies.fleet import LiveMarksReply


def config(
    version: Annotated[
        int | None,
        Argument(metavar="VERSION", min=1, help="The version to print. Default: the one in force."),
    ] = None,
    merged: Annotated[
        bool, Option("--merged", help="Add what was set live, with `yard label` and `yard taint`.")
    ] = False,
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
    if merged and (listed or version is not None):
        raise BadInput("--merged is about the configuration in force", "Leave VERSION and --list out.")
    if not listed:
        with open_client() as yard:
            sys.stdout.write(yard.config(version)["yaml"])
            if merged:
                sys.stdout.write(_live_text(yard.live_marks()))
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


def _live_text(live: "LiveMarksReply") -> str:
    """What was set live, as comments: a file cannot take away what the file itself says."""
    lines = [] if live["nodes"] else ["# Nothing is set live.\n"]
    for node in live["nodes"]:
        parts = [f"label {key}={value}" for key, value in node["labels"].items()]
        parts += [f"no label {key}" for key in node["unlabelled"]]
        parts += [f"taint {taint}" for taint in node["taints"]]
        parts += [f"no taint {taint}" for taint in node["untainted"]]
        lines.append(f"# Live, clusters.{node['cluster']}.nodes.{node['node']}: {', '.join(parts)}\n")
    return "".join(lines)
