"""A process that dies in the middle of an apply, at moments chosen by the test: the old version is left, or the new."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpuyard.config.reading import loads
from gpuyard.control.replica.replica import Replica
from gpuyard.store import open_store

ONE = "version: 1\nclusters: {box: {gpus: 8 x H100, emulate: true}}\ntenants: {a: {limit: 1}}\n"
TWO = ONE.replace("limit: 1", "limit: 2")

PROGRAM = """
import os, signal, sys
from gpuyard.config.reading import loads
from gpuyard.control.replica.replica import Replica
from gpuyard.control.commands.configs import StartFile, put_start
from gpuyard.store import log, open_store, submissions
from gpuyard.store.backend import base
from gpuyard.store.tables import configs

place, moment, one, two = sys.argv[1:]

def dies(owner, name, when):
    real = getattr(owner, name)
    def wrapped(*arguments, **more):
        if when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        found = real(*arguments, **more)
        os.kill(os.getpid(), signal.SIGKILL)
        return found
    setattr(owner, name, wrapped)

with open_store(place) as store:
    replica = Replica(store)
    def put(text):
        start = StartFile(loads(text).settings, text, "yard.yaml")
        replica.commit(None, lambda draft: put_start(draft, store, start, "root", 1000))
    put(one)
    when, _, what = moment.partition(" ")
    backend, batch, woken = type(store._backend), submissions.WriteBatch, base.Notifier
    owner = {"put_rows": log, "write": batch, "set_counters": backend, "notify": woken}
    dies(owner[what], what, when)
    put(two)
"""


@pytest.mark.parametrize(
    ("moment", "version"),
    [
        ("before put_rows", 1),
        ("after put_rows", 1),
        ("after write", 1),
        ("after set_counters", 1),
        ("before notify", 2),
    ],
)
def test_there_is_no_version_without_its_settings(tmp_path: Path, moment: str, version: int) -> None:
    place = tmp_path / "yard.db"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, place, moment, ONE, TWO], capture_output=True, text=True, check=False
    )
    assert -signal.SIGKILL == done.returncode, done.stderr

    with open_store(place) as store:
        live = store.configs.version()
        assert live is not None
        body = store.blob(live.hash)
        assert body is not None
        assert (version, {1: ONE, 2: TWO}[version]) == (live.version, body.decode())
        assert loads(body.decode()).settings == Replica(store).state.settings
