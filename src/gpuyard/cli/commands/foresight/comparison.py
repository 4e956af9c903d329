"""Policies side by side, in every form: the table, the data and the report of a study."""

import os
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from gpuyard.cli.commands.foresight.studies import SeededStudy
from gpuyard.cli.listings.listing import Listing, Output, print_listing
from gpuyard.cli.terminal.streams import print_aside
from gpuyard.errors import BadInput, count_text
from gpuyard.job_sizes import SIZES, SizeRanges, parse_sizes
from gpuyard.model.units import SECOND_MS
from gpuyard.pages import human
from gpuyard.quantities import percent_rounded, span_rounded, usd_rounded
from gpuyard.sim.report import make_size_table, make_terminal_table, render
from gpuyard.sim.result import Result
from gpuyard.sim.runs.pooled import summarise_together
from gpuyard.sim.study import Study
from gpuyard.sim.summary import summarise_all
from gpuyard.tables import Column, Grid, grid


def check(path: Path, *, alone: bool = True) -> None:
    """Refuse a place that cannot be written, before the user waits for the report, and one for several studies."""
    if not alone:
        raise BadInput(
            "a report shows one seed on one fleet", "Leave --report out, or give one --seed and one fleet."
        )
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
    made: Sequence[SeededStudy], output: Output, report: Path | None, sizes: SizeRanges = SIZES
) -> None:
    """Print the results of studies, and write the report of a single one."""
    told = [ToldStudy(each, summarise_all(each.study.results, sizes)) for each in made]
    if len(told) > 1:
        print_listing(_listing_of_many(told, sizes), output)
        return
    (one,) = told
    print_listing(_listing(one), output)
    sys.stdout.flush()
    if report is not None:
        write_report(report, one.made.study, one.made.seed, one.summaries, sizes)
        print_aside(f"report: {report}")


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


class ToldStudy(NamedTuple):
    """A study with the figures of its policies."""

    made: SeededStudy
    summaries: Sequence[Summary]

    @property
    def results(self) -> Sequence[Result]:
        """One for each policy."""
        return self.made.study.results

    def document(self) -> dict[str, Any]:
        """Its data."""
        trace = self.made.study.trace
        names = [result.policy for result in self.results]
        return {
            "trace": {
                "name": trace.name,
                "rows": trace.rows,
                "jobs": len(trace),
                "skipped": trace.skipped,
                "seed": self.made.seed,
            },
            "policies": dict(zip(names, self.summaries, strict=True)),
        }

    def records(self) -> Iterable[dict[str, Any]]:
        """A row for each policy."""
        for result, summary in zip(self.results, self.summaries, strict=True):
            yield _record(result.policy, summary)

    def title(self) -> str:
        """What was simulated."""
        study = self.made.study
        within = f" in {_span(study)}" if len(study.trace) > 1 else ""
        jobs = f"{count_text(len(study.trace), 'job')}{within} on {count_text(_gpus(study), 'GPU')}"
        return f"{study.trace.name}: {jobs}" + (f" ({self.made.title})" if self.made.title else "")


def _record(policy: str, summary: Summary) -> dict[str, Any]:
    return {"policy": policy} | {key: each for key, each in summary.items() if key not in _NESTED}


def _grids(results: Sequence[Result], summaries: Sequence[Summary], title: str, wide: bool) -> Sequence[Grid]:
    """The policies, the sizes where there are several, and in the wide form the tenants."""
    found = [policy_grid(results, summaries, title)]
    by_size = make_size_table(results, summaries)
    if len(by_size.rows) > len(results):
        found.append(by_size)
    names = [result.policy for result in results]
    return [*found, tenant_grid(names, summaries)] if wide else found


def _listing(told: ToldStudy) -> Listing:
    return Listing(
        told.document(),
        told.records,
        lambda wide: _grids(told.results, told.summaries, told.title(), wide),
    )


def _listing_of_many(told: Sequence[ToldStudy], sizes: SizeRanges) -> Listing:
    """Every study in the data; in tables the seeds of a fleet together, and in the wide form each by itself too."""
    fleets: dict[str, list[ToldStudy]] = {}
    for each in told:
        fleets.setdefault(each.made.fleet.name, []).append(each)
    together = {name: _together(same, sizes) for name, same in fleets.items()}
    document = {
        "studies": [{"fleet": each.made.fleet.name, **each.document()} for each in told],
        "together": [
            {
                "fleet": name,
                "seeds": [each.made.seed for each in fleets[name]],
                "policies": {result.policy: summary for result, summary in found},
            }
            for name, found in together.items()
        ],
    }

    def records() -> Iterable[Mapping[str, Any]]:
        for each in told:
            for row in each.records():
                yield {"fleet": each.made.fleet.name, "seed": each.made.seed, **row}

    def grids(wide: bool) -> Sequence[Grid]:
        each_alone = told if wide and len(told) > len(fleets) else []
        shown = [
            grid for each in each_alone for grid in _grids(each.results, each.summaries, each.title(), True)
        ]
        labelled = [
            (
                replace(result, policy=f"{result.policy}, {name}" if len(fleets) > 1 else result.policy),
                summary,
            )
            for name, found in together.items()
            for result, summary in found
        ]
        seeds = dict.fromkeys([str(each.made.seed) for each in told])
        title = told[0].made.study.trace.name
        title += f": seeds {', '.join(seeds)} together" if len(seeds) > 1 else ""
        results, summaries = [result for result, _ in labelled], [summary for _, summary in labelled]
        return [*shown, *_grids(results, summaries, title, wide)]

    return Listing(document, records, grids)


def _together(same: Sequence[ToldStudy], sizes: SizeRanges) -> list[tuple[Result, Summary]]:
    """The seeds of a fleet taken together, of each policy that began in all of them."""
    if len(same) == 1:
        return list(zip(same[0].results, same[0].summaries, strict=True))
    found = []
    for spec in same[0].made.fleet.policies:
        pairs = [
            pair
            for each in same
            for pair in zip(each.results, each.summaries, strict=True)
            if pair[0].policy == spec.name
        ]
        if len(pairs) == len(same):
            results, summaries = [result for result, _ in pairs], [summary for _, summary in pairs]
            summary = summarise_together(results, summaries, sizes)
            found.append((replace(results[0], interrupted=summary["interrupted"]), summary))
    return found


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
