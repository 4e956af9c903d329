"""Sizes of jobs: every job is in one range, and what people type is read or refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.job_sizes import SIZES, SIZES_TEXT, SizeRanges, parse_sizes

BOUNDS = st.lists(st.integers(1, 64_000), min_size=1, max_size=16, unique=True).map(sorted)


def test_the_default_is_one_gpu_one_node_two_and_more() -> None:
    assert ["up to 1", "2-8", "9-16", "17+"] == SIZES.names
    jobs = [0, 500, 1000, 1001, 8000, 8001, 16_000, 16_001, 512_000]
    expected = ["up to 1"] * 3 + ["2-8"] * 2 + ["9-16"] * 2 + ["17+"] * 2
    assert expected == [SIZES.name_of(gpu_milli) for gpu_milli in jobs]
    assert "up to 1 GPU" == SIZES.ranges[0].words
    assert "17+ GPUs" == SIZES.ranges[-1].words


def test_other_bounds_have_other_names() -> None:
    assert ["up to 4", "5", "6-64", "65+"] == parse_sizes("4, 5,64").names


@given(BOUNDS, st.integers(0, 10**9))
def test_a_job_is_in_the_one_range_that_has_its_gpus(bounds: list[int], gpu_milli: int) -> None:
    sizes = SizeRanges(bounds)
    gpus = -(-gpu_milli // 1000)
    holding = [
        place
        for place, each in enumerate(sizes.ranges)
        if each.least <= gpus and (each.most is None or gpus <= each.most)
    ]

    assert [sizes.place(gpu_milli)] == holding
    assert len(set(sizes.names)) == len(bounds) + 1


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "must be a whole number, not ''"),
        ("1,,8", "must be a whole number, not ''"),
        ("1,a", "must be a whole number, not 'a'"),
        ("0,8", "must be a whole number of at least 1, not 0"),
        ("1.5", "must be a whole number, not 1.5"),
        ("8,1", "must be rising numbers of GPUs such as 1,8,16, not 8,1"),
        ("8,8", "must be rising numbers of GPUs such as 1,8,16, not 8,8"),
        (",".join(map(str, range(1, 18))), "must be at most 16 numbers of GPUs, not 17"),
    ],
)
def test_what_is_no_list_of_bounds_is_refused(text: str, wrong: str) -> None:
    with pytest.raises(ValueError, match="must be") as refused:
        parse_sizes(text)

    assert wrong == str(refused.value)


def test_the_default_is_written_as_it_is_read() -> None:
    assert SIZES.ranges == parse_sizes(SIZES_TEXT).ranges
