"""Folding: what minutes, hours and 240 points keep of the samples. Property tests."""

from hypothesis import given
from hypothesis import strategies as st

from gpuyard.telemetry.folding import find_rises, fold_column, join_curves, mean, merge_chunk, thin_points
from gpuyard.telemetry.packed_chunks import Damaged, pack, unpack
from gpuyard.telemetry.signals import Fold

VALUE = st.integers(0, 1 << 60)
COLUMN = st.lists(st.none() | VALUE, max_size=80)


@st.composite
def points(draw: st.DrawFn) -> tuple[list[int], list[int | None]]:
    column = draw(COLUMN)
    gaps = draw(st.lists(st.integers(1, 400_000), min_size=len(column), max_size=len(column)))
    return [sum(gaps[: place + 1]) for place in range(len(column))], column


@given(points(), st.dictionaries(st.sampled_from(["gpu/0/busy", "node/cpu", "ä"]), st.none()))
def test_a_chunk_comes_back_as_it_was(
    curve: tuple[list[int], list[int | None]], names: dict[str, None]
) -> None:
    times, column = curve
    columns = {name: column[place:] + column[:place] for place, name in enumerate(names)}

    assert (times, columns) == unpack(pack(times, columns))
    assert (times, {}) == unpack(pack(times, columns), lambda _name: False)


@given(points(), st.data())
def test_a_damaged_chunk_is_refused_or_whole(
    curve: tuple[list[int], list[int | None]], data: st.DataObject
) -> None:
    blob = bytearray(pack(curve[0], {"gpu/0/busy": curve[1]}))
    place = data.draw(st.integers(0, len(blob) - 1))
    blob[place] ^= data.draw(st.integers(1, 255))
    try:
        found = unpack(bytes(blob))
    except Damaged:
        return
    assert (curve[0], {"gpu/0/busy": curve[1]}) == found


@given(points(), st.integers(1, 10**7))
def test_folds_keep_sums_peaks_and_bounds(curve: tuple[list[int], list[int | None]], step: int) -> None:
    times, column = curve
    known = [value for value in column if value is not None]
    assert sum(known) == sum([value or 0 for value in fold_column(times, column, step, Fold.RISE)[1]])
    if not known:
        assert ([], []) == fold_column(times, column, step, Fold.MEAN)
        return
    highest = max([value or 0 for value in fold_column(times, column, step, Fold.MAX)[1]])
    assert max(known) == highest
    at, means = fold_column(times, column, step, Fold.MEAN)
    assert all([min(known) <= value <= max(known) for value in means if value is not None])
    assert at == sorted(
        {moment // step * step for moment, value in zip(times, column, strict=True) if value is not None}
    )


@given(points(), st.integers(1, 60), st.integers(2, 60))
def test_folding_twice_is_folding_once(
    curve: tuple[list[int], list[int | None]], small: int, factor: int
) -> None:
    for fold in (Fold.RISE, Fold.MAX, Fold.ANY):
        minutes = fold_column(*curve, small * 1000, fold)
        assert fold_column(*curve, small * 1000 * factor, fold) == fold_column(
            *minutes, small * 1000 * factor, fold
        )


@given(COLUMN, COLUMN)
def test_a_counter_rises_the_same_in_one_part_or_two(
    first: list[int | None], second: list[int | None]
) -> None:
    known = [value for value in first if value is not None]
    before = known[-1] if known else None
    in_two = find_rises(first, None, Fold.RISE) + find_rises(second, before, Fold.RISE)

    assert find_rises([*first, *second], None, Fold.RISE) == in_two
    assert all([value >= 0 for value in in_two if value is not None])


def test_a_counter_that_was_reset_counts_on_from_zero() -> None:
    assert [0, 5, None, 7, 2, 1] == find_rises([100, 105, None, 112, 2, 3], None, Fold.RISE)
    assert [100, 5] == find_rises([100, 105], None, Fold.LIFE)


@given(points(), st.integers(1, 50))
def test_few_points_are_kept_of_any_curve(curve: tuple[list[int], list[int | None]], most: int) -> None:
    (times, values), _step = thin_points(curve, Fold.RISE, most)

    assert len(times) <= max(most, 1)
    assert sum([value or 0 for value in curve[1]]) == sum([value or 0 for value in values])


@given(points(), points())
def test_a_sample_that_comes_twice_or_late_changes_nothing(
    one: tuple[list[int], list[int | None]], other: tuple[list[int], list[int | None]]
) -> None:
    def rows(curve: tuple[list[int], list[int | None]], name: str) -> list[tuple[int, dict[str, int]]]:
        return [(at, {name: value}) for at, value in zip(*curve, strict=True) if value is not None]

    samples = rows(one, "gpu/0/busy") + rows(other, "gpu/1/busy")
    whole = merge_chunk(([], {}), samples)

    assert whole == merge_chunk(whole, samples[::-1])
    assert whole == merge_chunk(([], {}), sorted(samples, key=lambda each: -each[0]))


def test_nodes_come_together_as_a_sum_or_a_mean() -> None:
    parts: list[tuple[list[int], list[int | None]]] = [([0, 60_000], [10, 20]), ([60_500], [40])]

    assert ([0, 60_000], [10, 60]) == join_curves(parts, 60_000, Fold.RISE)
    assert ([0, 60_000], [10, 30]) == join_curves(parts, 60_000, Fold.MEAN)
    assert 3 == mean([2, 3])
