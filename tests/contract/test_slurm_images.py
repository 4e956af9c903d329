"""Jobs in images on a driven Slurm: real podman and crun on its nodes, images made here, registries on loopback."""

import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contract.rigs import EPOCH, ended, launch, look
from contract.slurm_rig import SlurmRig
from gpuyard.engines.contract import Answer, AttemptReport, Container, Part, Recipe, StopRequest
from gpuyard.engines.node.slurm.images import FOLDER
from gpuyard.engines.slurm.cluster import ContainerRuntime
from gpuyard.model import Outcome
from harness import patience
from rigs.images.rig import BUSYBOX, Images
from rigs.slurm.cluster import SlurmCluster
from rigs.visits.client import Visit

pytestmark = pytest.mark.slurm

LEFT_S_MAX = 15.0
"""How long what an attempt leaves may take to go, on a slow machine."""


class Box:
    """An engine of root over Slurm, on which the user of the images has jobs."""

    def __init__(self, rig: SlurmRig, images: Images, folder: Path) -> None:
        self.rig, self.images, self.count = rig, images, 0
        self.work = folder / "work"
        self.work.mkdir()
        os.chown(self.work, images.account.pw_uid, images.account.pw_gid)

    def start(self, image: str, *argv: str, pull: str = "missing", **more: Any) -> str:
        """Start a job; its key."""
        self.count += 1
        key = f"y-{self.count}-1"
        self.rig.keys.add(key)
        account = self.images.account
        who = {"uid": account.pw_uid, "gid": account.pw_gid, "user": account.pw_name}
        gpus, nodes = more.pop("gpus", ()), more.pop("nodes", ())
        recipe = Recipe(
            **{
                "argv": argv,
                "containers": (Container(image, pull=pull),),
                "cwd": str(self.work),
                **who,
                **more,
            }
        )
        one = launch(self.rig, key, recipe=recipe, job_id=self.count, gpus=gpus)
        if nodes:
            one = replace(one, parts=tuple([Part(node, (0,), 1000, 1000, 64, 1) for node in nodes]))
        (reply,) = self.rig.engine.start(EPOCH, [one])
        assert Answer.DONE == reply.answer, reply
        return key

    def run(self, image: str, *argv: str, **more: Any) -> tuple[AttemptReport, str]:
        """Run a job to its end: how it ended, and what it wrote."""
        key = self.start(image, *argv, **more)
        return ended(self.rig, key), self.log(key)

    def log(self, key: str) -> str:
        return self.rig.engine.log(key, "stdout", "", 100_000).content.decode()

    def until(self, holds: Any) -> None:
        patience.until(holds, 60, lambda: "it did not come true in time")

    def left(self) -> list[str]:
        """What ended attempts have left on the node: processes and folders, images aside."""
        folder = Path(FOLDER.format(self.images.account.pw_uid))
        kept = [str(path) for path in folder.glob("*") if path.name not in ("images", "unpacked")]
        # Named as `short_folder` does: the folders of other tests are not meant.
        short = [path for path in Path("/tmp").iterdir() if re.fullmatch("yard-[0-9a-f]{12}", path.name)]
        return self.images.processes() + kept + [str(path) for path in short]


@pytest.fixture
def box(slurm_of_eight: SlurmCluster, images: Images) -> Iterator[Box]:
    yield from _box(slurm_of_eight, images, ContainerRuntime.PODMAN)


@pytest.fixture
def bundled(slurm_of_eight: SlurmCluster, images: Images) -> Iterator[Box]:
    """The same where Slurm itself runs the containers, with crun."""
    _prepare_crun(slurm_of_eight, images.account)
    yield from _box(slurm_of_eight, images, ContainerRuntime.OCI)
    _forget_crun(images.account.pw_name)


def _prepare_crun(cluster: SlurmCluster, account: pwd.struct_passwd) -> None:
    """Make the folders of a user: slurmd asks crun, as root, about a container that is gone, and would make them so."""
    _forget_crun(account.pw_name)
    for node in [name for name in cluster.names if name.startswith("n")]:
        folder = Path(f"/tmp/crun-{account.pw_name}-{node}")
        folder.mkdir(mode=0o700)
        os.chown(folder, account.pw_uid, account.pw_gid)


def _forget_crun(user: str) -> None:
    """Remove what crun keeps for a user, on each node of the rig by itself."""
    for folder in Path("/tmp").glob(f"crun-{user}-*"):
        shutil.rmtree(folder)


def _box(cluster: SlurmCluster, images: Images, containers: ContainerRuntime) -> Iterator[Box]:
    folder = Path(tempfile.mkdtemp(prefix="yard-slurm-images-"))
    folder.chmod(0o711)
    with suppress(RuntimeError):
        # It is there already, for a test before.
        cluster.command("sacctmgr", "-i", "add", "user", images.account.pw_name, "account=root")
    rig = SlurmRig(folder, cluster, containers=containers)
    found = Box(rig, images, folder)
    yield found
    rig.close()
    wait = patience.Patience(LEFT_S_MAX)
    while (left := found.left()) and wait:
        time.sleep(0.1)
    shutil.rmtree(FOLDER.format(images.account.pw_uid), ignore_errors=True)
    shutil.rmtree(folder)
    assert [] == left


def test_a_job_of_slurm_runs_in_its_image_as_its_user(box: Box) -> None:
    line = 'id -u; pwd; ls /; echo "$SLURM_JOB_ID:$NVIDIA_VISIBLE_DEVICES:$WORD"; echo made >made; exit 7'
    report, said = box.run(box.images.plain, "sh", "-c", line, gpus=(0, 1), env={"WORD": "of two"})

    lines = said.splitlines()
    assert (Outcome.FAILED, 7, "exit code 7") == (report.outcome, report.exit_code, report.why), said
    assert [str(box.images.account.pw_uid), str(box.work)] == lines[:2]
    assert "usr" not in lines
    assert lines[-1].endswith(":0,1:of two")
    assert lines[-1].partition(":")[0].isdigit()
    assert box.images.account.pw_uid == (box.work / "made").stat().st_uid

    key = f"y-{box.count}-1"
    for _ in ("before and", "after it is forgotten"):
        used = box.rig.engine.usage(key).image
        assert used is not None
        assert (box.images.plain, "sha256:") == (used.image, used.digest[:7])
        assert 0 < (used.pull_ms or 0) <= (used.start_ms or 0) <= (used.line_ms or 0) <= 60_000, used
        box.rig.engine.forget(EPOCH, [key])

    pulls = box.images.open.pulls()
    report, said = box.run(box.images.plain, script="#!/bin/busybox sh\necho script $1\n", argv=("x",))
    assert (Outcome.COMPLETED, "script x\n") == (report.outcome, said), report
    assert pulls == box.images.open.pulls(), "an image is pulled once"
    used = box.rig.engine.usage(f"y-{box.count}-1").image
    assert (None, True) == (used and used.pull_ms, bool(used and used.start_ms))


def test_an_image_that_cannot_be_had_on_slurm_says_why(box: Box) -> None:
    silent = box.images.silent.name
    for image, pull, says, for_good in (
        (f"{box.images.open.name}/team/none:1", "missing", "has no such image", True),
        ("127.0.0.1:1/team/plain:1", "missing", "127.0.0.1:1 does not answer", False),
        (box.images.private, "missing", "refuses it; where it is private, log in as", True),
        (
            box.images.plain.replace(":1", ":2"),
            "never",
            "is not on this node, and is never to be pulled",
            False,
        ),
    ):
        report, _ = box.run(image, "true", pull=pull)
        assert (Outcome.FAILED, 125, for_good) == (report.outcome, report.exit_code, report.for_good), report
        assert says in report.why

    key = box.start(f"{silent}/team/plain:1", "true")
    box.until(lambda: box.images.silent.calls)
    box.rig.engine.stop(EPOCH, [StopRequest(key, Outcome.CANCELLED, 30_000)])
    report = ended(box.rig, key)
    assert Outcome.CANCELLED == report.outcome


def test_slurm_itself_may_cancel_a_job_during_the_pull_and_credentials_open_a_registry(box: Box) -> None:
    calls = len(box.images.silent.calls)
    key = box.start(f"{box.images.silent.name}/team/plain:1", "true")
    box.until(lambda: len(box.images.silent.calls) > calls)
    (line,) = box.rig.live_jobs()
    box.rig.cluster.command("scancel", line.split()[0])
    report = ended(box.rig, key)
    assert Outcome.CANCELLED == report.outcome, report

    box.images.login.write_text(box.images.closed.credentials())
    try:
        report, said = box.run(box.images.private, "echo", "private")
    finally:
        box.images.login.unlink()
    assert (Outcome.COMPLETED, "private\n") == (report.outcome, said), report


def test_a_shell_beside_a_job_of_slurm_is_inside_its_container(box: Box) -> None:
    key = box.start(box.images.plain, "sh", "-c", "echo up; exec sleep 1000")
    box.until(lambda: "up" in box.log(key))
    asked = {"do": "shell", "argv": ["busybox", "sh", "-c", "id -u; ls /bin; tty; exit 5"]}
    shown, how = Visit(box.rig, key, **asked).end()
    assert {"code": 5} == how, look(box.rig, key)
    assert [str(box.images.account.pw_uid), "busybox", "/dev/pts/0"] == shown.split()
    box.rig.engine.stop(EPOCH, [StopRequest(key, Outcome.CANCELLED, 1_000)])
    assert Outcome.CANCELLED == ended(box.rig, key).outcome


def test_a_gang_over_nodes_of_slurm_has_a_container_on_each(box: Box) -> None:
    line = 'echo "$RANK of $WORLD_SIZE on $YARD_NODE: $(id -u) $NVIDIA_VISIBLE_DEVICES $(ls /bin)"; exit $((5 * RANK))'
    report, said = box.run(box.images.plain, "sh", "-c", line, nodes=("n1", "n2"))
    assert (Outcome.FAILED, 5, "task 1 exit code 5") == (report.outcome, report.exit_code, report.why), said
    own = sorted([each for each in said.splitlines() if " on n" in each])
    uid = box.images.account.pw_uid
    assert [f"{rank} of 2 on n{rank + 1}: {uid} 0 busybox" for rank in (0, 1)] == own, said

    report, _ = box.run(f"{box.images.open.name}/team/none:1", "true", nodes=("n1", "n2"))
    assert (Outcome.FAILED, 125, True) == (report.outcome, report.exit_code, report.for_good), report
    assert "has no such image" in report.why

    calls = len(box.images.silent.calls)
    key = box.start(f"{box.images.silent.name}/team/plain:1", "true", nodes=("n1", "n2"))
    box.until(lambda: len(box.images.silent.calls) > calls)
    box.rig.engine.stop(EPOCH, [StopRequest(key, Outcome.CANCELLED, 30_000)])
    assert Outcome.CANCELLED == ended(box.rig, key).outcome
    box.until(lambda: not box.left())


def test_a_script_runs_a_bundle_by_slurms_own_support_of_containers(box: Box) -> None:
    """`srun --container` in a job of the yard: Slurm has crun run the bundle, as the job's user."""
    bundle, account = box.work / "bundle", box.images.account
    _prepare_crun(box.rig.cluster, account)
    for name in ("bin", "dev", "mine", "proc"):
        (bundle / "rootfs" / name).mkdir(parents=True)
    shutil.copy(BUSYBOX, bundle / "rootfs" / "bin" / "busybox")
    ids = {
        f"{kind}Mappings": [{"containerID": number, "hostID": number, "size": 1}]
        for kind, number in (("uid", account.pw_uid), ("gid", account.pw_gid))
    }
    config = {
        "ociVersion": "1.0.0",
        "root": {"path": "rootfs"},
        "process": {
            "user": {"uid": account.pw_uid, "gid": account.pw_gid},
            "args": ["/bin/busybox", "true"],
            "env": ["KIND=file"],
            "cwd": "/",
        },
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/mine", "source": str(box.work), "options": ["rbind"]},
        ],
        "linux": {"namespaces": [{"type": kind} for kind in ("pid", "mount", "user")], **ids},
    }
    (bundle / "config.json").write_text(json.dumps(config))
    subprocess.run(["chown", "-R", f"{account.pw_name}:", str(bundle)], check=True)
    # Slurm puts the environment of the step in the place of the file's.
    inside = "/bin/busybox id -u; /bin/busybox ls /; echo $KIND; echo made >/mine/made; exit 6"
    script = f"#!/bin/sh\nsrun --container={bundle} /bin/busybox sh -c '{inside}'\n"
    report, said = box.run("", script=script, containers=(), env={"KIND": "step"})

    assert (Outcome.FAILED, 6) == (report.outcome, report.exit_code), (report, said)
    own = [line for line in said.splitlines() if not line.startswith("srun:")]
    assert [str(account.pw_uid), "bin", "dev", "mine", "proc", "step"] == own, said
    assert account.pw_uid == (box.work / "made").stat().st_uid

    script = (
        f"#!/bin/sh\nsrun --container={bundle} /bin/busybox sh -c 'echo up; exec /bin/busybox sleep 900'\n"
    )
    key = box.start("", script=script, containers=())
    box.until(lambda: "up" in box.log(key))
    box.rig.engine.stop(EPOCH, [StopRequest(key, Outcome.CANCELLED, 1_000)])
    assert Outcome.CANCELLED == ended(box.rig, key).outcome
    box.until(lambda: not box.images.processes())
    _forget_crun(account.pw_name)


def test_slurm_itself_runs_a_job_in_its_image(bundled: Box) -> None:
    box, uid = bundled, bundled.images.account.pw_uid
    line = (
        'id -u; pwd; ls /; echo "$SLURM_JOB_ID:$CUDA_VISIBLE_DEVICES:$NVIDIA_VISIBLE_DEVICES:$WORD"; '
        # It lasts for a look: of a job that is over sooner nobody knows when its container began.
        "echo over >/bin/own; busybox ls /bin; echo made >made; sleep 2; exit 7"
    )
    report, said = box.run(
        box.images.plain, "sh", "-c", line, gpus=(0, 1), env={"WORD": "of two", "LD_OWN": "a b"}
    )
    lines = said.splitlines()
    assert (Outcome.FAILED, 7, "exit code 7") == (report.outcome, report.exit_code, report.why), said
    assert [str(uid), str(box.work)] == lines[:2], said
    assert "usr" not in lines
    assert lines[-3].endswith(":0,1:0,1:of two"), said
    assert ["busybox", "own"] == lines[-2:]
    assert uid == (box.work / "made").stat().st_uid

    used = box.rig.engine.usage(f"y-{box.count}-1").image
    assert used is not None
    assert (box.images.plain, "sha256:") == (used.image, used.digest[:7])
    assert 0 < (used.pull_ms or 0) <= (used.start_ms or 0) <= (used.line_ms or 0) <= 60_000, used

    pulls = box.images.open.pulls()
    # It lasts for a look, too.
    script = "#!/bin/busybox sh\n/bin/busybox ls /bin; echo script $1; /bin/busybox sleep 2\n"
    report, said = box.run(box.images.plain, script=script, argv=("x",))
    assert (Outcome.COMPLETED, "busybox\nscript x\n") == (report.outcome, said), (
        "another job's file is not there"
    )
    assert pulls == box.images.open.pulls(), "an image is pulled once"
    used = box.rig.engine.usage(f"y-{box.count}-1").image
    assert (None, True) == (used and used.pull_ms, bool(used and used.start_ms)), "and unpacked once"

    report, said = box.run(box.images.plain)
    assert (Outcome.COMPLETED, "hello from the image\n") == (report.outcome, said), "the image's own program"
    report, said = box.run(f"{box.images.open.name}/team/none:1", "true")
    assert (Outcome.FAILED, 125) == (report.outcome, report.exit_code), report
    assert "has no such image" in report.why
    report, said = box.run(
        box.images.plain, "x", containers=(Container(box.images.plain, entrypoint=("/none",)),)
    )
    assert Outcome.FAILED == report.outcome
    assert "could not be started" in report.why or "is not in image" in report.why, (report, said)


def test_a_container_that_slurm_runs_is_stopped_with_its_grace(bundled: Box) -> None:
    box = bundled
    saves = 'trap "echo saved; exit 3" TERM; echo up; while :; do busybox sleep 0.1; done'
    key = box.start(box.images.plain, "sh", "-c", saves)
    box.until(lambda: "up" in box.log(key))
    box.rig.engine.stop(EPOCH, [StopRequest(key, Outcome.CANCELLED, 20_000)])
    report = ended(box.rig, key)
    assert (Outcome.CANCELLED, "up\nsaved\n") == (report.outcome, box.log(key)), report

    # Its program has no environment, and so no mark of whose it is.
    bare = f"exec busybox env -i busybox sh -c '{saves}'"
    key = box.start(box.images.plain, "sh", "-c", bare)
    box.until(lambda: "up" in box.log(key))
    box.rig.engine.stop(EPOCH, [StopRequest(key, Outcome.CANCELLED, 20_000)])
    report = ended(box.rig, key)
    assert (Outcome.CANCELLED, "up\nsaved\n") == (report.outcome, box.log(key)), report

    key = box.start(
        box.images.plain, "sh", "-c", 'trap "" TERM; echo up; while :; do busybox sleep 0.1; done'
    )
    box.until(lambda: "up" in box.log(key))
    box.rig.engine.stop(EPOCH, [StopRequest(key, Outcome.CANCELLED, 500)])
    assert Outcome.CANCELLED == ended(box.rig, key).outcome
    assert [] == [line for line in box.images.processes() if "sleep 0.1" in line or "trap" in line]


@pytest.mark.soak  # Now and then crun 1.8 "cannot create state directory" where two begin at the same moment.
def test_a_gang_in_an_image_has_a_container_of_slurm_on_each_node(bundled: Box) -> None:
    box, uid = bundled, bundled.images.account.pw_uid
    line = 'echo "$RANK of $WORLD_SIZE on $YARD_NODE: $(busybox id -u) $NVIDIA_VISIBLE_DEVICES"; exit $((5 * RANK))'
    report, said = box.run(box.images.plain, "sh", "-c", line, nodes=("n1", "n2"))
    assert (Outcome.FAILED, 5, "task 1 exit code 5") == (report.outcome, report.exit_code, report.why), said
    own = sorted([each for each in said.splitlines() if " on n" in each])
    assert [f"{rank} of 2 on n{rank + 1}: {uid} 0" for rank in (0, 1)] == own, said


@pytest.mark.soak
def test_a_container_that_slurm_runs_outlives_slurmctld(bundled: Box) -> None:
    box = bundled
    waits = "echo up; while ! [ -e go ]; do busybox sleep 0.1; done; exit 4"
    key = box.start(box.images.plain, "sh", "-c", waits)
    box.until(lambda: "up" in box.log(key))
    # What is running has to be in Slurm's memory for it to be there afterwards.
    time.sleep(6)
    os.kill(box.rig.cluster.pid("slurmctld"), signal.SIGKILL)
    box.rig.cluster.end("slurmctld")
    try:
        (box.work / "go").touch()
        report = ended(box.rig, key)
        assert (Outcome.FAILED, 4) == (report.outcome, report.exit_code), report
    finally:
        box.rig.cluster.start("slurmctld")
    # Slurm still takes it for running, as nobody could tell it the end.
    box.until(lambda: box.rig.engine.nodes() and not box.rig.live_jobs())
