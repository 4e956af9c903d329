"""The tenant tree in numbers, worked out a second way: from the books that add up every charge anew."""

import time
from fractions import Fraction

from gpuyard.core.explain.share import PPM, TenantShare, position_text, share
from gpuyard.model import Budget, JobClass, Settings
from gpuyard.model.units import HOUR_MS, MINUTE_MS
from gpuyard.quantities import percent_words
from gpuyard.testing import nodes, tenant
from harness.yard import Yard

CLASSES = (JobClass("batch", min_run_ms=0, grace_ms=1000), JobClass("kept", preemptible=False))


def yard(policy: str = "fair") -> Yard:
    """Two teams on two nodes, an hour into the day: research uses 3 + 1, product 8."""
    settings = Settings(
        tenants=(
            tenant("research", 3, guarantee=6),
            tenant("research/ana", 2),
            tenant("research/bob", 1),
            tenant("product", 1, limit=12),
            tenant("ops", 1, guarantee=2, lend=1),
        ),
        classes=CLASSES,
        share_weights={"H100": 2000},
        half_life_ms=2 * HOUR_MS,
        period_ms=5 * MINUTE_MS,
    )
    here = Yard(policy, nodes(2), settings=settings)
    here.submit(3, tenant="research/ana")
    here.submit(1, tenant="research/bob")
    here.submit(6, tenant="product")
    here.submit(2, tenant="product", klass="kept")
    here.step()
    here.wait(HOUR_MS)
    here.tick()
    here.submit(8, tenant="product")
    return here


def rows(here: Yard) -> dict[str, TenantShare]:
    return {row.path: row for row in share(here.state, here.policy, here.now_ms)}


def test_the_tree_is_told_parents_first_and_members_by_path() -> None:
    here = yard()
    found = share(here.state, here.policy, here.now_ms)
    assert ["", "ops", "product", "research", "research/ana", "research/bob"] == [row.path for row in found]
    assert [0, 1, 1, 1, 2, 2] == [row.depth for row in found]


def test_shares_are_weights_among_siblings_and_multiply_down_the_tree() -> None:
    found = rows(yard())
    assert (3, 5, PPM * 3 // 5) == (
        found["research"].weight,
        found["research"].weights,
        found["research"].share_ppm,
    )
    assert Fraction(3, 5) * Fraction(2, 3) * PPM == found["research/ana"].yard_ppm == PPM * 2 // 5


def test_usage_is_what_the_books_add_up_from_every_charge() -> None:
    here = yard()
    found = rows(here)
    until_ms = here.now_ms // (5 * MINUTE_MS) * 5 * MINUTE_MS
    for path, row in found.items():
        summed = here.books.usage(path, until_ms) / HOUR_MS
        assert abs(summed - row.usage_milli_usd) <= 2, path
    gpus = {"research/ana": 3, "research/bob": 1, "research": 4, "product": 8, "ops": 0, "": 12}
    for path, count in gpus.items():
        # Two dollars an hour, for a twelfth of an hour.
        assert count * 2000 * 5 // 60 == found[path].current_milli_usd, path


def test_what_each_has_had_adds_up_among_siblings_and_sets_the_order() -> None:
    found = rows(yard())
    teams = [found[path] for path in ("research", "product", "ops")]
    assert PPM - 3 <= sum(row.used_ppm for row in teams) <= PPM
    assert abs(PPM * 4 // 12 - found["research"].used_ppm) <= 1
    assert [2, 3, 1] == [row.place for row in teams]
    assert found["ops"].fair_key < found["research"].fair_key < found["product"].fair_key


def test_borrowed_lent_and_exposed_follow_from_use_and_guarantee() -> None:
    found = rows(yard())
    product, research, ops = (found[path].amounts[0] for path in ("product", "research", "ops"))
    # Six of the eight it borrows may be stopped; the other two are of a class that is not preemptible.
    assert (8000, 0, 12000, 8000, 6000) == (
        product.used,
        product.guarantee,
        product.limit,
        product.borrowed,
        product.exposure,
    )
    assert (0, 2000) == (research.borrowed, research.lendable)
    # Four GPUs are free, so nobody has what it left.
    assert 0 == research.lent
    assert (0, 1000) == (ops.used, ops.lendable)


def test_what_is_lent_is_what_is_idle_and_not_free_either() -> None:
    """Research leaves two idle; one GPU is free, so one of them would have to be taken back."""
    here = yard()
    here.submit(3, tenant="guest", limit_ms=1000)
    here.step()
    research = rows(here)["research"].amounts[0]
    assert (4000, 2000, 1000) == (research.used, research.lendable, research.lent)


def test_nothing_is_exposed_where_nobody_may_take_back() -> None:
    found = rows(yard("fifo"))
    assert 8000 == found["product"].amounts[0].borrowed
    assert 0 == found["product"].amounts[0].exposure


def test_running_and_waiting_jobs_are_counted_with_those_below() -> None:
    found = rows(yard())
    assert [(2, 0), (1, 0), (2, 1), (4, 1)] == [
        (found[path].running, found[path].waiting) for path in ("research", "research/ana", "product", "")
    ]


def test_a_position_names_the_level_that_holds_a_job_back() -> None:
    here = yard()
    job = here.state.jobs[here.submit(8, tenant="research/ana")]
    assert position_text(here.state, job) == (
        "research/ana has had 75 % of what the members of research were charged, against its share of 66.7 %"
    )
    alone = Yard("fair", nodes(1))
    assert "" == position_text(alone.state, alone.state.jobs[alone.submit(1)])


def test_percentages_are_rounded_for_the_eye() -> None:
    assert ["41 %", "66.7 %", "0 %", "0.1 %"] == [percent_words(ppm) for ppm in (410_000, 666_666, 499, 500)]


def test_budgets_and_caps_with_what_is_used_of_them() -> None:
    """Spent, promised and left are the whole budget, and a window that has closed is not counted, told of or not."""
    hour_ms = 3_600_000
    here = Yard(
        "default",
        nodes(1),
        [
            tenant("a", budget=Budget(20 * hour_ms, 10 * hour_ms), max_running_jobs=4),
            tenant("b", max_gpus_per_user=3000, max_gpus_per_job=2000),
        ],
    )
    done = here.submit(2, tenant="a/x", limit_ms=hour_ms)
    here.submit(2, tenant="a/y", limit_ms=3 * hour_ms)
    here.submit(1, tenant="b/u", limit_ms=hour_ms)
    here.submit(2, tenant="b/v", limit_ms=hour_ms)
    here.step()
    here.now_ms = hour_ms // 2
    here.end(done)
    here.now_ms = hour_ms
    found = {row.path: row.caps for row in share(here.state, here.policy, here.now_ms)}
    budget = found["a"].budget
    assert budget is not None
    # Two GPUs for half an hour, and two for an hour so far; the job that runs may have two more hours of two GPUs.
    of_hours = [
        each // (1000 * hour_ms)
        for each in (
            budget.budget_milli_ms,
            budget.spent_milli_ms,
            budget.promised_milli_ms,
            budget.left_milli_ms,
        )
    ]
    assert [20, 3, 4, 13] == of_hours
    assert (10 * hour_ms, 10 * hour_ms) == (budget.window_ms, budget.window_end_ms)
    assert (4, None, None, 0) == (
        found["a"].max_running_jobs,
        found["a"].max_gpus_per_job_milli,
        found["a"].max_gpus_per_user_milli,
        found["a"].most_per_user_milli,
    )
    assert (None, 2000, 3000, 2000) == (
        found["b"].max_running_jobs,
        found["b"].max_gpus_per_job_milli,
        found["b"].max_gpus_per_user_milli,
        found["b"].most_per_user_milli,
    )
    assert found["b"].budget is None
    later = {row.path: row.caps for row in share(here.state, here.policy, 11 * hour_ms)}["a"].budget
    assert later is not None
    assert (2000 * hour_ms, 20 * hour_ms) == (later.spent_milli_ms, later.window_end_ms)


def test_thousands_of_tenants_take_a_moment() -> None:
    """Each row was worked out from all rows beside it."""
    names = tuple([tenant(f"team/user{number}", 1) for number in range(3000)])
    here = Yard("fair", nodes(2), settings=Settings(tenants=(tenant("team", 1), *names)))
    begun = time.process_time()
    found = share(here.state, here.policy, here.now_ms)
    assert 3002 == len(found)
    assert time.process_time() - begun < 4, "each took the time of all"
