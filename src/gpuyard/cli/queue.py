"""`yard queue`: what runs and what waits, in the order of the scheduler."""

from typing import Annotated

import typer

from gpuyard.cli.listing import Output
from gpuyard.cli.options import OutputOption

StateOption = Annotated[
    list[str] | None,
    typer.Option("--state", metavar="STATE", help="Only these; may be repeated.", show_default=False),
]
TenantOption = Annotated[
    str,
    typer.Option("--tenant", metavar="PATH", help="Only this tenant and those below it.", show_default=False),
]
UserOption = Annotated[str, typer.Option("-u", "--user", help="Only this user's.", show_default=False)]


def queue(
    state: StateOption = None,
    tenant: TenantOption = "",
    user: UserOption = "",
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", min=1, help="At most so many.", show_default=False)
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show jobs that run, that wait in the order in which they will be looked at, and that are set aside."""
    from gpuyard.cli.queue_table import show_queue

    show_queue(state or [], tenant, user, limit, output.value)
