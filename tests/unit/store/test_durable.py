"""What was acknowledged stays: after kill -9, and, by the system calls that were made, after a power failure."""

import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from gpuyard.model import JobSubmitted
from gpuyard.store import open_store
from harness.patience import patient
from rigs.components import Missing, install, skip_or_fail
from rigs.stores import (
    accepted,
    array,
    arrays_of,
    in_own_process,
    submit_arrays_until_killed,
    submit_until_killed,
)

KILLS = 10
TESTS = Path(__file__).resolve().parents[2]


def heard(pipe: Connection, most: int = sys.maxsize) -> list[tuple[int, int, int]]:
    """So many answers of a process, or all until it died: first id, number of ids, number in the log."""
    answers: list[tuple[int, int, int]] = []
    try:
        while len(answers) < most:
            assert pipe.poll(patient(20)), "the process accepted nothing"
            first_id, ids, seq = map(int, pipe.recv_bytes().split())
            answers.append((first_id, ids, seq))
    except (EOFError, ConnectionResetError):
        return answers
    return answers


@pytest.mark.parametrize("seed", [4711])
def test_nothing_acknowledged_is_lost_and_no_id_is_reused_after_kill_9(place: str, seed: int) -> None:
    rng = random.Random(seed)
    acknowledged: list[tuple[int, int, int]] = []
    open_store(place).close()
    for _ in range(KILLS):
        process, pipe = in_own_process(submit_until_killed, place)
        acknowledged += heard(pipe, rng.randint(1, 30))
        # Somewhere in what it does after that.
        time.sleep(rng.uniform(0.0, 0.01))
        process.kill()
        acknowledged += heard(pipe)
        process.join()
        pipe.close()

    assert KILLS < len(acknowledged)
    with open_store(place) as store:
        lines = store.read(0, limit=1_000_000)
        jobs = {seq: event.job.id for seq, event in lines if isinstance(event, JobSubmitted)}
        counters = store.counters()
    assert list(range(1, len(lines) + 1)) == [seq for seq, _ in lines]
    ids = list(jobs.values())
    assert sorted(set(ids)) == ids
    claimed = [first_id + n for first_id, count, _ in acknowledged for n in range(count)]
    assert len(set(claimed)) == len(claimed)
    assert [] == [
        (first_id, seq)
        for first_id, count, seq in acknowledged
        if [first_id + n for n in range(count)] != [jobs.get(seq + n) for n in range(count)]
    ]
    assert (len(lines) + 1, max(ids) + 1) == counters[:2]


def test_an_array_is_there_whole_or_not_at_all_after_kill_9(place: str) -> None:
    """A client that was not answered asks again with its key, and there is one array."""
    acknowledged: list[tuple[int, int, int]] = []
    open_store(place).close()
    for turn in range(5):
        process, pipe = in_own_process(submit_arrays_until_killed, place)
        acknowledged += heard(pipe, 1)
        time.sleep(0.013 * turn)
        process.kill()
        acknowledged += heard(pipe)
        process.join()
        pipe.close()

    with open_store(place) as store:
        found = arrays_of(store)
        assert [] == [first_id for first_id, indices in found.items() if indices != list(range(2_000))]
        assert {first_id for first_id, _ids, _seq in acknowledged} <= set(found)
        again = accepted(store, *[array(2_000, f"k{n}") for n in range(len(found))])
        assert sorted(found) == [answer.first_id for answer in again]
        assert all(answer.replayed for answer in again)


def test_an_array_is_whole_or_not_there_wherever_its_writing_breaks_off(tmp_path: Path) -> None:
    """The process dies at each write in turn, also in the middle of one: a file that may not grow further kills it."""
    empty = tmp_path / "empty.db"
    open_store(empty).close()
    wrote, whole = tmp_path / "whole.db", 0
    shutil.copy(empty, wrote)
    with open_store(wrote) as store:
        accepted(store, array(2_000, "k"))
        whole = wrote.with_name("whole.db-wal").stat().st_size
    seen = set()
    for most in range(1_000, whole + 4_000, 4_120):
        place = tmp_path / f"{most}.db"
        shutil.copy(empty, place)
        died = _submit_array_with(place, most)
        with open_store(place) as store:
            there = [len(indices) for indices in arrays_of(store).values()]
            seen.add((died, len(there)))
            assert there in ([], [2_000])
            (answer,) = accepted(store, array(2_000, "k"))
            assert (bool(there), [list(range(2_000))]) == (answer.replayed, [*arrays_of(store).values()])
    # It died before the array was there, and it lived and the array is there.
    assert {(True, 0), (False, 1)} <= seen


def _submit_array_with(place: Path, most: int) -> bool:
    """Submit in a process whose files end at so many bytes; whether it died of it."""
    child = os.fork()
    if not child:
        code = 1
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            store = open_store(place)
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
            accepted(store, array(2_000, "k"))
            code = 0
        finally:
            os._exit(code)
    _pid, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) in (0, -signal.SIGXFSZ)
    return os.WIFSIGNALED(status)


TRACED = """
import os, sys
from gpuyard.store import Commit, open_store
from rigs.stores import accepted, submission, ticks
store = open_store(sys.argv[1])
lease = store.elect("traced")
out = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT)
for n in range(5):
    os.write(out, b"asked")
    accepted(store, submission(2))
    os.write(out, b"acknowledged")
    os.write(out, b"asked")
    store.append(ticks(n))
    os.write(out, b"acknowledged")
    os.write(out, b"asked")
    store.commit(lease.epoch, 0, lambda new: Commit(ticks(n)))
    os.write(out, b"acknowledged")
"""


def test_the_log_is_synchronised_before_each_answer(tmp_path: Path) -> None:
    """kill -9 spares the page cache, so this is shown by the system calls instead."""
    if not shutil.which("strace"):
        try:
            install("strace")
        except Missing as refusal:
            skip_or_fail(str(refusal))
    trace = tmp_path / "trace"
    command = ["strace", "-f", "-qq", "-y", "-e", "trace=write,pwrite64,fdatasync,fsync", "-o", str(trace)]
    program = [sys.executable, "-c", TRACED, str(tmp_path / "yard.db"), str(tmp_path / "said")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]),
    }
    done = subprocess.run([*command, *program], env=environment, capture_output=True, text=True, check=False)
    if "ptrace" in done.stderr and done.returncode:
        skip_or_fail(f"strace may not trace here: {done.stderr.strip()}")
    assert 0 == done.returncode, done.stderr

    said = r'write\(\d+<[^>]*/said>, "(?P<said>\w+)"'
    synced = r"(?P<sync>f(?:data)?sync)\(\d+<[^>]*/yard\.db-wal>\)\s+= 0"
    wrote = r"(?P<write>pwrite64)\(\d+<[^>]*/yard\.db-wal>"
    story: list[str] = []
    for match in re.finditer(f"{said}|{synced}|{wrote}", trace.read_text()):
        word = match["said"] or match.lastgroup or ""
        if story[-1:] != [word]:
            story.append(word)

    # Before the first request the tables were made; after the last answer the store was closed.
    last = len(story) - story[::-1].index("acknowledged")
    assert ["asked", "write", "sync", "acknowledged"] * 15 == story[story.index("asked") : last]
