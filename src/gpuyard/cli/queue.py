"""`yard queue`: what runs and what waits, in the order of the scheduler."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Annotated, Any

from gpuyard.cli.options import (
    ColumnsOption,
    Option,
    Output,
    OutputOption,
    StateOption,
    TenantOption,
    UserOption,
    WatchOption,
)
from gpuyard.cli.places import client

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


def queue(
    state: StateOption = None,
    tenant: TenantOption = "",
    user: UserOption = "",
    limit: Annotated[
        int | None, Option("--limit", metavar="N", min=1, help="At most so many.", show_default=False)
    ] = None,
    tasks: Annotated[bool, Option("--tasks", help="A line for each task of an array that waits.")] = False,
    output: OutputOption = Output.TABLE,
    columns: ColumnsOption = "",
    watch: WatchOption = None,
) -> None:
    """Show jobs that run, that wait in the order in which they will be looked at, and that are set aside."""

    def show() -> None:
        with client() as yard:
            found = yard.queue(states=state or [], tenant=tenant, user=user, limit=limit)
        _print(found, output, columns, tasks)

    from gpuyard.cli.watching import repeated

    repeated(show, watch)


def _print(found: Mapping[str, Any], output: Output, wanted: str, tasks: bool) -> None:
    from gpuyard.cli.tables import chosen, emit, write_csv

    if output in (Output.TABLE, Output.WIDE):
        print_queue(found, output is Output.WIDE, wanted, tasks)
        return
    names = found["columns"]
    if output is Output.CSV and not wanted:
        write_csv(names, found["rows"])
        return
    kept = chosen(wanted, names) if wanted else names
    places = [names.index(name) for name in kept]
    emit(
        [{name: row[place] for name, place in zip(kept, places, strict=True)} for row in found["rows"]],
        [],
        output,
        fields=kept,
    )


def _folded(rows: Sequence[Sequence[Any]]) -> Iterator[Sequence[Any]]:
    """Tasks of one array that wait one behind the other, and for the same, as one row: `7_[0-199]`, `200 x 1` GPUs."""
    from gpuyard.engines.hostnames import indices_folded

    def kind(row: Sequence[Any]) -> tuple[Any, ...]:
        array, _, index = row[1].partition("_")
        # Whatever is alone under its id stays as it is.
        return (array, *row[2:]) if index.isdecimal() and row[6] == "PENDING" else (row[0],)

    for _kind, same in groupby(rows, kind):
        alike = list(same)
        first = alike[0]
        if len(alike) == 1:
            yield first
            continue
        array = first[1].partition("_")[0]
        indices = indices_folded([int(row[1].partition("_")[2]) for row in alike])
        yield [first[0], f"{array}_[{indices}]", *first[2:8], f"{len(alike)} x {first[8]}", *first[9:]]


def print_queue(found: Mapping[str, Any], wide: bool = False, wanted: str = "", tasks: bool = False) -> None:
    """Straight from the rows: ten thousand of them are printed in the time that objects would take to make."""
    from gpuyard.cli.tables import Column, chosen, clock, name_of, number, span, table

    now_ms = found["at_ms"]
    rows: list[tuple[str, ...]] = []
    everything = wide or bool(wanted)
    for row in found["rows"] if tasks else _folded(found["rows"]):
        label, name, tenant, user, klass, state, attempt, gpus, nodes = row[1:10]
        submitted_ms, started_ms, limit_s, why = row[10:14]
        # Of another tenant: only that it is there.
        masked = not submitted_ms
        name, tenant, user, klass = (name or "-", tenant or "-", user or "-", klass or "-")
        spent = "-" if masked else span(now_ms - (started_ms or submitted_ms))
        gpus_text = number(gpus) if type(gpus) is float else str(gpus)
        if everything:
            limit = span(limit_s * 1000) if limit_s else "-"
            rows.append(
                (
                    label,
                    name,
                    tenant,
                    user,
                    klass,
                    state,
                    attempt or "-",
                    gpus_text,
                    spent,
                    limit,
                    clock(submitted_ms),
                    nodes or "-",
                    why or "-",
                )
            )
        else:
            where = "another tenant's" if masked else f"{nodes}: {why}" if nodes and why else nodes or why
            rows.append((label, name, tenant, klass, state, gpus_text, spent, where))
    right = {"GPUS", "TIME", "LIMIT"}
    columns = [Column(head, str, head in right) for head in (_WIDE_HEADS if everything else _HEADS)]
    if wanted:
        names = [name_of(column) for column in columns]
        places = [names.index(name) for name in chosen(wanted, names)]
        columns, rows = (
            [columns[place] for place in places],
            [tuple([row[place] for place in places]) for row in rows],
        )
    table(columns, rows, cut=not wide)
