"""`nvidia-smi` of a job on emulated GPUs."""

import os
import subprocess
from pathlib import Path

import pytest

from gpuyard.engines.local.gpus import stand_in
from gpuyard.engines.machine import emulated_smi
from gpuyard.telemetry.sources.emulated import at, read_script

ENV = {
    "YARD_EMULATED_GPUS": "GPU-a=A100-80GB=81920,GPU-b=A100-80GB=81920",
    "CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b",
    "YARD_EMULATED_LOAD": "50% 10GiB",
    "SLURM_JOB_START_TIME": "1",
}
QUERY = "--query-gpu=index,name,uuid,memory.used,utilization.gpu"


def ran(*words: str, **env: str) -> tuple[int, list[str]]:
    lines: list[str] = []
    code = emulated_smi.main(list(words), {**ENV, **env}, lines.append)
    return code, lines


def test_a_job_sees_its_own_cards_marked_as_emulated() -> None:
    assert (0, [
        "GPU 0: NVIDIA A100-80GB (emulated) (UUID: GPU-a)",
        "GPU 1: NVIDIA A100-80GB (emulated) (UUID: GPU-b)",
    ]) == ran("-L")  # fmt: skip
    assert ["GPU 0: NVIDIA A100-80GB (emulated) (UUID: GPU-b)"] == ran("-L", CUDA_VISIBLE_DEVICES="GPU-b")[1]
    assert ["GPU 0: NVIDIA A100-80GB (emulated) (UUID: GPU-b)"] == ran("-L", CUDA_VISIBLE_DEVICES="1")[1]
    assert 2 == len(ran("-L", CUDA_VISIBLE_DEVICES="MIG-x")[1]), "slices lie on the job's cards"
    assert (6, ["No devices were found (emulated by gpuyard)"]) == ran(YARD_EMULATED_GPUS="")


def test_a_query_has_the_forms_of_the_real_one() -> None:
    head = "index, name, uuid, memory.used [MiB], utilization.gpu [%]"
    assert (0, [head, "1, NVIDIA A100-80GB (emulated), GPU-b, 10240 MiB, 50 %"]) == ran(
        QUERY, "--format=csv", "-i", "1"
    )
    assert ["0, NVIDIA A100-80GB (emulated), GPU-a, 10240, 50"] == ran(
        QUERY, "--format=csv,noheader,nounits", "--id=GPU-a"
    )[1]
    assert "[N/A]" == ran("--query-gpu=utilization.gpu", "--format=csv,noheader", YARD_EMULATED_LOAD="")[1][0]
    assert ["pid, used_memory [MiB]"] == ran("--query-compute-apps=pid,used_memory", "--format=csv")[1]


def test_the_table_and_all_that_is_known() -> None:
    code, lines = ran()
    assert (0, {79}) == (code, {len(line) for line in lines[1:]})
    assert 2 == len([line for line in lines if "10240 / 81920 MiB" in line and "50%" in line])
    code, lines = ran("-q", "-i", "0")
    assert (0, "GPU 00000000:01:00.0 (emulated by gpuyard)") == (code, lines[0])
    assert "    power.draw                             : 385.00 W" in lines


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("-l", "1"), "-l is not known here. `nvidia-smi --help` says what is."),
        (("topo", "-m"), "topo is not known here"),
        (("--query-gpu=clocks", "--format=csv"), 'Field "clocks" is not a valid field to query.'),
        ((QUERY,), "--query-gpu needs --format=csv"),
        (("-i",), "-i needs a value"),
        (("-L", "-i", "2"), "No device was found with the ID 2; this job has 2."),
    ],
)
def test_what_it_does_not_know_it_refuses(words: tuple[str, ...], says: str) -> None:
    code, (line,) = ran(*words)

    assert (2, True) == (code, line.startswith(f"nvidia-smi (emulated by gpuyard): {says}")), line


@pytest.mark.parametrize(
    "text",
    ["95% 40GiB 60s, 5% 40GiB", "50% 10GiB", "10% 512MiB 5s, 20% 1G 5s, 30% 2.5GiB", "", "x", "101% 1G"],
)
def test_a_script_means_what_the_telemetry_reads_in_it(text: str) -> None:
    steps = read_script(text)
    for since_s in (0.0, 4.9, 5.0, 59.0, 60.0, 1000.0):
        step = at(steps, since_s) if steps else None
        assert (step and (step.busy // 10, step.memory_mib)) == emulated_smi.load_at(text, since_s)


def test_the_program_runs_by_itself(tmp_path: Path) -> None:
    folder = stand_in.install(str(tmp_path))
    done = subprocess.run(
        ["nvidia-smi", "-L"], env={**ENV, "PATH": f"{folder}:{os.environ['PATH']}"}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip

    assert (0, 2) == (done.returncode, len(done.stdout.splitlines())), done.stderr
    assert 0o755 == (tmp_path / "emulated" / "nvidia-smi").stat().st_mode & 0o777
