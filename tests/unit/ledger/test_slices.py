"""MIG by slice, shares by share: exact fractions of a GPU, and what cannot be used beside them."""

import pytest

from gpuyard.ledger.nodes import NodeBook
from gpuyard.ledger.units import CATEGORIES, PARTS
from gpuyard.model import Grant, Node
from gpuyard.model.mig import Slice

A100 = Node("a", "main", "mig", "A100-40GB", 1, 64_000, 262_144)


def after(*grants: Grant) -> tuple[list[int], dict[str, int]]:
    """What each grant holds of the GPU, and what the rest of it is."""
    book = NodeBook(A100, "here", 0)
    held = [book.take(number, grant).parts for number, grant in enumerate(grants, start=1)]
    return held, {CATEGORIES[column]: parts for _owner, column, parts in book.free()}


def sliced(profile: str, start: int) -> Grant:
    return Grant(0, 1, 143, 0, 0, 1, (Slice(0, profile, start),))


def test_seven_sevenths_are_a_whole_gpu() -> None:
    held, rest = after(*[sliced("1g.5gb", start) for start in range(7)])

    assert [PARTS // 7] * 7 == held
    assert {} == rest


def test_a_seventh_beside_two_slices_that_take_all_memory_is_stranded() -> None:
    held, rest = after(sliced("3g.20gb", 0), sliced("3g.20gb", 4))

    assert [3 * PARTS // 7] * 2 == held
    assert {"stranded": PARTS // 7} == rest


def test_a_share_is_its_thousandths_and_the_rest_is_idle() -> None:
    assert ([333 * 7], {"idle": 667 * 7}) == after(Grant(0, 1, 333, 0, 0, 1))


@pytest.mark.parametrize(("cpu_milli", "kind"), [(63_000, "idle"), (63_001, "stranded")])
def test_a_gpu_beside_less_than_a_core_is_stranded(cpu_milli: int, kind: str) -> None:
    assert {kind: PARTS // 2} == after(Grant(0, 1, 500, cpu_milli, 0, 1))[1]


def test_a_log_that_gives_more_of_a_gpu_than_there_is_books_what_is_left() -> None:
    held, rest = after(Grant(0, 1, 700, 0, 0, 1), Grant(0, 1, 700, 0, 0, 1))

    assert ([700 * 7, 300 * 7], {}) == (held, rest)
