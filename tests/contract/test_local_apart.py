"""The local engine in a process of its own: what only the process can do, such as die."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from contract.rigs import EPOCH, ApartRig, Program, ended, launch, look, until_alive
from gpuyard.engines.contract import Answer, Phase, Stale, StopRequest, Transient
from gpuyard.engines.engine_process import EngineApart, fork_spare
from gpuyard.model import Outcome
from harness.patience import Patience, patient, until

LONG = Program(run_ms=60_000)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[ApartRig]:
    made = ApartRig(tmp_path)
    yield made
    made.close()


def engine_of(rig: ApartRig) -> EngineApart:
    assert isinstance(rig.engine, EngineApart)
    return rig.engine


def pid_of(rig: ApartRig) -> int:
    pid = engine_of(rig).process.pid
    assert 0 != pid
    return pid


def stopped(rig: ApartRig, key: str) -> None:
    rig.engine.stop(EPOCH, [StopRequest(key, Outcome.CANCELLED, 0)])
    ended(rig, key)


def test_what_runs_outlives_the_process_and_is_known_to_the_next_one(rig: ApartRig) -> None:
    one = launch(rig, "y-1-1", LONG)
    assert [Answer.DONE] == [reply.answer for reply in rig.engine.start(EPOCH, [one])]
    until_alive(rig, "y-1-1")
    first = pid_of(rig)
    os.kill(first, signal.SIGKILL)
    until(lambda: 0 == engine_of(rig).process.pid)

    assert Phase.RUNNING is look(rig, "y-1-1").phase
    assert first != pid_of(rig)
    assert "yard-engine\n" == Path(f"/proc/{pid_of(rig)}/comm").read_text()
    assert [Answer.DONE] == [reply.answer for reply in rig.engine.start(EPOCH, [one])]
    stopped(rig, "y-1-1")
    assert 1 == rig.starts("y-1-1")


def test_a_call_in_which_the_process_dies_has_no_answer(rig: ApartRig) -> None:
    rig.engine.nodes()
    pid = pid_of(rig)
    os.kill(pid, signal.SIGSTOP)
    killer = threading.Timer(0.1, os.kill, (pid, signal.SIGKILL))
    killer.start()
    with pytest.raises(Transient, match="has ended while it was asked to nodes"):
        rig.engine.nodes()
    assert rig.engine.nodes()


def test_a_process_that_is_stopped_while_jobs_start_is_replaced_and_each_starts_once(
    rig: ApartRig,
) -> None:
    rig.engine.nodes()
    keys = [f"y-{number}-1" for number in range(1, 9)]
    launches = [launch(rig, key, Program(run_ms=50), job_id=number) for number, key in enumerate(keys, 1)]
    assert not rig.engine.wait(0.01)
    engine_of(rig).process.answer_s = 0.3
    first = pid_of(rig)

    def halt() -> None:
        with suppress(ProcessLookupError):
            os.kill(first, signal.SIGSTOP)

    stop = threading.Timer(0.02, halt)
    told: list[BaseException] = []

    def start() -> None:
        try:
            rig.engine.start(EPOCH, launches[:1])
            # By now it is stopped, if it was not before.
            stop.join()
            rig.engine.start(EPOCH, launches)
        except Transient as error:
            told.append(error)

    asking = threading.Thread(target=start)
    stop.start()
    asking.start()
    patience = Patience(60)
    while asking.is_alive() and patience:
        rig.engine.wait(0.05)
    assert ["has ended while it was asked to start"] == [str(each).partition("process ")[2] for each in told]

    engine_of(rig).process.answer_s = 300.0
    rig.engine.start(EPOCH, launches)
    assert first != pid_of(rig)
    for key in keys:
        ended(rig, key)
    assert [1] * 8 == [rig.starts(key) for key in keys]


def test_an_end_is_heard_of(rig: ApartRig) -> None:
    rig.engine.start(EPOCH, [launch(rig, "y-1-1", Program(run_ms=50))])
    patience = Patience(60)
    while look(rig, "y-1-1").phase is not Phase.ENDED and patience:
        assert rig.engine.wait(patient(30)), "nothing was heard"
    assert Phase.ENDED is look(rig, "y-1-1").phase


def test_it_has_none_of_the_servers_files(tmp_path: Path) -> None:
    with (tmp_path / "secret").open("w") as file:
        spare = fork_spare()
        names: list[str] = []

        def settled() -> bool:
            """Whether it has closed them, and taken its line off standard input and output."""
            with suppress(FileNotFoundError):
                names[:] = [os.readlink(each) for each in Path(f"/proc/{spare.pid}/fd").iterdir()]
            return (5, 2) == (len(names), len([name for name in names if name.startswith("socket:")]))

        try:
            until(settled)
        finally:
            spare.end()
        assert file.name not in names


SERVER = """
import os, sys, time
from gpuyard.engines import engine_process
print(engine_process.fork_spare().pid, flush=True)
time.sleep(600)
"""


def test_it_ends_with_its_server() -> None:
    with subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        pid = int(server.stdout.readline())
        for ignored in (signal.SIGINT, signal.SIGTERM):
            # The keyboard and a service manager mean the server, which has a last step to finish.
            until(lambda: "yard-engine" in Path(f"/proc/{pid}/comm").read_text())
            time.sleep(0.05)
            os.kill(pid, ignored)
        time.sleep(0.1)
        assert Path(f"/proc/{pid}").exists()
        server.kill()
    until(lambda: not Path(f"/proc/{pid}").exists())


def test_a_server_ends_though_a_call_hangs(rig: ApartRig) -> None:
    rig.engine.nodes()
    engine_of(rig).process.end_s = 0.2
    os.kill(pid_of(rig), signal.SIGSTOP)
    told: list[str] = []

    def ask() -> None:
        with pytest.raises(Transient) as found:
            rig.engine.nodes()
        told.append(str(found.value))

    asking = threading.Thread(target=ask)
    asking.start()
    time.sleep(0.1)
    rig.engine.close()
    asking.join(patient(30))
    assert [] != told
    with pytest.raises(Transient, match="stopping"):
        rig.engine.nodes()


def test_what_is_over_is_forgotten_in_its_own_time(rig: ApartRig) -> None:
    keys = [f"y-{number}-1" for number in range(1, 8)]
    rig.engine.start(EPOCH, [launch(rig, key, job_id=number) for number, key in enumerate(keys, 1)])
    for key in keys:
        ended(rig, key)
    rig.engine.forget(EPOCH, keys)

    assert [] == rig.engine.listing()
    assert [Phase.UNKNOWN] * 2 == [report.phase for report in rig.engine.status(keys[-2:])]
    until(lambda: [] == os.listdir(rig.data / "attempts"))
    assert b"" == rig.engine.log(keys[0], "stdout", "", 10).content
    rig.engine.start(EPOCH + 1, [])
    with pytest.raises(Stale):
        rig.engine.forget(EPOCH, keys)
