"""Streams of slice requests with departures, and the yard's own core on them: a loss system.

Requests come at random times and run for random times (log-normal, mean one hour). One that finds no room when it
comes is lost. Every request goes the way of a real job: `JobSubmitted`, `decide`, `AttemptStarted` or `JobCancelled`,
and at last `AttemptEnded`; demand is learned on the way, as live, and nothing is known before.
"""

import heapq
import math
import random
from time import process_time
from typing import NamedTuple

from gpuyard.core import State, apply, decide
from gpuyard.model import (
    Ask,
    AttemptEnded,
    AttemptStarted,
    ConfigSet,
    DemandLearned,
    Job,
    JobCancelled,
    JobSpec,
    JobSubmitted,
    Mig,
    Node,
    NodeAdded,
    Outcome,
    PolicySpec,
    Settings,
)
from gpuyard.model.mig import MIG_MODELS
from gpuyard.packing.learning import Learner
from gpuyard.packing.slices.worth import list_profiles
from gpuyard.policies.registry import build

GEOMETRY = MIG_MODELS["H100"]
SIZES = list_profiles(GEOMETRY)
HOUR_S = 3600.0
HOURS = 24
NODE_GPUS = 4

MIXES = {
    # Percent of the requests: 1g.10gb, 1g.20gb, 2g.20gb, 3g.40gb, 4g.40gb, 7g.80gb.
    "small": (60, 10, 20, 7, 2, 1),
    "balanced": (30, 10, 25, 20, 10, 5),
    "large": (10, 5, 15, 35, 25, 10),
    "drifting": (),
}
"""The last goes from small at midnight to large at noon and back."""


class Request(NamedTuple):
    """One line of a stream."""

    at_s: float
    size: int
    """Which of `SIZES`."""
    run_s: float


class Played(NamedTuple):
    """What became of a stream."""

    acceptance: float
    """Part of the requests that found room when they came."""
    utilisation: float
    """Compute slices asked for and in use, of all there are, over the day."""
    cpu_s: float = 0.0


def mix_at(mix: str, at_s: float) -> list[float]:
    """The parts of the requests at a time of day."""
    if MIXES[mix]:
        return [part / 100 for part in MIXES[mix]]
    noon = 0.5 - 0.5 * math.cos(2 * math.pi * at_s / (HOURS * HOUR_S))
    pairs = zip(MIXES["small"], MIXES["large"], strict=True)
    return [(small * (1 - noon) + large * noon) / 100 for small, large in pairs]


def stream(mix: str, load: float, gpus: int, seed: int) -> list[Request]:
    """A day of requests that ask for `load` times what the GPUs have."""
    rng = random.Random(f"{mix} {load} {seed}")
    at_s, found = 0.0, []
    while True:
        parts = mix_at(mix, at_s)
        mean = sum([part * size.compute for part, size in zip(parts, SIZES, strict=True)])
        at_s += rng.expovariate(load * gpus * GEOMETRY.compute / mean / HOUR_S)
        if at_s >= HOURS * HOUR_S:
            return found
        size = rng.choices(range(len(SIZES)), parts)[0]
        found.append(Request(at_s, size, rng.lognormvariate(-0.5, 1.0) * HOUR_S))


def through_core(requests: list[Request], gpus: int, placement: str) -> Played:
    """The stream through `apply` and `decide`, with GPUs cut on demand."""
    state = State()
    apply(state, ConfigSet(0, Settings()))
    for number in range(gpus // NODE_GPUS):
        apply(
            state,
            NodeAdded(0, Node(f"n{number:04}", "mig", "mig", GEOMETRY.model, NODE_GPUS, 64_000, 1 << 20)),
        )
    policy = build(PolicySpec(placement, order=("fifo",), placement=placement, backfill="none"))
    specs = [JobSpec("mig", Ask(Mig(1, size.name))) for size in SIZES]
    learner, ends, taken = Learner(), list[tuple[int, int]](), 0
    used_ms, last_ms = 0, int(HOURS * HOUR_S * 1000)
    began_s = process_time()
    for job_id, (at_s, size, run_s) in enumerate(requests, start=1):
        now_ms = int(at_s * 1000)
        while ends and ends[0][0] <= now_ms:
            end_ms, ended = heapq.heappop(ends)
            apply(state, AttemptEnded(end_ms, ended, 1, Outcome.COMPLETED))
        apply(state, JobSubmitted(now_ms, Job(job_id, specs[size], now_ms)))
        if (learned := learner.look(state)) is not None:
            apply(state, DemandLearned(now_ms, learned))
        plan = decide(state, policy, now_ms)
        if not plan.starts:
            apply(state, JobCancelled(now_ms, job_id))
            continue
        apply(state, AttemptStarted(now_ms, job_id, 1, plan.starts[0].grants))
        end_ms = now_ms + int(run_s * 1000)
        heapq.heappush(ends, (end_ms, job_id))
        taken += 1
        used_ms += SIZES[size].compute * (min(end_ms, last_ms) - now_ms)
    cpu_s = process_time() - began_s
    return Played(taken / len(requests), used_ms / (gpus * GEOMETRY.compute * last_ms), cpu_s)
