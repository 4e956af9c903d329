"""What was acknowledged stays: after kill -9, and, by the system calls that were made, after a power failure."""

import os
import random
import re
import shutil
import subprocess
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from gpuyard.model import JobSubmitted
from gpuyard.store import open_store
from rigs.postgres import install, skip_or_fail
from rigs.stores import in_own_process, submit_until_killed

KILLS = 10
TESTS = Path(__file__).resolve().parents[2]


def heard(pipe: Connection, until_s: float) -> list[tuple[int, int, int]]:
    """What a process acknowledged until then, or until it died: first id, number of ids, number in the log."""
    answers = []
    try:
        while pipe.poll(max(0.0, until_s - time.monotonic())):
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
        assert pipe.poll(20), "the process accepted nothing"
        acknowledged += heard(pipe, time.monotonic() + rng.uniform(0.0, 0.1))
        process.kill()
        acknowledged += heard(pipe, time.monotonic() + 5)
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
            install("strace", RuntimeError)
        except RuntimeError as refusal:
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
