"""The best filling of one GPU: items by the size they take, as many of each as fit."""

from collections.abc import Sequence


def fill_best(values: Sequence[float], sizes: Sequence[int], room: int) -> tuple[list[float], list[int]]:
    """For every room up to the given one: the best value, and the item to take first (-1: leave a step empty)."""
    best = [0.0] * (room + 1)
    first = [-1] * (room + 1)
    items = [
        (size, value, item) for item, (size, value) in enumerate(zip(sizes, values, strict=True)) if value > 0
    ]
    for have in range(1, room + 1):
        top, choice = best[have - 1], -1
        for size, value, item in items:
            if size <= have and best[have - size] + value > top:
                top, choice = best[have - size] + value, item
        best[have], first[have] = top, choice
    return best, first


def read_pattern(first: Sequence[int], sizes: Sequence[int], room: int) -> dict[int, int]:
    """How many of each item the best filling of this room has."""
    counts: dict[int, int] = {}
    while room > 0:
        item = first[room]
        if item < 0:
            room -= 1
        else:
            counts[item] = counts.get(item, 0) + 1
            room -= sizes[item]
    return counts


def fill_exactly(values: Sequence[int], sizes: Sequence[int], room: int) -> list[int]:
    """Like `fill_best`, in integers and without the choices."""
    best = [0] * (room + 1)
    items = [(size, value) for size, value in zip(sizes, values, strict=True) if value > 0]
    for have in range(1, room + 1):
        top = best[have - 1]
        for size, value in items:
            if size <= have and best[have - size] + value > top:
                top = best[have - size] + value
        best[have] = top
    return best
