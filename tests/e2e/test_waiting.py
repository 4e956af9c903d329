"""Somebody who waits for a job is told what for, and where it runs then: in a real terminal, and in a file."""

import subprocess
import sys
from pathlib import Path

from .conftest import Box, terminal_of


def test_a_wait_is_explained_while_it_lasts(box: Box, tmp_path: Path) -> None:
    blocker = box.submit("-g", 8, "-t", "3m", "--", "sleep", 600)
    box.wait(blocker, "RUNNING")
    with box.client() as client:
        (node,) = [each["name"] for each in client.nodes()]
    yard = f"{sys.executable} -m gpuyard.cli"
    with terminal_of(tmp_path, box.environment, columns=100) as terminal:
        terminal.enter(f"clear; {yard} run -g 8 -- sh -c 'echo out; echo err >&2'")
        terminal.until(lambda screen: "waiting: no room, 1st in line, likely within 3 min" in screen)
        job = box("queue", "--state", "PENDING", "-o", "csv", "--columns", "id").out.split()[1]
        with subprocess.Popen(
            box.command("logs", "-f", job), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=box.environment,
        ) as follower:  # fmt: skip
            assert follower.stderr is not None
            assert follower.stdout is not None
            said = follower.stderr.readline()
            assert said.startswith("yard: waiting: no room, 1st in line, likely within ")
            assert 0 == box("cancel", blocker).code
            screen = terminal.until(lambda screen: screen.count("$") > 0 and "err" in screen)
            assert f"yard: running on {node}\n" == follower.stderr.readline()
            assert {"out", "err"} == set(follower.stdout.read().split())
            assert "" == follower.stderr.read()
        screen = terminal.until(lambda screen: screen.endswith("$"))
    assert "waiting" not in screen.split("echo err >&2'")[-1]
    assert f"\nrunning on {node}\nout\nerr\n" in screen

    # A job that starts at once: nothing but what it writes.
    done = box("run", "-g", 1, "--", "sh", "-c", "echo hi; exit 3")
    assert (3, "hi\n", "") == (done.code, done.out, done.err)
