"""`yard support`: what a bundle holds, of a yard that is up, down or hung, and that no secret is in it."""

import base64
import getpass
import json
import socket
import stat
import tarfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from e2e.conftest import Box
from gpuyard.cli.commands.yard.support import SupportBundle
from harness.patience import until

CONFIG = """version: 1  # {0}
clusters: {{box: {{gpus: 8 x A100-80GB, emulate: true, allow_root: true}}}}
tenants:
  research: {{weight: 2}}  # the password of its page is {1}
auth: {{users: {{ana: {{tenant: research, unix: {user}}}}}}}
logs: {{sinks: [
  {{loki: {{url: 'http://127.0.0.1:9', token_file: {folder}/sink.token}}}},
  {{elasticsearch: {{url: 'http://127.0.0.1:9', user: yard, password_file: {folder}/sink.password}}}}]}}
"""
LINES = """2026-11-18T12:00:00Z WARNING gpuyard: postgresql://yard:{0}@db/yard does not answer
2026-11-18T12:00:01Z WARNING gpuyard: sent Authorization: Bearer {1}
2026-11-18T12:00:02Z ERROR gpuyard: libpq said: host=db user=yard password={2}
2026-11-18T12:00:03Z INFO gpuyard: client_secret={3} and {4}
"""


class Planted:
    """Secrets, each of its own, and where each was put."""

    def __init__(self) -> None:
        self.places: dict[str, str] = {}
        self._numbers = count(1)

    def __call__(self, place: str) -> str:
        secret = f"Geheim{next(self._numbers):03d}Wort"
        self.places[secret] = place
        return secret

    def found_in(self, text: bytes) -> list[str]:
        """The places whose secrets are there, as they are or as a header of HTTP has them."""
        spelled = {
            place: [secret.encode(), base64.b64encode(f"yard:{secret}".encode())]
            for secret, place in self.places.items()
        }
        return [place for place, words in spelled.items() if any([word in text for word in words])]


def unpacked(path: Path) -> dict[str, bytes]:
    """The files of a bundle, by name."""
    with tarfile.open(path) as archive:
        files = [(each.name.partition("/")[2], archive.extractfile(each)) for each in archive]
        return {name: file.read() for name, file in files if file is not None}


@pytest.fixture(scope="module")
def planted() -> Planted:
    return Planted()


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory, planted: Planted) -> Iterator[Box]:
    """A yard with a secret in every place that could hold one."""
    folder = tmp_path_factory.mktemp("support")
    texts = [planted("a comment of yard.yaml"), planted("another comment")]
    box = Box(folder / "yard", CONFIG.format(*texts, folder=folder, user=getpass.getuser()))
    for name in ("sink.token", "sink.password"):
        (folder / name).write_text(planted(name) + "\n")
        (folder / name).chmod(0o600)
    script = folder / "job.sh"
    script.write_text(f"#!/bin/sh\n# {planted('a script')}\necho {planted('output')}\nsleep 600\n")
    started = box("up", "-d", "--port", 0, "--auth", "--config", box.config)
    assert 0 == started.code, started.err
    shell = {"HF_TOKEN": planted("a job's environment"), "PLAIN": planted("a job's plain variable")}
    ran = box("submit", "--tenant", "research", "-g", "1", "-n", planted("a job's name"), script, **shell)
    assert 0 == ran.code, ran.err
    words = ("submit", "--tenant", "research", "-g", "8", "--hold", "--label", f"note={planted('a label')}")
    assert 0 == box(*words, "--", "echo", planted("an argument")).code
    made = box("token", "create", "--user", "ana")
    assert 0 == made.code, made.err
    planted.places[made.out.split()[-1]] = "a token"
    planted.places[(box.data / "token").read_text().strip()] = "the yard's own token"
    until(lambda: "RUNNING" in box("queue").out)
    places = ("a URL", "a header", "a word of libpq", "a login")
    lines = LINES.format(*[planted(f"{place} in the log") for place in places], made.out.split()[-1])
    with (box.data / "yard.log").open("a") as log:
        log.write(lines)
    yield box
    box("down", "--jobs")


def test_a_bundle_says_what_is_in_it_and_holds_no_secret(yard: Box, planted: Planted) -> None:
    target = yard.data.parent / "up.tar.gz"
    shell = {
        "PGPASSWORD": planted("the environment"),
        "YARD_STORE": f"postgresql://y:{planted('a store')}@h/d",
    }
    done = yard("support", target, **shell)
    assert (0, "") == (done.code, done.err)
    assert 0o600 == stat.S_IMODE(target.stat().st_mode)
    assert str(target) in done.out
    files = unpacked(target)
    named = {line.split()[0] for line in done.out.splitlines() if " bytes" in line and "written" not in line}
    assert {
        "versions.json", "server.json", "ready.json", "doctor.json", "config.yaml", "nodes.json", "queue.json",
        "metrics.txt", "data.json", "log/yard.log",
    } == named == set(files) - {"contents.txt"}  # fmt: skip

    assert {} == {name: planted.found_in(text) for name, text in files.items() if planted.found_in(text)}
    assert [] == planted.found_in(done.out.encode())
    assert True is json.loads(files["ready.json"])["ready"]
    assert {"running": 1, "set_aside": 1}.items() <= json.loads(files["queue.json"]).items()
    assert b"research:" in files["config.yaml"]
    assert b"password_file:" in files["config.yaml"]
    assert b"leads in epoch 1" in files["log/yard.log"]
    assert b"gpuyard_ready 1" in files["metrics.txt"]


def test_a_bundle_does_not_take_the_place_of_a_file(yard: Box) -> None:
    target = yard.data.parent / "there.tar.gz"
    target.write_text("mine")
    done = yard("support", target)
    assert (2, "mine") == (done.code, target.read_text())
    assert "is there already" in done.err
    gone = yard("support", yard.data.parent / "nowhere" / "x.tar.gz")
    assert (1, True) == (gone.code, "cannot be written: No such file or directory" in gone.err)


def test_a_yard_that_is_down_has_its_log_and_its_last_configuration_in_it(
    yard: Box, planted: Planted
) -> None:
    assert 0 == yard("down").code
    done = yard("support", yard.data.parent / "down.tar.gz")
    assert 0 == done.code, done.err
    assert "without server.json, ready.json, doctor.json" in done.out
    files = unpacked(yard.data.parent / "down.tar.gz")
    assert {"contents.txt", "versions.json", "config.yaml", "data.json", "log/yard.log"} == set(files)
    assert b"research:" in files["config.yaml"]
    assert {} == {name: planted.found_in(text) for name, text in files.items() if planted.found_in(text)}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("version: 1\nclient_secret: [Geheim\nlogs: {", ", line 2"),
        ("version: 1\nGeheim: &again [*again]", ", line 2"),
        ("version: 1\nGeheim: 2026-13-01", ""),
        ("Geheim: !Geheim 1", ""),
        ("Geheim, and nothing else", ", line 1"),
    ],
)
def test_a_configuration_that_cannot_be_read_is_not_in_it(tmp_path: Path, text: str, line: str) -> None:
    (tmp_path / "yard.yaml").write_text(text)
    (part,) = [each for each in SupportBundle(tmp_path).parts() if each.name == "config.yaml"]
    assert ("", f"it is no YAML that a yard reads{line}") == (part.text, part.missing)


def test_a_secret_in_the_name_of_a_file_is_in_no_name_of_the_bundle(tmp_path: Path) -> None:
    (tmp_path / "yard.log.password=Geheim").touch()
    parts = [*SupportBundle(tmp_path).parts()]
    assert "log/yard.log.password=(removed)" in [part.name for part in parts]
    assert not [part for part in parts if "Geheim" in f"{part.name} {part.text} {part.missing}"]


def test_a_server_that_does_not_answer_is_asked_once(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(tmp_path / "yard.sock"))
        (tmp_path / "yard.pid").touch()
        door.listen(8)
        parts = [*SupportBundle(tmp_path, answer_s=0.2).parts()]
        door.setblocking(False)
        door.accept()[0].close()
        with pytest.raises(BlockingIOError):
            door.accept()
    missing = {part.name for part in parts if "does not answer" in part.missing}
    assert {"server.json", "ready.json", "doctor.json", "nodes.json", "queue.json", "metrics.txt"} <= missing
    assert "versions.json" not in missing
