"""A noisy neighbour: what a user's work is like while another user of the yard attacks it, and what it is like without.

    python benchmarks/bench_neighbour.py [--seconds 20] [--attack NAME]… [--store postgres] [--waiting 200000] [--write]
    python benchmarks/bench_neighbour.py --mix --minutes 10

Root's yard with 64 GPUs that are not there. A user submits short jobs and lists them at a steady rate, first in peace
and then, on the same yard, while another user (or a stranger at the port) does one thing as fast as it can; each attack
has a yard of its own. Jobs count by what they wrote themselves. `neighbour_attacks.py` has the attacks in one table.
With `--mix`, three attacks at a time go on, drawn anew every 20 s, on one yard.
"""

import argparse
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from figures import Row, publish, table
from neighbour_attacks import ATTACKS, BY_NAME, Attack
from neighbour_yard import Ground, Wait, Worker, ran, summed, under_attack

ADDED_MS_MAX = 100
"""How much later the answer to another user may come, at p99, than without the attack."""
MEMORY_MIB_MAX = 512
WARM_S = 1.0
"""Not counted: the first start on a new yard takes as long as no other, and in peace it would be the slowest."""
TURN_S = 20.0
AT_ONCE = 3
MIX_HANDS = 4
VERBS = ("submit", "list", "start")


@dataclass(frozen=True, slots=True)
class Plan:
    """How long and how hard."""

    seconds: float = 20.0
    per_s: float = 8.0
    postgres: bool = False
    waiting: int = 0
    seed: int = 1
    more: str = ""
    """What yard.yaml has besides."""


def measured(attacks: Sequence[Attack], plan: Plan) -> Row:
    """One attack, or several at once, on a yard of their own."""
    with ExitStack() as stack:
        ground = Ground(stack, postgres=plan.postgres, more=plan.more)
        if plan.waiting:
            ground.fill(plan.waiting)
        stack.enter_context(ground.dead_files("dead files" in [attack.name for attack in attacks]))
        _worked(ground, plan, WARM_S)
        quiet = _worked(ground, plan, plan.seconds)
        ground.forget_peak()
        cpu_s = ground.cpu_s()
        worker = Worker(ground, plan.seconds, plan.per_s, bool(plan.waiting))
        with ExitStack() as going_on:
            counts = [going_on.enter_context(under_attack(ground, attack)) for attack in attacks]
            time.sleep(plan.seconds)
            did, helpers_mib = _sum(counts), ground.helpers_mib()
        noisy = _counted(ground, worker) | {"helpers_mib": helpers_mib}
        noisy["cpu"] = (ground.cpu_s() - cpu_s) / plan.seconds
        return _row(" + ".join([attack.name for attack in attacks]), quiet, noisy, did)


@dataclass(frozen=True, slots=True)
class Turn:
    """Which attacks of a mix went on from when to when."""

    names: str
    from_s: float
    until_s: float


def mixed(plan: Plan) -> Row:
    """Attacks drawn by lot, some at a time, on one yard for all the time."""
    draw = random.Random(plan.seed)
    with ExitStack() as stack:
        ground = Ground(stack, postgres=plan.postgres, more=plan.more)
        if plan.waiting:
            ground.fill(plan.waiting)
        stack.enter_context(ground.dead_files(True))
        _worked(ground, plan, WARM_S)
        quiet = _worked(ground, plan, min(60.0, plan.seconds))
        ground.forget_peak()
        cpu_s = ground.cpu_s()
        worker = Worker(ground, plan.seconds, plan.per_s, bool(plan.waiting))
        turns: list[Turn] = []
        until_s, did, helpers_mib = time.monotonic() + plan.seconds, _sum(()), 0
        while (left_s := until_s - time.monotonic()) > 0:
            with ExitStack() as turn:
                chosen = draw.sample(ATTACKS, AT_ONCE)
                counts = [turn.enter_context(under_attack(ground, attack, MIX_HANDS)) for attack in chosen]
                _say(
                    f"{left_s:.0f} s left, {ground.peak_mib()} MiB: {', '.join(attack.name for attack in chosen)}"
                )
                began_s = time.time()
                time.sleep(min(TURN_S, left_s))
                turns.append(Turn(" + ".join([attack.name for attack in chosen]), began_s, time.time()))
                helpers_mib = max(helpers_mib, ground.helpers_mib())
                did = _sum([lambda before=did: before, *counts])
        noisy = _counted(ground, worker, turns) | {"helpers_mib": helpers_mib}
        noisy["cpu"] = (ground.cpu_s() - cpu_s) / plan.seconds
        return _row(f"a mix of {len(ATTACKS)}", quiet, noisy, did)


def _sum(counts: Sequence[Callable[[], dict[str, int]]]) -> dict[str, int]:
    each = [count() for count in counts]
    return {key: sum(one[key] for one in each) for key in ("accepted", "refused", "hung_up")}


def _worked(ground: Ground, plan: Plan, seconds: float) -> Row:
    """What the worker's day was like for so long."""
    worker = Worker(ground, seconds, plan.per_s, bool(plan.waiting))
    time.sleep(seconds)
    return _counted(ground, worker) | {"helpers_mib": ground.helpers_mib()}


def _counted(ground: Ground, worker: Worker, turns: Sequence[Turn] = ()) -> Row:
    found = worker.wait()
    peak_mib = ground.peak_mib()
    starts, lost, twice = ran(ground.lines, found["sent"])
    waits: dict[str, list[Wait]] = found["waits"] | {"start": starts}
    return {
        "waits": {verb: summed([took_s for _, took_s in each]) for verb, each in waits.items()},
        "turns": [_of_turn(turn, waits) for turn in turns],
        "refused": len(found["refused"]),
        "refusals": found["refused"][:3],
        "lost": lost,
        "twice": twice,
        "peak_mib": peak_mib,
        "load": os.getloadavg()[0],
    }


def _of_turn(turn: Turn, waits: dict[str, list[Wait]]) -> Row:
    """What was due in one turn of a mix."""
    return {"name": turn.names} | {
        verb: summed([took_s for due_s, took_s in each if turn.from_s <= due_s < turn.until_s])
        for verb, each in waits.items()
    }


def _row(name: str, quiet: Row, noisy: Row, did: dict[str, int]) -> Row:
    """One row: what was added, and whether that is within the limits."""
    added = {verb: noisy["waits"][verb]["p99_ms"] - quiet["waits"][verb]["p99_ms"] for verb in noisy["waits"]}
    broken = [f"{verb} p99 {ms:+.0f} ms" for verb, ms in added.items() if ms > ADDED_MS_MAX]
    broken += [f"{noisy[key]} {key}" for key in ("refused", "lost", "twice") if noisy[key]]
    if noisy["peak_mib"] > MEMORY_MIB_MAX:
        broken.append(f"{noisy['peak_mib']} MiB")
    return {"name": name, "quiet": quiet, "noisy": noisy, "added_ms": added, "did": did, "broken": broken}


# -- the table ---------------------------------------------------------------------------------------------------


def text_of(rows: list[Row], plan: Plan) -> str:
    """The table, and what goes with it."""
    verbs = [*VERBS, *[verb for verb in rows[0]["added_ms"] if verb not in VERBS]]
    loads = [row[when]["load"] for row in rows for when in ("quiet", "noisy")]
    lines = []
    for row in rows:
        quiet, noisy = row["quiet"]["waits"], row["noisy"]["waits"]
        cells = [f"{quiet[verb]['p99_ms']:,.0f} → {noisy[verb]['p99_ms']:,.0f}" for verb in verbs]
        worst = max(noisy[verb]["max_ms"] for verb in VERBS)
        noisy = row["noisy"]
        attacks = row["did"]["accepted"] + row["did"]["refused"]
        lines.append(
            [
                row["name"],
                *cells,
                worst,
                noisy["refused"],
                noisy["lost"] + noisy["twice"],
                noisy["peak_mib"],
                attacks,
            ]
        )
    head = [
        "attack",
        *[f"{verb} p99 ms" for verb in verbs],
        "longest ms",
        "refused",
        "lost or twice",
        "server MiB",
        "attacks",
    ]
    apart = "One server that leads and two that answer (`--no-lead`) on PostgreSQL"
    servers = apart if plan.postgres else "One server on SQLite"
    waiting = f", {plan.waiting:,} other jobs waiting" if plan.waiting else ""
    return (
        f"{servers}{waiting}; the worker asks {plan.per_s:g} times a second, {plan.seconds:g} s in peace "
        f"and as long under attack. Load average {min(loads):.1f} to {max(loads):.1f}.\n\n"
        + table(head, lines)
    )


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} load {os.getloadavg()[0]:.1f} {text}", file=sys.stderr, flush=True)


def _told(row: Row) -> None:
    waits = [(row[when]["waits"], when) for when in ("quiet", "noisy")]
    for found, when in waits:
        figures = ", ".join(
            f"{verb} {each['p50_ms']:.0f}/{each['p99_ms']:.0f}/{each['max_ms']:.0f}"
            for verb, each in found.items()
        )
        _say(
            f"    {when}: p50/p99/max ms: {figures}; {row[when]['peak_mib']} + {row[when]['helpers_mib']} MiB"
        )
    noisy = row["noisy"]
    for turn in sorted(noisy["turns"], key=lambda turn: -turn["start"]["p99_ms"]):
        longest = ", ".join(f"{verb} {turn[verb]['p50_ms']:.0f}/{turn[verb]['p99_ms']:.0f}" for verb in VERBS)
        _say(f"    {turn['name']}: p50/p99 ms: {longest}")
    _say(f"    attacks {row['did']}, server CPU {noisy['cpu']:.2f} cores")
    _say(f"    beyond the limits: {', '.join(row['broken']) or 'nothing'}")
    for refusal in noisy["refusals"]:
        _say(f"    refused: {refusal}")


def run(names: list[str], plan: Plan, mix: bool) -> list[Row]:
    """Every attack that is asked for, one after the other, or the mix of all."""
    rows = []
    for name in ["a mix"] if mix else names:
        _say(name)
        rows.append(mixed(plan) if mix else measured([BY_NAME[name]], plan))
        _told(rows[-1])
    return rows


def main() -> int:
    """Measure, print, and publish if asked to. The exit code says whether a limit was broken."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--attack", action="append", choices=list(BY_NAME), help="only this one; may be repeated"
    )
    parser.add_argument("--seconds", type=float, default=20.0, help="of each half of each attack")
    parser.add_argument("--minutes", type=float, help="the same in minutes")
    parser.add_argument(
        "--per-s",
        type=float,
        default=8.0,
        help="how often the worker asks; seldom, as 0.37: nobody knows of it",
    )
    parser.add_argument("--mix", action="store_true", help="all attacks on one yard, three at a time")
    parser.add_argument(
        "--store",
        choices=("sqlite", "postgres"),
        default="sqlite",
        help="postgres: one server leads, two answer",
    )
    parser.add_argument("--waiting", type=int, default=0, help="jobs of others that wait meanwhile")
    parser.add_argument("--quick", action="store_true", help="4 s each: shows that it works")
    parser.add_argument("--write", action="store_true", help="put the table into docs/benchmarks.md")
    options = parser.parse_args()
    if os.geteuid() != 0:
        print("A noisy neighbour is not measured: only root can act as other users.", file=sys.stderr)
        return 0
    if options.quick and options.write:
        parser.error("figures of a quick run are not to be published")
    seconds = 4.0 if options.quick else 60 * options.minutes if options.minutes else options.seconds
    plan = Plan(seconds, options.per_s, postgres=options.store == "postgres", waiting=options.waiting)
    rows = run(options.attack or list(BY_NAME), plan, options.mix)
    mark = "neighbour" + ("-mix" if options.mix else "") + ("-postgres" if plan.postgres else "")
    mark += "-waiting" if plan.waiting else ""
    publish(mark, text_of(rows, plan), rows, write=options.write)
    return 1 if any(row["broken"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
