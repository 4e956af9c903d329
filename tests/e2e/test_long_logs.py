"""A job that writes without end does not fill the disk, and whoever reads its log is told what is left out."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.patience import until

from .conftest import Box

CONFIG = "version: 1\nclusters: {box: {engine: local, gpus: 2 x A100-80GB, emulate: true, log_limit: 1M}}\n"
MIB = 1 << 20


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Box]:
    box = Box(tmp_path / "yard", CONFIG)
    box.up()
    yield box
    box("down", "--jobs")


@pytest.mark.rig
def test_the_middle_of_a_long_log_is_left_out(yard: Box, tmp_path: Path) -> None:
    job = yard.submit("--", "seq", 1_000_000)
    named = yard.submit("--stdout", tmp_path / "mine.txt", "--", "seq", 1_000_000)
    yard.wait(job, "COMPLETED")
    yard.wait(named, "COMPLETED")
    kept = f"engine/logs/*-{job}-1/stdout"
    until(lambda: list(yard.data.glob(kept)))
    (log,) = yard.data.glob(kept)

    for words in (("logs", job), ("logs", "-f", job)):
        lines = yard(*words).out.splitlines()
        (gap,) = [at for at, line in enumerate(lines) if line.startswith("[yard: ")]
        said = re.fullmatch(
            r"\[yard: (.*) MiB are left out here: the log is longer than log_limit\]", lines[gap]
        )
        assert said is not None
        assert ("1", "1000000") == (lines[0], lines[-1])
        assert [str(n) for n in range(1, gap + 1)] == lines[:gap]
        assert [str(n) for n in range(int(lines[gap + 1]), 1_000_001)] == lines[gap + 1 :]
        shown = sum(len(line) + 1 for line in lines) - len(lines[gap]) - 1
        assert abs(shown + float(said[1]) * MIB - log.stat().st_size) < MIB // 10
    assert log.stat().st_blocks * 512 <= MIB
    assert 1_000_000 == len((tmp_path / "mine.txt").read_text().splitlines()), (
        "a file of one's own is one's own"
    )
