"""Bytes of a log as lines."""

from hypothesis import given
from hypothesis import strategies as st

from gpuyard.shipping.lines import Piece, cut


def _texts(content: bytes, *, line_bytes: int = 100, ended: bool = False) -> list[str]:
    return [piece.text for piece in cut(content, 0, 0, line_bytes, ended=ended).pieces]


def test_a_line_is_told_once_it_has_its_end_or_the_job_has():
    assert ["one", "", "two"] == _texts(b"one\n\ntwo\nthr")
    assert ["one", "thr"] == _texts(b"one\nthr", ended=True)
    assert 4 == cut(b"one\nthr", 0, 0, 100, ended=False).after


def test_a_long_line_comes_in_parts_that_say_so():
    found = cut(b"abcdefgh\nij\n", 50, 0, 3, ended=False)
    assert [
        Piece(50, "abc", 1, last=False),
        Piece(53, "def", 2, last=False),
        Piece(56, "gh", 3, last=True),
        Piece(59, "ij", 0, last=True),
    ] == found.pieces
    # Where the log has come no further than its middle, the next look goes on with the next part.
    begun = cut(b"abcdefgh", 50, 0, 3, ended=False)
    assert (56, 2) == (begun.after, begun.part)
    assert [Piece(56, "gh", 3, last=True)] == cut(b"gh\n", 56, 2, 3, ended=False).pieces


def test_a_long_line_is_not_cut_inside_of_a_character():
    assert ["aé", "é"] == _texts("aéé\n".encode(), line_bytes=4)


def test_bytes_that_are_no_text_stay_legible():
    assert ["a\\xff\\xfeb\x00"] == _texts(b"a\xff\xfeb\x00\n")


def test_colours_and_windows_titles_are_left_out():
    assert ["red 50% done"] == _texts(b"\x1b[1;31mred\x1b[0m \x1b]0;title\x0750%\x1b[K done\r\n")


@given(st.binary(max_size=300), st.integers(1, 20), st.lists(st.integers(1, 40), min_size=1, max_size=40))
def test_however_a_log_is_read_its_lines_are_the_same(content: bytes, line_bytes: int, steps: list[int]):
    whole = cut(content, 0, 0, line_bytes, ended=True)
    pieces, offset, part = [], 0, 0
    for end in [*[sum(steps[: n + 1]) for n in range(len(steps))], len(content)]:
        found = cut(content[offset:end], offset, part, line_bytes, ended=False)
        pieces += found.pieces
        offset, part = found.after, found.part
    pieces += cut(content[offset:], offset, part, line_bytes, ended=True).pieces
    assert whole.pieces == pieces
    assert len(content) == whole.after
