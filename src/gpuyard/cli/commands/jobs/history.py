"""`yard history`: jobs that have ended."""

from collections.abc import Mapping
from typing import Annotated, Any

from gpuyard.cli.connection.defaults import default_columns
from gpuyard.cli.connection.places import open_client
from gpuyard.cli.line.options import (
    ColumnsOption,
    Option,
    Output,
    OutputOption,
    StateOption,
    TenantOption,
    UserOption,
    WatchOption,
)

PAGE = 1000
SHOWN = 50
"""How many are shown by default."""
_USED = ("gpu_hours", "cost_usd")


def history(
    state: StateOption = None,
    tenant: TenantOption = "",
    user: UserOption = "",
    name: Annotated[str, Option("-n", "--name", metavar="NAME", help="Show only jobs of this name.")] = "",
    since: Annotated[
        str,
        Option(
            "--since",
            metavar="TIME",
            help="Show only jobs that ended since then: 2h, 7d, yesterday, 2026-11-17, 14:05.",
        ),
    ] = "",
    limit: Annotated[
        int | None,
        Option("--limit", metavar="N", min=1, help=f"Show at most N jobs, newest first. Default: {SHOWN}."),
    ] = None,
    output: OutputOption = Output.TABLE,
    columns: ColumnsOption = "",
    watch: WatchOption = None,
) -> None:
    """Show jobs that have ended, newest first."""
    from gpuyard.cli.connection.places import show_or_watch
    from gpuyard.cli.line import times
    from gpuyard.cli.terminal.streams import print_notice

    most = limit or SHOWN

    def show() -> None:
        since_ms = times.parse_since_ms("--since", since, times.now_ms()) if since else None
        found: list[Any] = []
        cursor: str | None = None
        with open_client() as yard:
            while len(found) < most:
                page = yard.history(
                    states=state or [],
                    tenant=tenant,
                    user=user,
                    name=name,
                    since_ms=since_ms,
                    limit=min(PAGE, most - len(found)),
                    cursor=cursor,
                )
                found += page.jobs
                cursor = page.next_cursor
                if cursor is None:
                    break
        _print([_flat(job) for job in found], output, columns or default_columns("history", output))
        if cursor is not None and limit is None and watch is None:
            print_notice(f"note: these are the newest {SHOWN}, and there are more: --limit N shows more")

    show_or_watch(show, watch)


def _flat(job: Mapping[str, Any]) -> dict[str, Any]:
    """One level, for every form."""
    used = job.get("used") or {}
    return {key: job[key] for key in job if key != "used"} | {name: used.get(name) for name in _USED}


def fields() -> list[str]:
    """Names of the data, for a table without rows."""
    from gpuyard.wire.replies.jobs import ListedJob

    always = [name for name in ListedJob.__annotations__ if name in ListedJob.__required_keys__]
    return [*always, *_USED]


def _print(found: list[Any], output: Output, wanted: str) -> None:
    from gpuyard.cli.listings.tables import print_records
    from gpuyard.quantities import count_digits, usd_text
    from gpuyard.reports.table import clock, number
    from gpuyard.tables import Column

    cost = {
        job["label"]: None if job["cost_usd"] is None else round(job["cost_usd"] * 1_000_000) for job in found
    }
    places = count_digits(cost.values())
    columns = [
        Column("ID", lambda job: job["label"]),
        Column("NAME", lambda job: job["name"]),
        Column("TENANT", lambda job: job["tenant"]),
        Column("USER", lambda job: job["user"], wide=True),
        Column("CLASS", lambda job: job["class"], wide=True),
        Column("PROJECT", lambda job: (job.get("labels") or {}).get("project") or "-", wide=True),
        Column("STATE", lambda job: job["state"]),
        Column("EXIT", lambda job: "-" if job["exit_code"] is None else str(job["exit_code"]), right=True),
        Column("GPUS", lambda job: number(job["gpus"]), right=True),
        Column("WAITED", _waited, right=True),
        Column("RAN", _ran, right=True),
        Column("GPU-HOURS", lambda job: _hours(job["gpu_hours"]), right=True, wide=True),
        Column(
            "COST",
            lambda job: "-" if (micro := cost[job["label"]]) is None else usd_text(micro, places),
            right=True,
            wide=True,
        ),
        Column("TRIES", lambda job: str(job["attempts"]), right=True, wide=True),
        Column("PREEMPTED", lambda job: str(job["preemptions"]), right=True, wide=True),
        Column("NODES", lambda job: ",".join(job["nodes"]) or "-", wide=True),
        Column("ENDED", lambda job: clock(job["ended_ms"])),
        Column("WHY", lambda job: job["reason"]),
    ]
    print_records(found, columns, output, fields=() if found else fields(), wanted=wanted)


def _hours(value: float | None) -> str:
    from gpuyard.quantities import gpu_hours_text

    return "-" if value is None else gpu_hours_text(value)


def _waited(job: Mapping[str, Any]) -> str:
    from gpuyard.quantities import span

    return span(job["waited_ms"]) if job["attempts"] else "-"


def _ran(job: Mapping[str, Any]) -> str:
    from gpuyard.quantities import span

    return span(job["ran_ms"]) if job["attempts"] else "-"
