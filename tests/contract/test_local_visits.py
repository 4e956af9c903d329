"""Visits of running jobs: root runs nothing that lies where a job could have put it, and no visit ends a job."""

import hashlib
import os
import re
import shlex
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from contract.rigs import EPOCH, LocalRig, ended, launch, look, until
from gpuyard.engines.contract import Container, Permanent, Phase, Recipe, StopRequest
from gpuyard.engines.local.engine import LocalEngine
from gpuyard.engines.local.hosts import EmulatedGpus, ThisMachine
from gpuyard.engines.local.own_code import OwnCode, own_code
from gpuyard.engines.machine.installation import PLACE
from gpuyard.engines.node.visits import frames, keeper
from gpuyard.model import Outcome
from harness import patience
from rigs.images.rig import Images
from rigs.others import OTHER, needs_root
from rigs.visits.client import WAIT_S, Visit, fetched, put
from rigs.visits.watched_code import WatchedCode

pytestmark = needs_root

KEY = "y-1-1"
ECHO = """
import socket, sys
with socket.create_server(("127.0.0.1", 0)) as port:
    print("port", port.getsockname()[1], flush=True)
    while True:
        link = port.accept()[0]
        with link, link.makefile("rb") as file:
            link.sendall(file.read().upper())
"""
PLACES = ("/tmp", "/var/tmp", "/dev/shm")


@contextmanager
def copied(place: str = "/tmp") -> Iterator[WatchedCode]:
    """The code of a yard, below a folder that jobs have of their own."""
    folder = Path(tempfile.mkdtemp(prefix="yard-code-", dir=place))
    code = WatchedCode(folder / "src")
    try:
        yield code
    finally:
        code.remove()
        shutil.rmtree(folder)


@contextmanager
def opened(code: OwnCode | None) -> Iterator[LocalRig]:
    """An engine with this code; its data lie where jobs have nothing of their own."""
    folder = Path(tempfile.mkdtemp(prefix="yard-contract-", dir="/var/lib"))
    folder.chmod(0o711)
    rig = LocalRig(folder, code=code)
    try:
        yield rig
    finally:
        stopped(rig)
        rig.close()
        shutil.rmtree(folder)


def stopped(rig: LocalRig) -> None:
    if rig.keys and look(rig, KEY).phase is not Phase.ENDED:
        rig.engine.stop(EPOCH, [StopRequest(KEY, Outcome.CANCELLED, 500)])
        ended(rig, KEY)


def start(rig: LocalRig, script: str, *, at_terminal: bool = False, says: str = "") -> None:
    """A job of another user, which has said something."""
    rig.keys.add(KEY)
    recipe = Recipe(
        script=f"#!/bin/sh\n{script}", uid=OTHER, gid=OTHER, user=str(OTHER), cwd="/", terminal=at_terminal
    )
    (reply,) = rig.engine.start(EPOCH, [launch(rig, KEY, recipe=recipe)])
    assert "done" == reply.answer.value, reply
    until(rig, KEY, Phase.RUNNING, Phase.ENDED)
    patience.until(lambda: says in output(rig), WAIT_S, lambda: (look(rig, KEY), output(rig)))


def output(rig: LocalRig) -> str:
    return rig.engine.log(KEY, "stdout", "", 100_000).content.decode()


def visit_all(rig: LocalRig) -> None:
    """Every way into a job that answers at a port, `forward` and a notebook among them."""
    port = int(output(rig).split("port ")[1].split()[0])
    assert "TOLD" == fetched(rig, KEY, port, b"told")
    assert 1 == put(rig, KEY, "/tmp/taken", b"put in\n")
    assert ("put in\n", 0) == copied_out(rig, "/tmp/taken")
    assert ("/nothing: No such file or directory") == Visit(rig, KEY, do="read", path="/nothing").end()[1]
    shown, how = Visit(rig, KEY, do="shell", argv=["sh", "-c", "id -u; cat /tmp/taken; exit 7"]).end()
    assert (f"{OTHER}\nput in\n", {"code": 7}) == (shown, how)
    shown, how = Visit(rig, KEY, do="shell", argv=["nothing-there"]).end()
    assert ("yard: cannot run nothing-there: No such file or directory\n", {"code": 127}) == (shown, how)
    shell = Visit(rig, KEY, do="shell", argv=["sh", "-c", "trap 'echo told; exit 3' USR1; echo up; read x"])
    shell.until("up\r\n")
    shell.send(frames.SIGNAL, b"10")
    assert {"code": 3} == shell.end()[1]


def copied_out(rig: LocalRig, path: str) -> tuple[str, int]:
    shown, how = Visit(rig, KEY, do="read", path=path).end()
    return shown, how["code"]


def test_no_visit_loads_or_opens_anything_of_the_yards_behind_the_fence() -> None:
    with copied() as code, opened(code.code()) as rig:
        # What it leaves in its /tmp is removed at its end.
        start(rig, f"mkdir -p /tmp/left/deep; python3 -c {shlex.quote(ECHO)} & sleep 600", says="port")
        visit_all(rig)
        assert Phase.RUNNING is look(rig, KEY).phase
        rig.engine.stop(EPOCH, [StopRequest(KEY, Outcome.CANCELLED, 500)])
        assert Outcome.CANCELLED is ended(rig, KEY).outcome
        assert not (rig.data / "attempts" / KEY / "private").exists()
        assert {"inside"} == code.seen()


def test_a_job_at_a_terminal_loads_nothing_either() -> None:
    with copied() as code, opened(code.code()) as rig:
        start(
            rig,
            "trap 'echo stopped' INT\necho up\ncat\necho now; read x; exit 4\n",
            at_terminal=True,
            says="up",
        )
        visit = Visit(rig, KEY, own=True, do="attach", seen=0)
        visit.until("up\r\n")
        visit.send(frames.DATA, b"typed\n")
        visit.until("typed\r\ntyped\r\n")
        visit.send(frames.SIGNAL, b"2")
        visit.until("now\r\n")
        visit.send(frames.SIZE, b'{"rows": 40, "columns": 90}')
        visit.send(frames.DATA, b"\n")
        assert {"code": 4} == visit.end()[1]
        assert (Outcome.FAILED, 4) == (ended(rig, KEY).outcome, ended(rig, KEY).exit_code)
        assert {"inside"} == code.seen()


def test_modules_that_a_job_plants_are_run_by_nobody() -> None:
    """At every path at which the code lies outside, and where Python would look for what it has not loaded."""
    with copied() as code, opened(code.code(shown=False)) as rig:
        marks = Path(tempfile.mkdtemp(prefix="yard-marks-", dir="/var/lib"))
        marks.chmod(0o777)
        bad = f"import os, uuid; open('{marks}/' + str(uuid.uuid4()), 'w').write(str(os.geteuid()))"
        names = [
            *code.modules(),
            *[f"{code.folder}/{name}.py" for name in ("array", "idna", "sitecustomize")],
        ]
        plant = "".join(
            [f"mkdir -p {os.path.dirname(name)}; echo {shlex.quote(bad)} >{name}\n" for name in names]
        )
        try:
            start(
                rig,
                f"{plant}\nls {code.folder} >/dev/null && python3 -c {shlex.quote(ECHO)} & sleep 600",
                says="port",
            )
            visit_all(rig)
            assert Phase.RUNNING is look(rig, KEY).phase
            stopped(rig)
            assert [] == [path.read_text() for path in marks.iterdir()]
        finally:
            shutil.rmtree(marks)


@pytest.mark.parametrize("place", PLACES)
def test_jobs_see_the_yards_code_where_it_is_and_cannot_change_it(place: str) -> None:
    with copied(place) as code, opened(code.code()) as rig:
        module = f"{code.folder}/gpuyard/engines/node/visits/keeper.py"
        start(
            rig,
            f"sha256sum <{module} | cut -c-64\n"
            f"findmnt -n -o OPTIONS --target {module} | cut -d, -f1\n"
            f"touch {code.folder}/gpuyard/planted || mv {code.folder} {code.folder}.away || echo refused\n"
            f"ls -A {place}; exit 0\n",
        )
        assert Outcome.COMPLETED is ended(rig, KEY).outcome
        said = [line for line in output(rig).splitlines() if ":" not in line]
        same = hashlib.sha256(Path(keeper.__file__).read_bytes()).hexdigest()
        assert [same, "ro", "refused", code.folder.parent.name] == said


def test_code_that_cannot_be_shown_to_jobs_is_refused_with_a_place_to_install_it(tmp_path: Path) -> None:
    nodes = ThisMachine("n", emulate=EmulatedGpus(2, "H200"))
    code = OwnCode(own_code().above, ("/tmp/there-is-no-such-folder",))
    with pytest.raises(Permanent, match=rf"lies in /tmp/there.* cannot be shown there .*elsewhere: {PLACE}"):
        LocalEngine(tmp_path / "a", nodes=nodes, code=code)
    LocalEngine(tmp_path / "b", nodes=nodes, code=code, fence_by=()).close()


def refused_at(rig: LocalRig) -> str:
    """Why nobody is let in."""
    wait = patience.Patience(WAIT_S)
    while wait:
        try:
            assert rig.engine.terminal(KEY, own=False) is None
        except Permanent as why:
            return str(why)
        time.sleep(0.02)
    raise AssertionError("nobody said why")


def test_a_visit_that_fails_ends_no_job_and_is_told_the_true_cause() -> None:
    with copied() as code:
        code.append(
            "engines/node/visits/keeper.py", "\ndef keep(*_):\n    raise ImportError('it was moved')\n"
        )
        with opened(code.code()) as rig:
            start(rig, "echo up; read x </dev/zero; exit 5", says="up")
            # Each visit is a try of its own; what is alike is written down once.
            assert ["nobody can be let in: ImportError('it was moved')"] * 2 == [
                refused_at(rig),
                refused_at(rig),
            ]
            (line,) = (rig.data / "spawner.log").read_text().splitlines()
            said = rf"{KEY}: nobody can come in: ImportError\('it was moved'\)"
            assert re.fullmatch(rf"\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\dZ ERROR supervisor \d+: {said}", line)
            assert Phase.RUNNING is look(rig, KEY).phase


def test_a_visit_that_would_load_something_fails_alone() -> None:
    with copied() as code:
        loads = "\n_serve = serve\ndef serve(*words):\n    import colorsys\n    _serve(*words)\n"
        code.append("engines/node/visits/visitors.py", loads)
        with opened(code.code()) as rig:
            start(rig, "echo up; sleep 600", says="up")
            refused = "cannot run it: RuntimeError('import colorsys')"
            assert refused == Visit(rig, KEY, do="read", path="/etc/hostname").end()[1]
            assert ("here\n", {"code": 0}) == Visit(rig, KEY, do="shell", argv=["echo", "here"]).end()
            assert Phase.RUNNING is look(rig, KEY).phase
            assert {"inside", "import colorsys"} == code.seen()


def test_visits_of_a_job_in_an_image_load_nothing(images: Images) -> None:
    with copied() as code, opened(code.code()) as rig:
        account = images.account
        recipe = Recipe(
            argv=("sh", "-c", "echo up; exec sleep 1000"), containers=(Container(images.plain),),
            uid=account.pw_uid, gid=account.pw_gid, user=account.pw_name,
        )  # fmt: skip
        rig.keys.add(KEY)
        (reply,) = rig.engine.start(EPOCH, [launch(rig, KEY, recipe=recipe)])
        assert "done" == reply.answer.value, reply
        patience.until(lambda: "up" in output(rig), 60, lambda: look(rig, KEY))
        asked = {"do": "shell", "argv": ["busybox", "sh", "-c", "echo $((40 + 2)); exit 6"]}
        assert ("42\n", {"code": 6}) == Visit(rig, KEY, **asked).end()
        assert 1 == put(rig, KEY, "/dev/shm/taken", b"put in\n")
        assert ("put in\n", 0) == copied_out(rig, "/dev/shm/taken")
        stopped(rig)
        assert {"inside"} == code.seen()
