"""The openb pod lists, with times and without."""

import pytest

from gpuyard.model import Ask, GpuRequest, JobSpec, Milli, Whole
from gpuyard.sim.trace import Skipped
from gpuyard.sim.traces import detect, load

LONG = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,"
    "creation_time,deletion_time,scheduled_time\n"
)
SHORT = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\n"


def test_pods_with_times(write) -> None:
    path = write(
        LONG
        + "p0,12000,16384,1,1000,,LS,Running,100,500,110\n"
        + "p1,6000,12288,1,460,V100M16|V100M32,BE,Pending,90,200,\n"
        + "p2,12000,16384,1,1000,,BE,Failed,100,100,100\n"
    )

    trace = load(path)

    assert "openb" == detect(path)
    assert [
        JobSpec("openb", Ask(Milli(1, 460), cpu_milli=6000, memory_mib=12288, models=("V100M16", "V100M32"))),
        JobSpec("openb", Ask(Whole(1), cpu_milli=12000, memory_mib=16384)),
    ] == trace.specs
    assert [0, 1, 1] == list(trace.spec)
    assert [0, 10_000, 10_000] == list(trace.submit_ms)
    assert [110_000, 390_000, 0] == list(trace.run_ms)
    assert (3, 0, 0) == (trace.rows, trace.skipped, trace.origin_ms)


def test_pods_without_times_arrive_together_and_run_an_hour(write) -> None:
    trace = load(write(SHORT + "p0,1000,1024,8,1000\np1,2000,2048,0,0\n"))

    assert [Whole(8), Whole(0)] == [trace.job(row).spec.ask.gpus for row in range(2)]
    assert [0, 0] == list(trace.submit_ms)
    assert [3_600_000, 3_600_000] == list(trace.run_ms)


@pytest.mark.parametrize(
    ("count", "milli", "gpus"),
    [
        (0, 0, Whole(0)),
        (1, 1000, Whole(1)),
        (4, 1000, Whole(4)),
        (1, 50, Milli(1, 50)),
        (2, 500, Milli(2, 500)),
    ],
)
def test_gpus(write, count: int, milli: int, gpus: GpuRequest) -> None:
    assert gpus == load(write(SHORT + f"p,1,1,{count},{milli}\n")).specs[0].ask.gpus


def test_broken_rows(write) -> None:
    rows = (
        "p0,1,1,1,1000,,LS,Running,100,500,110\n"
        "p1,1,1,1,0,,LS,Running,100,500,110\n"
        "p2,1,1,1,1001,,LS,Running,100,500,110\n"
        "p3,1,1,1,1000,,LS,Running,100,50,\n"
        "p4,1,1,1,1000,,LS,Running,100,,\n"
        "p5,1,x,1,1000,,LS,Running,100,500,\n"
    )

    trace = load(write(LONG + rows))

    assert (6, 5) == (trace.rows, trace.skipped)
    assert [
        Skipped(3, "gpu_milli is '0' for 1 GPUs"),
        Skipped(4, "gpu_milli is '1001', which is absurdly large"),
        Skipped(5, "creation_time, scheduled_time and deletion_time are not in this order"),
        Skipped(6, "deletion_time is '', not a number"),
        Skipped(7, "memory_mib is 'x', not a number"),
    ] == trace.skipped_named
