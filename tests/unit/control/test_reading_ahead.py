"""A log that is read ahead by a process beside the server: in order and once, and what is wrong is said."""

import os
import signal
from pathlib import Path

import pytest

from gpuyard.control.upkeep.reading_ahead import ReadingAhead
from gpuyard.errors import YardError
from gpuyard.model import Ticked
from gpuyard.store import open_store


def test_events_come_in_order_and_once(tmp_path: Path) -> None:
    place, events = str(tmp_path / "yard.db"), [Ticked(at_ms) for at_ms in range(1, 8)]
    with open_store(place) as store:
        store.append(events)
    ahead = ReadingAhead(place, 1, 7, 2)
    try:
        assert [] == ahead.after(0, 3), "it was to begin later"
        assert [(2, events[1]), (3, events[2]), (4, events[3])] == ahead.after(1, 3)
        assert [(4, events[3])] == ahead.after(3, 1)
        assert [(5, events[4]), (6, events[5]), (7, events[6])] == ahead.after(4, 10)
        assert [] == ahead.after(7, 10)
    finally:
        ahead.close()


def test_a_log_that_cannot_be_read_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "yard.db").write_bytes(b"no database " * 1000)
    ahead = ReadingAhead(str(tmp_path / "yard.db"), 0, 9, 5)
    try:
        with pytest.raises(YardError, match=r"the log could not be read ahead: .*yard\.db"):
            ahead.after(0, 5)
    finally:
        ahead.close()


def test_one_that_was_killed_is_told_of(tmp_path: Path) -> None:
    ahead = ReadingAhead(str(tmp_path / "yard.db"), 0, 9, 5)
    try:
        os.kill(ahead._child.pid, signal.SIGKILL)
        with pytest.raises(YardError, match="the process that reads the log ahead was killed by SIGKILL"):
            ahead.after(0, 5)
    finally:
        ahead.close()
