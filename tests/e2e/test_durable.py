"""A job is acknowledged only once it is on the disk: seen in the server's own system calls."""

import json
import os
import re
import shutil
import signal
from pathlib import Path

import pytest

from harness.patience import patient
from rigs.components import Missing, install, skip_or_fail
from rigs.kills import Server

SUBMISSIONS = 12
CALLS = "fdatasync,fsync,recvfrom,recvmsg,read,sendto,sendmsg,write"


def strace() -> str:
    if shutil.which("strace") is None:
        try:
            install("strace")
        except Missing as refusal:
            skip_or_fail(str(refusal))
    return str(shutil.which("strace"))


@pytest.mark.rig
def test_the_disk_has_it_before_the_client_hears_of_it(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    server = Server(tmp_path / "yard")
    server.under = (strace(), "-f", "-s", "60", "-e", f"trace={CALLS}", "-o", str(trace))
    server.start()
    try:
        for number in range(SUBMISSIONS):
            body = {"command": ["/bin/true"], "name": f"n{number}", "gpus": 1, "tenant": "t"}
            assert 201 == server.call("POST", "/api/v1/jobs", body)[0]
    finally:
        # The tracer passes no signals on, so the server itself is asked to go; the tracer goes with the last it traces.
        os.kill(json.loads((server.data / "yard.pid").read_text())["pid"], signal.SIGTERM)
        assert server.process is not None
        server.process.wait(timeout=patient(60))
    acknowledged, synced = 0, False
    for line in trace.read_text(errors="replace").splitlines():
        if '"POST /api/v1/jobs' in line:
            synced = False
        elif re.search(r"f(data)?sync(\(\d+\)| resumed>\))\s+= 0", line):
            synced = True
        elif '"HTTP/1.1 201' in line:
            acknowledged += 1
            assert synced, f"acknowledged before it was on the disk:\n{line}"
    assert SUBMISSIONS == acknowledged
