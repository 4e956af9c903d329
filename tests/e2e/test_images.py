"""A whole yard with jobs in images: as people submit them, and through the death of the server."""

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

import pytest

import gpuyard
from gpuyard.engines.node.containers import podman
from gpuyard.intake import Caller
from gpuyard.intake.forms import read
from harness.patience import patient
from rigs.components import install, skip_or_fail
from rigs.images.rig import BUSYBOX, Images

from .conftest import Box, until

AI_JOB = """\
apiVersion: v1
kind: Pod
metadata:
  name: ai-job
spec:
  nodeSelector:
    accelerator: nvidia
  containers:
  - name: trainer
    image: myrepo/train:latest
    resources:
      limits:
        nvidia.com/gpu: 1
"""
SUBMIT = """
import json, os, sys
from gpuyard.api.client import Client
os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[1]))
with Client(data=sys.argv[3]) as client:
    print(client.submit(json.loads(sys.argv[4]))["id"])
"""


class Users(Box):
    """A yard of root, and its user who has images."""

    images: Images

    def hand_in(self, **fields: object) -> int:
        """Submit a job as the user."""
        account = self.images.account
        fields = {"cwd": "", "env": {}, **fields}
        words = [sys.executable, "-c", SUBMIT, str(account.pw_uid), str(account.pw_gid), str(self.data)]
        done = subprocess.run(
            [*words, json.dumps(fields)], capture_output=True, text=True, check=False, timeout=patient(60)
        )
        assert 0 == done.returncode, done.stderr
        return int(done.stdout)


@pytest.fixture(scope="module")
def box(images: Images) -> Iterator[Users]:
    folder = Path(tempfile.mkdtemp(prefix="yard-images-"))
    folder.chmod(0o711)
    found = Users(folder / "yard")
    found.images = images
    found.up()
    yield found
    assert 0 == found("down", "--jobs").code
    shutil.rmtree(folder)
    assert [] == images.processes()


def test_the_pod_of_an_introduction_runs_as_it_is_written(box: Users) -> None:
    (box.data.parent / "pod.yaml").write_text(AI_JOB)
    held = box("submit", "--hold", box.data.parent / "pod.yaml")
    assert 0 == held.code, held.err
    with box.client() as client:
        assert "" == client.recipe(int(held.out))["cwd"], "a pod sees nothing of the submitter's folder"
    (taken,) = read(AI_JOB, "pod.yaml", Caller(now=datetime.now(UTC)))
    job = box.wait(box.hand_in(**taken.request()), "COMPLETED", "FAILED", s=60)
    shown = box("show", job["id"])

    assert ("COMPLETED", "hello from the image\n") == (job["state"], box("logs", job["id"]).out), shown.out
    assert "image      docker.io/myrepo/train:latest, pulled in " in shown.out
    assert ", first output after " in shown.out


def test_a_job_in_an_image_outlives_its_server_and_keeps_its_exit_code(box: Users) -> None:
    line = "echo up; while [ ! -e $HOME/go ]; do sleep 0.1; done; exit 5"
    job_id = box.hand_in(image=box.images.plain, command=["sh", "-c", line], gpus=2)
    until(lambda: "up" in box("logs", job_id).out, s=60)
    inside = "cat; ls /bin; echo apart >&2; exit 6"
    piped = box("shell", job_id, "--", "busybox", "sh", "-c", inside, stdin="from a pipe\n")
    assert (6, "from a pipe\nbusybox\n", "apart\n") == (piped.code, piped.out, piped.err)
    os.kill(box.note()["pid"], signal.SIGKILL)
    box.up()
    assert "RUNNING" == box.wait(job_id, "RUNNING")["state"]
    (box.data / "engine" / "jobs" / str(job_id) / "go").touch()

    assert ("FAILED", 5) == tuple(
        box.wait(job_id, "FAILED", "COMPLETED")[key] for key in ("state", "exit_code")
    )


def test_an_image_that_is_missing_says_so_where_people_look(box: Users) -> None:
    name = f"{box.images.open.name}/team/absent:1"
    job_id = box.hand_in(image=name, gpus=1, retries=100)
    job = box.wait(job_id, "FAILED", s=60)
    shown = " ".join(box("show", job_id).out.split())

    assert 1 == job["attempts"]
    assert f"image {name} cannot be pulled: {box.images.open.name} has no such image" in shown
    assert "it was not tried again, as each attempt would fail alike" in shown


def test_nobody_enters_a_job_whose_image_is_on_its_way_and_is_told_so(box: Users) -> None:
    job_id = box.hand_in(image=f"{box.images.silent.name}/team/slow:1", gpus=1)
    box.wait(job_id, "RUNNING", s=60)
    refused = box("cp", box.data.parent / "pod.yaml", f"{job_id}:/tmp")
    box("cancel", job_id)

    says = f"job {job_id} is STARTING: its image is made ready; there is nothing to enter until it runs"
    assert (2, f"yard: {says}\n") == (refused.code, refused.err)
    box.wait(job_id, "CANCELLED", s=60)


def _link(path: str, link: str) -> None:
    """The same file at another place; a copy of it where that is on another disk."""
    try:
        os.link(path, link)
    except OSError:
        shutil.copy2(path, link)


class OwnYard(Box):
    """The yard of an ordinary user, started and used by the user alone."""

    images: Images

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        own = {"HOME": self.images.home, "PYTHONPATH": self._packages, "YARD_DATA": str(self.data)}
        return kept | own

    @cached_property
    def _packages(self) -> str:
        """The folders of gpuyard and what it needs: their own, or linked where the user gets to."""
        folders = [Path(gpuyard.__file__).parent.parent, Path(sysconfig.get_paths()["purelib"])]
        for at, folder in enumerate(folders):
            words = [*self.become, "test", "-r", folder]
            if subprocess.run(words, check=False).returncode:
                folders[at] = self.data.parent / f"packages{at}"
                shutil.copytree(folder, folders[at], copy_function=_link)
        return ":".join(map(str, folders))

    def command(self, *words: object) -> list[str]:
        return [*self.become, self.python, "-m", "gpuyard.cli", *map(str, words)]

    @property
    def become(self) -> list[str]:
        account = self.images.account
        return ["setpriv", f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--init-groups"]

    @property
    def python(self) -> str:
        """A Python of this version that the user may run: that of the tests may lie in a home that is closed."""
        same = f"import sys; sys.exit(sys.version_info[:2] != {sys.version_info[:2]})"
        for path in (sys.executable, "/usr/bin/python3"):
            # By `env`: what becomes the user may still run what the user cannot reach.
            words = [*self.become, "env", path, "-c", same]
            if not subprocess.run(words, check=False, capture_output=True).returncode:
                return path
        skip_or_fail("an ordinary user finds no Python of this version")
        raise AssertionError

    def build(self, folder: str, word: str, *, storage: Sequence[str] = ("--storage-driver", "vfs")) -> None:
        """Build an image as the user, by vfs: podman's driver where folders cannot be laid over each other."""
        Path(folder, "Containerfile").write_text(
            f'FROM scratch\nCOPY busybox /bin/busybox\nENV WORD={word}\nENTRYPOINT ["/bin/busybox"]\n'
        )
        words = [
            *self.become,
            "podman",
            *storage,
            "build",
            "--quiet",
            "--isolation",
            "chroot",
        ]
        done = subprocess.run(
            [*words, "--tag", "mine", folder],
            env=self.environment,
            capture_output=True,
            check=False,
            cwd=folder,
        )
        assert 0 == done.returncode, done.stderr


@pytest.fixture
def own_yard(images: Images) -> Iterator[OwnYard]:
    if podman.hybrid() and not podman.program("runc"):
        install("runc")
    with tempfile.TemporaryDirectory(prefix="yard-own-") as folder:
        for path in (folder, Path(images.home, ".config")):
            os.chown(path, images.account.pw_uid, images.account.pw_gid)
        found = OwnYard(Path(folder, "yard"))
        found.images = images
        shutil.copy(BUSYBOX, folder)
        found.up()
        yield found
        assert 0 == found("down", "--jobs").code
        # Podman leaves a process behind that keeps the user's namespace.
        for line in images.processes():
            os.kill(int(line.split()[0]), signal.SIGKILL)
        shutil.rmtree(Path(images.home, ".local"), ignore_errors=True)


def test_images_of_ones_own_run_on_ones_own_yard_with_emulated_gpus(own_yard: OwnYard) -> None:
    for word in ("first", "built-again"):
        own_yard.build(str(own_yard.data.parent), word)
        line = "echo $WORD; ls /dev | grep nvidia; busybox sh /usr/bin/nvidia-smi -L | wc -l"
        ran = own_yard("run", "-g", 2, "--image", "mine", "--", "sh", "-c", line)

        assert (0, f"{word}\nnvidia0\nnvidia1\n2\n") == (ran.code, ran.out), ran.err


def test_images_of_ones_own_are_found_where_ones_settings_of_podman_have_them(own_yard: OwnYard) -> None:
    settings = Path(own_yard.images.home, ".config", "containers", "storage.conf")
    folder = str(own_yard.data.parent)
    settings.write_text(f'[storage]\ndriver = "vfs"\ngraphroot = "{own_yard.images.home}/.local/elsewhere"\n')
    try:
        own_yard.build(folder, "elsewhere", storage=())
        ran = own_yard("run", "--image", "localhost/mine", "--", "sh", "-c", "echo $WORD")
    finally:
        settings.unlink()

    assert (0, "elsewhere\n") == (ran.code, ran.out), ran.err


def test_a_copy_writes_and_reads_nothing_that_the_jobs_owner_may_not(own_yard: OwnYard) -> None:
    assert_copies_are_the_owners(own_yard, own_yard.images.account, own_yard.submit("--", "sleep", "600"))


def test_a_copy_on_the_yard_of_root_is_the_owners_as_well(box: Users) -> None:
    assert_copies_are_the_owners(box, box.images.account, box.hand_in(command=["sleep", "600"]))


def assert_copies_are_the_owners(box: Box, account: pwd.struct_passwd, job_id: int) -> None:
    """A folder that is not to be written to, and a file that is not to be read, refuse a copy as they do a shell."""
    box.wait(job_id, "RUNNING")
    with tempfile.TemporaryDirectory(prefix="yard-copies-", dir=account.pw_dir) as name:
        folder = Path(name)
        (folder / "ro").mkdir()
        (folder / "own").mkdir()
        (folder / "ro" / "closed").write_text("x")
        (folder / "ro" / "closed").chmod(0)
        (folder / "ro").chmod(0o555)
        for path in (folder, folder / "own", folder / "ro", folder / "ro" / "closed"):
            os.chown(path, account.pw_uid, account.pw_gid)
        (folder / "new").write_text("new")
        (folder / "new").chmod(0o644)

        refused = box("cp", folder / "new", f"{job_id}:{folder}/ro/")
        assert (2, "Permission denied") == (refused.code, refused.err.strip()[-17:])
        refused = box("cp", f"{job_id}:{folder}/ro/closed", folder / "own" / "copy")
        assert (2, "Permission denied") == (refused.code, refused.err.strip()[-17:])
        assert ["closed"] == os.listdir(folder / "ro")
        assert 0 == box("cp", folder / "new", f"{job_id}:{folder}/own/").code
        assert (account.pw_uid, "new") == (
            (folder / "own" / "new").stat().st_uid,
            (folder / "own" / "new").read_text(),
        )
    box("cancel", job_id)
    box.wait(job_id, "CANCELLED")
