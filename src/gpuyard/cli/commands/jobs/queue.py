"""`yard queue`: what runs and what waits, in the order of the scheduler."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Annotated, Any

from gpuyard.cli.connection.defaults import default_columns
from gpuyard.cli.connection.places import open_client
from gpuyard.cli.line.options import (
    ClusterOption,
    ColumnsOption,
    MineOption,
    Option,
    Output,
    OutputOption,
    StateOption,
    TenantOption,
    UserOption,
    WatchOption,
)

_HEADS = ("ID", "NAME", "TENANT", "CLASS", "STATE", "GPUS", "TIME", "WHERE OR WHY")
_WIDE_HEADS = (
    *_HEADS[:3],
    "USER",
    *_HEADS[3:5],
    "ATTEMPT",
    *_HEADS[5:7],
    "LIMIT",
    "SUBMITTED",
    "NODES",
    "REASON",
)

_WIDE_NAMES = (*[head.lower() for head in _WIDE_HEADS], "where_or_why")
_RIGHT = frozenset({"GPUS", "TIME", "LIMIT"})


def queue(
    state: StateOption = None,
    tenant: TenantOption = "",
    user: UserOption = "",
    mine: MineOption = False,
    cluster: ClusterOption = "",
    limit: Annotated[int | None, Option("--limit", metavar="N", min=1, help="Show at most N jobs.")] = None,
    tasks: Annotated[bool, Option("--tasks", help="Show a line for each task of a waiting array.")] = False,
    output: OutputOption = Output.TABLE,
    columns: ColumnsOption = "",
    watch: WatchOption = None,
) -> None:
    """Show jobs that run, jobs that wait in the scheduler's order, and jobs that are set aside."""

    if mine and user:
        from gpuyard.errors import BadInput

        raise BadInput("--mine and --user name two people", "Leave one of them out.")

    def show() -> None:
        with open_client() as yard:
            whose = str(yard.me()["user"]) if mine else user
            found = yard.queue(states=state or [], tenant=tenant, user=whose, cluster=cluster, limit=limit)
        printed(found)

    def printed(found: Mapping[str, Any]) -> None:
        _print(found, output, columns or default_columns("queue", output), tasks)

    if watch is None:
        show()
        return
    if cluster:
        from gpuyard.cli.connection.places import show_or_watch

        # Changes say on which nodes a job runs, not in which cluster: the list is read anew.
        show_or_watch(show, watch, wakes=True)
        return
    _watch(show, printed, watch, (tenant, user, tuple(state or ())), limit, mine)


def _watch(
    show: Callable[[], None],
    printed: Callable[[Mapping[str, Any]], None],
    every_s: int,
    wanted: tuple[str, str, tuple[str, ...]],
    limit: int | None,
    mine: bool,
) -> None:
    """The first picture is of a list, so that a mistake is told at once; then the list is kept by its changes."""
    from gpuyard.cli.connection.change_feed import Followed
    from gpuyard.cli.connection.watching import keep_showing

    followed = Followed()
    tenant, whose, states = wanted

    def again() -> None:
        nonlocal whose
        found = followed.queue(tenant, whose, states)
        if found is None:
            show()
            return
        if mine and not whose:
            with open_client() as yard:
                whose = str(yard.me()["user"])
            found = followed.queue(tenant, whose, states) or found
        printed({**found, "rows": found["rows"][:limit]})

    keep_showing(again, every_s, followed)


def _print(found: Mapping[str, Any], output: Output, wanted: str, tasks: bool) -> None:
    from gpuyard.cli.listings.tables import check_columns, print_records, write_csv

    names = found["columns"]
    if output in (Output.TABLE, Output.WIDE):
        print_queue(found, output is Output.WIDE, wanted, tasks)
    elif output is Output.CSV and not wanted:
        write_csv(names, found["rows"])
    elif not wanted:
        print_records([dict(zip(names, row, strict=True)) for row in found["rows"]], [], output, fields=names)
    else:
        kept = check_columns(wanted, _known(names))
        cells = _cells(found["rows"], found["at_ms"])
        places = {name: place for place, name in enumerate(_WIDE_NAMES)}
        rows = [
            {name: row[names.index(name)] if name in names else shown[places[name]] for name in kept}
            for row, shown in zip(found["rows"], cells, strict=True)
        ]
        print_records(rows, [], output, fields=kept)


def _known(names: Sequence[str]) -> list[str]:
    """Every name that `--columns` takes in any form: those of the table, and those of the data."""
    return list(dict.fromkeys([*_WIDE_NAMES, *names]))


def _folded(rows: Sequence[Sequence[Any]]) -> Iterator[Sequence[Any]]:
    """Tasks of one array that wait in a row for the same reason, as one row: `7_[0-199]`, `200 x 1` GPUs."""
    from gpuyard.engines.name_lists import fold_indices

    def kind(row: Sequence[Any]) -> tuple[Any, ...]:
        array, _, index = row[1].partition("_")
        # A job without others under its id stays as it is.
        return (array, *row[2:]) if index.isdecimal() and row[6] == "PENDING" else (row[0],)

    for _kind, same in groupby(rows, kind):
        alike = list(same)
        first = alike[0]
        if len(alike) == 1:
            yield first
            continue
        array = first[1].partition("_")[0]
        indices = fold_indices([int(row[1].partition("_")[2]) for row in alike])
        yield [first[0], f"{array}_[{indices}]", *first[2:8], f"{len(alike)} x {first[8]}", *first[9:]]


def print_queue(found: Mapping[str, Any], wide: bool = False, wanted: str = "", tasks: bool = False) -> None:
    """Print straight from the rows: making objects would take as long as printing ten thousand rows."""
    from gpuyard.cli.listings.tables import check_columns, flatten_value, format_table
    from gpuyard.tables import Column

    raw = found["rows"] if tasks else list(_folded(found["rows"]))
    heads: Sequence[str] = _WIDE_HEADS if wide else _HEADS
    rows = _cells(raw, found["at_ms"], full=wide or bool(wanted))
    if wanted:
        data = found["columns"]
        names = check_columns(wanted, _known(data))
        places = {name: place for place, name in enumerate(_WIDE_NAMES)}
        heads = [name.upper().replace("_", " ") for name in names]
        rows = [
            tuple(
                [shown[places[n]] if n in places else str(flatten_value(row[data.index(n)])) for n in names]
            )
            for row, shown in zip(raw, rows, strict=True)
        ]
    elif wide:
        rows = [cells[:-1] for cells in rows]
    format_table([Column(head, str, head in _RIGHT) for head in heads], rows, cut=not wide)


def _cells(rows: Sequence[Sequence[Any]], now_ms: int, full: bool = True) -> list[tuple[str, ...]]:
    """The cells of the table: with `full`, those of every column, and `where or why` as the last."""
    from gpuyard.quantities import span
    from gpuyard.reports.table import clock, number

    cells: list[tuple[str, ...]] = []
    for row in rows:
        label, name, tenant, user, klass, state, attempt, gpus, nodes = row[1:10]
        submitted_ms, started_ms, limit_s, why = row[10:14]
        # A job of another tenant: only its presence is shown.
        masked = not submitted_ms
        name, tenant, klass = name or "-", tenant or "-", klass or "-"
        spent = "-" if masked else span(now_ms - (started_ms or submitted_ms))
        asked = number(gpus) if type(gpus) is float else str(gpus)
        where = "another tenant's" if masked else f"{nodes}: {why}" if nodes and why else nodes or why
        if not full:
            cells.append((label, name, tenant, klass, state, asked, spent, where))
            continue
        limit = span(limit_s * 1000) if limit_s else "-"
        begun = (attempt or "-", asked, spent, limit, clock(submitted_ms), nodes or "-", why or "-", where)
        cells.append((label, name, tenant, user or "-", klass, state, *begun))
    return cells
