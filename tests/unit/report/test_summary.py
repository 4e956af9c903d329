"""The figures of a simulation, against counts by hand and an independent computation."""

import json
import math
import time
from array import array
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.job_sizes import SizeRanges
from gpuyard.sim.report import render
from gpuyard.sim.result import Result, Samples
from gpuyard.sim.runs.pooled import summarise_together
from gpuyard.sim.summary import (
    align_columns,
    compute_slowdowns_milli,
    fairness,
    find_nearest_rank,
    spread,
    summarise,
    summarise_all,
)
from unit.report.synthetic import DAY_MS, four_policies, simulate, week

KEYS = [
    "jobs",
    "finished",
    "rejected",
    "timeouts",
    "unfinished",
    "jct_s",
    "wait_s",
    "work_wait_s",
    "slowdown",
    "makespan_s",
    "utilisation",
    "window_s",
    "fragmentation",
    "fairness",
    "preemptions",
    "node_failures",
    "destroyed_gpu_s",
    "used_gpu_s",
    "cost_usd",
    "interrupted",
    "sizes",
    "tenants",
]


def ended(rows: list[tuple[int, int, int, int]], tenants: list[str]) -> Result:
    """A result of jobs given as (wait_ms, run_ms, gpu_milli, tenant)."""
    result = Result("fifo", 8000, tenants, jobs=len(rows), finished=len(rows))
    for index, (wait, run, milli, tenant) in enumerate(rows):
        result.job_id.append(index + 1)
        result.wait_ms.append(wait)
        result.jct_ms.append(wait + run)
        result.gpu_milli.append(milli)
        result.tenant.append(tenant)
        result.used_gpu_ms += milli * run // 1000
        result.last_end_ms = max(result.last_end_ms, wait + run)
    return result


def samples(
    used: list[list[int]], due: list[list[int]], waiting: list[int], at: list[int] | None = None
) -> Samples:
    """Samples given per tenant, with 8 GPUs up."""
    totals = [sum(column) for column in zip(*used, strict=True)]
    count = len(waiting)
    return Samples(
        array("q", at or range(0, count * 1000, 1000)),
        array("q", totals),
        array("q", [8000] * count),
        array("q", waiting),
        array("q", [0] * count),
        [array("q", row) for row in used],
        [array("q", row) for row in due],
    )


def brute_rank(values: list[int], percent: int) -> int:
    """By the definition: the smallest value such that enough values are at or below it."""
    enough = [
        v for v in values if Fraction(sum(x <= v for x in values), len(values)) >= Fraction(percent, 100)
    ]
    return min(enough)


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=60), st.integers(1, 100))
def test_percentiles_are_values_by_nearest_rank(values: list[int], percent: int) -> None:
    assert brute_rank(values, percent) == find_nearest_rank(sorted(values), percent)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 10**9),
            st.integers(0, 10**9),
            st.sampled_from([0, 500, 1000, 8000]),
            st.integers(0, 2),
        ),
        max_size=40,
    )
)
def test_summary_equals_a_naive_one(rows: list[tuple[int, int, int, int]]) -> None:
    summary = summarise(ended(rows, ["a", "b", "c"]))

    waits = [wait for wait, _, _, _ in rows]
    for name in ("p50", "p95", "p99"):
        expected = brute_rank(waits, int(name[1:])) / 1000 if waits else None
        assert expected == summary["wait_s"][name]
    if waits:
        assert float(Fraction(sum(waits), 1000 * len(waits))) == pytest.approx(
            summary["wait_s"]["mean"], abs=1e-3
        )
        slow = sorted(max(1.0, (w + r) / max(r, 10_000)) for w, r, _, _ in rows)
        assert slow[math.ceil(len(slow) * 95 / 100) - 1] == pytest.approx(
            summary["slowdown"]["p95"], abs=6e-4
        )
    for index, path in enumerate("abc"):
        mine = [row for row in rows if row[3] == index]
        tenant = summary["tenants"][path]
        assert len(mine) == tenant["jobs"]
        assert sum(run * milli for _, run, milli, _ in mine) / 1e6 == pytest.approx(tenant["gpu_s"])
        assert (brute_rank([w + r for w, r, _, _ in mine], 50) / 1000 if mine else None) == tenant["jct_s"][
            "p50"
        ]


@given(
    st.lists(
        st.tuples(
            st.integers(0, 10**9),
            st.integers(0, 10**9),
            st.sampled_from([0, 500, 1000, 2000, 8000, 9000, 16_000, 17_000, 64_000]),
            st.integers(0, 10**6),
        ),
        max_size=40,
    )
)
def test_sizes_equal_naive_ones(rows: list[tuple[int, int, int, int]]) -> None:
    """Rows are (wait_ms, run_ms, gpu_milli, ms that were done again)."""
    result = ended([(wait, run + again, milli, 0) for wait, run, milli, again in rows], ["a"])
    result.redone_milli_ms = {
        number: milli * again for number, (_, _, milli, again) in enumerate(rows, 1) if milli * again
    }
    summary = summarise(result)

    def weighed(some: list[tuple[int, int, int, int]]) -> float | None:
        work = sum(milli * run for _, run, milli, _ in some)
        return sum(milli * run * wait for wait, run, milli, _ in some) / work / 1000 if work else None

    bounds = {"up to 1": (0, 1000), "2-8": (1001, 8000), "9-16": (8001, 16_000), "17+": (16_001, 10**9)}
    assert list(bounds) == list(summary["sizes"])
    for name, (least, most) in bounds.items():
        mine = [row for row in rows if least <= row[2] <= most]
        told = summary["sizes"][name]
        assert len(mine) == told["jobs"]
        assert (brute_rank([row[0] for row in mine], 95) / 1000 if mine else None) == told["wait_s"]["p95"]
        assert (brute_rank([row[0] for row in mine], 50) / 1000 if mine else None) == told["wait_s"]["p50"]
        assert weighed(mine) == pytest.approx(told["work_wait_s"], abs=1e-3)
        assert sum(milli * (run + again) for _, run, milli, again in mine) / 1e6 == told["gpu_s"]
        assert sum(milli * again for _, _, milli, again in mine) / 1e6 == told["redone_gpu_s"]
    assert weighed(rows) == pytest.approx(summary["work_wait_s"], abs=1e-3)


def test_sizes_may_be_parted_elsewhere() -> None:
    result = ended([(1000, 1000, milli, 0) for milli in (1000, 4000, 32_000)], ["a"])

    sizes = summarise(result, sizes=SizeRanges([4]))["sizes"]
    assert [("up to 4", 2), ("5+", 1)] == [(name, each["jobs"]) for name, each in sizes.items()]
    (one,) = summarise_all([result], SizeRanges([4]))
    assert sizes == one["sizes"]


def test_the_keys_are_the_promised_ones_and_become_json() -> None:
    for result in (Result("fifo", 0), *four_policies(200)):
        summary = summarise(result)
        assert KEYS == list(summary)
        assert summary == json.loads(json.dumps(summary, allow_nan=False))


def test_nothing_gives_none_and_not_nan() -> None:
    summary = summarise(Result("fifo", 8000, ["a"]))

    nothing = {"mean": None, "p50": None, "p95": None, "p99": None}
    assert nothing == summary["wait_s"] == summary["jct_s"] == summary["slowdown"] == spread([])
    assert [None] * 4 == [summary[key] for key in ("makespan_s", "utilisation", "fragmentation", "fairness")]
    assert {
        "a": {
            "jobs": 0,
            "wait_s": nothing,
            "jct_s": nothing,
            "gpu_s": 0.0,
            "cost_usd": 0.0,
            "share": None,
            "entitled": None,
        }
    } == summary["tenants"]


def test_short_jobs_count_as_ten_seconds_and_none_is_faster_than_alone() -> None:
    result = ended([(9000, 1000, 1000, 0), (0, 1000, 1000, 0), (30_000, 10_000, 1000, 0)], ["a"])

    assert [1000, 1000, 4000] == compute_slowdowns_milli(result)


def test_utilisation_is_over_nodes_that_were_up() -> None:
    """4 of 8 GPUs for 10 s; half of the nodes are down for the second half: 40 of 60 GPU-seconds."""
    result = ended([(0, 10_000, 4000, 0)], ["a"])
    result.samples = samples([[4000, 4000]], [[8000, 8000]], [0, 0], at=[0, 5000])
    result.samples.up_milli = array("q", [8000, 4000])
    result.samples.stranded_milli = array("q", [2000, 0])

    summary = summarise(result)
    assert round(40 / 60, 6) == summary["utilisation"]
    assert 0.125 == summary["fragmentation"]


def test_policies_are_compared_over_the_time_in_which_all_had_work() -> None:
    """Both use 8 GPUs for 10 s; one leaves a long job of 1 GPU to the end, and is no less busy until then."""
    quick = ended([(0, 10_000, 8000, 0)], ["a"])
    quick.samples = samples([[8000, 8000]], [[8000, 8000]], [0, 0], at=[0, 5000])
    slow = ended([(0, 10_000, 8000, 0), (10_000, 30_000, 1000, 0)], ["a"])
    slow.samples = samples([[8000, 8000, 1000, 1000]], [[8000] * 4], [0] * 4, at=[0, 5000, 10_000, 25_000])

    assert [1.0, 1.0] == [summary["utilisation"] for summary in summarise_all([quick, slow])]
    assert [10.0, 10.0] == [summary["window_s"] for summary in summarise_all([quick, slow])]
    assert round(110 / 320, 6) == summarise(slow)["utilisation"]
    quick.interrupted = True
    assert round(110 / 320, 6) == summarise_all([quick, slow])[1]["utilisation"]


def test_cost_is_split_among_the_tenants_by_price_and_by_what_each_node_cost() -> None:
    result = ended([(0, 3_600_000, 2000, 0), (0, 7_200_000, 1000, 1)], ["a", "b"])
    result.price_micro_usd_h = 1_500_000
    assert [3.0, 3.0] == [tenant["cost_usd"] for tenant in summarise(result)["tenants"].values()]
    result.price_micro_usd_h, result.tenant_cost_micro_usd = None, [2_000_000, 7_000_000]
    assert [2.0, 7.0] == [tenant["cost_usd"] for tenant in summarise(result)["tenants"].values()]


def test_utilisation_without_samples_takes_the_capacity() -> None:
    assert 0.5 == summarise(ended([(0, 10_000, 4000, 0)], ["a"]))["utilisation"]


def test_unfinished_work_is_measured_to_the_last_sample() -> None:
    result = Result("fifo", 8000, ["a"], jobs=1, unfinished=1, used_gpu_ms=8 * 3000, interrupted=True)
    result.samples = samples([[8000] * 4], [[8000] * 4], [0] * 4)

    assert 1.0 == summarise(result)["utilisation"]


@pytest.mark.parametrize(
    ("used", "due", "waiting", "expected"),
    [
        ([[4000], [4000]], [[1000], [1000]], [3], 1.0),
        ([[8000], [0]], [[4000], [4000]], [3], 0.5),
        ([[8000], [0]], [[0], [4000]], [3], 0.0),
        ([[6000], [2000]], [[4000], [4000]], [0], 0.75),
        # The second sample is idle and does not count, the third one is unfair by a half.
        ([[4000, 0, 8000], [4000, 0, 0]], [[1, 1, 1], [1, 1, 1]], [0, 0, 1], 0.75),
        # Jobs wait and nothing runs.
        ([[0], [0]], [[4000], [4000]], [5], 0.5),
        ([[0], [0]], [[0], [0]], [5], 1.0),
        ([[0], [0]], [[1], [1]], [0], None),
        ([], [], [], None),
    ],
)
def test_fairness_by_hand(
    used: list[list[int]], due: list[list[int]], waiting: list[int], expected: float | None
) -> None:
    assert expected == fairness(samples(used, due, waiting))


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 9000), st.integers(0, 9000)), min_size=3, max_size=3), max_size=20
    )
)
def test_fairness_is_between_0_and_1(rows: list[list[tuple[int, int]]]) -> None:
    used = [[row[t][0] for row in rows] for t in range(3)]
    due = [[row[t][1] for row in rows] for t in range(3)]
    found = fairness(samples(used, due, [1] * len(rows)))

    assert (found is None) == (not rows)
    assert found is None or 0 <= found <= 1


def test_shares_count_only_while_jobs_wait() -> None:
    """Tenant a has everything while nobody asks for more; with a queue, a has 6 of 8 GPUs and is due 4."""
    result = ended([(0, 2000, 4000, 0)], ["a", "b"])
    result.samples = samples([[8000, 6000], [0, 2000]], [[8000, 4000], [0, 4000]], [0, 1])

    tenants = summarise(result)["tenants"]
    assert (0.75, 0.5) == (tenants["a"]["share"], tenants["a"]["entitled"])
    assert (0.25, 0.5) == (tenants["b"]["share"], tenants["b"]["entitled"])


def test_a_tenant_that_always_has_its_due_has_its_entitlement() -> None:
    """Quiet and busy moments alike: entitlement is weighed with what is used."""
    result = ended([(0, 3000, 4000, 0)], ["a", "b"])
    result.samples = samples(
        [[6000, 100, 2000], [2000, 100, 0]], [[3000, 4000, 8000], [1000, 4000, 0]], [1, 1, 1]
    )

    for tenant in summarise(result)["tenants"].values():
        assert tenant["entitled"] == pytest.approx(tenant["share"])


def test_a_synthetic_week_adds_up() -> None:
    result = simulate("fair", week(400))
    summary = summarise(result)

    tenants = summary["tenants"].values()
    assert summary["finished"] == sum(tenant["jobs"] for tenant in tenants)
    assert summary["used_gpu_s"] == pytest.approx(sum(tenant["gpu_s"] for tenant in tenants), rel=1e-6)
    assert 1 == pytest.approx(sum(tenant["share"] for tenant in tenants), abs=1e-4)
    assert 1 == pytest.approx(sum(tenant["entitled"] for tenant in tenants), abs=1e-4)


def test_a_row_that_was_cut_in_half_is_left_out() -> None:
    """Ctrl-C between two appends: the rest is summarised and drawn as if the half rows had not been begun."""
    clean, torn = (simulate("fifo", week(100), stop_ms=DAY_MS) for _ in range(2))
    torn.wait_ms.append(1)
    torn.job_id.append(1)
    torn.samples.at_ms.append(torn.samples.at_ms[-1] + 1)
    torn.samples.tenant_used_milli[0].append(1)
    clean.tenants.append("late")
    for columns in (clean.samples.tenant_used_milli, clean.samples.tenant_entitled_milli):
        columns.append(array("q", [0]) * len(clean.samples.at_ms))
    torn.tenants.append("late")

    assert align_columns(clean) is clean
    assert summarise(clean) == summarise(torn)
    assert render([clean], "A week") == render([torn], "A week")


def test_a_month_of_many_jobs_is_summarised_quickly() -> None:
    """A tenth of a million jobs and 2,000 samples; ten times that must stay a matter of seconds."""
    count = 100_000
    result = Result(
        "fifo", 8000, [f"t{i}" for i in range(50)], jobs=count, finished=count, last_end_ms=2_000_000
    )
    result.wait_ms = array("q", ((i * 7919) % 999_983 for i in range(count)))
    result.jct_ms = array("q", (wait + 1000 + wait % 7 for wait in result.wait_ms))
    result.gpu_milli = array("q", [1000]) * count
    result.tenant = array("i", (i % 50 for i in range(count)))
    result.samples = samples([[100] * 2000] * 50, [[100] * 2000] * 50, [1] * 2000)

    before = time.process_time()
    summarise(result)

    assert time.process_time() - before < 3


def test_results_of_several_seeds_are_taken_together() -> None:
    """Percentiles are those of all jobs; what is over time counts by its length."""
    first = ended([(1000, 10_000, 1000, 0), (3000, 10_000, 32_000, 1)], ["a", "b"])
    second = ended([(9000, 10_000, 32_000, 0)], ["b"])
    first.redone_milli_ms, second.redone_milli_ms = {2: 32_000_000}, {1: 64_000_000}
    for result, cost in ((first, [5, 7]), (second, [11])):
        result.price_micro_usd_h, result.tenant_cost_micro_usd = None, [1_000_000 * each for each in cost]
    summaries = summarise_all([first]) + summarise_all([second])
    together = summarise_together([first, second], summaries)

    assert list(summaries[0]) == list(together)
    assert (3, 3) == (together["jobs"], together["finished"])
    assert {"mean": 6.0, "p50": 3.0, "p95": 9.0, "p99": 9.0} == together["sizes"]["17+"]["wait_s"]
    assert 96.0 == together["sizes"]["17+"]["redone_gpu_s"]
    assert [("a", 1, 5.0), ("b", 2, 18.0)] == [
        (path, each["jobs"], each["cost_usd"]) for path, each in together["tenants"].items()
    ]
    windows = [each["window_s"] for each in summaries]
    assert sum(windows) == together["window_s"]
    used = [each["utilisation"] * window for each, window in zip(summaries, windows, strict=True)]
    assert sum(used) / sum(windows) == pytest.approx(together["utilisation"], abs=1e-6)
    assert sum(each["makespan_s"] for each in summaries) / 2 == together["makespan_s"]
