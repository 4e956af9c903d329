"""`yard tenants`: the tree of tenants, what they may use and what they use."""

from collections.abc import Callable, Mapping
from typing import Any

from gpuyard.cli.options import ColumnsOption, Output, OutputOption, WatchOption
from gpuyard.cli.places import client


def tenants(
    output: OutputOption = Output.TABLE, columns: ColumnsOption = "", watch: WatchOption = None
) -> None:
    """Show the tenants with their quotas in GPUs, what each uses, and how many of its jobs run and wait."""
    from gpuyard.cli.watching import repeated

    repeated(lambda: _show(output, columns), watch)


def _show(output: Output, wanted: str) -> None:
    with client() as yard:
        found = yard.tenants()
    from gpuyard.cli.caps import cap_columns
    from gpuyard.cli.tables import Column, emit, number

    columns = [
        Column("TENANT", lambda row: "  " * row["tenant"].count("/") + row["tenant"].rpartition("/")[2]),
        Column("WEIGHT", lambda row: str(row["weight"]), right=True),
        Column("GUARANTEE", _amount("guarantee", "-")),
        Column("LIMIT", _amount("limit", "-")),
        Column("BORROW", _amount("borrow", "-"), wide=True),
        Column("LEND", _amount("lend", "-"), wide=True),
        Column("IN USE", lambda row: number(row["gpus_used"]), right=True),
        *cap_columns(found),
        Column("RUNNING", lambda row: str(row["running"]), right=True),
        Column("WAITING", lambda row: str(row["waiting"]), right=True),
        Column("CLASSES", lambda row: ", ".join(row["classes"]), wide=True),
    ]
    emit(found, columns, output, wanted=wanted)


def _amount(key: str, empty: str) -> Callable[[Mapping[str, Any]], str]:
    def cell(row: Mapping[str, Any]) -> str:
        parts = [f"{gpus:g}" if model == "total" else f"{gpus:g} {model}" for model, gpus in row[key].items()]
        return ", ".join(parts) or empty

    return cell
