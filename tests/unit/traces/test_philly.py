"""The Philly job list."""

from random import Random

import pytest

from gpuyard.model import Ask, JobSpec, Whole
from gpuyard.sim.trace import Skipped
from gpuyard.sim.traces import detect, load

HEADER = "timestamp,duration,num_gpus,gpu_time,cluster\n"


def test_rows_become_jobs_of_their_virtual_cluster(write) -> None:
    path = write(
        HEADER + "2017-09-04 10:30:41,100.0,8,800.0,7f04ca\n2017-09-04 10:30:43,50.5,1,50.5,6214e9\n"
    )

    trace = load(path, seed=3)

    draw = Random(3).random
    assert "philly" == detect(path)
    assert [JobSpec("7f04ca", Ask(Whole(8))), JobSpec("6214e9", Ask(Whole(1)))] == trace.specs
    assert [0, 2000] == list(trace.submit_ms)
    assert [100_000, 50_500] == list(trace.run_ms)
    assert [int(run * (1 + 2 * draw())) + 60_000 for run in trace.run_ms] == list(trace.limit_ms)
    assert 1_504_521_041_000 == trace.origin_ms


def test_the_limits_follow_the_seed(write) -> None:
    path = write(HEADER + "2017-09-04 10:30:41,100.0,8,800.0,a\n" * 50)

    first, again, other = (load(path, seed=seed) for seed in (1, 1, 2))

    assert first == again
    assert first.limit_ms != other.limit_ms
    assert all(160_000 <= limit <= 360_000 for limit in first.limit_ms)


@pytest.mark.parametrize(
    ("gpus", "per_node", "ask"),
    [
        (0, 8, Ask(Whole(0))),
        (3, 8, Ask(Whole(3))),
        (8, 8, Ask(Whole(8))),
        (9, 8, Ask(Whole(1), 9)),
        (12, 8, Ask(Whole(4), 3)),
        (16, 8, Ask(Whole(8), 2)),
        (24, 8, Ask(Whole(8), 3)),
        (8, 4, Ask(Whole(4), 2)),
    ],
)
def test_large_jobs_become_gangs(write, gpus: int, per_node: int, ask: Ask) -> None:
    path = write(HEADER + f"2017-09-04 10:30:41,100.0,{gpus},0,a\n")

    assert ask == load(path, gpus_per_node=per_node).specs[0].ask


def test_broken_rows(write) -> None:
    rows = (
        "2017-09-04 10:30:41,1,1,1,a\n"
        "yesterday,1,1,1,a\n"
        "1969-12-31 23:59:59,1,1,1,a\n"
        "2017-09-04 10:30:41,-1,1,1,a\n"
        "2017-09-04 10:30:41,1,many,1,a\n"
        "2017-09-04 10:30:41,1,1\n"
    )

    trace = load(write(HEADER + rows))

    assert (6, 5) == (trace.rows, trace.skipped)
    assert [
        Skipped(3, "timestamp is 'yesterday', not a time such as 2026-03-02T09:30:00"),
        Skipped(4, "timestamp is '1969-12-31 23:59:59', before 1970"),
        Skipped(5, "duration is '-1', which is negative"),
        Skipped(6, "num_gpus is 'many', not a number"),
        Skipped(7, "has 3 columns where the header has 5"),
    ] == trace.skipped_named


def test_a_list_without_clusters_has_one_tenant(write) -> None:
    assert ["philly"] == [
        spec.tenant for spec in load(write("timestamp,duration,num_gpus\n2017-09-04 10:30:41,1,1\n")).specs
    ]
