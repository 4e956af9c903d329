"""Lines of jobs at receivers: each at least once, whether a receiver is away or the yard is killed."""

import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.conftest import Box, until
from rigs import receivers
from rigs.components import Missing, skip_or_fail
from rigs.receivers import Receiver
from rigs.receivers.rsyslog import Rsyslog

CONFIG = """
version: 1
clusters: {{main: {{gpus: 8 x A100-80GB, emulate: true}}}}
logs:
  sinks:
    - loki: {{url: "{loki}", user: yard, password_file: {secret}}}
    - elasticsearch: {{url: "{elasticsearch}", index: gpu-logs}}
    - otlp: {{url: "{otlp}"}}
"""
PASSWORD = "s3cret-of-loki"


class World:
    """A yard and its receivers."""

    def __init__(self, folder: Path, more: str = "") -> None:
        """`more`: further receivers, as yard.yaml has them."""
        self.receivers: dict[str, Receiver] = {
            "loki": receivers.loki(),
            "elasticsearch": receivers.elasticsearch(),
        }
        try:
            self.receivers["otlp"] = receivers.otlp()
        except ImportError:
            skip_or_fail("opentelemetry-proto is not installed: `make setup` installs it")
        secret = folder / "secret"
        secret.write_text(PASSWORD)
        secret.chmod(0o600)
        urls = {name: each.url for name, each in self.receivers.items()}
        self.receivers["loki"].authorization = receivers.basic("yard", PASSWORD)
        self.box = Box(folder / "yard", CONFIG.format(**urls, secret=secret) + more)

    def texts(self, name: str, job: object) -> list[str]:
        """What a receiver has of a job, each line once, in the order in which it came first."""
        found = [line["message"] for line in self.receivers[name].lines if line["job"] == str(job)]
        return list(dict.fromkeys(found))

    def have(self, job: object, texts: list[str], *names: str, s: float = 20.0) -> None:
        """Wait until receivers have these lines of a job."""
        try:
            until(lambda: all([self.texts(name, job) == texts for name in names or self.receivers]), s=s)
        except AssertionError:
            raise AssertionError({name: self.texts(name, job) for name in names or self.receivers}) from None

    def metrics(self) -> str:
        """What a Prometheus would be told."""
        return self.answer("/metrics")

    def answer(self, path: str) -> str:
        """What the server says over its socket."""
        with socket.socket(socket.AF_UNIX) as there:
            there.connect(str(self.box.data / "yard.sock"))
            there.sendall(f"GET {path} HTTP/1.1\r\nHost: yard\r\nConnection: close\r\n\r\n".encode())
            with there.makefile("rb") as answer:
                return answer.read().decode()

    def kill(self) -> None:
        """End the server at once."""
        os.kill(self.box.note()["pid"], signal.SIGKILL)
        until(lambda: not _lives(self.box.note()["pid"]))


def _lives(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A yard with three receivers that listen."""
    world = World(tmp_path_factory.mktemp("sinks"))
    for each in world.receivers.values():
        each.start()
    world.box.up()
    yield world
    done = world.box("down", "--jobs")
    for each in world.receivers.values():
        each.stop()
    assert 0 == done.code, done.err


def test_lines_come_with_all_their_labels(world: World):
    script = r"printf 'one\n\033[31mtwo\033[0m\nhalf'; sleep 0.3; printf ' a line\nlast'"
    job = world.box.submit("--name", "talk", "--", "sh", "-c", script)
    world.box.wait(job, "COMPLETED")
    world.have(job, ["one", "two", "half a line", "last"])
    with world.box.client() as client:
        yard = client.job(str(job), explain=False)
    for name, receiver in world.receivers.items():
        line = next(each for each in receiver.lines if each["job"] == str(job))
        assert ("main", "1", "stdout", yard["tenant"], yard["user"], yard["nodes"][0]) == tuple(
            [line[field] for field in ("cluster", "attempt", "stream", "tenant", "user", "node")]
        ), name
        assert line["yard"]
        assert line["id"].endswith("-stdout-0")
        assert [] == receiver.wrong


def test_errors_in_a_file_of_their_own_and_tasks_of_arrays(world: World, tmp_path: Path):
    job = world.box.submit(
        "--array",
        "0-1",
        "--stderr",
        tmp_path / "%a.err",
        "--",
        "sh",
        "-c",
        "echo out $YARD_ARRAY_INDEX; echo err >&2",
    )
    for index in range(2):
        world.box.wait(f"{job}_{index}", "COMPLETED")
    for receiver in world.receivers.values():
        until(
            lambda receiver=receiver: (
                4 == len({each["id"] for each in receiver.lines if each["job"].startswith(f"{job}_")})
            )
        )
        found = {
            (each["task"], each["stream"]) for each in receiver.lines if each["job"].startswith(f"{job}_")
        }
        assert {("0", "stdout"), ("0", "stderr"), ("1", "stdout"), ("1", "stderr")} == found


@pytest.mark.rig
def test_one_receiver_away_and_the_yard_killed(world: World, tmp_path: Path):
    away = world.receivers["loki"]
    away.stop()
    go, gone = tmp_path / "go", tmp_path / "gone"
    waits = f"until [ -e {go} ]; do sleep 0.05; done; echo late; touch {gone}"
    first = world.box.submit("--", "sh", "-c", f"for i in $(seq 50); do echo early $i; done; {waits}")
    early = [f"early {n}" for n in range(1, 51)]
    # Those that listen do not wait for the one that does not.
    world.have(first, early, "elasticsearch", "otlp")
    until(lambda: 'gpuyard_log_sink_up{sink="loki",kind="loki"} 0' in world.metrics())
    assert 'gpuyard_log_sink_up{sink="otlp",kind="otlp"} 1' in world.metrics()
    assert "logs for loki wait" in world.answer("/readyz")
    world.kill()
    # What was written while there was no server, by a job that ended meanwhile, is sent as well.
    go.touch()
    until(gone.exists)
    for name in ("elasticsearch", "otlp"):
        world.receivers[name].answer = (503, {})
    world.box.up()
    world.box.wait(first, "COMPLETED")
    for name in ("elasticsearch", "otlp"):
        world.receivers[name].answer = None
    away.start()
    world.have(first, [*early, "late"])
    for receiver in world.receivers.values():
        assert [] == receiver.wrong
    # Everything was taken: nothing is kept for it any more.
    until(
        lambda: all(
            [f'streams{{sink="{name}",kind="{name}"}} 0' in world.metrics() for name in world.receivers]
        )
    )


@pytest.mark.soak
def test_all_receivers_away_for_ten_minutes(tmp_path: Path):
    """Jobs write and end meanwhile, and the yard is killed again and again. Real rsyslog, stand-ins for the others."""
    away_s = float(os.environ.get("YARD_AWAY_S", "600"))
    try:
        rsyslog = Rsyslog(tmp_path / "rsyslog")
    except Missing as refusal:
        skip_or_fail(str(refusal))
        raise
    world = World(tmp_path, f'    - {{syslog: {{to: "tcp://127.0.0.1:{rsyslog.tcp}"}}}}\n')
    world.box.up()
    pace = "i=0; while [ $i -lt {n} ]; do i=$((i+1)); echo {name} $i; sleep 0.05; done"
    long = int(away_s / 0.06)
    jobs = {world.box.submit("--", "sh", "-c", pace.format(name="long", n=long)): ("long", long)}
    sizes, memory = [], []
    until_s = time.monotonic() + away_s
    while time.monotonic() < until_s:
        for name in ("short", "other"):
            jobs[world.box.submit("--", "sh", "-c", pace.format(name=name, n=20))] = (name, 20)
        time.sleep(min(20.0, away_s / 10))
        sizes.append(sum([path.stat().st_size for path in (world.box.data / "shipping").iterdir()]))
        with open(f"/proc/{world.box.note()['pid']}/statm", encoding="ascii") as statm:
            memory.append(int(statm.read().split()[1]) * 4096)
        if len(sizes) % 4 == 0:
            world.kill()
            world.box.up()
    for each in world.receivers.values():
        each.start()
    rsyslog.start()

    def at_rsyslog(job: int) -> list[str]:
        return list(
            dict.fromkeys([each["message"] for each in rsyslog.lines("imtcp") if each["job"] == str(job)])
        )

    for job, (name, count) in jobs.items():
        world.box.wait(job, "COMPLETED", s=60)
        expected = [f"{name} {number}" for number in range(1, count + 1)]
        world.have(job, expected, s=120)
        until(lambda job=job, expected=expected: expected == at_rsyslog(job), s=120)
    lines = sum([count for _name, count in jobs.values()])
    came = {name: len(each.lines) for name, each in world.receivers.items()} | {
        "rsyslog": len(rsyslog.lines("imtcp"))
    }
    print(f"{away_s:g} s, {lines} lines of {len(jobs)} jobs, {len(sizes) // 4} kills; came: {came}; places "
          f"{max(sizes) >> 10} KiB, memory {min(memory) >> 20} to {max(memory) >> 20} MiB")  # fmt: skip
    rsyslog.kill()
    assert [] == [wrong for each in world.receivers.values() for wrong in each.wrong]
    world.box("down", "--jobs")
    for each in world.receivers.values():
        each.stop()
    # Rows for logs that wait, and no lines: nothing grows with what was written.
    assert max(sizes) < 16 << 20
    assert max(memory) < min(memory) + (64 << 20)


def test_no_credential_is_shown_anywhere(world: World):
    pid = world.box.note()["pid"]
    seen = [Path(f"/proc/{pid}/{name}").read_bytes().decode() for name in ("cmdline", "environ")]
    seen += [world.box(*words).out for words in (("config",), ("status",), ("config", "--json"))]
    seen += [
        path.read_bytes().decode("utf-8", "replace") for path in world.box.data.rglob("*") if path.is_file()
    ]
    assert not any([PASSWORD in text for text in seen])
