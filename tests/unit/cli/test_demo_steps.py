"""The demo's own job keeps its work whenever it is stopped, and the demo looks whether it did."""

import os
import resource
import subprocess
from pathlib import Path

import pytest

from gpuyard.cli.commands.foresight.demo_steps import SCRIPT, JobLog, check_steps
from gpuyard.errors import YardError

ONE_MACHINE = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "one-machine.md"


def _nothing_may_be_written() -> None:
    """A process that writes to a file is killed by the kernel (SIGXFSZ), after it has emptied it."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))


def _run(folder: Path, wanted: int, *, killed: bool = False) -> str:
    done = subprocess.run(
        ["sh", "-c", SCRIPT, "job", str(wanted)],
        env={
            "PATH": os.environ["PATH"],
            "YARD_CHECKPOINT_FILE": str(folder / "checkpoint"),
            "YARD_ATTEMPT": "2",
            "CUDA_VISIBLE_DEVICES": "GPU-1",
        },
        preexec_fn=_nothing_may_be_written if killed else None,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + ("" if killed else done.stderr)


def test_a_job_that_is_killed_while_it_saves_goes_on_with_what_it_had_saved(tmp_path: Path) -> None:
    assert "step 1 of 1 on GPU-1\n" == _run(tmp_path, 1)
    _run(tmp_path, 2, killed=True)
    assert "1\n" == (tmp_path / "checkpoint").read_text()
    assert "attempt 2 resumes at step 1\nstep 2 of 2 on GPU-1\n" == _run(tmp_path, 2)


def test_the_page_shows_the_same_function() -> None:
    function = next(line for line in SCRIPT.splitlines() if line.startswith("save() "))
    assert function in ONE_MACHINE.read_text()


def _log(*attempts: list[int]) -> JobLog:
    texts = ["".join(f"step {step} of 5 on GPU-1\n" for step in steps) for steps in attempts]
    return JobLog("7", "product", 5, texts)


@pytest.mark.parametrize(
    ("attempts", "again"),
    [
        ([[1, 2, 3, 4, 5]], 0),
        ([[1, 2], [3, 4, 5]], 0),
        ([[1, 2], [2, 3, 4, 5]], 1),
        ([[], [1, 2], [], [3, 4, 5]], 0),
        ([[1], [1, 2], [3, 4, 5], []], 1),
    ],
)
def test_each_step_is_counted_once_across_stops(attempts: list[list[int]], again: int) -> None:
    assert again == check_steps(_log(*attempts))


@pytest.mark.parametrize(
    ("attempts", "words"),
    [
        ([[1, 2, 3], []], "its log has 3 of its 5 steps"),
        ([[]], "its log has 0 of its 5 steps"),
        ([[1, 2, 3], [1, 2, 3, 4, 5]], "had come to step 3 of 5, and attempt 2 began with step 1"),
        ([[1, 2], [4, 5]], "had come to step 2 of 5, and attempt 2 began with step 4"),
        ([[1, 2, 5]], "left out steps in attempt 1"),
    ],
)
def test_a_job_that_did_not_go_on_where_it_was_ends_the_demo(attempts: list[list[int]], words: str) -> None:
    with pytest.raises(YardError, match=words):
        check_steps(_log(*attempts))
