"""The upkeep of the store: `yard prune`, `yard rebuild` and, apart from any server, `yard store`. For operators."""

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from gpuyard.cli.connection.places import open_client
from gpuyard.cli.line.options import Argument, Option, Output, OutputOption
from gpuyard.errors import BadInput, YardError, names_text
from gpuyard.quantities import bytes_text

YesOption = Annotated[bool, Option("-y", "--yes", help="Do not ask first.")]


def _ask_first(question: str, yes: bool) -> None:
    """Ask at a terminal whether to go on; a script goes on."""
    from gpuyard.cli.terminal.streams import confirm

    if not yes and sys.stdin.isatty() and sys.stderr.isatty() and not confirm(question):
        raise BadInput("nothing was changed")


def prune(
    older_than: Annotated[
        str,
        Option(
            "--older-than",
            metavar="TIME",
            help="Remove only what is left of jobs that ended at least this long ago: 30d, 12h. "
            "Default: as `retention` in yard.yaml says.",
        ),
    ] = "",
    dry_run: Annotated[
        bool, Option("--dry-run", help="Show what would be removed, and remove nothing.")
    ] = False,
    yes: YesOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Remove scripts, environments, logs and folders of jobs that ended long ago, and unused images; say how much.

    The yard does this itself every hour, as `retention` in yard.yaml says. It keeps what live jobs need, and every
    file that a job named itself. `yard history` and `yard show` still show the jobs. Only administrators may prune.
    """
    older_s = None if not older_than else _seconds(older_than)
    total: dict[str, dict[str, int]] = {}
    if not dry_run:
        _ask_first(
            "Remove the files of jobs that ended long ago for good? --dry-run shows what would be removed.",
            yes,
        )
    with open_client() as yard:
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
    from gpuyard.cli.listings.tables import print_records, write_document
    from gpuyard.tables import Column

    if output in (Output.JSON, Output.YAML):
        write_document({"dry_run": dry_run, "removed": total}, output)
        return
    rows: list[dict[str, Any]] = [{"what": kind, **each} for kind, each in total.items()]
    columns = [
        Column("WOULD REMOVE" if dry_run else "REMOVED", lambda row: row["what"]),
        Column("COUNT", lambda row: f"{row['count']:,}", right=True),
        Column("SIZE", lambda row: bytes_text(row["bytes"]), right=True),
    ]
    print_records(rows, columns, output)


def _seconds(text: str) -> int:
    from gpuyard.errors import BadInput
    from gpuyard.quantities import parse_duration_ms

    try:
        return parse_duration_ms(text) // 1000
    except ValueError as error:
        raise BadInput(
            f"--older-than {error}", "For example: yard prune --older-than 30d --dry-run."
        ) from None


_WORDS = {
    "events": ("event", "events"),
    "history": ("ended job", "ended jobs"),
    "blobs": ("kept text", "kept texts"),
    "configs": ("version of the configuration", "versions of the configuration"),
    "tokens": ("token", "tokens"),
}
"""Tables that are named in the output; the rest is copied without a word."""


def copy(
    source: Annotated[
        str,
        Argument(
            metavar="FROM",
            help="The store: a file such as yard.db, postgresql://…, or @FILE that holds such a URL.",
        ),
    ],
    target: Annotated[str, Argument(metavar="TO", help="A new file, or an empty database.")],
) -> None:
    """Copy everything that a store holds: log, history, scripts, configuration, tokens, counters.

    A server may keep writing to the source: the copy is the store at one moment. The target must be empty, and
    receives everything or nothing. The copy is the same yard: it continues the ids and finds the running jobs.
    """
    import time

    from gpuyard.cli.terminal.streams import print_notice
    from gpuyard.control.places import resolve_store
    from gpuyard.store.copying import copy_store

    done = copy_store(resolve_store(source), resolve_store(target), int(time.time()))
    said = [f"{done.rows[table]:,} {words[done.rows[table] != 1]}" for table, words in _WORDS.items()]
    print(f"copied to {done.target}: {', '.join(said)}; the next job is {done.next_job_id}")
    if done.writer is not None:
        print_notice(
            f"note: a yard runs on {done.source} ({done.writer}): "
            "what it writes from now on is not in the copy; to move it, stop it first with `yard down`"
        )


_LOOK_S = 0.2
_PATIENCE_S = 60.0


def close_month(
    month: Annotated[str, Argument(metavar="MONTH", help="A month that has ended: 2026-10.")],
    yes: Annotated[bool, Option("-y", "--yes", help="Do not ask first.")] = False,
) -> None:
    """Close the books of a month and of all open months before it. This cannot be undone.

    A closed month does not change: neither its time nor its prices. What the yard learns about it later, such as an
    end that was seen late, becomes a correction in the open month. The command names the months and asks first; in a
    script it needs --yes. Only administrators may close a month.
    """
    from gpuyard.cli.terminal.streams import confirm
    from gpuyard.ledger.units import month_days

    month_days(month)  # Refused here: an empty one would be another address.
    with open_client() as yard:
        if not yes:
            months = names_text(yard.close_month(month, dry_run=True)["months"])
            if not sys.stdin.isatty():
                raise BadInput(
                    f"this closes the books of {months} for good, and there is no terminal on which to ask",
                    "Give --yes if that is meant.",
                )
            if not confirm(f"Close the books of {months} for good?"):
                raise YardError("nothing was closed")
        closed = yard.close_month(month)
    print(
        f"closed {names_text(closed['months'])}; what is learned about "
        f"{'them' if closed['months'][1:] else 'it'} later "
        "is a correction in the open month"
    )


def rebuild(
    name: Annotated[str, Argument(metavar="[PROJECTION]", help="The projection. Default: show all.")] = "",
    yes: YesOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Fill a projection again from the log and wait until that is done; without a name, show all projections.

    A projection is a table that follows the log, such as usage by tenant. The log reaches back 90 days, and a
    projection is filled from its start, or from a checkpoint if the log was cut. Jobs and the scheduler are not
    affected. Only administrators may rebuild.
    """
    with open_client() as yard:
        if name:
            _ask_first(f"Fill {name} again from the log? Reports lack it until that is done.", yes)
            done = _followed(yard, yard.rebuild(name))
            _show_status([done], output)
        else:
            _show_status(yard.projections(), output)


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


def _show_status(found: Sequence[Mapping[str, Any]], output: Output) -> None:
    from gpuyard.cli.listings.tables import print_records, write_document
    from gpuyard.tables import Column

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
    print_records(found, columns, output)
