"""What a node tells: the kernel's own counts beside what real processes did, and GPUs put down to attempts."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from gpuyard.telemetry.collector import Collector
from gpuyard.telemetry.samples import check_sample
from gpuyard.telemetry.sources import AttemptPlace, GpuLook, ProcessOnGpu
from gpuyard.telemetry.sources.emulated import EmulatedSource, Step, at, read_script
from gpuyard.telemetry.sources.kernel import Kernel


class Shown:
    """A source that shows what it is given."""

    def __init__(self, *looks: GpuLook) -> None:
        self.looks = looks

    def look(self, _now_ms: int) -> Sequence[GpuLook]:
        return self.looks

    def close(self) -> None:
        pass


def machine(root: Path, files: dict[str, str]) -> Kernel:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return Kernel(str(root))


def test_the_kernel_of_a_node(tmp_path: Path) -> None:
    (tmp_path / "sys/block/nvme0n1").mkdir(parents=True)
    (tmp_path / "sys/block/dm-0").mkdir()
    kernel = machine(
        tmp_path,
        {
            "proc/stat": "cpu  100 0 50 9000 77 3 2 0 0 0\ncpu0 1 1\n",
            "proc/meminfo": "MemTotal: 8388608 kB\nMemFree: 1 kB\nMemAvailable: 6291456 kB\n",
            "proc/diskstats": "259 0 nvme0n1 1 0 2000 0 1 0 4000 0 0\n259 1 nvme0n1p1 1 0 9 0 1 0 9 0\n"
            "253 0 dm-0 1 0 9 0 1 0 9",
            "proc/net/dev": "a\nb\n lo: 5 0 0 0 0 0 0 0 5 0\neth0: 700 0 0 0 0 0 0 0 900 0\n",
            "proc/pressure/io": "some avg10=0.00 avg60=0 avg300=0 total=5000000\nfull avg10=0 total=1\n",
            "sys/class/infiniband/mlx5_0/ports/1/counters/port_rcv_data": "25",
            "sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data": "50",
        },
    )
    tick_ms = 1000 // os.sysconf("SC_CLK_TCK")

    assert {
        "cpu": 155 * tick_ms,
        "memory_used": 2048,
        "memory_available": 6144,
        "disk_read": 2000 * 512,
        "disk_written": 4000 * 512,
        "net_received": 700,
        "net_sent": 900,
        "ib_received": 100,
        "ib_sent": 200,
        "io_stalled": 5000,
    } == kernel.node()
    assert {} == Kernel(str(tmp_path / "nothing")).node()


def test_the_groups_of_an_attempt(tmp_path: Path) -> None:
    kernel = machine(
        tmp_path,
        {
            "g/cpu.stat": "usage_usec 2500000\nuser_usec 1\n",
            "g/memory.current": str(300 << 20),
            "g/memory.peak": str(500 << 20),
            "g/io.stat": "259:0 rbytes=10 wbytes=20 rios=1\n8:0 rbytes=1 wbytes=2 rios=1\n",
            "g/memory.pressure": "some avg10=0.00 total=7000\n",
            "m/memory.usage_in_bytes": str(7 << 20),
            "m/memory.max_usage_in_bytes": str(9 << 20),
        },
    )

    assert {
        "cpu": 2500, "memory": 300, "memory_peak": 500, "disk_read": 11, "disk_written": 22, "memory_stalled": 7,
    } == kernel.attempt(AttemptPlace("y-1-1", group="/g"))  # fmt: skip
    old = kernel.attempt(AttemptPlace("y-1-1", groups_v1={"memory": "/m"}))
    assert {"memory": 7, "memory_peak": 9} == old


def test_an_attempt_without_a_group_is_known_by_its_processes() -> None:
    work = "import time; b = bytearray(60 << 20); t = time.process_time()\nwhile time.process_time() < t + .5: pass"
    shell = subprocess.Popen(
        ["sh", "-c", f'{sys.executable} -c "{work}\nprint(1, flush=True)\ntime.sleep(30)" & wait'],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert shell.stdout is not None
        assert b"1\n" == shell.stdout.readline()
        kernel = Kernel()
        places = [AttemptPlace("y-1-1", pids=(shell.pid,))]
        found = kernel.attempt(places[0])
        (child,) = [pid for pid in kernel.below([shell.pid]) if pid != shell.pid]
        whose = kernel.attempt_of(places)

        assert 500 <= found["cpu"] <= 1500
        assert 60 <= found["memory"] <= 120
        assert "y-1-1" == whose(child)
        assert "" == whose(os.getpid())
        assert "" == whose(2**30)
    finally:
        os.killpg(shell.pid, 9)
        shell.communicate()


def told(
    looks: Sequence[GpuLook], *places: AttemptPlace, kernel: Kernel | None = None
) -> dict[str, int | float | None]:
    return Collector("n1", Shown(*looks), lambda: places, kernel or Kernel(), machine=False).take(0)


class KernelOfMps(Kernel):
    """One in which every process is the server of MPS."""

    def name_of(self, _pid: int) -> str:
        return "nvidia-cuda-mps-server"


def test_gpu_memory_and_work_go_to_the_attempt_of_the_process() -> None:
    own = os.getpid()
    one = AttemptPlace("y-1-1", pids=(own,), devices=("GPU-0", "GPU-1"))
    looks = [
        GpuLook(0, "GPU-0", {"busy": 800}, (ProcessOnGpu(own, 4000),)),
        GpuLook(1, "GPU-1", {"busy": 0}),
        GpuLook(2, "GPU-2", {"busy": 100}),
    ]

    found = told(looks, one)
    assert (4000, 400) == (found["attempt/y-1-1/gpu_memory"], found["attempt/y-1-1/gpu_busy"])
    assert {} == check_sample("n1", 0, found, 0).faults


def test_under_mps_memory_is_exact_and_compute_is_marked() -> None:
    places = [AttemptPlace(key, devices=("GPU-0",), milli=milli) for key, milli in (("a", 500), ("b", 250))]
    look = GpuLook(
        0,
        "GPU-0",
        {"busy": 910},
        (ProcessOnGpu(1, 3000, 0, attempt="a"), ProcessOnGpu(2, 1000, 0, attempt="b")),
        mps=True,
    )
    found = told([look], *places)

    assert (3000, 1000) == (found["attempt/a/gpu_memory"], found["attempt/b/gpu_memory"])
    assert (607, 303) == (found["attempt/a/gpu_busy_estimated"], found["attempt/b/gpu_busy_estimated"])
    assert "attempt/a/gpu_busy" not in found


def test_the_server_of_mps_is_no_stranger_and_others_are() -> None:
    look = GpuLook(
        0, "GPU-0", {"busy": 910}, (ProcessOnGpu(2**30, 30), ProcessOnGpu(2, 1000, attempt="a")), mps=True
    )
    place = AttemptPlace("a", devices=("GPU-0",))
    assert "attempt/a/gpu_busy" not in told([look], place)
    assert 910 == told([look], place, kernel=KernelOfMps())["attempt/a/gpu_busy"]


def test_a_slice_tells_of_its_attempt_also_before_a_process_is_on_it() -> None:
    look = GpuLook(
        0,
        "GPU-0",
        {"memory_used": 2000},
        (ProcessOnGpu(1, 2000, instance="MIG-a", attempt="a"),),
        slices_busy={"MIG-a": 981, "MIG-b": 0},
    )
    found = told([look], AttemptPlace("a", devices=("MIG-a",)), AttemptPlace("b", devices=("MIG-b",)))

    assert (981, 2000) == (found["attempt/a/gpu_busy"], found["attempt/a/gpu_memory"])
    assert (0, 0) == (found["attempt/b/gpu_busy"], found["attempt/b/gpu_memory"])


def test_scripts_of_emulated_gpus() -> None:
    steps = read_script("95% 40GiB 60s, 5% 512MiB")
    assert (Step(950, 40960, 60), Step(50, 512, 60)) == steps
    assert (steps[0], steps[1], steps[1]) == (at(steps, 0), at(steps, 60), at(steps, 9999))
    for bad in ("", "101% 1G", "95%", "5% 1G, 6% 1G", "all of it"):
        assert () == read_script(bad)


def test_emulated_gpus_do_what_their_jobs_say() -> None:
    places = [
        AttemptPlace("a", devices=("GPU-0",), script="90% 40GiB 60s, 10% 40GiB", started_ms=1000),
        AttemptPlace("b", devices=("GPU-1",)),
    ]
    gpus = {"GPU-0": 81920, "GPU-1": 81920, "GPU-2": 81920}
    source = EmulatedSource(lambda: gpus, lambda: places)
    collector = Collector("n1", source, lambda: places, Kernel(), machine=False)
    early, late = collector.take(2000), collector.take(61_000)

    assert (900, 100) == (early["gpu/0/busy"], late["gpu/0/busy"])
    assert (900, 40960) == (early["attempt/a/gpu_busy"], early["attempt/a/gpu_memory"])
    assert "gpu/1/busy" not in early, "nobody knows what a job without a script would have done"
    assert "attempt/b/gpu_memory" not in early
    assert 0 == early["gpu/2/busy"]


def test_a_look_at_this_machine_is_cheap_and_all_of_it_is_believed() -> None:
    places = [AttemptPlace(f"y-{n}-1", pids=(os.getpid(),), devices=(f"GPU-{n}",)) for n in range(8)]
    looks = [
        GpuLook(n, f"GPU-{n}", {"busy": 5}, (ProcessOnGpu(os.getpid(), 10, attempt=f"y-{n}-1"),))
        for n in range(8)
    ]
    collector = Collector("n1", Shown(*looks), lambda: places, Kernel())
    now_ms = time.time_ns() // 1_000_000
    found = collector.take(now_ms)
    for _ in range(19):
        collector.take(now_ms)

    assert {} == check_sample("n1", now_ms, found, now_ms).faults
    assert {"node/cpu", "node/memory_used"} <= found.keys()
    # One look every ten seconds may take 1 % of a core; this part of it, half of that.
    assert collector.spent_s / 20 < 0.05


def test_the_energy_of_gpus_goes_to_the_attempts_that_have_them_by_their_shares(tmp_path: Path) -> None:
    shown = Shown()
    places = [AttemptPlace("y-1-1", devices=("A", "B")), AttemptPlace("y-2-1", devices=("C",), milli=250)]
    collector = Collector("n", shown, lambda: places, Kernel(str(tmp_path)), machine=False)
    told: list[tuple[int | float | None, ...]] = []
    for joules in ((100, 50, 900), (110, 52, 940), (130, 54, 20), (131, None, 21)):
        shown.looks = tuple(
            [GpuLook(i, uuid, {"energy": j}) for i, (uuid, j) in enumerate(zip("ABC", joules, strict=True))]
        )
        found = collector.take(0)
        told.append(tuple([found.get(f"attempt/{key}/energy") for key in ("y-1-1", "y-2-1")]))

    # It is counted from the first look at which an attempt is there; a counter that went back began anew at 0.
    assert [(None, None), (0, 0), (22_000, 5_000), (None, 5_250)] == told
