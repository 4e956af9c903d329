"""Lines of jobs at a real rsyslog: over TCP, UDP and a Unix socket, with rsyslog away and the yard killed."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.conftest import Box, until
from rigs.components import Missing, skip_or_fail
from rigs.receivers.rsyslog import Rsyslog

pytestmark = pytest.mark.rig

CONFIG = """
version: 1
clusters: {{main: {{gpus: 8 x A100-80GB, emulate: true}}}}
logs:
  sinks:
    - {{name: by-tcp, syslog: {{to: "tcp://127.0.0.1:{tcp}"}}}}
    - {{name: by-udp, syslog: {{to: "udp://127.0.0.1:{udp}"}}}}
    - {{name: by-path, syslog: {{to: "unix://{path}"}}}}
"""
KINDS = ("imtcp", "imudp", "imuxsock")
STRANGE = r"printf '\033[1mbold\033[0m caf\303\251 \377 \042q\042 \\ \tend\n'; head -c 3000 /dev/zero | tr '\0' x; echo"


@pytest.fixture(scope="module")
def rsyslog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rsyslog]:
    """An rsyslog that listens."""
    try:
        made = Rsyslog(tmp_path_factory.mktemp("rsyslog") / "r")
        made.start()
    except Missing as refusal:
        skip_or_fail(str(refusal))
        raise
    yield made
    made.kill()


@pytest.fixture(scope="module")
def box(rsyslog: Rsyslog, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    """A yard that sends to it in three ways."""
    config = CONFIG.format(tcp=rsyslog.tcp, udp=rsyslog.udp, path=rsyslog.path)
    box = Box(tmp_path_factory.mktemp("syslog") / "yard", config)
    box.up()
    yield box
    assert 0 == box("down", "--jobs").code


def _texts(rsyslog: Rsyslog, by: str, job: int) -> list[str]:
    return [line["message"] for line in rsyslog.lines(by) if line["job"] == str(job)]


def test_every_line_comes_as_it_was_written(rsyslog: Rsyslog, box: Box):
    job = box.submit("--", "sh", "-c", STRANGE + "; echo '%s $(x) <13>1 forged'")
    box.wait(job, "COMPLETED")
    expected = [
        'bold café \\xff "q" \\ \tend',
        "x" * 1024,
        "x" * 1024,
        "x" * 952,
        "%s $(x) <13>1 forged",
    ]
    for by in KINDS:
        until(lambda by=by: expected == _texts(rsyslog, by, job))
    parts = [line.get("part") for line in rsyslog.lines("imtcp") if line["job"] == str(job)]
    assert [None, "1", "2", "3", None] == parts


def test_rsyslog_away_and_the_yard_killed(rsyslog: Rsyslog, box: Box):
    goes_on = Path(box.data.parent / "go")
    script = f"seq 1 500; while [ ! -e {goes_on} ]; do sleep 0.05; done; seq 501 3000"
    job = box.submit("--", "sh", "-c", script)
    # Of datagrams nothing is promised.
    for by in ("imtcp", "imuxsock"):
        until(lambda by=by: 500 == len(set(_texts(rsyslog, by, job))))
    rsyslog.kill()
    goes_on.touch()
    box.wait(job, "COMPLETED")
    pid = box.note()["pid"]
    os.kill(pid, signal.SIGKILL)
    until(
        lambda: not os.path.exists(f"/proc/{pid}") or "Z" in Path(f"/proc/{pid}/stat").read_text().split()[2]
    )
    box.up()
    rsyslog.start()
    expected = [str(number) for number in range(1, 3001)]
    for by in ("imtcp", "imuxsock"):
        until(lambda by=by: expected == list(dict.fromkeys(_texts(rsyslog, by, job))), s=40)
