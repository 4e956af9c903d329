"""The jobs under `bench_slurm`, and the figures of a run: from what the jobs themselves wrote and nothing else."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import mean

from figures import Row
from load_clients import percentile

GPUS = 64
GPUS_PER_NODE = 8
WEIGHTS = {"batch": 1, "research": 2, "product": 1}
"""Tenants and their shares."""

_SIZES = {1: 45, 2: 20, 4: 15, 8: 12, 16: 5, 32: 3}
"""GPUs of a job, and how many of a hundred jobs ask for so many. From 16 on they are gangs of whole nodes."""

_SENDERS = {"batch": {1: 5, 2: 4, 4: 2, 8: 1, 16: 0, 32: 0}, "research": dict.fromkeys(_SIZES, 2)}
"""Who sends jobs of a size; those not named send one of each kind."""

BIG = 16
_STEP_MS = 250


@dataclass(frozen=True, slots=True)
class Sent:
    """A job: when it comes, and what it does."""

    number: int
    at_ms: int
    tenant: str
    gpus: int
    run_ms: int
    limit_min: int
    """Slurm counts time limits in minutes, so both sides are told minutes."""

    @property
    def nodes(self) -> int:
        """How many nodes it takes."""
        return max(1, self.gpus // GPUS_PER_NODE)


@dataclass(frozen=True, slots=True)
class Ran:
    """What became of it, in milliseconds of the machine's clock."""

    sent: Sent
    submitted_ms: int
    started_ms: int
    ended_ms: int

    @property
    def wait_ms(self) -> int:
        """From its submission to its own first line."""
        return self.started_ms - self.submitted_ms


def jobs(count: int, seed: int, load: float) -> list[Sent]:
    """A mixed stream: run times lognormal around six seconds, arrivals Poisson at this load until the last."""
    random = Random(seed)
    drawn = []
    for _ in range(count):
        gpus = random.choices(list(_SIZES), list(_SIZES.values()))[0]
        weights = [_SENDERS.get(tenant, {}).get(gpus, 1) for tenant in WEIGHTS]
        tenant = random.choices(list(WEIGHTS), weights)[0]
        run_ms = int(1000 * min(60.0, max(1.0, random.lognormvariate(1.8, 0.9))))
        limit_min = max(1, -(-int(run_ms * random.uniform(1.5, 4.0)) // 60_000))
        drawn.append((tenant, gpus, run_ms, limit_min))
    work_ms = sum(gpus * run_ms for _tenant, gpus, run_ms, _limit in drawn)
    gap_ms = work_ms / GPUS / load / count
    found, at_ms = [], 0.0
    for number, each in enumerate(drawn, 1):
        at_ms += random.expovariate(1 / gap_ms)
        found.append(Sent(number, int(at_ms), *each))
    return found


def script(sent: Sent, folder: Path) -> str:
    """It writes when it starts and when it ends, under its own number, and sleeps in between."""
    line = f'echo "{sent.number} {{}} $(date +%s%3N) $SLURM_JOB_NUM_NODES $CUDA_VISIBLE_DEVICES" >>{folder}/lines'
    return (
        "\n".join(
            [
                "#!/bin/sh",
                line.format("start"),
                f"sleep {sent.run_ms / 1000}",
                line.format("end"),
            ]
        )
        + "\n"
    )


def read(folder: Path, sent: Sequence[Sent], submitted_ms: Mapping[int, int]) -> tuple[list[Ran], Row]:
    """The runs, and how many jobs ran never, unfinished, more than once or with less than they asked for."""
    started: dict[int, list[int]] = {}
    ended: dict[int, list[int]] = {}
    had: dict[int, int] = {}
    for line in (folder / "lines").read_text(encoding="ascii").splitlines():
        number, what, at_ms, nodes, gpus = line.split()
        (started if what == "start" else ended).setdefault(int(number), []).append(int(at_ms))
        had[int(number)] = int(nodes) * len(gpus.split(","))
    found = [
        Ran(each, submitted_ms[each.number], started[each.number][0], ended[each.number][-1])
        for each in sent
        if each.number in started and each.number in ended
    ]
    twice = sum(len(times) > 1 for times in started.values())
    never, unfinished = len(sent) - len(started), len(started) - len(ended)
    short = sum(had.get(each.number, each.gpus) < each.gpus for each in sent)
    return found, {"never": never, "unfinished": unfinished, "twice": twice, "short": short}


def figures_of(ran: Sequence[Ran]) -> Row:
    """What people look at."""
    first_ms, last_ms = min(each.submitted_ms for each in ran), max(each.ended_ms for each in ran)
    waits_s = sorted(each.wait_ms / 1000 for each in ran)
    used = sum(each.sent.gpus * (each.ended_ms - each.started_ms) for each in ran)
    return {
        "jobs": len(ran),
        "makespan_s": (last_ms - first_ms) / 1000,
        "wait_mean_s": mean(waits_s),
        "wait_p50_s": percentile(waits_s, 50),
        "wait_p95_s": percentile(waits_s, 95),
        "big_wait_mean_s": mean(each.wait_ms / 1000 for each in ran if each.sent.gpus >= BIG),
        "utilisation_pct": 100 * used / GPUS / (last_ms - first_ms),
        "unfairness_pct": 100 * unfairness(ran),
    }


def unfairness(ran: Sequence[Ran]) -> float:
    """How much of the GPUs in use is with the wrong tenants, in the mean over the time in which somebody waits.

    What is in use is dealt out by weight among those who want it, no more to anybody than he asks for; the error is
    half of the absolute differences between that and what each has.
    """
    first_ms, last_ms = min(each.submitted_ms for each in ran), max(each.started_ms for each in ran)
    errors = []
    for at_ms in range(first_ms, last_ms, _STEP_MS):
        has = dict.fromkeys(WEIGHTS, 0)
        wants = dict.fromkeys(WEIGHTS, 0)
        for each in ran:
            if each.submitted_ms <= at_ms < each.ended_ms:
                wants[each.sent.tenant] += each.sent.gpus
                if each.started_ms <= at_ms:
                    has[each.sent.tenant] += each.sent.gpus
        if has == wants:
            continue
        due = dealt(sum(has.values()), wants)
        errors.append(sum(abs(has[tenant] - due[tenant]) for tenant in WEIGHTS) / 2 / GPUS)
    return mean(errors) if errors else 0.0


def dealt(total: float, wants: Mapping[str, int]) -> dict[str, float]:
    """So much by weight, no more to anybody than he wants."""
    due: dict[str, float] = {}
    left, open_ = float(total), {tenant: float(want) for tenant, want in wants.items()}
    while open_:
        per_weight = left / sum(WEIGHTS[tenant] for tenant in open_)
        full = [tenant for tenant, want in open_.items() if want <= per_weight * WEIGHTS[tenant]]
        if not full:
            return {**due, **{tenant: per_weight * WEIGHTS[tenant] for tenant in open_}}
        for tenant in full:
            due[tenant] = open_.pop(tenant)
            left -= due[tenant]
    return due
