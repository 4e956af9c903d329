"""The parts of the report: how numbers are said, ticks, sentences, marks, series."""

import math
from array import array
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.job_sizes import SIZES, SizeRange, SizeRanges
from gpuyard.pages import human
from gpuyard.pages.markup import Markup, element, join
from gpuyard.pages.scale import choose_steps, make_factor_scale, make_time_ticks, push_apart, wait_scale
from gpuyard.quantities import percent_rounded, span_rounded, usd_rounded
from gpuyard.sim.report import make_size_table, make_terminal_table, sentences
from gpuyard.sim.report.series import (
    POINTS_MAX,
    SizeSpread,
    compare_policies,
    mean,
    slowdown_by_size,
    tenant_rows,
    thin_values,
)
from gpuyard.sim.result import Result
from gpuyard.sim.summary import summarise, summarise_all
from unit.report.synthetic import four_policies, simulate, week

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (None, "–"),
        (0, "0 s"),
        (0.04, "0 s"),
        (0.4, "0.4 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (59.6, "1.0 min"),
        (2460, "41 min"),
        (3590, "1.0 h"),
        (11_520, "3.2 h"),
        (47 * 3600, "47 h"),
        (2.1 * 86400, "2.1 d"),
        (4000 * 86400, "4,000 d"),
    ],
)
def test_durations(seconds: float | None, said: str) -> None:
    assert said == span_rounded(seconds)


def test_other_figures() -> None:
    assert ["–", "0 %", "3.1 %", "91 %", "100 %"] == [
        percent_rounded(x) for x in (None, 0, 0.031, 0.91, 0.9999)
    ]
    assert ["1.4×", "32×", "1,200×"] == [human.factor_text(x) for x in (1.4, 32.1, 1200)]
    assert ["–", "$3.10", "$12,340"] == [usd_rounded(x) for x in (0, 3.1, 12_340.4)]
    assert ["0", "3.1", "1,240"] == [human.gpu_hours_text(x * 3600) for x in (0, 3.1, 1240)]
    assert ["1 GPU", "0.5 GPUs", "1,024 GPUs"] == [human.gpus_text(x) for x in (1000, 500, 1_024_000)]
    assert ["", "a", "a and b", "a, b and c"] == [human.list_text(list("abc"[:n])) for n in range(4)]


def test_markup_escapes_what_is_not_markup() -> None:
    assert '<b title="&lt;&quot;">&lt;i&gt;<i></i></b>' == element(
        "b", "<i>", element("i"), title='<"', id=None
    )
    assert "a&amp;b" == join("a", Markup("&amp;"), "b")


@given(st.floats(1e-6, 1e12))
def test_steps_cover_the_highest_value_and_are_few(high: float) -> None:
    steps = choose_steps(high)

    assert steps[-1] >= high * (1 - 1e-6)
    assert steps[-2] < high
    assert 2 <= len(steps) <= 6


@given(st.integers(0, 10**7), st.integers(0, 10**13), st.sampled_from([0, 1_709_251_200_000]))
def test_time_ticks_are_few_and_in_order(start: int, span: int, origin: int) -> None:
    ticks = make_time_ticks(start, start + span, origin)

    assert len(ticks) <= 9
    assert all(0 <= tick.at <= 1 for tick in ticks)
    assert sorted(tick.at for tick in ticks) == [tick.at for tick in ticks]


def test_time_ticks_by_hand() -> None:
    assert ["0", "1 d", "2 d", "3 d", "4 d", "5 d", "6 d", "7 d"] == [
        tick.label for tick in make_time_ticks(0, 7 * DAY_MS)
    ]
    assert ["0", "6 h", "12 h", "18 h", "24 h", "30 h"] == [
        tick.label for tick in make_time_ticks(0, 30 * HOUR_MS)
    ]
    assert ["18:00", "2 Mar", "06:00"] == [
        tick.label
        for tick in make_time_ticks(0, 20 * HOUR_MS, 1_709_251_200_000 + 13 * HOUR_MS, most=4)
    ]  # fmt: skip


def test_log_axes() -> None:
    scale, ticks = wait_scale(5 * HOUR_MS)
    assert ["1 s", "10 s", "1 min", "10 min", "1 h", "6 h"] == [tick.label for tick in ticks]
    assert 0 == scale.at(0) == scale.at(1000)
    assert 1 == scale.at(6 * HOUR_MS)
    scale, ticks = make_factor_scale(1.0)
    assert ["1×", "2×"] == [tick.label for tick in ticks]
    scale, ticks = make_factor_scale(3000)
    assert ["1×", "10×", "100×", "1,000×"] == [tick.label for tick in ticks]
    assert scale.high == 5000


@given(st.lists(st.floats(0, 200), max_size=5))
def test_labels_are_moved_apart(places: list[float]) -> None:
    moved = push_apart(places, 30, 0, 200)

    ordered = sorted(moved)
    assert all(b - a >= 30 - 1e-9 for a, b in pairwise(ordered))
    assert all(-1e-9 <= place <= 200 + 1e-9 for place in moved)


@given(st.integers(0, 3000))
def test_thinning_keeps_the_peak_and_the_mean(count: int) -> None:
    at = array("q", range(count))
    values = array("q", ((i * 7919) % 1009 for i in range(count)))

    peaks = thin_values(at, values, max)
    means = thin_values(at, values, mean)

    assert len(peaks) == len(means) <= POINTS_MAX
    if count:
        assert max(values) == max(value for _, value in peaks)
        size = math.ceil(count / POINTS_MAX)
        total = sum(value * min(size, count - start) for start, value in means)
        assert sum(values) == pytest.approx(total)


def test_slowdowns_are_told_by_size() -> None:
    result = Result("fifo", 8000, ["a"])
    for milli, jct_ms in [
        (0, 10_000),
        (500, 20_000),
        (1000, 30_000),
        (1001, 40_000),
        (8000, 50_000),
        (512_000, 60_000),
    ]:
        result.wait_ms.append(jct_ms - 10_000)
        result.jct_ms.append(jct_ms)
        result.gpu_milli.append(milli)

    up_to_1, few, some, most = SIZES.ranges
    assert [
        SizeSpread(up_to_1, 3, 2.0, 3.0),
        SizeSpread(few, 2, 4.0, 5.0),
        None,
        SizeSpread(most, 1, 6.0, 6.0),
    ] == slowdown_by_size(result, SIZES)
    assert [6, 0] == [each.jobs if each else 0 for each in slowdown_by_size(result, SizeRanges([1000]))]
    assert "9-16" == some.name


def test_the_table_has_a_row_per_policy_and_marks_the_best() -> None:
    results = four_policies()
    table = make_terminal_table(results)

    assert ["policy", "finished", "wait mean", "wait p95", "JCT mean", "utilisation"] == table.headers[:6]
    assert ["fragmentation", "fairness", "preemptions", "lost GPU-h", "cost"] == table.headers[6:]
    assert ["fifo", "backfill", "fair", "srpt"] == [row[0] for row in table.rows]
    assert [False] + [True] * 10 == [column.right for column in table.columns]
    waits = [summarise(result)["wait_s"]["mean"] for result in results]
    assert (waits.index(min(waits)), 2) in table.best
    assert (waits.index(max(waits)), 2) not in table.best
    assert [] == make_terminal_table([]).rows


def test_the_table_of_sizes_has_a_row_per_size_and_policy() -> None:
    results = four_policies()
    summaries = summarise_all(results)
    table = make_size_table(results, summaries)

    sizes = ["up to 1", "2-8", "9-16", "17+", "all"]
    assert [
        "size",
        "policy",
        "jobs",
        "wait mean",
        "wait median",
        "wait p95",
        "by work",
        "done again",
    ] == table.headers
    assert [(size, result.policy) for size in sizes for result in results] == [
        (row[0], row[1]) for row in table.rows
    ]
    jobs = [int(row[2].replace(",", "")) for row in table.rows if row[1] == "fair"]
    assert [*jobs[:-1], sum(jobs[:-1])] == jobs
    large = [summary["sizes"]["17+"]["work_wait_s"] for summary in summaries]
    assert (12 + large.index(min(large)), 6) in table.best
    assert (12 + large.index(max(large)), 6) not in table.best
    assert {"0 %"} == {row[7] for row in table.rows}


def test_sizes_without_a_job_are_left_out() -> None:
    result = simulate("fifo", [task for task in week(300) if task.gpu_milli == 1000])

    assert ["up to 1"] == [row[0] for row in make_size_table([result], [summarise(result)]).rows]
    assert [] == make_size_table([], []).rows


def test_sizes_and_tenants_that_wait_longer_are_named_with_both_figures() -> None:
    fifo, srpt = [summarise(result) for result in four_policies() if result.policy in ("fifo", "srpt")]
    longer = sentences.longer_waits_texts(fifo, srpt)

    waits = [each["sizes"]["17+"]["wait_s"]["p95"] for each in (fifo, srpt)]
    assert waits[1] > 1.5 * waits[0]
    said = " → ".join(span_rounded(wait) for wait in waits)
    assert any(each.startswith("jobs of 17+ GPUs ") and f"95 % within {said}" in each for each in longer)
    assert [] == sentences.longer_waits_texts(fifo, fifo)


def test_the_size_that_waits_longest_heads_the_plot() -> None:
    entries = compare_policies([Result("fifo", 8000), Result("fair", 8000)])
    small, large = SizeRange(0, 1), SizeRange(17, None)
    fifo = [SizeSpread(small, 9, 0.0, 7200.0), SizeSpread(large, 9, 0.0, 90_000.0)]
    fair = [SizeSpread(small, 9, 0.0, 60.0), SizeSpread(large, 9, 0.0, 200_000.0)]

    assert (
        "Jobs of 17+ GPUs wait longest: 95 % of them up to 25 h with fifo, 2.3 d with fair"
        == sentences.size_heading(entries, [fifo, fair])
    )
    assert (
        "Jobs of up to 1 GPU wait longest: 95 % of them up to 1.0 min with fair, 2.0 h with fifo"
        == sentences.size_heading(entries, [fifo[:1], fair[:1]])
    )
    none = [[None], [None]]
    assert "No job ended, so no wait is known" == sentences.size_heading(entries, none)
    idle = [[SizeSpread(small, 9, 0.0, 0.0)]] * 2
    assert "Jobs of every size start at once" == sentences.size_heading(entries, idle)


def test_equal_policies_have_no_best() -> None:
    same = [simulate("fifo", week(50)) for _ in range(3)]

    assert not make_terminal_table(same).best


def test_headings_name_the_figures() -> None:
    entries = compare_policies(four_policies(2500)[:2])
    waits = [entry.summary["wait_s"] for entry in entries]
    peaks = [max(entry.result.samples.waiting) for entry in entries]

    assert waits[1]["p50"] < waits[0]["p50"]
    assert (
        f"95 % of the jobs wait at most {span_rounded(waits[1]['p95'])} with backfill, "
        f"{span_rounded(waits[0]['p95'])} with fifo"
    ) == sentences.wait_heading(entries)
    assert (
        f"The queue peaks at {peaks[1]} jobs with backfill, {peaks[0]} with fifo"
        == sentences.queue_heading(entries)
    )
    before, after = span_rounded(waits[0]["mean"]), span_rounded(waits[1]["mean"])
    assert f"{before} → {after}" in sentences.headline(*entries)


def test_the_headline_names_every_tenant_that_waits_longer() -> None:
    first, second = compare_policies([Result("fifo", 8000), Result("fair", 8000)])
    for entry, research, lab in ((first, (600, 3000), (60, 60)), (second, (300, 4500), (120, 60))):
        entry.summary["tenants"] = {
            "research": {"wait_s": {"mean": research[0], "p95": research[1]}},
            "lab/<b>": {"wait_s": {"mean": lab[0], "p95": lab[1]}},
            "product": {"wait_s": {"mean": 100, "p95": 101}},
            "idle": {"wait_s": {"mean": None, "p95": None}},
        }

    told = sentences.headline(first, second).replace("\u00a0", " ")
    assert told.endswith(
        ". Longer waits: lab/&lt;b&gt; mean 1.0 min → 2.0 min; research 95 % within 50 min → 1.2 h."
    ), told
    assert "Longer waits" not in sentences.headline(first, first)


def test_the_heading_of_tenants_names_the_worst() -> None:
    first, second = compare_policies([Result("fifo", 8000), Result("fair", 8000)])
    for entry, gap in ((first, 0.2), (second, 0.03)):
        entry.summary["tenants"] = {
            "a": {"share": 0.5 - gap, "entitled": 0.5},
            "b": {"share": 0.3 + gap / 2, "entitled": 0.3},
            "c": {"share": 0.2 + gap / 2, "entitled": 0.2},
        }

    heading = sentences.tenants_heading([first, second], tenant_rows([first, second]))

    assert heading == (
        "With fair, 3.0 % of the GPU time goes to tenants beyond their due, with fifo 20 %; "
        "fifo gives a 20 points too little"
    )


def test_the_jobs_that_suffer_most_do_so_under_any_policy() -> None:
    entries = compare_policies([Result("fifo", 8000), Result("fair", 8000)])
    small, large = SizeRange(2, 8), SizeRange(17, None)
    fifo = [SizeSpread(small, 9, 10.0, 464.0), SizeSpread(large, 9, 11.0, 290.0)]
    fair = [SizeSpread(small, 9, 5.0, 352.0), SizeSpread(large, 9, 23.0, 720.0)]

    assert (
        "Jobs of 17+ GPUs suffer most: 95 % of them take up to 290× their run time with fifo, 720× with fair"
    ) == sentences.slowdown_heading(entries, [fifo, fair])


def test_many_policies_are_named_in_part() -> None:
    results = [Result(f"p{index}", 8000) for index in range(9)]
    for index, result in enumerate(results):
        result.samples.waiting.append(10 + index)
        for column in (result.samples.at_ms, result.samples.used_milli, result.samples.up_milli):
            column.append(0)
        result.samples.stranded_milli.append(0)

    heading = sentences.queue_heading(compare_policies(results))

    assert "The queue peaks at 10 jobs with p0, 11 with p1 … 18 with p8" == heading
