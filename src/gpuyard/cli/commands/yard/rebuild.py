"""`yard rebuild`: fills a projection again from the log, or shows how far each has come."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from gpuyard.cli.connection.places import client
from gpuyard.cli.line.options import Argument, Output, OutputOption
from gpuyard.errors import YardError

_LOOK_S = 0.2
_PATIENCE_S = 60.0


def rebuild(
    name: Annotated[str, Argument(metavar="[PROJECTION]", help="Which one; none: show all.")] = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Fill a projection again from the log, and wait until it is done; without a name, show all of them.

    A projection is a table that follows the log, such as usage by tenant. It is filled as far back as the log reaches,
    which is cut after 90 days, and from a checkpoint where it was cut. Jobs and the scheduler are not touched. Only
    administrators may do it.
    """
    with client() as yard:
        if name:
            done = _followed(yard, yard.rebuild(name))
            _tell([done], output)
        else:
            _tell(yard.projections(), output)


def _followed(yard: Any, begun: Mapping[str, Any]) -> Mapping[str, Any]:
    """Its progress once it has reached the event that was the last when this was asked for."""
    import time

    found, moved_s = begun, time.monotonic()
    while found["seq"] < begun["head"]:
        time.sleep(_LOOK_S)
        now = next((each for each in yard.projections() if each["name"] == begun["name"]), found)
        if now["seq"] != found["seq"]:
            moved_s = time.monotonic()
        found = now
        if found["error"] or time.monotonic() - moved_s > _PATIENCE_S:
            raise YardError(
                f"projection {found['name']} stands at event {found['seq']:,} of {begun['head']:,}"
                + (f": {found['error']}" if found["error"] else ""),
                "The yard goes on trying by itself; `yard rebuild` shows how far it has come.",
            )
    return found


def _tell(found: Sequence[Mapping[str, Any]], output: Output) -> None:
    from gpuyard.cli.listings.tables import emit, write_document
    from gpuyard.reports.table import Column

    if output in (Output.JSON, Output.YAML):
        write_document({"projections": found}, output)
        return
    if not found and output is not Output.CSV:
        print("this yard has no projections that follow the log")
        return
    columns = [
        Column("PROJECTION", lambda row: row["name"]),
        Column("VERSION", lambda row: str(row["version"]), right=True),
        Column("FROM EVENT", lambda row: f"{row['began_seq'] + 1:,}", right=True),
        Column("TO EVENT", lambda row: f"{row['seq']:,}", right=True),
        Column("OF", lambda row: f"{row['head']:,}", right=True),
        Column("TROUBLE", lambda row: row["error"] or "-"),
    ]
    emit(found, columns, output)
