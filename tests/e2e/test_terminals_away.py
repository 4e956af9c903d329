"""Terminals of jobs from a second machine, which is a network namespace: over TLS, with a token, in tmux."""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.conftest import Box, Done, terminal_of, until
from harness.patience import patient
from rigs.certificates import make_certificate
from rigs.components import skip_or_fail
from rigs.teams import CONFIG
from rigs.terminal import Pseudo, Terminal

pytestmark = pytest.mark.rig

HERE, THERE = "10.231.77.1", "10.231.77.2"
SPACE = f"yard{os.getpid()}"
LINK = f"ya{os.getpid()}"
SHELL = ("bash", "--norc", "--noprofile")
SERVER = """
import http.server
http.server.ThreadingHTTPServer(("127.0.0.1", {port}), http.server.SimpleHTTPRequestHandler).serve_forever()
"""


def ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        skip_or_fail(
            f"a second machine wants a network namespace: ip {' '.join(words)}: {done.stderr.strip()}"
        )


class Away(Box):
    """A yard with `--auth` and TLS, and a second machine that reaches it over the network alone."""

    def __init__(self, data: Path) -> None:
        super().__init__(data, CONFIG)
        self.cert, self.key = make_certificate(data.parent, HERE)
        self.home = data.parent / "home"
        self.home.mkdir()

    def up(self, port: int = 0) -> Done:
        done = self(
            "up", "-d", "--port", port, "--config", self.config, "--auth", "--host", HERE, "--tls-cert", self.cert,
            "--tls-key", self.key,
        )  # fmt: skip
        assert 0 == done.code, done.err
        return done

    def away(self, user: str) -> dict[str, str]:
        """The environment of a person on the second machine."""
        done = self("token", "create", "--user", user)
        assert 0 == done.code, done.err
        kept = {k: v for k, v in os.environ.items() if not k.startswith("YARD_") and k != "COLUMNS"}
        return kept | {
            "HOME": str(self.home), "YARD_URL": f"https://{HERE}:{self.note()['port']}", "YARD_CA": str(self.cert),
            "YARD_TOKEN": done.out.strip(), "PS1": "there> ",
        }  # fmt: skip

    def there(self, *words: object) -> list[str]:
        """A command on the second machine."""
        return ["ip", "netns", "exec", SPACE, *self.command(*words)]

    def ran(self, user: str, *words: object) -> Done:
        done = subprocess.run(
            self.there(*words), env=self.away(user), capture_output=True, text=True, timeout=patient(60), check=False,
            cwd=self.home, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        return Done(done.returncode, done.stdout, done.stderr)

    def at(self, user: str, *words: object) -> Pseudo:
        return Pseudo(self.there(*words), self.away(user), self.home)


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Away]:
    ip("netns", "add", SPACE)
    try:
        ip("link", "add", LINK, "type", "veth", "peer", "name", f"{LINK}b", "netns", SPACE)
        ip("addr", "add", f"{HERE}/24", "dev", LINK)
        ip("link", "set", LINK, "up")
        ip("-n", SPACE, "addr", "add", f"{THERE}/24", "dev", f"{LINK}b")
        ip("-n", SPACE, "link", "set", f"{LINK}b", "up")
        ip("-n", SPACE, "link", "set", "lo", "up")
        made = Away(tmp_path_factory.mktemp("away") / "yard")
        made.up()
        try:
            yield made
        finally:
            made("down", "--jobs")
    finally:
        subprocess.run(["ip", "netns", "del", SPACE], check=False)
        subprocess.run(["ip", "link", "del", LINK], check=False, capture_output=True)


def fetched(port: int, path: str) -> str:
    """What the second machine gets from a port of its own."""
    code = f"import urllib.request as u; print(u.urlopen('http://127.0.0.1:{port}/{path}', timeout=60).read().decode())"
    done = subprocess.run(
        ["ip", "netns", "exec", SPACE, sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_a_full_screen_program_over_the_network_resizes_and_comes_back(yard: Away, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("\n".join(f"line {number}" for number in range(1, 400)), encoding="utf-8")
    with terminal_of(tmp_path, yard.away("ulla"), columns=90, rows=20) as screen:
        screen.enter(shlex.join(yard.there("run", "-g", "1", "-q", "--env", "PS1=there> ", "--", *SHELL)))
        screen.until(lambda shown: shown.endswith("there>"))
        screen.enter(f"less {text}")
        screen.until(lambda shown: "line 19" in shown and "line 20" not in shown)
        _resized(screen, 70, 30)
        screen.until(lambda shown: "line 29" in shown and "line 30" not in shown)
        screen.press("Space")
        screen.until(lambda shown: "line 40" in shown)
        screen.press("q")
        screen.until(lambda shown: shown.endswith("there>"))
        screen.enter(f"less {text}")
        screen.until(lambda shown: "line 29" in shown and "there>" not in shown)
        job = next(row["label"] for row in yard_jobs(yard))
        # Away and back, with the screen as it was.
        screen.press("Enter")
        screen.type("~.")
        screen.until(lambda shown: f"detached from job {job}" in shown)
        screen.enter("clear")
        screen.enter(" ".join(yard.there("attach", job)))
        screen.until(lambda shown: "line 5" in shown)
        # The server is killed under it.
        port = yard.note()["port"]
        os.kill(yard.note()["pid"], signal.SIGKILL)
        screen.until(lambda shown: "the yard is away" in shown)
        yard.up(port)
        screen.until(lambda shown: "the yard is away" not in shown and "line 5" in shown)
        screen.press("q")
        screen.until(lambda shown: shown.endswith("there>"))
        screen.enter("sleep 100")
        screen.press("C-c")
        screen.until(lambda shown: shown.endswith("^C\nthere>"))
        screen.enter("exit 3")
    assert 3 == yard.wait(job, "FAILED")["exit_code"]


def yard_jobs(yard: Away) -> list[dict[str, object]]:
    with yard.client() as client:
        return [dict(job) for job in client.jobs(limit=1).jobs]


def _resized(screen: Terminal, columns: int, rows: int) -> None:
    screen._tmux("resize-window", "-x", str(columns), "-y", str(rows))


def test_a_shell_a_port_and_files_from_the_second_machine(yard: Away, tmp_path: Path) -> None:
    (yard.home / "data").mkdir()
    (yard.home / "data" / "in").write_text("sent from afar", encoding="utf-8")
    work = tmp_path / "work"
    work.mkdir()
    port = 20000 + os.getpid() % 10000
    words = ("-g", "1", "--chdir", work, "--", sys.executable, "-c", SERVER.format(port=port))
    job = yard.ran("ulla", "submit", *words).out.strip()
    yard.wait(job, "RUNNING")

    assert 0 == yard.ran("ulla", "cp", yard.home / "data", f"{job}:.").code
    assert "sent from afar" == (work / "data" / "in").read_text(encoding="utf-8")
    assert 0 == yard.ran("ulla", "cp", f"{job}:data/in", yard.home / "back").code
    assert "sent from afar" == (yard.home / "back").read_text(encoding="utf-8")
    with yard.at("ulla", "shell", job, "--", *SHELL) as shell:
        shell.type("echo job=$YARD_JOB_ID; exit 8\r")
        shell.until(f"job={job}")
        assert 8 == shell.code()
    with yard.at("ulla", "forward", job, f"8888:{port}") as forward:
        forward.until("http://127.0.0.1:8888 is port")
        assert "sent from afar" == fetched(8888, "data/in")
        note = yard.note()
        os.kill(note["pid"], signal.SIGKILL)
        forward.until("the yard is away")
        yard.up(note["port"])
        until(lambda: "sent from afar" == fetched(8888, "data/in"))
    for user, code in (("carl", "job"), ("tara", "job"), ("erik", "no job")):
        for what in (("shell", job), ("attach", job)):
            with yard.at(user, *what) as refused:
                assert 2 == refused.code()
                assert code in refused.shown.decode()
        assert 2 == yard.ran(user, "cp", f"{job}:data/in", yard.home / "stolen").code
    assert not (yard.home / "stolen").exists()
    with yard.at("adam", "shell", job, "--", "true") as admin:
        assert 0 == admin.code()
    yard.ran("ulla", "cancel", job)


def lab() -> Path:
    """A folder with `jupyter-lab`, installed if need be."""
    folder = Path(os.environ.get("GPUYARD_JUPYTER", Path.home() / ".cache" / "gpuyard-rigs" / "jupyter"))
    if not (folder / "bin" / "jupyter-lab").exists():
        made = subprocess.run(
            [sys.executable, "-m", "venv", folder], capture_output=True, text=True, check=False
        )
        got = subprocess.run(
            [folder / "bin" / "pip", "install", "-q", "jupyterlab"],
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode or got.returncode:
            skip_or_fail(f"JupyterLab cannot be installed: {got.stderr.strip()[-300:]}")
    return folder / "bin"


@pytest.mark.wide
def test_a_real_jupyterlab_from_the_second_machine_stops_when_it_is_idle(yard: Away, tmp_path: Path) -> None:
    environment = yard.away("ulla")
    environment["PATH"] = f"{lab()}:{environment['PATH']}"
    words = yard.there("notebook", "-g", 1, "--idle", "15s", "--chdir", tmp_path)
    with Pseudo(words, environment, yard.home) as notebook:
        notebook.until("http://127.0.0.1:8888", s=120)
        token = notebook.until("\r\n").strip().rpartition("=")[2]
        assert "JupyterLab" in fetched(8888, f"lab?token={token}")
        began = time.monotonic()
        notebook.until("yard: the notebook was idle for 15 s and is stopped", s=90)
        assert 0 == notebook.code()
    assert time.monotonic() - began < patient(80)
    until(lambda: "COMPLETED" == yard_jobs(yard)[0]["state"])
