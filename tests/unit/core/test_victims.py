"""The order of victims, worked out as far as needed and kept from pass to pass, against the long way."""

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.schedule.decide import decide
from gpuyard.core.schedule.passes import Pass
from gpuyard.core.schedule.running_jobs import find_running, protected_until_ms
from gpuyard.core.schedule.victims import VictimOrder, free_milli
from gpuyard.model import AttemptState, CheckpointSeen, Grant, JobSuspended, NodeCordoned, Settings
from gpuyard.testing import BATCH, URGENT, Yard, ask, nodes, share, tenant

S = 1000
MINUTE = 60 * S
LAST_RESORT = 1 << 80


def long_way(current: Pass, record: JobRecord) -> list[tuple[int, int]]:
    """Every running job is looked at, and every node is ranked: (work destroyed, id) of each candidate in order."""
    state, now_ms, fleet = current.state, current.now_ms, current.state.nodes
    rights = [rule.rights(state, record, now_ms) for rule in current.policy.rules]
    by_node: dict[int, list[tuple[int, int]]] = {}
    kinds = {way.kind for way in record.shape.ways}
    for victim in state.running.values():
        if (
            victim.klass.preemptible
            and protected_until_ms(victim) <= now_ms
            and victim.id not in current.stopping
            and victim.phase in {AttemptState.STARTING, AttemptState.RUNNING, AttemptState.SUSPENDED}
            and any([may_stop(victim) for may_stop in rights])
        ):
            for grant in victim.grants:
                if fleet.kind[grant.node] in kinds:
                    by_node.setdefault(grant.node, []).append((victim.destroyed_gpu_ms(now_ms), victim.id))
    wanted = record.shape.gpus * record.shape.milli * max([way.tasks_per_node for way in record.shape.ways])
    ranked = []
    for number, there in by_node.items():
        free, cost = free_milli(fleet, number), 0
        for destroyed, job_id in sorted(there):
            if free >= wanted:
                break
            cost += destroyed
            grants = [grant for grant in state.running[job_id].grants if grant.node == number]
            free += sum([grant.gpus.bit_count() * grant.milli for grant in grants])
        ranked.append((cost + (LAST_RESORT if free < wanted else 0), number))
    return list(dict.fromkeys([row for _cost, number in sorted(ranked) for row in sorted(by_node[number])]))


def order_of(here: Yard, record: JobRecord, step: int, holds: tuple[Grant, ...] = ()) -> None:
    """Both ways give the same order, however many nodes are asked for at a time."""
    current = Pass(here.state, here.policy, here.now_ms)
    if holds:
        here.state.nodes.shift(holds, -1)
    order = VictimOrder(current, record, list(here.policy.rules), find_running(here.state, here.now_ms))
    found: list[tuple[int, int]] = []
    while more := order.more(step):
        found += [candidate[:2] for candidate in more]
    assert long_way(current, record) == found
    if holds:
        here.state.nodes.shift(holds, 1)


def crowd(policy: str, seed: int) -> tuple[Yard, Random]:
    """Twelve nodes that fill up with jobs of three tenants and two classes, some of which save their work."""
    random = Random(seed)
    teams = [tenant(path, guarantee=32) for path in "abc"]
    classes = (replace(BATCH, min_run_ms=30 * S), replace(BATCH, name="low", priority=-5), URGENT)
    return Yard(policy, nodes(12), settings=Settings(tenants=tuple(teams), classes=classes)), random


def happen(here: Yard, random: Random) -> None:
    """Something, at some time."""
    here.now_ms += random.choice((0, 1, S, 20 * S, 3 * MINUTE))
    for _ in range(random.randrange(5)):
        wanted = random.choice((1, 1, 2, 4, 8, share(250), share(500), ask(8, tasks=3)))
        here.submit(
            wanted,
            tenant=random.choice("aaaaabc"),
            klass=random.choice(("batch", "batch", "low", "urgent")),
            checkpoint_ms=random.choice((0, 0, 7 * S, 5 * MINUTE)),
            restart_cost_ms=random.choice((0, 3 * S)),
            limit_ms=random.choice((5, 60, 600)) * MINUTE,
        )
    here.step()
    running = here.running()
    for job_id in random.sample(running, min(len(running), random.randrange(3))):
        record = here.state.running[job_id]
        what = random.randrange(4)
        if record.phase is AttemptState.STOPPING:
            here.stop_confirmed(job_id)
        elif what == 0:
            here.apply(CheckpointSeen(here.now_ms, job_id, record.attempt, here.now_ms - 1))
        elif what == 1 and record.phase is AttemptState.STARTING:
            here.apply(JobSuspended(here.now_ms, job_id))
        elif what == 2:
            here.end(job_id)
    if not random.randrange(10):
        here.apply(NodeCordoned(here.now_ms, random.randrange(12), "test"))


@pytest.mark.parametrize("policy", ["default", "class", "fair", "srtf"])
@pytest.mark.parametrize("seed", range(2))
def test_the_order_of_victims_is_that_of_the_long_way(policy: str, seed: int) -> None:
    here, random = crowd(policy, seed)
    compared = 0
    for turn in range(90):
        happen(here, random)
        waiting = [r for r in here.state.jobs.values() if r.phase is None and r.shape.ways]
        for record in random.sample(waiting, min(6, len(waiting))):
            if any([rule.applies(here.state, record, here.now_ms) for rule in here.policy.rules]):
                busy = next(iter(here.state.running.values()), None)
                free = here.state.nodes.free_mask
                taken = [
                    Grant(number, mask & -mask, 1000, 0, 0, 0) for number, mask in enumerate(free) if mask
                ]
                order_of(here, record, 1 + turn % 5, tuple(taken[:2]) if busy and turn % 3 == 0 else ())
                compared += 1
    assert compared > 15


def calls(monkeypatch: pytest.MonkeyPatch, count: int) -> int:
    """How many nodes a decision looks at for an urgent job on a full cluster of so many nodes, once it knows them."""
    here = Yard("class", nodes(count))
    for number in range(count):
        here.now_ms += S
        for _ in range(2):
            here.submit(4, limit_ms=600 * MINUTE)
        if number % 16 == 15:
            here.step()
    here.step()
    here.now_ms += 10 * MINUTE
    looked: list[int] = []
    real: Callable[[VictimOrder, int], None] = VictimOrder._look_at
    monkeypatch.setattr(
        VictimOrder, "_look_at", lambda order, number: (looked.append(number), real(order, number))
    )
    for wanted in (1, 4, 8):
        here.submit(wanted, klass="urgent", limit_ms=MINUTE)
        plan = decide(here.state, here.policy, here.now_ms)
        assert plan.stops
        here.commit(plan)
        here.now_ms += S
    monkeypatch.undo()
    return len(looked)


def test_more_nodes_are_not_more_to_look_at(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = calls(monkeypatch, 16), calls(monkeypatch, 160)
    assert many <= few + 2, f"{few} nodes looked at of 16, {many} of 160"
