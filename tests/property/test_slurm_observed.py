"""Whatever comes late, twice, in any order, and whoever is away meanwhile: every try is in the history once."""

import random
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from rigs.slurm.world import NODES, T0_MS, Watched, World, attempt

STATES = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "PREEMPTED", "NODE_FAIL", "OUT_OF_MEMORY")


@st.composite
def tries(draw: st.DrawFn) -> list:
    """Tries of jobs, some of them requeued, some never started; more than the nodes could really hold."""
    found = []
    for number in range(1, draw(st.integers(1, 12))):
        label = f"{number}_{draw(st.integers(0, 2))}" if draw(st.booleans()) else str(number)
        submit = draw(st.integers(-2000, 1500))
        for _ in range(draw(st.integers(1, 3))):
            start = submit + draw(st.integers(0, 300))
            end = start + draw(st.integers(0, 600))
            nodes = draw(st.sampled_from([("n1",), ("n2",), NODES]))
            gpus = draw(st.sampled_from([0, 1, 4, 8])) * len(nodes)
            state = draw(st.sampled_from(STATES))
            if draw(st.integers(0, 5)) == 0:
                found.append(attempt(label, submit, None, end, "CANCELLED", gpus=gpus, nodes=nodes))
            else:
                found.append(attempt(label, submit, start, end, state, gpus=gpus, nodes=nodes))
            submit = end + draw(st.integers(1, 60))
    return found


@settings(max_examples=40, deadline=None)
@given(tries(), st.integers(0, 2**32), st.lists(st.integers(1, 400), min_size=3, max_size=12))
def test_every_try_is_counted_once(rows: list, seed: int, pauses: list[int]) -> None:
    rng = random.Random(seed)
    lags = {id(row): rng.choice([0, 2_000, 30_000, 1_500_000]) for row in rows}
    world = World(tries=rows, shuffle=rng, lag_ms=lambda row: lags[id(row)])
    with tempfile.TemporaryDirectory() as folder:
        watched = Watched(world, Path(folder) / "yard.db")
        for pause in pauses:
            world.silent = {what for what in ("queue", "history", "nodes") if rng.random() < 0.25}
            watched.look(pause)
            if rng.random() < 0.3:
                watched.restart()
        world.silent = set()
        last_s = max([row.end_ms for row in rows], default=T0_MS) / 1000 - T0_MS / 1000 + 2000
        watched.look(max(40.0, last_s))
        watched.look(40)
        found, state = watched.ended(), watched.replica.state
        watched.close()

    names = {"PREEMPTED": "CANCELLED"}
    wanted = sorted(
        (f"{row.label}@{row.submit_ms}", names.get(row.state, row.state), row.held.gpus or 0) for row in rows
    )
    assert wanted == [(key, name, gpus) for key, name, _start, _end, gpus in found]
    assert {} == state.jobs
    assert [255, 255] == state.nodes.free_mask
    # What ended is known to have ended then, however late it was told.
    ends = {f"{row.label}@{row.submit_ms}": row.end_ms for row in rows}
    assert [key for key, _n, _s, end, _g in found if end < ends[key]] == []
