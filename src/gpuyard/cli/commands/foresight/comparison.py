"""Policies side by side, in every form: the table, the data and the report of a study."""

import os
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from gpuyard.cli.listings.listing import Listing, Output, print_listing
from gpuyard.cli.terminal.streams import print_aside
from gpuyard.errors import BadInput, count_text
from gpuyard.job_sizes import SIZES, SizeRanges, parse_sizes
from gpuyard.model.units import SECOND_MS
from gpuyard.pages import human
from gpuyard.quantities import percent_rounded, span_rounded, usd_rounded
from gpuyard.sim.report import make_size_table, make_terminal_table, render
from gpuyard.sim.result import Result
from gpuyard.sim.study import Study
from gpuyard.sim.summary import summarise_all
from gpuyard.tables import Column, Grid, grid


def check(path: Path) -> None:
    """Refuse a place that cannot be written, before the user waits for the report."""
    if path.is_dir():
        raise BadInput(f"{path}: is a directory", "Name a file in it, such as report.html.")
    if not path.parent.is_dir():
        raise BadInput(f"{path}: there is no directory {path.parent}", "Make it, or choose another place.")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise BadInput(f"{path}: may not be written", "Choose another place.")


def read_sizes(text: str) -> SizeRanges:
    """Where jobs are parted by size, as `--sizes` has it."""
    try:
        return parse_sizes(text)
    except ValueError as wrong:
        raise BadInput(f"--sizes {wrong}") from None


def write(path: Path, page: str) -> None:
    """Write the page. An old file stays until the new one is done."""
    part = path.with_name(f"{path.name}.part")
    try:
        if path.exists() and not path.is_file():
            # A pipe or /dev/stdout has no old content to keep.
            path.write_text(page, encoding="utf-8")
            return
        part.write_text(page, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        raise BadInput(
            f"{path}: cannot be written: {error.strerror or error}", "Choose another place."
        ) from None
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def facts(rows: Sequence[tuple[str, str | int]]) -> list[tuple[str, str]]:
    """Facts for the head of the report, numbers with thousands separated."""
    return [(name, f"{value:,}" if isinstance(value, int) else value) for name, value in rows]


Summary = dict[str, Any]

_NESTED = ("sizes", "tenants")
"""Figures of a summary that are told in tables of their own, and not in the row of a policy."""


def publish(
    study: Study, seed: int, output: Output, report: Path | None, sizes: SizeRanges = SIZES
) -> list[Summary]:
    """Print the results of a study and write its report."""
    summaries = summarise_all(study.results, sizes)
    print_listing(_listing(study, seed, summaries), output)
    sys.stdout.flush()
    if report is not None:
        write_report(report, study, seed, summaries, sizes)
        print_aside(f"report: {report}")
    return summaries


def write_report(
    report: Path, study: Study, seed: int, summaries: Sequence[Summary], sizes: SizeRanges = SIZES
) -> None:
    """The report as a file."""
    trace = study.trace
    rows: list[tuple[str, str | int]] = [
        ("jobs", len(trace)),
        ("GPUs", _gpus(study)),
        ("submitted within", _span(study)),
        ("seed", seed),
    ]
    if trace.skipped:
        rows.insert(1, ("rows skipped", trace.skipped))
    page = render(
        study.results,
        trace.name,
        facts(rows),
        command=shlex.join(["yard", *sys.argv[1:]]),
        origin_ms=trace.origin_ms,
        summaries=summaries,
        sizes=sizes,
    )
    write(report, page)


def _listing(study: Study, seed: int, summaries: Sequence[Summary]) -> Listing:
    names = [result.policy for result in study.results]
    trace = study.trace
    document = {
        "trace": {
            "name": trace.name,
            "rows": trace.rows,
            "jobs": len(trace),
            "skipped": trace.skipped,
            "seed": seed,
        },
        "policies": dict(zip(names, summaries, strict=True)),
    }

    def records() -> Iterable[Mapping[str, Any]]:
        for name, summary in zip(names, summaries, strict=True):
            yield {"policy": name} | {key: each for key, each in summary.items() if key not in _NESTED}

    def grids(wide: bool) -> Sequence[Grid]:
        within = f" in {_span(study)}" if len(trace) > 1 else ""
        title = f"{trace.name}: {count_text(len(trace), 'job')}{within} on {count_text(_gpus(study), 'GPU')}"
        found = [policy_grid(study.results, summaries, title)]
        by_size = make_size_table(study.results, summaries)
        if len(by_size.rows) > len(names):
            found.append(by_size)
        return [*found, tenant_grid(names, summaries)] if wide else found

    return Listing(document, records, grids)


def policy_grid(results: Sequence[Result], summaries: Sequence[Summary], title: str = "") -> Grid:
    """One row per policy; a run that was cut short says so beside its name."""
    table = make_terminal_table(results, summaries)
    names = [f"{r.policy} (interrupted)" if r.interrupted else r.policy for r in results]
    rows = [[name, *figures] for name, (_name, *figures) in zip(names, table.rows, strict=True)]
    return Grid(table.columns, rows, best=table.best, title=title)


_TENANT_COLUMNS = (
    Column("tenant", lambda row: row["tenant"]),
    Column("policy", lambda row: row["policy"]),
    Column("jobs", lambda row: human.count(row["jobs"]), right=True),
    Column("wait mean", lambda row: span_rounded(row["wait_s"]["mean"]), right=True),
    Column("wait p95", lambda row: span_rounded(row["wait_s"]["p95"]), right=True),
    Column("GPU-hours", lambda row: human.gpu_hours_text(row["gpu_s"]), right=True),
    Column("cost", lambda row: usd_rounded(row["cost_usd"]), right=True),
    Column("share", lambda row: percent_rounded(row["share"]), right=True),
    Column("entitled", lambda row: percent_rounded(row["entitled"]), right=True),
)


def tenant_grid(names: Sequence[str], summaries: Sequence[Summary], title: str = "") -> Grid:
    """One row per tenant and policy, the policies of a tenant next to each other."""
    tenants = sorted({path for summary in summaries for path in summary["tenants"]})
    rows = [
        {"tenant": tenant, "policy": name} | summary["tenants"][tenant]
        for tenant in tenants
        for name, summary in zip(names, summaries, strict=True)
        if tenant in summary["tenants"]
    ]
    return grid(_TENANT_COLUMNS, rows, title=title, turns=False)


def _gpus(study: Study) -> int:
    return sum(node.gpus for pool in study.pools for node in pool.nodes)


def _span(study: Study) -> str:
    submit_ms = study.trace.submit_ms
    return span_rounded(submit_ms[-1] / SECOND_MS if len(submit_ms) else 0)
