"""`yard prune`: remove what is kept of jobs that ended a while ago."""

from typing import Annotated, Any

from gpuyard.cli.connection.places import client
from gpuyard.cli.line.options import Option, Output, OutputOption


def prune(
    older_than: Annotated[
        str,
        Option(
            "--older-than",
            metavar="TIME",
            help="Of jobs that ended so long ago: 30d, 12h. Default: as `retention` in yard.yaml says.",
        ),
    ] = "",
    dry_run: Annotated[bool, Option("--dry-run", help="Say what would go, and remove nothing.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Remove scripts, environments, logs and folders of jobs that ended a while ago; say how much that was.

    The yard does this by itself once in an hour, as `retention` in yard.yaml says. What a live job needs stays, and so
    does every file that a job named itself. `yard history` and `yard show` go on telling of the jobs.
    Only administrators may do it.
    """
    older_s = None if not older_than else _seconds(older_than)
    total: dict[str, dict[str, int]] = {}
    with client() as yard:
        going: str | None = ""
        while going is not None:
            found = yard.prune(older_than_s=older_s, dry_run=dry_run, after=going)
            for kind, more in found["removed"].items():
                known = total.setdefault(kind, {"count": 0, "bytes": 0})
                total[kind] = {
                    "count": known["count"] + more["count"],
                    "bytes": known["bytes"] + more["bytes"],
                }
            going = found["next"]
    _tell(total, dry_run, output)


def _tell(total: dict[str, dict[str, int]], dry_run: bool, output: Output) -> None:
    from gpuyard.cli.listings.tables import emit, write_document
    from gpuyard.reports.table import Column

    if output in (Output.JSON, Output.YAML):
        write_document({"dry_run": dry_run, "removed": total}, output)
        return
    rows: list[dict[str, Any]] = [{"what": kind, **each} for kind, each in total.items()]
    columns = [
        Column("WOULD REMOVE" if dry_run else "REMOVED", lambda row: row["what"]),
        Column("COUNT", lambda row: f"{row['count']:,}", right=True),
        Column("SIZE", lambda row: _size(row["bytes"]), right=True),
    ]
    emit(rows, columns, output)


def _seconds(text: str) -> int:
    from gpuyard.durations import duration_ms
    from gpuyard.errors import BadInput

    try:
        return duration_ms(text) // 1000
    except ValueError as error:
        raise BadInput(
            f"--older-than {error}", "For example: yard prune --older-than 30d --dry-run."
        ) from None


def _size(count: int) -> str:
    """Bytes as people write them."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} TiB"
