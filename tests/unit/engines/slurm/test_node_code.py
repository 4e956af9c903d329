"""The code that runs on the nodes: by itself, with what an old Python has."""

import ast
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gpuyard.engines.slurm import node
from gpuyard.engines.slurm.node import files, head
from gpuyard.engines.slurm.node.head import Head

FILES = sorted(Path(node.__file__).parent.glob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_python_3_6_can_read_it(path: Path) -> None:
    ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 6))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_it_needs_nothing_but_the_standard_library_and_itself(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = [alias.name for each in ast.walk(tree) if isinstance(each, ast.Import) for alias in each.names]
    froms = [each for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)]

    assert [] == [name for name in names if name not in sys.stdlib_module_names]
    assert [] == [
        each.module for each in froms if not each.level and each.module not in sys.stdlib_module_names
    ]


def test_it_runs_alone(tmp_path: Path) -> None:
    """Without a folder to work in there is nothing to do, which it finds out without gpuyard."""
    (tmp_path / "node").mkdir()
    for path in FILES:
        (tmp_path / "node" / path.name).write_bytes(path.read_bytes())
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from node.head import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, str(tmp_path / "gone")],
        env={"SLURMD_NODENAME": "n1"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (0, "", "") == (done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize(("halted", "verdict"), [(False, files.TOLD), (True, "")])
def test_a_job_that_ended_of_slurms_signal_before_its_wrapper_had_it_was_ended_by_slurm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, halted: bool, verdict: str
) -> None:
    """Slurm signals one process after another, and a script whose `sleep` is gone goes on to `exit 0`."""
    (tmp_path / "run").mkdir()
    monkeypatch.chdir(tmp_path / "run")
    if halted:
        (tmp_path / files.HALT).write_text("{}")
    wrapper = Head({"world": 1, "order": ["n1"], "batch": True}, "n1")
    wrapper.running = True
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
    try:
        wrapper._heed_late_word()
    finally:
        signal.sigtimedwait((signal.SIGTERM,), 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    assert verdict == wrapper.verdict


def test_an_ended_attempt_stays_until_its_folder_is_cleared_and_no_longer_than_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What follows on its GPUs is handed in meanwhile, and starts when this one leaves."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / files.PLAN).touch()
    seen: list[float] = []

    def sleep(seconds: float) -> None:
        seen.append(seconds)
        if len(seen) == 3:
            (tmp_path / files.PLAN).unlink()

    monkeypatch.setattr(head.time, "sleep", sleep)
    head._linger()
    assert 3 == len(seen)

    (tmp_path / files.PLAN).touch()
    seen[:] = [0.0] * 3
    clock = iter(range(100))
    monkeypatch.setattr(head.time, "monotonic", lambda: next(clock) / 10)
    head._linger()
    assert 4 <= len(seen) - 3 <= 6
