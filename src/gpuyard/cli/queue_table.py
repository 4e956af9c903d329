"""The queue as text: what `yard queue` does once its options are read. Imports nothing that takes time."""

from collections.abc import Mapping, Sequence
from typing import Any

from gpuyard.api.client import Client

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


def show_queue(states: Sequence[str], tenant: str, user: str, limit: int | None, output: str) -> None:
    """Ask for the queue and print it."""
    with Client() as yard:
        found = yard.queue(states=states, tenant=tenant, user=user, limit=limit)
    if output in ("table", "wide"):
        print_queue(found, output == "wide")
        return
    from gpuyard.cli.tables import emit

    emit([dict(zip(found["columns"], row, strict=True)) for row in found["rows"]], [], output)


def print_queue(found: Mapping[str, Any], wide: bool = False) -> None:
    """Straight from the rows: ten thousand of them are printed in the time that objects would take to make."""
    from gpuyard.cli.tables import Column, clock, number, span, table

    now_ms = found["at_ms"]
    rows: list[tuple[str, ...]] = []
    for row in found["rows"]:
        label, name, tenant, user, klass, state, attempt, gpus, nodes = row[1:10]
        submitted_ms, started_ms, limit_s, why = row[10:]
        # Of another tenant: only that it is there.
        masked = not submitted_ms
        name, tenant, user, klass = (name or "-", tenant or "-", user or "-", klass or "-")
        spent = "-" if masked else span(now_ms - (started_ms or submitted_ms))
        gpus_text = str(gpus) if type(gpus) is int else number(gpus)
        if wide:
            limit = span(limit_s * 1000) if limit_s else "-"
            rows.append(
                (label, name, tenant, user, klass, state, attempt or "-", gpus_text, spent, limit,
                 clock(submitted_ms), nodes or "-", why or "-")
            )  # fmt: skip
        else:
            where = "another tenant's" if masked else f"{nodes}: {why}" if nodes and why else nodes or why
            rows.append((label, name, tenant, klass, state, gpus_text, spent, where))
    right = {"GPUS", "TIME", "LIMIT"}
    columns = [Column(head, str, head in right) for head in (_WIDE_HEADS if wide else _HEADS)]
    table(columns, rows, cut=not wide)
