"""Parts of the local engine on their own: groups in a made-up tree, identities, files that are whole or absent."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpuyard.engines.contract import ForeignProcess, Usage
from gpuyard.engines.local.attempt.cgroups import Cgroup
from gpuyard.engines.local.engine import LocalEngine
from gpuyard.engines.local.hosts import EmulatedGpus, MachineReader, ThisMachine, emulated
from gpuyard.engines.local.translate import read_usage
from gpuyard.engines.machine import files, nvml, processes
from gpuyard.engines.machine.launches import user_name
from gpuyard.engines.machine.nvml import GpuReading
from gpuyard.engines.machine.processes import Identity
from gpuyard.engines.node.kernel.processes import find_descendants

ROOT = Path(__file__).resolve().parents[3]


def test_a_supervisor_is_made_of_what_visits_and_images_need_and_of_little_else() -> None:
    """Every module is held in memory by every running job; one that were missing could not be loaded any more."""
    code = (
        f"import sys; sys.path.append({str(ROOT / 'src')!r}); import gpuyard.engines.local.attempt.supervisor; "
        "ours = {name for name in sys.modules if name.startswith('gpuyard')}; "
        "rooms = {name for name in ours if hasattr(sys.modules[name], '__path__')}; "
        "print(*sorted(ours - rooms), len(sys.modules) - len(rooms))"
    )
    found = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()

    assert {
        "gpuyard.engines.local.attempt.cgroups",
        "gpuyard.engines.local.attempt.devices",
        "gpuyard.engines.local.attempt.room",
        "gpuyard.engines.local.attempt.supervisor",
        "gpuyard.engines.local.attempt.tasks",
        "gpuyard.engines.local.attempt.v1",
        "gpuyard.engines.machine.files",
        "gpuyard.engines.machine.peeking",
        "gpuyard.engines.machine.processes",
        "gpuyard.engines.node.attempt.crew",
        "gpuyard.engines.node.attempt.fence",
        "gpuyard.engines.node.attempt.runner",
        "gpuyard.engines.node.attempt.tasks",
        "gpuyard.engines.node.containers.devices",
        "gpuyard.engines.node.containers.image",
        "gpuyard.engines.node.containers.podman",
        "gpuyard.engines.node.containers.runtimes",
        "gpuyard.engines.node.files",
        "gpuyard.engines.node.kernel.processes",
        "gpuyard.engines.node.kernel.terminals",
        "gpuyard.engines.node.visits.copying",
        "gpuyard.engines.node.visits.frames",
        "gpuyard.engines.node.visits.inside",
        "gpuyard.engines.node.visits.keeper",
        "gpuyard.engines.node.visits.visitors",
        "gpuyard.errors",
    } == set(found[:-1])
    assert int(found[-1]) < 125


def test_a_group_writes_its_limits(tmp_path: Path) -> None:
    for name in ("memory.max", "memory.swap.max", "memory.oom.group", "cpu.max"):
        (tmp_path / name).touch()
    Cgroup(str(tmp_path)).make(memory_mib=512, cpu_milli=2500)

    assert ["536870912", "0", "1", "250000 100000"] == [
        (tmp_path / name).read_text()
        for name in ("memory.max", "memory.swap.max", "memory.oom.group", "cpu.max")
    ]


def test_a_limit_that_cannot_be_set_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Cgroup(str(tmp_path)).make(memory_mib=512, cpu_milli=0)


@pytest.mark.parametrize(
    ("events", "killed"),
    [("low 0\nhigh 0\nmax 9\noom 1\noom_kill 1\n", True), ("max 9\noom_kill 0\n", False), ("", False)],
)
def test_kills_for_memory_are_seen(tmp_path: Path, events: str, killed: bool) -> None:
    (tmp_path / "memory.events").write_text(events)

    assert killed is Cgroup(str(tmp_path)).killed_for_memory()


def test_a_group_that_is_gone_is_empty(tmp_path: Path) -> None:
    gone = Cgroup(str(tmp_path / "gone"))

    assert gone.empty()
    assert [] == gone.pids()
    assert not gone.killed_for_memory()
    gone.kill()
    gone.remove()


def test_an_identity_is_more_than_a_number() -> None:
    boot = processes.boot_id()
    me = processes.identify_self(boot)

    assert processes.is_alive(me, boot)
    assert not processes.is_alive(me._replace(ticks=me.ticks + 1), boot)
    assert not processes.is_alive(me, "another boot")
    assert not processes.is_alive(Identity(0, 0, boot), boot)
    assert not processes.signal_to(me._replace(ticks=me.ticks + 1), 9, boot)


def test_parents_are_found_up_to_the_first() -> None:
    assert os.getppid() == processes.find_ancestors(os.getpid())[0]
    assert os.getpid() in find_descendants({os.getppid()})


def test_a_file_is_made_once(tmp_path: Path) -> None:
    path = str(tmp_path / "file")

    assert [True, False] == [files.create(path, {"by": i}, durable=True) for i in range(2)]
    assert {"by": 0} == files.read(path)
    assert ["file"] == os.listdir(tmp_path)
    assert files.read(str(tmp_path / "absent")) is None


def test_the_first_end_stands_however_long_its_reason(tmp_path: Path) -> None:
    end = {"why": "x" * 10_000, "outcome": "FAILED"}
    slots = [files.EndSlot(str(tmp_path))]

    assert slots[0].write(end)
    cut = f"{'x' * 478} [the rest is cut off]"
    assert {"why": cut, "outcome": "FAILED"} == files.read(str(tmp_path / files.END))
    assert not files.EndSlot(str(tmp_path)).write(end)
    assert [files.END] == os.listdir(tmp_path)


def test_an_end_with_every_text_of_an_image_fits_its_place(tmp_path: Path) -> None:
    text = "\N{WHALE}" * 500
    end = {
        "why": text,
        "outcome": "FAILED",
        "image": {"image": text, "digest": text, "why": text, "pull_ms": 7},
    }

    assert files.EndSlot(str(tmp_path)).write(end)

    path = tmp_path / files.END
    assert files.END_BYTES_MAX == path.stat().st_size
    found = files.read(str(path))
    assert found is not None
    assert ("FAILED", 7) == (found["outcome"], found["image"]["pull_ms"])
    for each in (found["why"], found["image"]["image"], found["image"]["digest"], found["image"]["why"]):
        assert each.startswith("\N{WHALE}")
        assert each.endswith(" [the rest is cut off]")


def test_emulated_gpus_are_the_same_every_time_and_differ_by_node() -> None:
    gpus = EmulatedGpus(2, "T4")

    assert emulated(gpus, "a") == emulated(gpus, "a")
    uuids = {gpu.uuid for node in "ab" for gpu in emulated(gpus, node)}
    assert 4 == len(uuids)
    assert all(uuid.startswith("GPU-emulated-") for uuid in uuids)


def test_who_is_on_a_gpu_is_named(tmp_path: Path) -> None:
    readings = [
        GpuReading("GPU-0", "Tesla T4", 15_360),
        GpuReading("GPU-1", "Tesla T4", 15_360, pids=(os.getpid(),)),
    ]
    engine = LocalEngine(tmp_path, nodes=ThisMachine(reader=MachineReader(gpus=lambda *_: readings)))
    (report,) = engine.nodes()
    engine.close()

    user = user_name(os.geteuid())
    assert (ForeignProcess(gpu=1, pid=os.getpid(), user=user),) == report.busy


def test_no_driver_is_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    class NVMLError(Exception):
        pass

    def refuse() -> None:
        raise NVMLError

    monkeypatch.setitem(sys.modules, "pynvml", SimpleNamespace(NVMLError=NVMLError, nvmlInit=refuse))

    assert [] == nvml.read_gpus()


def test_a_group_tells_what_it_counts_and_leaves_out_the_rest(tmp_path: Path) -> None:
    group = Cgroup(str(tmp_path))
    assert {} == group.usage()
    (tmp_path / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 2000000\n", encoding="ascii")
    assert {"cpu_ms": 2500} == group.usage()
    (tmp_path / "memory.peak").write_text(f"{300 << 20}\n", encoding="ascii")
    assert {"cpu_ms": 2500, "memory_mib": 300} == group.usage()


def test_an_end_without_figures_has_unknown_ones() -> None:
    for found in (None, {}, "x", {"cpu_ms": "1"}):
        assert Usage() == read_usage(found)
    assert Usage(7, None, 9) == read_usage({"cpu_ms": 7, "process_mib": 9, "other": 1})


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may go before others")
@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="the kernel tells no sessions apart")
@pytest.mark.parametrize(("begins", "niceness"), [(False, 0), (True, -10)])
def test_only_a_session_of_its_own_goes_first_with_a_server(begins: bool, niceness: int) -> None:
    """A shell in whose session `yard up` was typed must not go first, and neither must what it starts."""
    goes = "from gpuyard.engines.machine import processes; processes.go_first()"
    shows = "print(open('/proc/self/autogroup').read().split()[-1])"
    own = f"import os; {'os.setsid(); ' if begins else ''}{goes}; {shows}"
    # The session that does not begin here is the child's above it, which begins one.
    outer = f"import os, subprocess, sys; os.setsid(); subprocess.run([sys.executable, '-c', {own!r}], check=True)"
    found = subprocess.run([sys.executable, "-c", outer], capture_output=True, text=True, check=True)

    assert str(niceness) == found.stdout.strip()
