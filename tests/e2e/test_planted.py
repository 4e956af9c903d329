"""A server in the foreground, started where somebody else has put modules with the names of ours and of Python's."""

import os
import signal
import subprocess
from pathlib import Path

from e2e.conftest import Box
from gpuyard import interpreter
from harness.patience import patient, until
from harness.planted_folder import PlantedFolder

CONFIG = """\
version: 1
clusters:
  here:
    engine: local
    allow_root: true
    pools: {h100: {nodes: 1, gpus: 2 x H100, emulate: true}}
"""


def test_a_server_runs_nothing_that_lies_where_it_was_started(tmp_path: Path) -> None:
    planted = PlantedFolder(tmp_path)
    (planted.path / "yard.yaml").write_text(CONFIG, encoding="utf-8")
    box = Box(tmp_path / "yard")
    words = ["-m", "gpuyard.cli", "up", "--port", "0", "--data", "../yard", "--config", "yard.yaml"]
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(
            interpreter.command(*words), cwd=planted.path, env=box.environment, stdout=log, stderr=log
        )
    try:
        until(lambda: server.poll() is not None or b"the yard is up" in (tmp_path / "log").read_bytes())
        assert server.poll() is None, (tmp_path / "log").read_text(encoding="utf-8")
        assert "/" == os.readlink(f"/proc/{server.pid}/cwd")
        with box.client() as client:
            assert client.read_jobs("name: a\ncommand: [true]\n")
            assert "preview" == list(client.config_preview(yaml=CONFIG))[-1][0]
        assert 0 == box("submit", "--dry-run", "-g", 1, "--", "true").code
        job = box.submit("-g", 1, "--", "true")
        box.wait(job, "COMPLETED")
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(patient(30))
    assert [] == planted.ran()
