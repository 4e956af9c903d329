"""Lists of nodes in short: what is written is read again, and what stands for too many is refused at once."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.engines.name_lists import expand, fold_names

NAMES = st.lists(st.from_regex(r"[a-z]{1,3}[0-9]{0,4}(-ib)?", fullmatch=True), unique=True, min_size=1)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ()),
        ("(null)", ()),
        ("n1", ("n1",)),
        ("n[1-3,5],m", ("n1", "n2", "n3", "n5", "m")),
        ("gpu[08-10]-ib", ("gpu08-ib", "gpu09-ib", "gpu10-ib")),
        ("r[1-2]n[1-2]", ("r1n1", "r1n2", "r2n1", "r2n2")),
    ],
)
def test_lists_of_nodes(text: str, names: tuple[str, ...]) -> None:
    assert names == expand(text)


def test_a_list_of_far_too_many_nodes_is_refused() -> None:
    with pytest.raises(ValueError, match="too far"):
        expand("n[1-9999999]")


@given(NAMES)
def test_names_are_read_as_they_are_written(names: list[str]) -> None:
    assert tuple(names) == expand(fold_names(names))


@pytest.mark.parametrize(
    "text",
    [
        "n[0-99999999]",
        "n[" + ",".join(["0-9999"] * 3000) + "]",
        "n" + "[0-9999]" * 3000,
        "n[0-999]" + "[0-1]" * 40,
    ],
    ids=["one range", "ranges in a bracket", "brackets", "powers of two"],
)
def test_a_short_text_for_very_many_names_takes_no_memory(text: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"too far|more than"):
            expand(text, 10_000)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
