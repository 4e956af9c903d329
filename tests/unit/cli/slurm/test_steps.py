"""Steps of a job: who gets which GPUs, cores and number, by what the tasks themselves write."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuyard.cli.slurm.commands.srun import GRAMMAR
from gpuyard.cli.slurm.language.getopt import read
from gpuyard.cli.slurm.language.step_asks import add_variables, read_ask
from gpuyard.engines.local.steps.environments import bound
from gpuyard.engines.local.steps.grants import Held, Never, RoomNode, grant
from harness import patience

TELL = 'echo "$SLURM_STEP_ID $SLURM_PROCID $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES"'
WAIT_S = 300


def room(*cpus: int, gpus: int = 4, memory_mib: int = 0) -> list[RoomNode]:
    return [
        RoomNode(f"n{n}", tuple((g, f"G{n}{g}") for g in range(gpus)), each, memory_mib)
        for n, each in enumerate(cpus, start=1)
    ]


def granted(words: str, nodes: list[RoomNode], held: dict[str, Held] | None = None, **variables: str) -> Any:
    """By node the ranks and the GPUs; None: others hold it; a sentence: never."""
    given = add_variables(read(GRAMMAR, [*words.split(), "true"]), variables)
    try:
        found = grant(read_ask(given, variables, 4, len(nodes)), nodes, held or {})
    except Never as never:
        return never.lines[-1]
    return found and {
        each.node: ("".join(map(str, each.ranks)), "".join(map(str, each.gpus))) for each in found
    }


PROCESSORS = "More processors requested than permitted"
GRES = "Invalid generic resource (gres) specification"


@pytest.mark.parametrize(
    ("words", "found"),
    [
        # What real Slurm 22.05 answers in a job of two nodes with 4 and 2 cores.
        ("", {"n1": ("01", "0123"), "n2": ("2", "0123")}),
        ("-n4", {"n1": ("01", "0123"), "n2": ("23", "0123")}),
        ("-n5", {"n1": ("012", "0123"), "n2": ("34", "0123")}),
        ("-n6", {"n1": ("0123", "0123"), "n2": ("45", "0123")}),
        ("-n7", PROCESSORS),
        ("-n7 -O", {"n1": ("0123", "0123"), "n2": ("456", "0123")}),
        ("-n1", {"n1": ("0", "0123")}),
        ("-N1", {"n1": ("012", "0123")}),
        ("-n4 -m cyclic", {"n1": ("02", "0123"), "n2": ("13", "0123")}),
        ("-N1 -n1 -w n2", {"n2": ("0", "0123")}),
        ("-n1 -r1", {"n2": ("0", "0123")}),
        ("-n1 -x n1", {"n2": ("0", "0123")}),
        ("-x n[1-2]", "Hostlist is empty!  Can't run job."),
        ("-n1 -w n9", "Requested node configuration is not available"),
        ("-N3", "Only allocated 2 nodes asked for 3"),
        ("--ntasks-per-node=1", {"n1": ("0", "0123"), "n2": ("1", "0123")}),
        ("-n2 --gpus=2", {"n1": ("0", "0"), "n2": ("1", "0")}),
        ("-n2 --gpus-per-task=2", {"n1": ("0", "01"), "n2": ("1", "01")}),
        ("-n1 --gres=gpu:3", {"n1": ("0", "012")}),
        ("-n1 --gres=none", {"n1": ("0", "")}),
        # There are eight, and one task is on one node.
        ("-n1 --gpus=5", PROCESSORS),
        ("-n1 --gpus=9", GRES),
        ("-n1 --gpus-per-task=5", GRES),
        ("-n6 --gpus-per-task=2", PROCESSORS),
        ("-n1 -c5", PROCESSORS),
        ("-n2 -c2", {"n1": ("0", "0123"), "n2": ("1", "0123")}),
    ],
)
def test_what_a_step_gets_of_an_empty_job(words: str, found: Any) -> None:
    assert found == granted(words, room(4, 2), SLURM_NTASKS="3")


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("--exact -n1 --gpus-per-task=1", {"n1": ("0", "1")}),
        ("--exact -n1 --gpus-per-task=3", {"n1": ("0", "123")}),
        ("--exact -n1 --gpus-per-task=4", None),
        ("-n1 --gpus=1", None),
        ("--exact -n1", None),
        ("--exact -n1 --gres=none", {"n1": ("0", "")}),
        ("--exact -n4 --gres=none", None),
        ("--overlap -n1", {"n1": ("0", "0123")}),
        ("--exact -n1 --gpus=1 --mem=2G", {"n1": ("0", "1")}),
        ("--exact -n1 --gpus=1 --mem=3G", None),
        ("--exact -n1 --gpus=1 --mem=5G", "Memory required by task is not available"),
    ],
)
def test_what_a_step_gets_beside_another(words: str, found: Any) -> None:
    """Four cores, four GPUs, 4 GiB; one of each and 1.5 GiB are held."""
    held = {"n1": Held(frozenset({0}), 1, 1536)}
    assert found == granted(words, room(4, memory_mib=4096), held)


def test_a_job_without_counted_cores_hands_out_its_gpus() -> None:
    held = {"n1": Held(frozenset({0}))}
    assert {"n1": ("0", "1")} == granted("-n1 --gpus=1", room(0), held)


@pytest.mark.parametrize(
    ("bind", "per_task", "seen"),
    [
        ("", None, ["0123", "0123"]),
        ("", 1, ["0", "1"]),
        ("none", 2, ["0123", "0123"]),
        ("closest", None, ["0123", "0123"]),
        ("single:1", None, ["0", "1"]),
        ("single:2", None, ["0", "0"]),
        ("verbose,per_task:2", None, ["01", "23"]),
        ("map_gpu:3,1", None, ["3", "1"]),
        ("mask_gpu:0x3,0xc", None, ["01", "23"]),
        ("mask_gpu:3,c", None, ["01", "23"]),
    ],
)
def test_which_gpus_a_task_sees(bind: str, per_task: int | None, seen: list[str]) -> None:
    assert seen == ["".join(map(str, each)) for each in bound(bind, per_task, 4, 2)]


@pytest.mark.parametrize(
    ("words", "variable", "bind"),
    [
        ("-n4 --ntasks-per-gpu=2", "", "single:2"),
        ("-n4", "2", "single:2"),
        ("-n4 --gpu-bind=none", "2", "none"),
        ("-n4 --gpus-per-task=1", "2", ""),
        ("-n4", "", ""),
    ],
)
def test_tasks_that_are_counted_by_gpu_see_one_each(words: str, variable: str, bind: str) -> None:
    variables = {"SLURM_NTASKS_PER_GPU": variable}
    given = add_variables(read(GRAMMAR, [*words.split(), "true"]), variables)
    assert bind == read_ask(given, variables, 4, 1).bind


@pytest.mark.parametrize(
    "bind", ["map_gpu:9", "map_gpu:a", "single:0", "per_task:3", "nearest", "mask_gpu:0x0"]
)
def test_a_binding_that_cannot_be_is_refused(bind: str) -> None:
    with pytest.raises(ValueError, match=bind.partition(":")[0]):
        bound(bind, None, 4, 2)


# -- with processes ------------------------------------------------------------------------------------------------


class Job:
    """The folder of an attempt, and `srun` in its job."""

    def __init__(self, folder: Path, *cpus: int) -> None:
        self.folder = folder
        nodes = [
            {"name": node.name, "gpus": [{"index": i, "device": d} for i, d in node.gpus], "cpus": node.cpus,
             "memory_mib": 0, "tasks": 2}
            for node in room(*cpus)
        ]  # fmt: skip
        (folder / "room.json").write_text(
            json.dumps({"nodes": nodes, "ranks": 4, "steps": str(folder / ".steps-1")}), encoding="utf-8"
        )
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "YARD"))}
        self.environment |= {"YARD_ATTEMPT_DIR": str(folder), "YARD_JOB_ID": "7", "SLURM_JOB_ID": "7"}

    def start(self, words: str, script: str, **more: Any) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "gpuyard.cli", "slurm", "srun", *words.split(), "sh", "-c", script]
        return subprocess.Popen(
            command, env=self.environment, cwd=self.folder, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, **{"stdin": subprocess.DEVNULL, **more},
        )  # fmt: skip

    def __call__(self, words: str, script: str, stdin: str = "") -> tuple[int, list[str], str]:
        with self.start(words, script, stdin=subprocess.PIPE) as process:
            out, err = process.communicate(stdin, timeout=WAIT_S)
        return process.returncode, sorted(out.splitlines()), err

    def until(self, what: Callable[[], object]) -> None:
        patience.until(what)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path, 4)


def test_live_steps_have_numbers_and_gpus_of_their_own(job: Job) -> None:
    """Each goes on only when all four are there: they run at once."""
    script = TELL + '; touch "here.$SLURM_STEP_ID"; until [ -e here.3 ]; do sleep 0.05; done'
    started = [job.start("--exact -n1 --gpus-per-task=1 -c1", script) for _ in range(4)]
    wrote = sorted([process.communicate(timeout=WAIT_S)[0].split() for process in started])
    assert [
        ["0", "0", "n1", "G10"],
        ["1", "0", "n1", "G11"],
        ["2", "0", "n1", "G12"],
        ["3", "0", "n1", "G13"],
    ] == wrote
    assert [0, 0, 0, 0] == [process.returncode for process in started]


def test_a_step_waits_for_what_others_hold_and_says_so(job: Job) -> None:
    holder = job.start("-n1", "touch held; until [ -e go ]; do sleep 0.05; done; echo held >> order")
    job.until((job.folder / "held").exists)
    code, _, err = job("-I -n1", "true")
    assert (1, "srun: error: Unable to create step for job 7: Requested nodes are busy\n") == (code, err)
    assert (0, ["1 0 n1 G10,G11,G12,G13"], "") == job("--overlap -n1", TELL)
    waiter = job.start("-n1 --gpus=1", "echo waited >> order; " + TELL)
    assert waiter.stderr is not None
    said = waiter.stderr.readline()
    assert "srun: Job 7 step creation temporarily disabled, retrying (Requested nodes are busy)\n" == said
    (job.folder / "go").touch()
    assert ("2 0 n1 G10\n", "srun: Step created for job 7\n") == waiter.communicate(timeout=WAIT_S)
    holder.communicate(timeout=WAIT_S)
    assert ["held", "waited"] == (job.folder / "order").read_text(encoding="utf-8").split()


def test_a_step_whose_srun_was_killed_gives_back_what_it_held(job: Job) -> None:
    holder = job.start("-n1", 'echo $$ > pid; (trap "" TERM HUP; sleep 600) & wait')
    job.until(
        lambda: (job.folder / "pid").exists() and (job.folder / "pid").read_text(encoding="utf-8").strip()
    )
    holder.send_signal(signal.SIGKILL)
    holder.wait(timeout=WAIT_S)
    assert (0, ["1 0 n1 G10,G11,G12,G13"]) == job("-n1", TELL)[:2]
    # What the task had started is gone too: nobody holds the other end of its output any more.
    holder.communicate(timeout=WAIT_S)


def test_what_the_job_cannot_serve_is_refused_and_not_run(job: Job) -> None:
    assert (1, [], "srun: error: Step requested gres=gpu:5 is more than the job's gres=gpu:4\n"
            "srun: error: Unable to create step for job 7: Invalid generic resource (gres) specification\n") == job(
        "-n1 --gpus=5", "touch ran"
    )  # fmt: skip
    assert 1 == job("-n5", "touch ran")[0]
    assert not (job.folder / "ran").exists()


def test_two_nodes(tmp_path: Path) -> None:
    job = Job(tmp_path, 2, 2)
    tell = TELL + '; echo "$SLURM_NODEID $SLURM_LOCALID $SLURM_STEP_NODELIST $SLURM_STEP_TASKS_PER_NODE" >&2'
    code, out, err = job("--gpus-per-task=2", tell)
    assert (0, ["0 0 n1 G10,G11", "0 1 n1 G12,G13", "0 2 n2 G20,G21", "0 3 n2 G22,G23"]) == (code, out)
    assert ["0 0 n[1-2] 2(x2)", "0 1 n[1-2] 2(x2)", "1 0 n[1-2] 2(x2)", "1 1 n[1-2] 2(x2)"] == sorted(
        err.splitlines()
    )


def test_input_and_output_of_tasks(job: Job) -> None:
    assert (0, ["0: one", "1: one"], "") == job("-n2 -l", "cat", "one\n")
    assert (0, ["one"], "") == job("-n2 --input=1", "cat", "one\n")
    assert (0, [], "") == job("-n2 -o %x-%J.%2t -e none", "echo $SLURM_PROCID; echo lost >&2")
    assert ["0\n", "1\n"] == [(job.folder / f"-7.2.0{n}").read_text(encoding="utf-8") for n in range(2)]


def test_what_goes_along_with_a_step(job: Job) -> None:
    job.environment |= {"KEPT": "k", "LEFT": "l"}
    tell = 'echo "$KEPT|$LEFT|$NEW|$SLURM_PROCID|$CUDA_VISIBLE_DEVICES"'
    assert (0, ["k|l|n|0|G10"], "") == job("-n1 --gpus=1 --export=ALL,NEW=n", tell)
    assert (0, ["k||n|0|G10"], "") == job("-n1 --gpus=1 --export=KEPT,NEW=n", tell)


def test_tasks_of_one_step_may_run_different_programs(job: Job) -> None:
    (job.folder / "sh").write_text("# who does what\n0 echo head %t\n1-2 echo worker %t %o\n* echo rest\n")
    # `srun --multi-prog sh -c …`: the first word is the file.
    assert (0, ["head 0", "rest", "worker 1 0", "worker 2 1"], "") == job("-n4 --multi-prog", "")
    (job.folder / "sh").write_text("0 echo head\n")
    assert (1, [], "srun: error: sh: there is no program for task 1\n") == job("-n2 --multi-prog", "")


def test_one_task_that_fails_ends_the_others_where_that_is_asked_for(job: Job) -> None:
    began = time.monotonic()
    code, _, err = job("-n3 -K", "[ $SLURM_PROCID = 1 ] && exit 3; exec sleep 600")
    assert (143, "srun: error: n1: task 1: Exited with exit code 3") == (code, err.splitlines()[0])
    assert "srun: error: n1: tasks 0,2: Terminated" in err
    assert time.monotonic() - began < WAIT_S


def test_a_signal_reaches_every_task_once(job: Job) -> None:
    script = "trap 'echo got >> got.$SLURM_PROCID; exit 0' USR1; sleep 600 & touch ready.$SLURM_PROCID; wait"
    step = job.start("-n2", script)
    job.until(lambda: all((job.folder / f"ready.{n}").exists() for n in range(2)))
    step.send_signal(signal.SIGUSR1)
    step.communicate(timeout=WAIT_S)
    assert 0 == step.returncode
    assert ["got\n", "got\n"] == [(job.folder / f"got.{n}").read_text(encoding="utf-8") for n in range(2)]


def test_a_task_heeds_every_signal_whatever_starts_srun(job: Job) -> None:
    def deafen() -> None:
        numbers = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, numbers)

    step = job.start("-n1", "grep -E '^(SigIgn|SigBlk)' /proc/self/status; exit 3", preexec_fn=deafen)
    out, _ = step.communicate(timeout=WAIT_S)
    blocked, ignored = [int(line.split()[1], 16) for line in out.splitlines()]
    # Signals 32 and 33 are the C library's own: it lets nobody change them.
    assert (3, 0, 0) == (step.returncode, blocked, ignored & ~(0b11 << 31))
