"""What is kept of running jobs from pass to pass, against the same worked out from nothing."""

from random import Random

import pytest

from gpuyard.core.schedule.held_profile import HeldProfile, unheld_from_ms
from gpuyard.core.schedule.reserve import ReadyTimes, in_time
from gpuyard.core.schedule.running_jobs import RunningJobs, find_running
from gpuyard.core.schedule.sorted_ends import SortedEnds
from gpuyard.model import AttemptState, JobSuspended
from gpuyard.testing import Yard, ask, node, nodes, share, tenant

S = 1000


@pytest.mark.parametrize("seed", range(3))
def test_sorted_ends_are_a_sorted_list(seed: int) -> None:
    random = Random(seed)
    rows = [(random.randrange(500), number, random.choice((250, 1000, 8000))) for number in range(900)]
    ends, plain = SortedEnds(list(rows)), sorted(rows)
    for number in range(900, 6000):
        if plain and random.random() < (0.3 if number < 3500 else 0.7):
            row = plain.pop(random.randrange(len(plain)))
            ends.remove(row)
        else:
            row = (random.randrange(500), number, random.choice((250, 1000, 8000)))
            ends.add(row)
            plain = sorted([*plain, row])
        if number % 50 == 0:
            assert plain == list(ends)
            assert (plain[-1][0] if plain else 0) == ends.last_ms()
            for time_ms in (-1, 0, random.randrange(500), 499, 1000):
                due = [row for row in plain if row[0] <= time_ms]
                assert (sum([row[2] for row in due]), len(due)) == ends.until(time_ms)


def random_yard(seed: int) -> tuple[Yard, Random]:
    fleet = [*nodes(6), *[node(f"old-{i}", 4, "A100-80GB", pool="q", cpu_milli=16_000) for i in range(4)]]
    teams = [tenant("a", guarantee=24, lend=0), tenant("b", guarantee=16, lend=8), tenant("b/x"), tenant("c")]
    return Yard("default", fleet, teams), Random(seed)


def happen(here: Yard, random: Random) -> None:
    here.now_ms += random.choice((0, 1, S, 20 * S))
    for _ in range(random.randrange(5)):
        wanted = random.choice(
            (
                1,
                2,
                8,
                ask(2, cpu_milli=7000),
                ask(4, 3, memory_mib=1 << 19),
                ask(1, pools=("q",)),
                share(300),
                share(300, cpu_milli=9000),
            )
        )
        limit_ms = random.choice((S, 60 * S, 600 * S))
        here.submit(wanted, tenant=random.choice(("a", "b", "b/x", "c", "c", "c")), limit_ms=limit_ms)
    here.step()
    for job_id in here.running():
        record = here.state.running[job_id]
        if record.phase is AttemptState.STOPPING:
            here.stop_confirmed(job_id)
        elif not random.randrange(8):
            here.end(job_id)
        elif record.phase is AttemptState.STARTING and not random.randrange(20):
            here.apply(JobSuspended(here.now_ms, job_id))


@pytest.mark.parametrize("seed", range(2))
def test_what_is_kept_is_what_a_look_at_every_job_gives(seed: int) -> None:
    here, random = random_yard(seed)
    eaten = 0
    for _ in range(60):
        happen(here, random)
        state, now_ms = here.state, here.now_ms
        kept = find_running(state, now_ms)
        below = {number: kept.ends_below(state, number) for number in range(len(state.tenants.path))}
        leaves, log = kept.ends_of_leaves(state), state.moved
        anew = RunningJobs(state)
        state.moved = log
        for number, by_model in below.items():
            again = anew.ends_below(state, number)
            assert {m: list(e) for m, e in by_model.items() if list(e)} == {
                m: list(e) for m, e in again.items()
            }
        again_leaves = anew.ends_of_leaves(state)
        assert {k: list(e) for k, e in leaves.items() if list(e)} == {
            k: list(e) for k, e in again_leaves.items()
        }
        counts = {key: group.count for key, group in kept.groups.items() if group.count}
        assert counts == {key: group.count for key, group in anew.groups.items()}
        assert kept.next_unprotected_ms(state, now_ms) == anew.next_unprotected_ms(state, now_ms)
        # What tenants hold back: at the times that matter, against all times one after the other.
        profile = HeldProfile(state, now_ms, state.running.values())
        for record in [r for r in state.jobs.values() if r.phase is None][:6]:
            for way in record.shape.ways:
                from_ms = now_ms + random.choice((0, 1, 5 * S))
                want = profile.earliest(record, way.model, from_ms)
                assert want == unheld_from_ms(state, now_ms, (), record, way.model, from_ms)
                eaten += want > from_ms
    assert eaten


@pytest.mark.parametrize("seed", range(2))
def test_nodes_come_in_the_order_in_which_they_have_the_room(seed: int) -> None:
    here, random = random_yard(seed)
    compared = 0
    for _ in range(60):
        happen(here, random)
        for record in [r for r in here.state.jobs.values() if r.phase is None][:6]:
            for way in record.shape.ways:
                for tasks in {way.tasks_per_node, way.rest_tasks or way.tasks_per_node}:
                    whole = ReadyTimes(here.state.nodes, record.shape, way.kind, way.pools, tasks)
                    assert whole.refresh(here.state.nodes) == list(
                        in_time(here.state, record.shape, way, tasks)
                    )
                    compared += 1
    assert compared > 50
