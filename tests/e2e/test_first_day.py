"""A new user's first day, in a real terminal: the page `docs/how-to/first-day.md` as it is read and typed."""

import getpass
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.patience import until
from rigs.terminal import Terminal

from .conftest import Box, terminal_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "first-day.md"


def steps() -> list[tuple[str, list[str]]]:
    """Commands of the page with what it says that they print."""
    found: list[tuple[str, list[str]]] = []
    for block in re.findall(r"```console\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            else:
                found[-1][1].append(line)
    return found


def shape(line: str, node: str) -> str:
    """A line without what differs from day to day: figures, times, the machine's name, who is at it."""
    line = re.sub(rf"\b{re.escape(node)}\b", "NODE", line)
    line = re.sub(r"\b\d{4}-\d\d-\d\d (\d\d:\d\d)\b", r"\1", line)  # an hour from now may be tomorrow
    line = re.sub(r"\b\d[\d:]*(?:[smhd]\d*)*[smhd]?\b", "#", line)
    line = re.sub(rf"\b(ana|{re.escape(getpass.getuser())})\b", "WHO", line)
    return re.sub(r"\s+", " ", line).strip()


@pytest.fixture
def terminal(bare: Box, tmp_path: Path) -> Iterator[Terminal]:
    """A shell on whose path there is a `yard`."""
    yard = tmp_path / "bin" / "yard"
    yard.parent.mkdir()
    yard.write_text(f'#!/bin/sh\nexec {sys.executable} -m gpuyard.cli "$@"\n', encoding="utf-8")
    yard.chmod(0o755)
    environment = bare.environment
    environment |= {"PATH": f"{yard.parent}:{environment['PATH']}", "LANG": "C.UTF-8"}
    with terminal_of(tmp_path, environment, columns=130, rows=40) as terminal:
        yield terminal


def test_the_page_holds_line_by_line(bare: Box, terminal: Terminal) -> None:
    node = ""
    commands = steps()
    verbs = [line.split()[1] for line, _ in commands if line.startswith("yard ")]
    assert {"up", "submit", "queue", "why", "show", "logs", "cancel", "history", "down"} <= set(verbs)
    for line, expected in commands:
        if line == "yard up -d":
            # The page's port may be taken here, and a machine with GPUs is not to wait for them.
            said = terminal.run("yard up -d --port 0 --emulate '8 x A100-80GB'")
            assert "the yard is up" in said[0]
            with bare.client() as client:
                (node,) = [each["name"] for each in client.nodes()]
            continue
        if line == "yard queue":
            # A person types slower than this: the scheduler has come to every job by then.
            until(lambda: "not looked at yet" not in bare("queue").out)
        printed = terminal.run(line)[:-1]
        seen = {shape(each, node) for each in printed}
        missing = [each for each in expected if each.strip() and shape(each, "gpu-1") not in seen]
        assert [] == missing, "\n".join([f"$ {line}", *printed])
        assert bool(printed) or not expected


@pytest.mark.rig  # It needs no server, but takes long.
def test_tab_watch_and_top_in_a_terminal(bare: Box, terminal: Terminal) -> None:
    bare.up()
    job_id = bare.submit("-g", 2, "-n", "long-one", "--", "sleep", 600)
    bare.wait(job_id, "RUNNING")
    terminal.run("source <(yard completion bash)")
    terminal.type("yard canc")
    terminal.press("Tab")
    terminal.until(lambda screen: screen.endswith("$ yard cancel"))
    terminal.press("Tab")
    terminal.until(lambda screen: screen.endswith(f"$ yard cancel {job_id}"))
    terminal.press("C-c")
    terminal.until(lambda screen: screen.endswith("\n$"))

    terminal.enter("yard queue --watch 1")
    terminal.until(lambda screen: "live, Ctrl-C ends it" in screen and "long-one" in screen)
    terminal.press("C-c")
    terminal.until(lambda screen: screen.endswith("$"))

    # Told by the server: nobody waits a minute for the next picture.
    terminal.enter("yard nodes --watch 60")
    terminal.until(lambda screen: "live, Ctrl-C ends it" in screen and " UP " in screen)
    with bare.client() as client:
        (node,) = [each["name"] for each in client.nodes()]
        client.drain(node, "a fan")
        terminal.until(lambda screen: "DRAINED" in screen and "a fan" in screen)
        client.resume(node)
    terminal.press("C-c")
    terminal.until(lambda screen: screen.endswith("$"))

    terminal.enter("yard top")
    terminal.until(lambda screen: "2 of 8 GPUs in use" in screen and "long-one" in screen)
    terminal.press("Enter")
    terminal.until(lambda screen: "asks for" in screen)
    terminal.press("q")
    terminal.until(lambda screen: "asks for" not in screen)
    terminal.press("q")
    terminal.until(lambda screen: screen.endswith("$"))
    assert ["still a shell", "code=0"] == terminal.run("echo still a shell")
