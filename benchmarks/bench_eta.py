"""Start estimates on the Philly jobs: does the p90 cover nine starts of ten, and how wide is it?

    python benchmarks/bench_eta.py --data DIR [--weeks 4 6 8] [--policies fifo fair] [--jobs 300] [--runs 9] [--write]

The jobs of Philly on a quarter of its nodes, shared, as in `bench_philly`. Whenever a job of the week is submitted and
has to wait, every k-th such job is asked about at that moment: the state is run forward, with run times and arrivals
drawn from the two weeks before as far as they were known by then. Its own run time, and that of every job that has not
ended, is never looked at. Both are stretched by what earlier estimates of the same week turned out to be worth, again
only as far as that was known.

The baseline is the answer by time limits alone (`core/estimate`): those ahead are booked in at their limits. The list
has no limits; the importer draws them as U(1, 3) x run time + 60 s, so limits tell much about run times here, to the
baseline as to the estimate. `--site-limit HOURS` gives every job the same limit instead.

Where the stretch of the p90 begins (x1.1) and how many estimates it looks back on (100) were chosen on week 5 alone.
That the p50 is stretched too was decided after a look at week 6, where unstretched it covered a fifth; week 8 was not
looked at before.
"""

import argparse
import json
import os
import sys
from array import array
from collections.abc import Sequence
from multiprocessing import get_context
from pathlib import Path
from statistics import mean, median

from bench_philly import read, settings
from eta_replay import WEEK_MS, Answer, Question, answer, replay
from figures import Row, publish, table

from gpuyard.core.schedule.policy import Policy
from gpuyard.model.units import HOUR_MS
from gpuyard.policies.registry import PRESETS, build
from gpuyard.sim.calibration import GivenEstimate, Track
from gpuyard.sim.trace import Trace

DIVIDE = 4
_HELD: list[tuple[Trace, Policy, int]] = []
"""What the workers share, set before they are forked."""


def ask(question: Question) -> Answer:
    """One question, in a worker."""
    trace, policy, runs = _HELD[-1]
    return answer(trace, policy, question, runs)


def stretched(answers: Sequence[Answer]) -> list[Answer]:
    """The same as a yard would have told them, having learned from those before whose jobs had started by then."""
    track, waiting, told = Track(), list[tuple[int, int]](), []
    for each in sorted(answers, key=lambda a: (a.now_ms, a.job_id)):
        for at_ms, job_id in sorted(waiting):
            if at_ms <= each.now_ms:
                track.started(job_id, at_ms)
        waiting = [(at_ms, job_id) for at_ms, job_id in waiting if at_ms > each.now_ms]
        if each.p50_ms is not None and each.p90_ms is not None:
            p50_ms = track.stretched(50, each.p50_ms, each.now_ms)
            p90_ms = max(p50_ms, track.stretched(90, each.p90_ms, each.now_ms))
            track.give(each.job_id, GivenEstimate(each.now_ms, {50: each.p50_ms, 90: each.p90_ms}))
            waiting.append((each.now_ms + each.waited_ms, each.job_id))
            told.append(each._replace(p50_ms=p50_ms, p90_ms=p90_ms))
        else:
            told.append(each)
    return told


def covered(pairs: Sequence[tuple[int, int | None]]) -> float:
    """How many of the waits were within what was told; what could not be told covers nothing."""
    return round(sum(told is not None and waited <= told for waited, told in pairs) / len(pairs), 4)


def pinball_h(pairs: Sequence[tuple[int, int | None]], percent: int) -> float:
    """The loss that is least for the true percentile, in hours; of those that were told."""
    known = [(waited, told) for waited, told in pairs if told is not None]
    losses = [(w - t) * percent if w > t else (t - w) * (100 - percent) for w, t in known]
    return round(mean(losses) / 100 / HOUR_MS, 4)


def hours(values: Sequence[int | None]) -> dict[str, float]:
    """Mean and median, of those that were told."""
    known = [value for value in values if value is not None]
    return {"mean": round(mean(known) / HOUR_MS, 3), "median": round(median(known) / HOUR_MS, 3)}


def measured(policy: str, week: int, raw: Sequence[Answer], at_once: int, waited: int) -> Row:
    """The figures of one week under one policy."""
    told = stretched(raw)
    p50 = [(each.waited_ms, each.p50_ms) for each in told]
    p90 = [(each.waited_ms, each.p90_ms) for each in told]
    bound = [(each.waited_ms, each.bound_ms) for each in told]
    spreads = [a.p90_ms - a.p50_ms for a in told if a.p90_ms is not None and a.p50_ms is not None]
    return {
        "policy": policy,
        "week": week,
        "at_once": at_once,
        "waited": waited,
        "asked": len(told),
        "untold": sum(each.p90_ms is None for each in told),
        "wait_h": hours([each.waited_ms for each in told]),
        "covered_p50": covered(p50),
        "covered_p90": covered(p90),
        "covered_p50_unstretched": covered([(each.waited_ms, each.p50_ms) for each in raw]),
        "covered_p90_unstretched": covered([(each.waited_ms, each.p90_ms) for each in raw]),
        "covered_bound": covered(bound),
        "p90_h": hours([each.p90_ms for each in told]),
        "spread_h": hours(spreads),
        "bound_h": hours([each.bound_ms for each in told]),
        "pinball_p50_h": pinball_h(p50, 50),
        "pinball_p90_h": pinball_h(p90, 90),
        "pinball_bound_h": pinball_h(bound, 90),
        "cpu_s": round(mean(each.cpu_s for each in told), 3),
    }


def weeks_of(trace: Trace, nodes: dict[str, int], policy: str, options: argparse.Namespace) -> list[Row]:
    """Replay, ask, compare."""
    total, setup, built = sum(nodes.values()), settings(trace, nodes, "shared"), build(PRESETS[policy])
    counted = replay(trace, total, setup, built, dict.fromkeys(options.weeks, 1 << 30))
    every = {week: max(1, counted.waited[week] // options.jobs) for week in options.weeks}
    played = replay(trace, total, setup, built, every)
    questions = list(played.questions.values())
    _HELD.append((trace, built, options.runs))
    kept = options.answers / f"{policy}.json" if options.answers else None
    answers = [Answer(*row) for row in json.loads(kept.read_text())] if kept and kept.exists() else []
    done = {each.job_id for each in answers}
    left = [question for question in questions if question.job_id not in done]
    with get_context("fork").Pool(options.workers) as pool:
        for each in pool.imap(ask, left, chunksize=4):
            answers.append(each)
            if not len(answers) % 20:
                print(f"{policy}: {len(answers)} of {len(questions)}", file=sys.stderr)
                if kept:
                    kept.write_text(json.dumps(answers), encoding="utf-8")
    if kept:
        kept.write_text(json.dumps(answers), encoding="utf-8")
    return [
        measured(
            policy,
            week,
            [each for each in answers if each.now_ms // WEEK_MS == week],
            played.at_once[week],
            played.waited[week],
        )
        for week in options.weeks
    ]


def shown(rows: Sequence[Row]) -> str:
    """The table."""
    head = ["policy, week", "asked", "wait mean h", "p50 covers", "p90 covers", "limits cover"]
    head += ["p90 mean h", "median", "limits mean h", "median", "pinball p90 h", "limits"]
    lines = []
    for row in rows:
        shares = [f"{100 * row[name]:.1f} %" for name in ("covered_p50", "covered_p90", "covered_bound")]
        widths = [row[name][how] for name in ("p90_h", "bound_h") for how in ("mean", "median")]
        losses = [row[name] for name in ("pinball_p90_h", "pinball_bound_h")]
        name = f"{row['policy']}, {row['week']}"
        lines.append([name, row["asked"], row["wait_h"]["mean"], *shares, *widths, *losses])
    return table(head, lines)


def findings(rows: Sequence[Row], runs: int) -> str:
    """What the rows say, in words."""
    asked = sum(row["asked"] for row in rows)
    kept = sum(round(row["covered_p90"] * row["asked"]) for row in rows)
    outside = [f"{row['policy']}, {row['week']}" for row in rows if not 0.85 <= row["covered_p90"] <= 0.95]
    rest = f"outside of 85 to 95 %: {'; '.join(outside)}" if outside else "each within 85 to 95 %"
    said = [
        f"In all, {kept} of {asked} starts were no later than the p90 ({100 * kept / asked:.1f} %); {rest}.\n"
    ]
    for row in rows:
        part = 100 * (1 - row["p90_h"]["mean"] / row["bound_h"]["mean"])
        waited, at_once = row["waited"], row["at_once"]
        said.append(
            f"* `{row['policy']}`, week {row['week']}: {at_once:,} jobs started at once and {waited:,} had to wait. "
            f"The p90 is {part:.0f} % {'narrower' if part > 0 else 'wider'} than the answer by limits (mean of "
            f"p90 - now); p90 - p50 is {row['spread_h']['mean']:.2f} h in the mean. Unstretched, p50 and p90 "
            f"cover {100 * row['covered_p50_unstretched']:.1f} % and {100 * row['covered_p90_unstretched']:.1f} %. "
            f"{row['untold']} of {row['asked']} could not be told. "
            f"{row['cpu_s']:.2f} CPU s for an estimate of {runs} runs."
        )
    return "\n".join(said)


def main() -> int:
    """Measure, print, and publish if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, help="folder of the two CSV files")
    parser.add_argument("--weeks", type=int, nargs="+", default=[4, 6, 8], help="weeks of the list, from 0")
    parser.add_argument("--policies", nargs="+", default=["fifo", "fair"], choices=sorted(PRESETS))
    parser.add_argument("--jobs", type=int, default=300, help="ask about so many jobs of each week")
    parser.add_argument("--runs", type=int, default=9, help="runs of each estimate")
    parser.add_argument("--site-limit", type=int, metavar="HOURS", help="the same time limit for every job")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--answers", type=Path, help="folder that keeps the answers; what is there is not asked again"
    )
    parser.add_argument("--write", action="store_true", help="put the table into docs/benchmarks.md")
    options = parser.parse_args()
    if options.data is None:
        print("bench_eta: skipped; give --data DIR with the Philly files")
        return 0
    trace, given = read(options.data)
    if options.site_limit:
        trace.limit_ms = array("q", [options.site_limit * HOUR_MS]) * len(trace)
    nodes = {vc: -(-count // DIVIDE) for vc, count in given.items()}
    rows = []
    for policy in options.policies:
        rows += weeks_of(trace, nodes, policy, options)
        print(rows[-len(options.weeks) :], file=sys.stderr)
    text = f"{sum(nodes.values())} nodes of 8 GPUs (divided by {DIVIDE}), shared; {options.runs} runs an estimate."
    publish("eta", "\n\n".join([text, shown(rows), findings(rows, options.runs)]), rows, write=options.write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
