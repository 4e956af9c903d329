"""Prices: the dual of the cutting-stock program, against another solver and by what they must mean."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuyard.model.units import MILLI
from gpuyard.packing.knapsack import fill_best, fill_exactly, read_pattern
from gpuyard.packing.prices import GPU, price_sizes
from gpuyard.packing.tasks import Size, SizeDemand, Task, group_by_size, unit_milli


def demand(*rows: tuple[int, int, str, int]) -> list[SizeDemand]:
    """Rows of GPUs, milli, models and weight."""
    expected = [
        (Task(1000, 0, gpus, milli, tuple(filter(None, models.split("|")))), n)
        for gpus, milli, models, n in rows
    ]
    return group_by_size(expected)


def test_sizes_are_put_together_and_sorted() -> None:
    expected = [
        (Task(4000, 1, 1, 500), 2),
        (Task(1000, 9, 1, 500), 1),
        (Task(8000, 0, 0, 0), 5),
        (Task(2000, 0, 1, 1000), 0),
    ]

    assert [SizeDemand(Size(1, 500, ()), 3, 9000)] == group_by_size(expected)


def test_a_gap_that_nobody_can_use_is_paid_by_whoever_makes_it() -> None:
    """810 leaves 190 that only the 160 could use, and there are few of those: 810 costs a GPU and 160 nothing."""
    found = price_sizes(demand((1, 160, "", 1), (1, 810, "", 10), (1, 1000, "", 10)), {"x": 10})

    small, large, whole = found
    assert 0 == small
    assert large == whole > GPU * 9 // 10


def test_a_gpu_that_halves_fill_is_shared_fairly() -> None:
    half, whole = price_sizes(demand((1, 500, "", 8), (1, 1000, "", 8)), {"x": 10})

    assert 2 * half == pytest.approx(whole, abs=4)


def test_a_model_that_is_short_is_dear() -> None:
    """Ten GPUs of `a` for forty tasks that insist on it: those who take anything pay next to nothing."""
    insists, takes_any = price_sizes(demand((1, 1000, "", 40), (1, 1000, "a", 40)), {"a": 10, "b": 500})[::-1]

    assert takes_any < GPU // 100 < insists


def test_a_size_that_no_model_serves_costs_what_it_asks_for() -> None:
    assert [3 * GPU] == price_sizes(demand((3, 1000, "nowhere", 1)), {"x": 8})


SIZES = st.tuples(
    st.sampled_from([1, 1, 1, 2, 8]),
    st.integers(1, 20).map(lambda twentieths: twentieths * 50),
    st.sampled_from(["", "", "a", "b", "a|b"]),
    st.integers(1, 50),
)


@settings(max_examples=60)
@given(rows=st.lists(SIZES, min_size=1, max_size=6), a=st.integers(1, 30), b=st.integers(1, 30))
def test_prices_are_those_of_another_solver(rows: list[tuple[int, int, str, int]], a: int, b: int) -> None:
    """The value of the dual is unique where its prices need not be: what the GPUs cost at these prices."""
    pytest.importorskip("scipy")
    wanted = demand(*rows)
    found = price_sizes(wanted, {"a": a, "b": b})

    asked = sum(each.weight * each.size.gpus * each.size.gpu_milli for each in wanted) / MILLI
    # 1. On average tasks cost what they ask for.
    assert asked == pytest.approx(
        sum(e.weight * p for e, p in zip(wanted, found, strict=True)) / GPU, rel=1e-3, abs=1e-3
    )
    # 2. No other prices make the GPUs cheaper: a x asked is the most that can be held, by the theorem of duality.
    cost = 0.0
    unit = unit_milli([each.size for each in wanted])
    for model, gpus in (("a", a), ("b", b)):
        fitting = [
            (e, p) for e, p in zip(wanted, found, strict=True) if not e.size.models or model in e.size.models
        ]
        best, _first = fill_best(
            [p / e.size.gpus for e, p in fitting],
            [e.size.gpu_milli // unit for e, _p in fitting],
            MILLI // unit,
        )
        cost += gpus * best[-1]
    assert cost / GPU / asked == pytest.approx(_most(wanted, {"a": a, "b": b}), rel=2e-3)


def _most(wanted: list[SizeDemand], gpus: dict[str, int]) -> float:
    """The largest part of the demand that fits, by enumerating every pattern and asking HiGHS."""
    from scipy.optimize import linprog  # noqa: PLC0415

    columns, models = [], sorted(gpus)
    for at, model in enumerate(models):
        sizes = [i for i, each in enumerate(wanted) if not each.size.models or model in each.size.models]
        for counts in _patterns([wanted[i].size.gpu_milli for i in sizes], MILLI):
            column = [0.0] * (len(wanted) + len(models))
            for i, count in zip(sizes, counts, strict=True):
                column[i] -= count / wanted[i].size.gpus
            column[len(wanted) + at] = 1.0
            columns.append(column)
    columns.append([float(each.weight) for each in wanted] + [0.0] * len(models))
    rows = list(zip(*columns, strict=True))
    limits = [0.0] * len(wanted) + [float(gpus[model]) for model in models]
    done = linprog([0.0] * (len(columns) - 1) + [-1.0], A_ub=rows, b_ub=limits, method="highs")
    return -float(done.fun)


def _patterns(sizes: list[int], room: int) -> list[tuple[int, ...]]:
    """Every filling there is."""
    if not sizes:
        return [()]
    return [
        (count, *rest)
        for count in range(room // sizes[0] + 1)
        for rest in _patterns(sizes[1:], room - count * sizes[0])
    ]


ITEMS = st.lists(st.tuples(st.integers(1, 12), st.integers(0, 30)), max_size=3)


@given(items=ITEMS, room=st.integers(0, 16))
def test_fillings_are_the_best_there_are(items: list[tuple[int, int]], room: int) -> None:
    sizes, values = [size for size, _ in items], [value for _, value in items]
    exactly = fill_exactly(values, sizes, room)
    best, first = fill_best([float(v) for v in values], sizes, room)
    counts = read_pattern(first, sizes, room)

    assert exactly == best
    assert sum(sizes[i] * n for i, n in counts.items()) <= room
    assert exactly[room] == sum(values[i] * n for i, n in counts.items())
    assert exactly[room] == max(
        sum(c * v for c, v in zip(p, values, strict=True)) for p in _patterns(sizes, room)
    )


def test_many_odd_sizes_are_priced_in_time() -> None:
    """Far more sizes than are usual, prime to each other: rounded up, and only the largest part priced."""
    wanted = demand(*[(1, 1000 - 7 * i, "", 1 + i % 5) for i in range(140)])

    assert 64 == len(wanted)
    assert 10 == unit_milli([each.size for each in wanted])
    found = price_sizes(wanted, {"x": 50})
    assert all(price <= GPU * 2 for price in found)
    assert GPU // 2 < max(found)
