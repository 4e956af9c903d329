"""Fair share, computed by hand: charges, decay in fixed point on aligned periods, and the order of a small tree."""

from dataclasses import replace

import pytest

from gpuyard.core.state.dump import dump
from gpuyard.model import ConfigSet, Settings, Tenant
from gpuyard.testing import BATCH, ask, nodes, share, tenant
from harness.yard import Yard

S = 1000
"""Milliseconds of a second; also what a second of one H100 is charged here, in thousands."""

PLAIN = Settings(
    classes=(BATCH,), share_weights={"H100": 1000, "A100-80GB": 500}, half_life_ms=10 * S, period_ms=10 * S
)
"""Usage halves with every period of ten seconds, and a GPU is charged 1000 a millisecond."""


def usage(yard: Yard, path: str) -> int:
    """Decayed charge of closed periods, in GPU-seconds of an H100 (times a million, as it is kept)."""
    yard.tick()
    (row,) = [row for row in dump(yard.state)["tenants"] if row["path"] == path]
    return row["usage"]


def yard(*tenants: Tenant, policy: str = "fair", fleet: int = 2, **changes: int) -> Yard:
    return Yard(policy, nodes(fleet), settings=replace(PLAIN, tenants=tenants, **changes))


def test_a_period_is_charged_when_it_closes_and_halves_with_every_one_after() -> None:
    here = yard()
    job = here.submit(2, tenant="a")
    here.step()
    here.wait(10 * S)
    assert 10 * 2 * S * S // 2 == usage(here, "a") == usage(here, "")
    here.end(job)
    here.wait(10 * S)
    assert 10 * 2 * S * S // 4 == usage(here, "a")
    here.wait(30 * S)
    assert 10 * 2 * S * S // 32 == usage(here, "a")


def test_only_the_part_of_a_period_that_was_used_is_charged() -> None:
    """Four seconds in the first period, two in the second: (4 / 2 + 2) / 2."""
    here = yard()
    here.wait(6 * S)
    job = here.submit(1, tenant="a")
    here.step()
    here.wait(6 * S)
    here.end(job)
    here.wait(8 * S)
    assert (4 * S * S // 2 + 2 * S * S) // 2 == usage(here, "a")


def test_a_first_job_after_days_of_idleness_is_charged_from_its_start() -> None:
    """Nobody ticks an idle yard, so a start may find periods open that ended long ago."""
    here = Yard("fair", nodes(1), settings=PLAIN, now_ms=1_772_409_600_000)
    here.submit(1, tenant="a")
    here.step()
    here.wait(10 * S)
    assert 10 * S * S // 2 == usage(here, "a")
    here.wait(10 * S)
    assert (10 * S * S // 2 + 10 * S * S) // 2 == usage(here, "a")


def test_several_periods_closed_at_once_are_as_good_as_one_by_one() -> None:
    late, often = yard(), yard()
    for here in (late, often):
        here.submit(3, tenant="a")
        here.step()
    often.wait(50 * S)
    late.now_ms = 50 * S
    late.tick()
    assert abs(usage(often, "a") - usage(late, "a")) <= 5


def test_another_period_length_moves_no_charge() -> None:
    """The job ran from 5 s; at 25 s the period becomes 5 s. What was not charged yet is charged at its close."""
    here = yard()
    here.wait(5 * S)
    here.submit(1, tenant="a")
    here.step()
    here.wait(20 * S)
    before = (5 * S * S // 2 + 10 * S * S) // 2
    assert before == usage(here, "a")
    here.apply(ConfigSet(here.now_ms, replace(PLAIN, period_ms=5 * S, half_life_ms=5 * S)))
    here.wait(5 * S)
    # 20 s to 30 s: five seconds before the new period began, five within it.
    assert (before + 10 * S * S) // 2 == usage(here, "a")


@pytest.mark.parametrize(
    ("wanted", "gpus"),
    [
        (ask(2), 2.0),
        (ask(1, 3), 3.0),
        (share(250), 0.25),
        (ask(1, cpu_milli=32_000), 4.0),
        (ask(1, memory_mib=1 << 19), 4.0),
        (ask(0, cpu_milli=8_000), 1.0),
        (ask(1, 2, cpu_milli=24_000), 6.0),
    ],
)
def test_a_job_is_charged_the_largest_of_its_parts_of_a_node(wanted, gpus: float) -> None:
    """Half the cores of an 8-GPU node keep four GPUs from others."""
    here = yard()
    here.submit(wanted, tenant="a")
    here.step()
    here.wait(10 * S)
    assert int(gpus * 10 * S * S) // 2 == usage(here, "a")


def test_a_cheaper_model_is_charged_less() -> None:
    here = Yard("fair", nodes(1, model="A100-80GB"), settings=PLAIN)
    here.submit(2, tenant="a")
    here.step()
    here.wait(10 * S)
    assert 10 * S * S // 2 == usage(here, "a")


def start_order(here: Yard, *paths: str) -> list[str]:
    """Submit one whole-fleet job per tenant while the fleet is full; in which order do they start?"""
    (blocker,) = here.running()
    by_id = {here.submit(8, tenant=path): path for path in paths}
    assert [] == here.started(here.step())
    here.end(blocker)
    order = []
    for _ in paths:
        (job,) = here.started(here.step())
        order.append(by_id[job])
        here.end(job)
    return order


def used(here: Yard, path: str, gpus: int) -> None:
    """A tenant uses so many GPUs for one period."""
    job = here.submit(gpus, tenant=path)
    here.step()
    here.wait(10 * S)
    here.end(job)


def test_the_least_served_for_its_weight_goes_first_at_every_level() -> None:
    """a (weight 1): x used 4. b (weight 3): y used 8, z used 1. By then 8 / 3 < 4, so b goes before a, z before y."""
    here = yard(tenant("a"), tenant("b", 3), tenant("b/y"), tenant("b/z", 2), fleet=1)
    used(here, "b/y", 8)
    used(here, "b/z", 1)
    used(here, "a/x", 4)
    here.submit(8, tenant="blocker")
    here.step()
    # At the end of the three periods: b/y 8 / 8, b/z 1 / 4, a/x 4 / 2, and b 9-odd eighths over 3.
    assert ["b/z", "b/y", "a/x"] == start_order(here, "a/x", "b/y", "b/z")


def test_equals_go_by_their_number_in_the_tree() -> None:
    here = yard(tenant("b"), tenant("a"), fleet=1)
    here.submit(8, tenant="blocker")
    here.step()
    assert ["a", "b", "new"] == start_order(here, "new", "b", "a")


def test_a_team_competes_as_one_of_its_members() -> None:
    """What the team submits itself stands beside its members, not before them."""
    here = yard(tenant("a"), tenant("a/x"), fleet=1)
    used(here, "a", 8)
    here.submit(8, tenant="blocker")
    here.step()
    assert ["a/x", "a"] == start_order(here, "a", "a/x")
    assert usage(here, "a/-") > 0


def test_one_pass_counts_what_it_has_started() -> None:
    """Two tenants with equal past take turns within a single decision."""
    here = yard(tenant("a"), tenant("b"), fleet=1)
    blocker = here.submit(8, tenant="c")
    here.step()
    a = [here.submit(2, tenant="a") for _ in range(3)]
    b = [here.submit(2, tenant="b") for _ in range(3)]
    here.step()
    here.end(blocker)
    assert [a[0], b[0], a[1], b[1]] == here.started(here.step())
