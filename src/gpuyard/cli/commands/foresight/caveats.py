"""What a reader has to know before believing the figures, always on standard error."""

from collections import Counter
from pathlib import Path

from gpuyard.cli.terminal.streams import print_notice
from gpuyard.errors import names_text
from gpuyard.model import Settings
from gpuyard.sim.study import Study
from gpuyard.sim.trace import Trace

NAMED_MAX = 5
"""Broken rows and unknown names that are spelt out; the rest are counted."""


def _warn(text: str) -> None:
    print_notice(text, before="yard: ", style="bold yellow")


def print_trace_caveats(trace: Trace, path: Path, settings: Settings) -> None:
    """Rows that were skipped, and names that the configuration does not have."""
    if trace.skipped:
        _warn(f"{path}: {trace.skipped:,} of {trace.rows:,} rows skipped")
        named = trace.skipped_named[:NAMED_MAX]
        for row in named:
            print_notice(f"  {path}:{row.line}: {row.why}")
        if trace.skipped > len(named):
            print_notice(f"  and {trace.skipped - len(named):,} more; --strict stops at the first broken one")
    _unknown_classes(trace, settings)
    _unknown_tenants(trace, settings)


def _unknown_classes(trace: Trace, settings: Settings) -> None:
    known = {klass.name for klass in settings.classes} | {""}
    strange = {index: spec.klass for index, spec in enumerate(trace.specs) if spec.klass not in known}
    if not strange:
        return
    jobs = Counter(strange[spec] for spec in trace.spec if spec in strange)
    names = names_text([name for name, _ in jobs.most_common()], NAMED_MAX)
    _warn(
        f"{jobs.total():,} jobs are of classes that are not configured ({names}) "
        f"and are treated as {settings.default_class}"
    )


def _unknown_tenants(trace: Trace, settings: Settings) -> None:
    known = {tenant.path for tenant in settings.tenants}
    if not known:
        return
    teams = {spec.tenant.partition("/")[0] for spec in trace.specs}
    strange = sorted(teams - {path.partition("/")[0] for path in known})
    if strange:
        _warn(
            f"tenants that are not configured have weight 1 and no guarantee: {names_text(strange, NAMED_MAX)}",
        )


def print_study_caveats(study: Study, asked: list[str], title: str = "") -> None:
    """Jobs that could never start, and a run that was cut short; `title` tells a study from others."""
    results = study.results
    of = f"{title}: " if title else ""
    if results and results[0].rejected and study.rejection:
        job, reason = study.rejection
        _warn(
            f"{of}{results[0].rejected:,} of {results[0].jobs:,} jobs rejected, because they could never start; "
            f"the first is job {job}: {reason.text}"
        )
    for result in results:
        if result.interrupted:
            ended = result.jobs - result.unfinished
            _warn(f"{of}interrupted: {result.policy} got through {ended:,} of {result.jobs:,} jobs")
        elif result.unfinished:
            _warn(
                f"{of}{result.policy}: {result.unfinished:,} jobs could not finish; their waits are not counted"
            )
    begun = [result.policy for result in results]
    left = [name for name in asked if name not in begun]
    if left:
        _warn(f"{of}interrupted before {names_text(left, NAMED_MAX)}")
