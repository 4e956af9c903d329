"""The log of an attempt is found at any time, also while the attempt is being forgotten and its folder moves."""

import json
import os
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpuyard.engines.local import outputs
from gpuyard.engines.local.client import Data
from gpuyard.engines.local.outputs import NOTE
from gpuyard.engines.machine import files
from gpuyard.engines.machine.readers import Readers
from gpuyard.engines.slurm.engine import SlurmEngine

KEY = "y-1-1"


def moving(root: Path, log: str, text: bytes, monkeypatch: pytest.MonkeyPatch, after: int) -> Data:
    """An engine's folder, in which that of an attempt moves after so many looks at its files."""
    data = Data(root)
    path = Path(data.attempt(KEY), log)
    path.parent.mkdir(parents=True)
    path.write_bytes(text)
    plan = {"stdout": "", "stderr": "", "cwd": "/", "uid": os.geteuid(), "gid": os.getegid()}
    noted(data, files.LAUNCH, plan)
    read: Callable[[str], dict[str, Any] | None] = files.read
    looks = count(1)

    def looked(path: str) -> dict[str, Any] | None:
        found = read(path)
        if next(looks) == after:
            os.rename(data.attempt(KEY), data.kept(KEY))
        return found

    monkeypatch.setattr(files, "read", looked)
    return data


def noted(data: Data, name: str, value: dict[str, Any]) -> None:
    """Write a file of the attempt."""
    Path(data.attempt(KEY), name).write_text(json.dumps(value), encoding="ascii")


@pytest.mark.parametrize("after", range(6))
def test_a_short_log_is_read_whole_whenever_its_folder_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    data = moving(tmp_path, files.STDOUT, b"x\n", monkeypatch, after)
    assert (b"x\n", "2", 0) == outputs.read(data, Readers(), KEY, "stdout", 0, 100)


@pytest.mark.parametrize("after", range(6))
def test_the_end_of_a_log_that_was_cut_is_read_whenever_its_folder_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    data = moving(tmp_path, files.STDOUT, b"a\n\0\0\0\0z\n", monkeypatch, after)
    noted(data, NOTE, {"head": 2, "tail": 6})
    assert (b"", "6", 4) == outputs.read(data, Readers(), KEY, "stdout", 2, 100)
    assert (b"z\n", "8", 0) == outputs.read(data, Readers(), KEY, "stdout", 6, 100)


@pytest.mark.parametrize("after", range(3))
def test_a_log_of_slurms_is_read_whole_whenever_its_folder_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    data = moving(tmp_path, "run/stdout", b"x\n", monkeypatch, after)
    engine: Any = SimpleNamespace(_folder=data)
    assert b"x\n" == SlurmEngine._read(engine, KEY, "stdout", 0, 100)
