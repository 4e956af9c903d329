"""The code that runs on the nodes: by itself, with what an old Python has."""

import ast
import errno
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from gpuyard.engines import node
from gpuyard.engines.node import files
from gpuyard.engines.node.attempt.crew import Crew
from gpuyard.engines.node.slurm import head, spread
from gpuyard.engines.node.slurm.head import Head
from gpuyard.engines.slurm.calls.submission import find_program
from gpuyard.engines.slurm.folder import Folder
from harness.patience import until

ROOT = Path(node.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())


@each_file
def test_python_3_6_can_read_it(path: Path) -> None:
    ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 6))


@each_file
def test_it_needs_nothing_but_the_standard_library_and_itself(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = [alias.name for each in ast.walk(tree) if isinstance(each, ast.Import) for alias in each.names]
    froms = [each for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)]

    assert [] == [name for name in names if name.partition(".")[0] not in sys.stdlib_module_names]
    assert [] == [
        each.module for each in froms if not each.level and each.module not in sys.stdlib_module_names
    ]
    inside = len(path.relative_to(ROOT).parts)
    assert [] == [each.module for each in froms if each.level > inside], "it leads out of what is copied"


def test_it_runs_alone(tmp_path: Path) -> None:
    """Without a folder to work in there is nothing to do, which it finds out without gpuyard."""
    program = Folder(tmp_path / "shared").program
    copies = Path(program, "node")
    assert FILES == sorted([ROOT / path.relative_to(copies) for path in copies.rglob("*.py")])
    assert {0o755} == {path.stat().st_mode & 0o777 for path in [copies, *copies.rglob("*")] if path.is_dir()}
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", find_program(program), str(tmp_path / "gone")],
        env={"SLURMD_NODENAME": "n1"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (0, "", "") == (done.returncode, done.stdout, done.stderr)


def test_a_task_heeds_every_signal_whatever_its_node_ignores() -> None:
    code = (
        "import os, signal\n"
        "for number in signal.valid_signals() - {9, 19}: signal.signal(number, signal.SIG_IGN)\n"
        "from gpuyard.engines.node.kernel.processes import reset_signals\n"
        "reset_signals()\n"
        "os.execvp('grep', ['grep', 'SigIgn', '/proc/self/status'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    # Signals 32 and 33 are the C library's own: it lets nobody change them.
    assert 0 == int(done.stdout.split()[1], 16) & ~(0b11 << 31)


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
        wrapper.last_word()
    finally:
        signal.sigtimedwait((signal.SIGTERM,), 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    assert verdict == wrapper.verdict


def test_a_wish_for_a_keeper_that_cannot_be_is_tried_once_until_it_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wish is a file of the yard's: what runs as the job's user cannot take it away."""
    tries: list[int] = []

    class Unable(Crew):
        def keep(self) -> None:
            tries.append(1)
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    def looked() -> tuple[int, str]:
        for _ in range(3):
            wrapper.obey()
        return len(tries), files.find_trouble(".")

    (tmp_path / "run").mkdir()
    monkeypatch.chdir(tmp_path / "run")
    wrapper = Head({"world": 1, "order": ["n1"], "batch": True, "key": "y-1-1"}, "n1")
    wrapper.running = True
    assert isinstance(wrapper.hands, Crew)
    wrapper.hands = Unable(wrapper.hands.entry)
    assert (0, "") == looked()
    (tmp_path / files.WISH).touch()
    assert [(1, "Resource temporarily unavailable"), (1, "")] == [looked(), looked()]
    os.utime(tmp_path / files.WISH, ns=(0, 0))
    assert (2, "Resource temporarily unavailable") == looked()


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


def test_what_was_written_by_the_first_of_two_tries_is_ours(tmp_path: Path) -> None:
    """A network file system repeats a request whose answer was lost, and then finds what it made itself."""
    path = str(tmp_path / files.CLAIM)

    assert [True, True, False] == [files.write(path, {"pid": pid}, once=True) for pid in (1, 1, 2)]
    assert {"pid": 1} == files.read(path)


class Frozen:
    """Tasks that run for four turns, in which the clock goes on by two minutes."""

    failed = None
    waits = False

    def __init__(self, *_: object) -> None:
        self.turns = 0
        self.signals: list[int] = []

    def start(self, _heed: object) -> None: ...
    def reap(self) -> None: ...
    def sweep(self) -> None: ...
    def signal(self, number: int) -> None:
        self.signals.append(number)

    def alive(self) -> bool:
        self.turns += 1
        return self.turns < 8


def test_nodes_that_were_frozen_with_their_head_do_not_take_it_for_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run").mkdir()
    monkeypatch.chdir(tmp_path / "run")
    files.touch(files.BEAT)
    crew: Any = Frozen()
    clock = iter([0.0, 0.0, 0.1, 0.1, 120.0, 120.0, 120.2, *[120.3] * 9])
    monkeypatch.setattr(spread.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(spread.signal, "sigtimedwait", lambda *_: None)

    assert 0 == spread.run_on_node({}, "n1", crew)
    assert [] == crew.signals


def test_a_gang_whose_nodes_did_not_all_come_has_not_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run").mkdir()
    monkeypatch.chdir(tmp_path / "run")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    plan = {"world": 2, "order": ["n1", "n2"], "batch": False, "sruns": [["/no/such/srun"]], "dropped": []}
    plan |= {"program": "", "folder": str(tmp_path), "checkpoint": "", "knock": str(tmp_path / "knock")}
    wrapper = Head(plan, "n1")
    wrapper.failure = wrapper.hands.start((1, 2), lambda: None)
    wrapper.finish(wrapper.end())
    end = files.read(files.END) or {}

    assert ("NODE_FAIL", 0) == (end["outcome"], end["started_ms"])
    assert "cannot run srun on node n1: No such file or directory" == end["why"]


def _node(folder: Path, line: str) -> "subprocess.Popen[bytes]":
    """The part of one node of a gang, in a process of its own, with a task that runs a line of a shell."""
    run = folder / "run"
    run.mkdir()
    plan: dict[str, object] = {
        "parts": {"n1": {"tasks": 1, "first": 0, "gpus": []}},
        "order": ["n1"],
        "world": 1,
    }
    plan |= {"batch": False, "script": "", "argv": ["sh", "-c", line], "cwd": str(run), "run": str(run)}
    plan |= {"env": {"PATH": os.environ["PATH"]}, "yard": {}, "dropped": [], "address": "127.0.0.1"}
    code = (
        "import os, signal, sys\n"
        f"os.chdir({str(run)!r})\n"
        "from gpuyard.engines.node import files\n"
        "from gpuyard.engines.node.slurm import spread\n"
        "from gpuyard.engines.node.kernel.processes import adopt_orphans\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, spread.SIGNALS)\n"
        "adopt_orphans(); files.touch(files.BEAT); files.touch(files.GO)\n"
        f"sys.exit(spread.run_on_node({plan!r}, 'n1'))\n"
    )
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL)


def _until(path: Path) -> None:
    until(path.exists, 30, lambda: f"there is no {path.name}")


def test_what_a_task_of_a_gang_leaves_behind_has_the_grace_of_the_stop(tmp_path: Path) -> None:
    """A shell dies of TERM at once, and the training that it started is saving its work."""
    trains = "(trap 'sleep 0.6; touch saved; exit' TERM; touch up; while :; do sleep 0.05; done) & wait"
    node = _node(tmp_path, trains)
    _until(tmp_path / "run" / "up")
    (tmp_path / "run" / f"{files.ORDER}1.{int(signal.SIGTERM)}").touch()
    assert 1 == node.wait(120)
    assert (tmp_path / "run" / "saved").exists()


def test_what_a_task_of_a_gang_leaves_behind_is_killed_when_the_grace_is_over(tmp_path: Path) -> None:
    node = _node(tmp_path, "(trap '' TERM; touch up; echo $$ >pid; while :; do sleep 0.05; done) & wait")
    _until(tmp_path / "run" / "up")
    (tmp_path / "run" / f"{files.ORDER}1.{int(signal.SIGTERM)}").touch()
    with pytest.raises(subprocess.TimeoutExpired):
        node.wait(1)
    (tmp_path / "run" / f"{files.ORDER}2.{int(signal.SIGKILL)}").touch()
    assert 1 == node.wait(120)
