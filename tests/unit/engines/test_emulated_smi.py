"""`nvidia-smi` of a job on emulated GPUs."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuyard.engines.local.gpus import stand_in
from gpuyard.telemetry.sources.emulated import at, read_script

ENV = {
    "YARD_EMULATED_GPUS": "GPU-a=A100-80GB=81920,GPU-b=A100-80GB=81920",
    "CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b",
    "YARD_EMULATED_LOAD": "50% 10GiB",
    "SLURM_JOB_START_TIME": "1",
}
Ran = Callable[..., tuple[int, list[str]]]
QUERY = "--query-gpu=index,name,uuid,memory.used,utilization.gpu"


SHELLS = [
    words for words in (["dash"], ["bash", "--posix"], ["busybox", "sh"], ["sh"]) if shutil.which(words[0])
]


@pytest.fixture(params=SHELLS, ids=lambda words: words[0])
def ran(request: pytest.FixtureRequest, tmp_path: Path) -> Ran:
    """How it ends in a shell, and what it writes: there is no Python on its PATH, as in many an image."""
    program = f"{stand_in.install(str(tmp_path))}/nvidia-smi"
    shell, date = shutil.which(request.param[0]), shutil.which("date")
    assert shell is not None
    assert date is not None
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "date").symlink_to(date)

    def run(*words: str, **env: str) -> tuple[int, list[str]]:
        own = {**ENV, **env, "PATH": str(tmp_path / "bin")}
        done = subprocess.run(
            [shell, *request.param[1:], program, *words], env=own, capture_output=True, text=True, check=False
        )
        assert "" == done.stderr
        return done.returncode, done.stdout.splitlines()

    return run


def test_a_job_sees_its_own_cards_marked_as_emulated(ran: Ran) -> None:
    assert (0, [
        "GPU 0: NVIDIA A100-80GB (emulated) (UUID: GPU-a)",
        "GPU 1: NVIDIA A100-80GB (emulated) (UUID: GPU-b)",
    ]) == ran("-L")  # fmt: skip
    assert ["GPU 0: NVIDIA A100-80GB (emulated) (UUID: GPU-b)"] == ran("-L", CUDA_VISIBLE_DEVICES="GPU-b")[1]
    assert ["GPU 0: NVIDIA A100-80GB (emulated) (UUID: GPU-b)"] == ran("-L", CUDA_VISIBLE_DEVICES="1")[1]
    assert 2 == len(ran("-L", CUDA_VISIBLE_DEVICES="MIG-x")[1]), "slices lie on the job's cards"
    assert (6, ["No devices were found (emulated by gpuyard)"]) == ran(YARD_EMULATED_GPUS="")


def test_a_query_has_the_forms_of_the_real_one(ran: Ran) -> None:
    head = "index, name, uuid, memory.used [MiB], utilization.gpu [%]"
    assert (0, [head, "1, NVIDIA A100-80GB (emulated), GPU-b, 10240 MiB, 50 %"]) == ran(
        QUERY, "--format=csv", "-i", "1"
    )
    assert ["0, NVIDIA A100-80GB (emulated), GPU-a, 10240, 50"] == ran(
        QUERY, "--format=csv,noheader,nounits", "--id=GPU-a"
    )[1]
    assert "[N/A]" == ran("--query-gpu=utilization.gpu", "--format=csv,noheader", YARD_EMULATED_LOAD="")[1][0]
    assert ["pid, used_memory [MiB]"] == ran("--query-compute-apps=pid,used_memory", "--format=csv")[1]


def test_the_table_and_all_that_is_known(ran: Ran) -> None:
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
def test_what_it_does_not_know_it_refuses(ran: Ran, words: tuple[str, ...], says: str) -> None:
    code, (line,) = ran(*words)

    assert (2, True) == (code, line.startswith(f"nvidia-smi (emulated by gpuyard): {says}")), line


@pytest.mark.parametrize(
    "text",
    [
        "95% 40GiB 60s, 5% 40GiB", "50% 10GiB", "10% 512MiB 5s, 20% 1G 5s, 30% 2.5GiB", "", "x", "101% 1G", "5% 1G,",
        "008% 09 M 07 s, 100%\t1.125 GiB 0s", "5% 1G, 6% 1G 5s", "5% 1G 5s 5s", "5%1G", "5% 1.G", "5% 1 0G", "-5% 1G",
    ],
)  # fmt: skip
def test_a_script_means_what_the_telemetry_reads_in_it(tmp_path: Path, text: str) -> None:
    folder, bin_ = stand_in.install(str(tmp_path)), tmp_path / "bin"
    bin_.mkdir()
    (bin_ / "date").write_text('#!/bin/sh\necho "$NOW"\n')
    (bin_ / "date").chmod(0o755)
    steps = read_script(text)
    for since_s in (0, 4, 5, 9, 10, 59, 60, 1000):
        step = at(steps, since_s) if steps else None
        env = {
            **ENV,
            "PATH": f"{bin_}:{os.environ['PATH']}",
            "NOW": str(1 + since_s),
            "YARD_EMULATED_LOAD": text,
        }
        words = ["--query-gpu=utilization.gpu,memory.used", "--format=csv,noheader,nounits", "-i", "0"]
        told = subprocess.run(
            ["sh", f"{folder}/nvidia-smi", *words], env=env, capture_output=True, text=True, check=False
        )
        expected = f"{step.busy // 10}, {step.memory_mib}" if step else "[N/A], [N/A]"
        assert (expected, "") == (told.stdout.strip(), told.stderr), since_s


def test_the_program_runs_by_itself(tmp_path: Path) -> None:
    folder = stand_in.install(str(tmp_path))
    done = subprocess.run(
        ["nvidia-smi", "-L"], env={**ENV, "PATH": f"{folder}:{os.environ['PATH']}"}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip

    assert (0, 2) == (done.returncode, len(done.stdout.splitlines())), done.stderr
    assert 0o755 == (tmp_path / "emulated" / "nvidia-smi").stat().st_mode & 0o777
