"""`yard demo`: the shortest way to see what gpuyard is for."""

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from gpuyard.cli.line.options import Option, SeedOption
from gpuyard.errors import BadInput
from gpuyard.quantities import span_rounded

if TYPE_CHECKING:
    from gpuyard.sim.study import Study

REPORT_NAME = "yard-demo-report.html"

POLICIES = ("fifo", "default")
"""First come, first served, against classes and fair shares with guarantees."""

_WIDTH = 88
"""The width of running text, if the terminal is that wide."""

_NBSP = "\u00a0"


def demo(
    report: Annotated[
        Path | None,
        Option("--report", metavar="FILE", help=f"Where the report goes. Default: {REPORT_NAME}, here."),
    ] = None,
    keep: Annotated[
        Path | None,
        Option(
            "--keep",
            metavar="FOLDER",
            help="Keep the report and the yard.yaml of the simulated week in this folder.",
        ),
    ] = None,
    seed: SeedOption = 0,
    live: Annotated[
        bool, Option("--live/--no-live", help="First start a yard here and let three teams use it.")
    ] = True,
) -> None:
    """Watch a yard at work, simulate a week of three teams on 64 GPUs under two policies, and see what three jobs
    used.

    First, a yard on this machine, in a folder that is removed afterwards: three teams want more GPUs than it has.
    Then, a simulated week, with a table, what the second policy changed, and a report with plots. Last, three jobs
    that asked for the same GPUs and used them differently.
    """
    from gpuyard.cli.commands.foresight import comparison

    if keep is not None:
        _make(keep)
        report = report or keep / REPORT_NAME
    if report is not None:
        comparison.check(report)
    if live:
        from gpuyard.cli.commands.foresight.demo_use import Beside
        from gpuyard.cli.commands.foresight.demo_yard import show_yard

        with Beside() as beside:
            # Its three jobs run while the rest is shown; the first thing to look at does not wait for them.
            show_yard(say, beside.begin)
            _show_week(report, seed)
            beside.show_use(say)
    else:
        _show_week(report, seed)
    _next(keep)


def _show_week(report: Path | None, seed: int) -> None:
    """The simulated week: its tables, what the second policy changed, and the report."""
    from gpuyard.cli.commands.foresight import caveats, comparison
    from gpuyard.cli.listings.listing import show
    from gpuyard.cli.terminal.progress import show_busy
    from gpuyard.config.reading import loads
    from gpuyard.sim.generate import teams_week
    from gpuyard.sim.runs.at_once import Comparison, run_all
    from gpuyard.sim.study import Study
    from gpuyard.sim.summary import summarise_all

    yard = loads(_configuration(), "demo.yaml")
    trace = teams_week(seed)
    study = Study(trace, yard.pools, yard.settings)
    say(
        f"Three teams share 64 GPUs. Their week of {len(trace):,} jobs is replayed twice: first come, first "
        "served (fifo), and by class and fair share with guarantees (default)."
    )
    with show_busy("simulating"):
        whole = run_all([Comparison(study, [yard.policy(name) for name in POLICIES])])
    summaries = summarise_all(study.results)
    names = [result.policy for result in study.results]
    show([comparison.policy_grid(study.results, summaries), comparison.tenant_grid(names, summaries)])
    print()
    caveats.print_study_caveats(study, list(POLICIES))
    if not whole:
        raise KeyboardInterrupt
    say(waits_sentence(summaries, names))
    say(shares_sentence(summaries))
    say(gangs_sentence(summaries, names))
    path = _write(report, study, seed, summaries)
    say(f"The report, with plots: {path}")


def _next(keep: Path | None) -> None:
    """Say what is kept, and what to do next."""
    from gpuyard.cli.commands.foresight import comparison

    if keep is not None:
        config = keep / "yard.yaml"
        comparison.write(config, _configuration())
        say(f"Its configuration, to change and to simulate with your own jobs: {config.absolute()}")
    if line := path_line(shutil.which("yard"), sys.argv[0]):
        print(f"To type yard in this shell:  {line}\n")
    say("Next, a yard of your own: `yard up -d`, and a first job: `yard run -g 1 -- echo hello`.")
    say("Your own jobs under other policies: `yard simulate --help`.")


def say(text: str) -> None:
    """A paragraph, with an empty line after it. Spaces that may not break a line are printed as spaces."""
    import textwrap

    from gpuyard.cli.terminal.streams import terminal_width

    width = min(_WIDTH, terminal_width(sys.stdout)) if sys.stdout.isatty() else _WIDTH
    lines = textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)
    print(lines.replace(_NBSP, " ") + "\n", flush=True)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(
            f"--keep {folder}: cannot be made: {error.strerror}", "Choose another place."
        ) from None


def _configuration() -> str:
    from importlib import resources

    return resources.files("gpuyard.cli.commands.foresight").joinpath("demo.yaml").read_text(encoding="utf-8")


def _write(report: Path | None, study: "Study", seed: int, summaries: Sequence[dict[str, Any]]) -> Path:
    """Write to the path that was asked for; else here, or if that is not writable, to a directory of its own."""
    from gpuyard.cli.commands.foresight import comparison

    if report is None:
        here = Path(REPORT_NAME)
        report = here if os.access(".", os.W_OK) and not here.is_dir() else _elsewhere()
    comparison.write_report(report, study, seed, summaries)
    return report.absolute()


def path_line(found: str | None, own: str) -> str:
    """What to type so that `yard` is the program that ran this; empty: it is so, or it was run otherwise."""
    own = os.path.abspath(own)
    if os.path.basename(own) != "yard" or (found and os.path.realpath(found) == os.path.realpath(own)):
        return ""
    return f'export PATH="{os.path.dirname(own)}:$PATH"'


def _elsewhere() -> Path:
    import tempfile

    return Path(tempfile.mkdtemp(prefix="yard-demo-")) / REPORT_NAME


# ----------------------------------------------------------------------
# What the second policy changed, team by team


def waits_sentence(summaries: Sequence[dict[str, Any]], names: Sequence[str]) -> str:
    """Mean waits of each team, before and after, and every team that waits longer in any way."""
    from gpuyard.pages import human
    from gpuyard.sim.report.sentences import longer_waits_texts

    before, after = (summary["tenants"] for summary in summaries)
    said = []
    for team in sorted(after, key=lambda team: after[team]["wait_s"]["mean"] or 0):
        old, new = (span_rounded(each[team]["wait_s"]["mean"]) for each in (before, after))
        said.append(_together(f"{team} {new}") + " instead of " + _together(old))
    text = f"With {names[1]} instead of {names[0]} the teams wait on average: {human.list_text(said)}."
    longer = [_together(each) for each in longer_waits_texts(*[{**each, "sizes": {}} for each in summaries])]
    return f"{text} Longer waits: {'; '.join(longer)}." if longer else text


def shares_sentence(summaries: Sequence[dict[str, Any]]) -> str:
    """How far each team was from its due, before and after, and what the change cost."""
    from gpuyard.pages import human

    before, after = (summary["tenants"] for summary in summaries)
    said = [f"{team} {_gap(before[team])}, now {_gap(after[team])}" for team in sorted(after)]
    stopped = summaries[1]["preemptions"]
    lost = human.gpu_hours_text(summaries[1]["destroyed_gpu_s"])
    return (
        f"Of the GPU time used while jobs waited, each team had more or less than its due: "
        f"{'; '.join(said)}. The price: {stopped:,} preemptions, {lost} GPU-hours done again."
    )


def gangs_sentence(summaries: Sequence[dict[str, Any]], names: Sequence[str]) -> str:
    """How long the largest jobs wait, before and after, and when the last job of the week is done."""
    before, after = summaries
    size = list(after["sizes"])[-1]
    jobs = after["sizes"][size]["jobs"]
    if not jobs or not before["sizes"][size]["jobs"]:
        return f"The week has no job of {size} GPUs."

    def change(figure: Callable[[dict[str, Any]], float | None]) -> str:
        return _together(" → ".join([span_rounded(figure(each)) for each in summaries]))

    return (
        f"With {names[1]} instead of {names[0]} the {jobs} jobs of {size} GPUs wait: median "
        f"{change(lambda s: s['sizes'][size]['wait_s']['p50'])}, 95 % within "
        f"{change(lambda s: s['sizes'][size]['wait_s']['p95'])}. An average GPU-hour of work waits "
        f"{change(lambda s: s['work_wait_s'])}, and the last job of the week ends after "
        f"{change(lambda s: s['makespan_s'])}."
    )


def _gap(tenant: dict[str, Any]) -> str:
    from gpuyard.pages import human

    if tenant["share"] is None:
        return "none"
    gap = tenant["share"] - tenant["entitled"]
    said = human.points_text(abs(gap))
    return _together(f"{said} {'more' if gap > 0 else 'less'}") if not said.startswith("0 ") else "its due"


def _together(text: str) -> str:
    """A figure and its unit stay on one line."""
    return text.replace(" ", _NBSP)
