"""A store that is older than what the engine's folder has seen: it is refused, or goes on without harm."""

import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from gpuyard.control.access.people import find_person
from gpuyard.control.admission.wanted import make_job
from gpuyard.control.options import Options
from gpuyard.control.readiness import NONE_LEADS
from gpuyard.control.serve import Yard
from gpuyard.errors import BadInput
from harness.patience import until


@contextmanager
def yard(data: Path, *, older_log: bool = False) -> Iterator[Yard]:
    found = Yard(Options(data, emulate="2 x H100", older_log=older_log, port=0))
    try:
        found.start()
        until(lambda: bool(found.replica.state.nodes.node))
        yield found
    finally:
        found.close()


def submit(here: Yard, *argv: str, gpus: int = 1) -> int:
    new = make_job(command=argv, gpus=gpus, name="job", cwd="/")
    return here.requests.submit(find_person(os.geteuid(), os.getegid()), new, Future()).result(10).first_id


def backup(data: Path, to: Path) -> None:
    with closing(sqlite3.connect(data / "yard.db")) as there, closing(sqlite3.connect(to)) as here, here:
        there.backup(here)


def restore(data: Path, backup: Path | None) -> None:
    for name in ("yard.db", "yard.db-wal", "yard.db-shm"):
        (data / name).unlink(missing_ok=True)
    if backup is not None:
        shutil.copy(backup, data / "yard.db")


@pytest.mark.parametrize("restored", [True, False], ids=["restored", "lost"])
def test_a_log_that_is_behind_is_refused_and_then_skips_what_was_given_out(
    tmp_path: Path, restored: bool
) -> None:
    data, kept, stop = tmp_path / "data", tmp_path / "kept.db", tmp_path / "stop"
    with yard(data) as here:
        first = submit(here, "true")
        until(lambda: here.store.history.find(first) is not None)
        backup(data, kept)
        runs = submit(here, "sh", "-c", f"until [ -e {stop} ]; do sleep 0.05; done")
        until((data / "engine" / "jobs" / str(runs)).is_dir)
        until(lambda: runs in here.replica.state.running)
    restore(data, kept if restored else None)
    try:
        with pytest.raises(BadInput, match=f"up to job {runs}, event"):
            Yard(Options(data, emulate="2 x H100", port=0))
        with yard(data, older_log=True) as here:
            assert "run until they end" in " ".join(here.notes)
            until(lambda: bool(here.replica.state.nodes.foreign))
            # What runs keeps its GPU, and is neither stopped nor given away.
            one, both = submit(here, "true"), submit(here, "true", gpus=2)
            assert runs + 1000 < one
            until(lambda: here.store.history.find(one) is not None)
            if not restored:
                return
            time.sleep(0.3)
            assert both in here.replica.state.jobs
            assert here.engines["local"].listing()
            stop.touch()
            until(lambda: here.store.history.find(both) is not None)
        # Once it was told, it starts by itself.
        with yard(data) as here:
            assert both < submit(here, "true")
    finally:
        stop.touch()


def test_a_process_that_was_just_elected_is_ready_after_its_first_step(tmp_path: Path) -> None:
    """Before that it knows no nodes, and would refuse the first submission."""
    here = Yard(Options(tmp_path / "yard", emulate="2 x H100", port=0))
    try:
        lease = here.store.elect(here._holder)
        assert lease is not None
        assert not here.readiness()[0]
        lease.release()
        here.start()
        until(lambda: here.readiness()[0])
        assert here.replica.state.nodes.node
    finally:
        here.close()


def test_a_server_that_only_answers_is_ready_without_a_leader(tmp_path: Path) -> None:
    """It has the nodes that a leader told of; on a store that never had one, jobs could not be judged."""
    options = Options(tmp_path / "yard", emulate="2 x H100", port=0, leads=False)
    for ready in (False, True):
        here = Yard(options)
        try:
            here.start()
            assert ready == here.readiness()[0]
            how = here.readiness()[1]
            assert (NONE_LEADS, None if ready else NONE_LEADS) == (how["notes"][-1], how["error"])
        finally:
            here.close()
        if not ready:
            # Another leads for a moment, until it has seen its nodes.
            with yard(tmp_path / "yard"):
                pass
