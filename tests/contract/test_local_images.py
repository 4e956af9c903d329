"""Jobs in images on the local engine: real podman, images made here, registries on loopback."""

import fcntl
import json
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from contract.rigs import EPOCH, LocalRig, ended, launch, look, until
from gpuyard.engines.contract import AttemptReport, Container, Phase, Recipe, StopRequest
from gpuyard.engines.node.containers.podman import short_folder
from gpuyard.engines.node.visits import frames
from gpuyard.model import Capability, Outcome
from harness import patience
from rigs.images.rig import BUSYBOX, Images, Registry
from rigs.others import OTHER, THIRD, act, refused
from rigs.visits.client import Visit


class Box:
    """An engine of root, on which the user of the images has jobs."""

    def __init__(self, rig: LocalRig, images: Images) -> None:
        self.rig, self.images = rig, images
        self.count = 0
        self.work = rig.data.parent / "work"
        self.work.mkdir()
        os.chown(self.work, images.account.pw_uid, images.account.pw_gid)

    def start(self, *containers: Container, argv: tuple[str, ...] = (), user: str = "", **more: Any) -> str:
        """Start a job; its key."""
        self.count += 1
        key = f"y-{self.count}-1"
        self.rig.keys.add(key)
        account = self.images.account
        who = {"uid": account.pw_uid, "gid": account.pw_gid, "user": account.pw_name}
        of_launch = {
            name: more.pop(name) for name in ("gpus", "tasks", "grace_ms", "limit_ms") if name in more
        }
        recipe = Recipe(**{"argv": argv, "containers": containers, "cwd": str(self.work), **who, **more})
        (reply,) = self.rig.engine.start(
            EPOCH, [launch(self.rig, key, recipe=recipe, job_id=self.count, **of_launch)]
        )
        assert "done" == reply.answer.value, reply
        return key

    def run(
        self, *containers: Container, argv: tuple[str, ...] = (), **more: Any
    ) -> tuple[AttemptReport, str]:
        """Run a job to its end: how it ended, and what it wrote."""
        key = self.start(*containers, argv=argv, **more)
        return ended(self.rig, key), self.log(key)

    def shell(self, line: str, image: str = "", **more: Any) -> tuple[AttemptReport, str]:
        """The same for a line of a shell."""
        return self.run(Container(image or self.images.plain), argv=("sh", "-c", line), **more)

    def log(self, key: str) -> str:
        return self.rig.engine.log(key, "stdout", "", 100_000).content.decode()

    def until_written(self, key: str, text: str) -> None:
        patience.until(lambda: text in self.log(key), 20, lambda: (look(self.rig, key), self.log(key)))

    def left(self) -> list[str]:
        """What ended attempts have left: processes, mounts, folders."""
        folders = [str(path) for path in self.rig.data.glob("attempts/*/image")]
        # Others of this machine may have such folders, too.
        short = [short_folder(str(self.rig.data / "attempts" / key)) for key in self.rig.keys]
        folders += [path for path in short if os.path.isdir(path)]
        mounts = [
            line for line in Path("/proc/mounts").read_text().splitlines() if str(self.rig.data) in line
        ]
        return self.images.processes() + mounts + folders


@pytest.fixture
def box(open_rig: LocalRig, images: Images) -> Iterator[Box]:
    found = Box(open_rig, images)
    yield found
    assert [] == found.left()


def test_a_job_sees_its_gpus_its_folder_and_its_secret_and_runs_as_its_user(box: Box) -> None:
    assert Capability.IMAGES in box.rig.engine.capabilities
    token = box.work / "token"
    token.write_text("t0ken")
    (box.work / "data").mkdir()
    os.chown(box.work / "data", box.images.account.pw_uid, -1)
    own = Container(
        box.images.plain,
        volumes=(f"{box.work}/data:/data", f"{token}:/run/secrets/hf:ro", "scratch:/scratch"),
    )
    line = """id -u; pwd; ls /dev | grep nvidia; cat /run/secrets/hf; echo
        echo made >made; echo x >/data/x; echo y >/scratch/y; grep NoNewPrivs /proc/self/status
        echo "$NVIDIA_VISIBLE_DEVICES"; echo "$WORDS"; touch /run/secrets/hf 2>/dev/null || echo ro"""
    report, said = box.run(
        own, argv=("sh", "-c", line), gpus=(1, 3), env={"WORDS": "of\ntwo lines", "PATH": "/bin"}
    )

    lines = said.splitlines()
    uid = box.images.account.pw_uid
    assert (Outcome.COMPLETED, 0) == (report.outcome, report.exit_code), said
    assert [str(uid), str(box.work), "nvidia1", "nvidia3", "t0ken", "NoNewPrivs:\t1"] == lines[:6]
    assert ["-1", "-3"] == [uuid[-2:] for uuid in lines[6].split(",")]
    assert ["of", "two lines", "ro"] == [lines[7], lines[8], lines[-1]]
    assert (uid, "made\n") == ((box.work / "made").stat().st_uid, (box.work / "made").read_text())
    assert uid == (box.work / "data" / "x").stat().st_uid


def test_the_times_of_pull_start_and_first_line_are_kept_and_a_second_job_pulls_nothing(box: Box) -> None:
    first = box.start(Container(box.images.plain), argv=("sh", "-c", "sleep 0.5; echo late; sleep 0.3"))
    second = box.start(Container(box.images.plain), argv=("sh", "-c", "echo other"))
    before = box.images.open.pulls()
    for key in (first, second):
        assert Outcome.COMPLETED is ended(box.rig, key).outcome
    found = [box.rig.engine.usage(key).image for key in (first, second)]

    assert 2 >= box.images.open.pulls() - before, "one layer and one configuration, for both jobs"
    assert None not in found
    waited = [each for each in found if each and each.pull_ms is not None]
    assert waited, "one of them has pulled it"
    (one, other) = [each for each in found if each]
    assert (box.images.plain, "sha256:") == (one.image, one.digest[:7])
    assert other.start_ms is not None
    assert 400 <= (one.line_ms or 0) - (one.start_ms or 0) <= 5000

    before = box.images.open.pulls()
    assert Outcome.COMPLETED is box.shell("true")[0].outcome
    assert before == box.images.open.pulls()
    assert Outcome.COMPLETED is box.run(Container(box.images.plain, pull="always"), argv=("true",))[0].outcome


def test_entrypoint_and_arguments_are_those_of_the_image_until_the_job_names_others(box: Box) -> None:
    image = box.images.plain

    assert "hello from the image\n" == box.run(Container(image))[1]
    assert "other\n" == box.run(Container(image), argv=("echo", "other"))[1]
    assert "a b\n" == box.run(Container(image, entrypoint=("/bin/busybox", "echo", "a")), argv=("b",))[1]
    assert "\n" == box.run(Container(image, entrypoint=("/bin/busybox", "echo")))[1]
    assert "/\n" == box.run(Container(image), argv=("pwd",), cwd="")[1]
    assert "/bin\n" == box.run(Container(image, workdir="/bin"), argv=("pwd",))[1]
    script = "#!/bin/busybox sh\necho \"$0 $1\" | sed 's,.*/,,'; exit 7\n"
    report, said = box.run(Container(image), argv=("x",), script=script)
    assert (Outcome.FAILED, 7, "script x\n") == (report.outcome, report.exit_code, said)


@pytest.mark.parametrize(
    ("name", "pull", "says", "for_good"),
    [
        ("{open}/team/absent:1", "", "has no such image", True),
        ("{open}/team/plain:9", "", "has no such image", True),
        ("127.0.0.1:9/team/plain:1", "", "127.0.0.1:9 does not answer", False),
        ("localhost/team/absent:1", "", "yardpod has built no such image on this node", True),
        ("{open}/team/absent:1", "never", "is not on this node, and is never to be pulled", False),
        ("{closed}/team/private:1", "", "log in as yardpod on this node: podman login {closed}", True),
    ],
)
def test_an_image_that_cannot_be_had_says_why(
    box: Box, name: str, pull: str, says: str, for_good: bool
) -> None:
    names = {"open": box.images.open.name, "closed": box.images.closed.name}
    report, said = box.run(Container(name.format(**names), pull=pull), argv=("true",))

    assert (Outcome.FAILED, 125, "") == (report.outcome, report.exit_code, said)
    assert says.format(**names) in report.why
    assert for_good is report.for_good, report


def test_a_program_that_the_image_lacks_says_so(box: Box) -> None:
    report, said = box.run(Container(box.images.plain, entrypoint=("/bin/absent",)))

    assert (Outcome.FAILED, 127) == (report.outcome, report.exit_code)
    assert f"its program is not in image {box.images.plain}" in report.why
    assert "/bin/absent" in said


def test_credentials_open_a_registry_to_their_owner_alone(box: Box) -> None:
    account, login = box.images.account, box.images.login
    wrong = Registry.__new__(Registry)
    wrong.port, wrong.login = box.images.closed.port, ("ana", "wrong")
    for text, outcome in (
        (wrong.credentials(), Outcome.FAILED),
        (box.images.closed.credentials(), Outcome.COMPLETED),
    ):
        login.write_text(text)
        login.chmod(0o600)
        os.chown(login, account.pw_uid, account.pw_gid)
        report, said = box.shell("echo in", box.images.private)
        assert outcome is report.outcome, report.why
    login.unlink()

    assert "in\n" == said
    store = box.rig.data / "images" / str(account.pw_uid)
    assert "PermissionError" == act(OTHER, lambda: refused(lambda: os.listdir(store)))
    report, _ = box.run(
        Container(box.images.private, pull="never"),
        argv=("true",),
        uid=THIRD,
        gid=THIRD,
        user=str(THIRD),
        cwd="",
    )
    assert "is not on this node" in report.why, "another user's store is not looked into"
    nobody = pwd.getpwnam("nobody")
    with settings_for_all(box):
        # Such a user is root inside, and binds what it can name.
        report, said = box.run(
            Container(box.images.plain, volumes=(f"{store}:/layers",)),
            argv=("ls", "/layers"), uid=nobody.pw_uid, gid=nobody.pw_gid, user="nobody", cwd="",
        )  # fmt: skip
    assert (Outcome.FAILED, "ls: can't open '/layers': Permission denied\n") == (report.outcome, said), report


def test_a_full_disk_during_the_pull_is_said_and_room_helps(images: Images) -> None:
    # A fence shows nothing of what is mounted below /tmp.
    with outside_tmp() as folder, small_store(box := Box(LocalRig(folder), images)) as mounted:
        report, _ = box.shell("true")
        assert (Outcome.FAILED, 125) == (report.outcome, report.exit_code)
        assert "the disk is full" in report.why, report.why
        subprocess.run(["mount", "-o", "remount,size=100m", mounted], check=True)
        report, _ = box.shell("true")
        assert Outcome.COMPLETED is report.outcome, report.why
        box.rig.close()
    assert [] == images.processes()


@contextmanager
def outside_tmp() -> Iterator[Path]:
    """A folder that every user may pass through."""
    folder = Path(tempfile.mkdtemp(prefix="yard-contract-", dir="/var/lib"))
    folder.chmod(0o711)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@contextmanager
def small_store(box: Box) -> Iterator[str]:
    """The user's store on a disk that is too small for the image."""
    account = box.images.account
    store = box.rig.data / "images" / str(account.pw_uid)
    store.mkdir(parents=True)
    store.parent.chmod(0o711)
    options = f"size=1m,mode=700,uid={account.pw_uid},gid={account.pw_gid}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(store)], check=True)
    try:
        yield str(store)
    finally:
        subprocess.run(["umount", "-l", str(store)], check=True)


def test_a_stop_during_the_pull_ends_it_at_once(box: Box) -> None:
    key = box.start(Container(f"{box.images.silent.name}/team/slow:1"), argv=("true",), grace_ms=60_000)
    wait_for(lambda: box.images.silent.calls)
    report = look(box.rig, key)
    assert (Phase.STARTING, "its image is made ready") == (report.phase, report.why)
    began = time.monotonic()
    box.rig.engine.stop(EPOCH, [StopRequest(key, Outcome.CANCELLED, 60_000)])
    report = ended(box.rig, key)

    assert Outcome.CANCELLED is report.outcome
    assert time.monotonic() - began < patience.patient(30)
    assert Outcome.COMPLETED is box.shell("true")[0].outcome, "the store is free for the next pull"


def test_a_supervisor_killed_during_the_pull_or_the_run_leaves_nothing(box: Box) -> None:
    calls = len(box.images.silent.calls)
    pulling = box.start(Container(f"{box.images.silent.name}/team/slow:1"), argv=("true",))
    running = box.start(Container(box.images.plain), argv=("sh", "-c", "echo up; sleep 60"))
    wait_for(lambda: len(box.images.silent.calls) > calls)
    box.until_written(running, "up")
    for key in (pulling, running):
        os.kill(json.loads(box.rig.claim(key).read_text())["pid"], signal.SIGKILL)
    for key in (pulling, running):
        report = until(box.rig, key, Phase.ENDED)
        assert (Outcome.NODE_FAIL, "its supervisor was killed") == (report.outcome, report.why)
        box.rig.engine.forget(EPOCH, [key])
    wait_for(lambda: not box.images.processes())

    assert Outcome.COMPLETED is box.shell("true")[0].outcome, "the store is whole, and free for the next pull"


def test_a_server_that_is_gone_costs_a_container_nothing(box: Box) -> None:
    key = box.start(
        Container(box.images.plain),
        argv=("sh", "-c", "echo up; while [ ! -e go ]; do sleep 0.1; done; exit 9"),
    )
    box.until_written(key, "up")
    box.rig.engine.close()
    (box.work / "go").touch()
    box.rig.engine = box.rig.reopen()
    report = ended(box.rig, key)

    assert (Outcome.FAILED, 9) == (report.outcome, report.exit_code)


def test_term_reaches_the_program_and_what_ignores_it_is_killed_after_the_grace(box: Box) -> None:
    heeds = box.start(
        Container(box.images.plain), grace_ms=60_000,
        argv=("sh", "-c", "trap 'echo saved >saved; exit 3' TERM; echo up; while :; do sleep 0.1; done"),
    )  # fmt: skip
    ignores = box.start(
        Container(box.images.plain), argv=("sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.1; done")
    )
    plain = box.start(Container(box.images.plain), argv=("sleep", "600"))
    for key in (heeds, ignores):
        box.until_written(key, "up")
    until(box.rig, plain, Phase.RUNNING)
    began = time.monotonic()
    box.rig.engine.stop(
        EPOCH, [StopRequest(heeds, Outcome.CANCELLED, 60_000), StopRequest(plain, Outcome.CANCELLED, 60_000)]
    )
    box.rig.engine.stop(EPOCH, [StopRequest(ignores, Outcome.PREEMPTED, 500)])

    assert [Outcome.CANCELLED, Outcome.CANCELLED] == [ended(box.rig, key).outcome for key in (heeds, plain)]
    assert time.monotonic() - began < patience.patient(30), "no grace is waited out"
    assert "saved\n" == (box.work / "saved").read_text()
    assert Outcome.PREEMPTED is ended(box.rig, ignores).outcome


def test_a_time_limit_ends_a_container(box: Box) -> None:
    report, _ = box.shell("echo up; sleep 60", limit_ms=1500)

    assert Outcome.TIMEOUT is report.outcome


def test_init_steps_come_first_and_containers_of_a_job_share_its_folders_and_gpus(box: Box) -> None:
    image, sh = box.images.plain, ("/bin/busybox", "sh", "-c")
    shared = ("swap:/swap",)
    step = Container(
        image, name="fetch", init=True, entrypoint=sh, argv=("echo fetched >/swap/x",), volumes=shared
    )
    side = Container(
        image, name="side", entrypoint=sh, volumes=shared, env={"WHO": "side"},
        argv=("ls /dev | grep nvidia >/swap/gpus; echo $WHO; while [ ! -e /swap/done ]; do sleep 0.05; done",),
    )  # fmt: skip
    line = "cat /swap/x; while [ ! -s /swap/gpus ]; do sleep 0.05; done; cat /swap/gpus; echo $WHO; touch /swap/done"
    report, said = box.run(
        Container(image, entrypoint=sh, volumes=shared),
        step,
        side,
        argv=(line,),
        gpus=(2,),
        env={"WHO": "own"},
    )

    assert (Outcome.COMPLETED, ["fetched", "nvidia2", "own", "side"]) == (
        report.outcome,
        sorted(said.split()),
    )


def test_a_bundle_runs_as_its_configuration_says_until_the_job_says_otherwise(box: Box) -> None:
    bundle = box.work / "bundle"
    (bundle / "rootfs" / "bin").mkdir(parents=True)
    shutil.copy(BUSYBOX, bundle / "rootfs" / "bin" / "busybox")
    process = {
        "args": ["/bin/busybox", "sh", "-c", "echo $KIND; touch /bin/new"],
        "env": ["KIND=bundle"],
        "cwd": "/",
    }
    (bundle / "config.json").write_text(json.dumps({"process": process}))
    subprocess.run(["chown", "-R", f"{box.images.account.pw_name}:", str(bundle)], check=True)

    report, said = box.run(Container(str(bundle)))
    assert (Outcome.COMPLETED, "bundle\n") == (report.outcome, said), said
    assert not (bundle / "rootfs" / "bin" / "new").exists()
    report, said = box.run(Container(str(bundle)), script="#!/bin/busybox sh\necho in $KIND\n")
    assert (Outcome.COMPLETED, "in bundle\n") == (report.outcome, said)
    report, _ = box.run(Container(str(box.work / "absent")))
    assert "is not a bundle: it has no folder rootfs" in report.why


def test_a_step_or_a_container_that_fails_makes_the_job_fail(box: Box) -> None:
    image, sh = box.images.plain, ("/bin/busybox", "sh", "-c")
    step = Container(image, name="fetch", init=True, entrypoint=sh, argv=("exit 4",))
    report, said = box.run(Container(image, entrypoint=sh), step, argv=("echo never",))
    assert (4, "init step fetch: exit code 4", "") == (report.exit_code, report.why, said)

    side = Container(image, name="side", entrypoint=sh, argv=("exit 5",))
    report, said = box.run(Container(image, entrypoint=sh), side, argv=("sleep 1; echo whole",))
    assert (5, "container side: exit code 5", "whole\n") == (report.exit_code, report.why, said)


def test_the_tasks_of_a_gang_run_in_containers_of_their_own(box: Box) -> None:
    report, said = box.shell('echo "$RANK of $WORLD_SIZE"', gpus=(0, 1), tasks=2)

    assert (Outcome.COMPLETED, ["0 of 2", "1 of 2"]) == (report.outcome, sorted(said.splitlines()))


def test_a_user_without_further_ids_runs_images_too(box: Box) -> None:
    nobody = pwd.getpwnam("nobody")
    box.work.chmod(0o777)
    with settings_for_all(box):
        report, said = box.shell("id -u; touch theirs", uid=nobody.pw_uid, gid=nobody.pw_gid, user="nobody")

    assert (Outcome.COMPLETED, "0\n") == (report.outcome, said), said
    assert nobody.pw_uid == (box.work / "theirs").stat().st_uid


INSIDE = """id -u; pwd; tty; ls /bin; ls /dev | grep nvidia; echo "$WORD $TERM"; ps -o comm | grep -c sleep
stty size; : >beside; : >/dev/shm/own; grep -E '^(CapEff|NoNewPrivs)' /proc/self/status; exit 7"""


def assert_a_shell_is_inside(box: Box, owner: int, inside: int, **who: Any) -> None:
    """A shell beside a job is in its container: its files, its processes, its user, its GPUs; and no further."""
    key = box.start(
        Container(box.images.plain),
        argv=("sh", "-c", "echo there >/dev/shm/mine; echo up; exec sleep 1000"),
        gpus=(2,),
        env={"WORD": "of the job", "PATH": "/bin"},
        **who,
    )
    box.until_written(key, "up")
    asked = {
        "do": "shell",
        "argv": ["busybox", "sh", "-c", INSIDE],
        "env": {"TERM": "vt100"},
        "rows": 30,
        "columns": 90,
    }
    shown, how = Visit(box.rig, key, **asked).end()
    lines = shown.splitlines()
    assert {"code": 7} == how, shown
    assert [str(inside), str(box.work)] == lines[:2]
    assert lines[2].startswith("/dev/pts/")
    assert ["busybox", "nvidia2", "of the job vt100", "1", "30 90"] == lines[3:8]
    assert "NoNewPrivs:\t1" in lines
    assert owner == (box.work / "beside").stat().st_uid
    assert not Path("/dev/shm/own").exists()

    shown, how = Visit(box.rig, key, do="read", path="/dev/shm/mine").end()
    assert ("there\n", 0) == (shown, how["code"])
    write = Visit(box.rig, key, do="write", path="/dev/shm/taken")
    told = write.frames
    assert frames.HELLO == next(told)[0]
    write.send(frames.FILE, json.dumps({"path": "x", "mode": 0o644, "folder": False, "size": 4}).encode())
    write.send(frames.DATA, b"put\n")
    write.send(frames.END)
    assert 1 == json.loads(next(told)[1])["files"]
    write.line.close()
    assert ("put\n", {"code": 0}) == Visit(
        box.rig, key, do="shell", argv=["busybox", "cat", "/dev/shm/taken"]
    ).end()
    shown, how = Visit(box.rig, key, do="shell", argv=["nothing-there"]).end()
    assert ("yard: cannot run nothing-there: No such file or directory\n", {"code": 127}) == (shown, how)

    stays = Visit(box.rig, key, do="shell", argv=["busybox", "sh"])
    stays.send(frames.DATA, b"echo $((40 + 2)); sleep 900\n")
    shown = ""
    told = stays.frames
    while "42\r\n" not in shown:
        kind, content = next(told)
        shown += content.decode() if kind == frames.DATA else ""
    box.rig.engine.stop(EPOCH, [StopRequest(key, Outcome.CANCELLED, 500)])
    assert Outcome.CANCELLED == ended(box.rig, key).outcome
    stays.line.close()


def test_a_shell_and_copies_of_a_job_in_an_image_are_inside_its_container(box: Box) -> None:
    uid = box.images.account.pw_uid
    assert_a_shell_is_inside(box, uid, uid)


def test_a_shell_of_a_user_without_further_ids_is_inside_its_container(box: Box) -> None:
    nobody = pwd.getpwnam("nobody")
    box.work.chmod(0o777)
    with settings_for_all(box):
        assert_a_shell_is_inside(box, nobody.pw_uid, 0, uid=nobody.pw_uid, gid=nobody.pw_gid, user="nobody")


@contextmanager
def settings_for_all(box: Box) -> Iterator[None]:
    """Every user calls the registries what the user of the images calls them."""
    settings = Path(box.images.home, ".config", "containers", "registries.conf").read_text()
    system = Path("/etc/containers/registries.conf.d/yard-test.conf")
    system.parent.mkdir(parents=True, exist_ok=True)
    system.write_text(settings)
    try:
        yield
    finally:
        system.unlink()


def wait_for(what: Any, s: float = 20.0) -> None:
    patience.until(what, s, lambda: "it did not come true in time")


def test_images_that_no_job_needs_are_removed_and_others_stay(box: Box) -> None:
    engine, uid = box.rig.engine, box.images.account.pw_uid
    store = box.rig.data / "images" / str(uid)
    name, later_ms = f"{uid}/{box.images.plain}", int(1000 * time.time()) + 3_600_000
    key = box.start(Container(box.images.plain), argv=("sh", "-c", "while ! [ -e go ]; do sleep 0.1; done"))
    until(box.rig, key, Phase.RUNNING)
    assert {} == engine.prune_images(later_ms, dry_run=False), "a job runs in it"
    (box.work / "go").touch()
    assert Outcome.COMPLETED == ended(box.rig, key).outcome

    assert {} == engine.prune_images(later_ms - 7_200_000, dry_run=False), "it was used since then"
    would = engine.prune_images(later_ms, dry_run=True)
    assert [name] == list(would)
    assert would[name] > os.path.getsize(BUSYBOX) // 2
    (lock,) = store.glob("lock-*")
    with lock.open() as pulled:
        fcntl.flock(pulled, fcntl.LOCK_EX)
        assert {} == engine.prune_images(later_ms, dry_run=False), "it is being pulled"
    before = sum([path.lstat().st_size for path in (store / "overlay").rglob("*")])
    assert would == engine.prune_images(later_ms, dry_run=False)
    after = sum([path.lstat().st_size for path in (store / "overlay").rglob("*")])
    assert after < before - os.path.getsize(BUSYBOX) // 2, "its files are gone"
    assert {} == engine.prune_images(later_ms, dry_run=False)
    assert [] == box.images.processes()

    report, said = box.shell("echo again")
    assert (Outcome.COMPLETED, "again\n") == (report.outcome, said), "it is pulled anew"
