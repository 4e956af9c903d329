"""Static MIG layouts on the same streams, and the best of them found with the whole stream known.

A fleet that is cut once for the day is a number of slices of each profile. A request takes a free slice of its own
profile, or else the smallest larger one; that a larger one is in use counts only as much as was asked for. No care is
taken on which node the slices are, so this opponent is stronger than a real one.

The best layout in hindsight may cut every GPU differently. It is looked for by exchanging layouts of GPUs, eight at a
time, then four, two and one, as long as the very stream comes out better; from several beginnings, among them those of
linear programs that know the mean demand of every profile.
"""

import random
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from mig_streams import GEOMETRY, HOUR_S, HOURS, SIZES, Played, Request
from numba import njit
from scipy.optimize import linprog

from gpuyard.core.fleet.mig_geometry import Held, find_starts
from gpuyard.packing.slices.worth import _ways

TRIES_MAX = 4000
LAST_S = HOURS * HOUR_S
Mix = Any
"""An array: how many GPUs have each of `layouts()`."""


@cache
def layouts() -> tuple[tuple[int, ...], ...]:
    """Every layout to which nothing can be added, as how many slices of each profile it has."""
    names = [size.name for size in SIZES]

    def counted(held: Held) -> tuple[int, ...]:
        return tuple([sum([place.profile == name for place in held]) for name in names])

    full = [
        held
        for held in _ways(GEOMETRY).number
        if not any([find_starts(GEOMETRY, held, name) for name in names])
    ]
    return tuple(sorted({counted(held) for held in full}))


@cache
def _servers() -> Any:
    """By profile: which profiles serve it, its own first, then the smallest that is larger; -1 ends a row."""
    rows = []
    for own, size in enumerate(SIZES):
        larger = [
            (other.compute, other.memory, index)
            for index, other in enumerate(SIZES)
            if index != own and other.compute >= size.compute and other.memory >= size.memory
        ]
        row = [own, *[index for _compute, _memory, index in sorted(larger)]]
        rows.append(row + [-1] * (len(SIZES) - len(row)))
    return np.array(rows)


@njit(cache=True)  # type: ignore[untyped-decorator]
def _played(
    at: Any, sizes: Any, ends: Any, by_end: Any, free: Any, servers: Any, compute: Any, last: Any
) -> Any:
    count, over, taken, used = len(at), 0, 0, 0.0
    on = np.full(count, -1)
    for i in range(count):
        while over < count and ends[by_end[over]] <= at[i]:
            if on[by_end[over]] >= 0:
                free[on[by_end[over]]] += 1
            over += 1
        for server in servers[sizes[i]]:
            if server >= 0 and free[server] > 0:
                free[server] -= 1
                on[i] = server
                taken += 1
                used += compute[sizes[i]] * (min(ends[i], last) - at[i])
                break
    return taken, used


class Replay:
    """One stream, ready to be tried on any static layout."""

    def __init__(self, requests: Sequence[Request], gpus: int) -> None:
        self.gpus = gpus
        self._at = np.array([request.at_s for request in requests])
        self._sizes = np.array([request.size for request in requests])
        self._ends = self._at + np.array([request.run_s for request in requests])
        self._by_end = np.argsort(self._ends, kind="stable")
        self._layouts = np.array(layouts())
        self._compute = np.array([size.compute for size in SIZES])
        hours = [sum([r.run_s for r in requests if r.size == index]) for index in range(len(SIZES))]
        self._offered = [hour / LAST_S for hour in hours]
        """How many slices of each profile would be in use on average if all had room."""

    def on(self, mix: Mix) -> Played:
        """What becomes of the stream."""
        free = mix @ self._layouts
        taken, used = _played(
            self._at, self._sizes, self._ends, self._by_end, free, _servers(), self._compute, LAST_S
        )
        return Played(taken / len(self._at), used / (self.gpus * GEOMETRY.compute * LAST_S))

    def uniform(self, *counts: int) -> Mix:
        """All GPUs cut alike."""
        mix = np.zeros(len(layouts()), dtype=np.int64)
        mix[layouts().index(counts)] = self.gpus
        return mix

    def best(self, judge: Callable[[Played], float], seed: int) -> Mix:
        """The best layout in hindsight."""
        rng = random.Random(seed)
        begins = [self._by_demand([size.compute for size in SIZES]), self._by_demand([1] * len(SIZES))]
        begins += [self.uniform(*layout) for layout in layouts()]
        mix = max(begins, key=lambda each: judge(self.on(each)))
        best, tries, step = judge(self.on(mix)), 0, 8
        while step and tries < TRIES_MAX:
            better = False
            pairs = [(a, b) for a in range(len(mix)) for b in range(len(mix)) if a != b and mix[a] >= step]
            rng.shuffle(pairs)
            for a, b in pairs:
                if mix[a] < step:
                    continue
                other = mix.copy()
                other[a] -= step
                other[b] += step
                found = judge(self.on(other))
                tries += 1
                if found > best:
                    mix, best, better = other, found, True
            step = step if better else step // 2
        return mix

    def _by_demand(self, weights: Sequence[int]) -> Mix:
        """The layouts that hold the most of the mean demand, each profile weighted."""
        many, sizes = len(layouts()), len(SIZES)
        found = linprog(
            np.concatenate([np.zeros(many), -np.array(weights, dtype=float)]),
            A_ub=np.hstack([-self._layouts.T, np.eye(sizes)]),
            b_ub=np.zeros(sizes),
            A_eq=[np.concatenate([np.ones(many), np.zeros(sizes)])],
            b_eq=[self.gpus],
            bounds=[(0, None)] * many + [(0, offered) for offered in self._offered],
            method="highs",
        )
        exact = found.x[:many]
        mix = np.floor(exact + 1e-9).astype(np.int64)
        for index in np.argsort(mix - exact, kind="stable")[: self.gpus - int(mix.sum())]:
            mix[index] += 1
        return mix
