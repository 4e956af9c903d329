"""`yard audit`: what people did. The log is the audit trail; this reads it backwards."""

from typing import Annotated

from gpuyard.cli.options import ColumnsOption, Option, Output, OutputOption, UserOption, WatchOption
from gpuyard.cli.places import client


def audit(
    user: UserOption = "",
    limit: Annotated[
        int,
        Option("--limit", metavar="N", min=1, max=1000, help="How many to show at most, the newest first."),
    ] = 50,
    output: OutputOption = Output.TABLE,
    columns: ColumnsOption = "",
    watch: WatchOption = None,
) -> None:
    """Show what people did, the newest first: submissions, wishes about jobs, nodes, tokens, configurations.

    Only administrators may see it.
    """
    from gpuyard.cli.watching import repeated

    repeated(lambda: _show(user, limit, output, columns), watch)


def _show(user: str, limit: int, output: Output, wanted: str) -> None:
    from gpuyard.cli.tables import Column, clock, emit

    with client() as yard:
        found = yard.audit(user=user, limit=limit)["lines"]
    columns = [
        Column("EVENT", lambda line: str(line["seq"]), right=True),
        Column("WHEN", lambda line: clock(line["at_ms"])),
        Column("WHO", lambda line: line["who"] or "-"),
        Column("WHAT", lambda line: line["what"]),
        Column("TENANT", lambda line: line["tenant"] or "-"),
        Column("ABOUT", lambda line: line["about"]),
    ]
    emit(found, columns, output, wanted=wanted)
