"""A hostile job of an ordinary user gets at nothing that belongs to another job; on devices of emulated GPUs."""

import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from contract.rigs import EPOCH, LocalRig, ended, launch, pids_of, until
from gpuyard.engines.contract import Answer, Part, Permanent, Phase, Recipe, StopRequest
from gpuyard.engines.local.engine import LocalEngine
from gpuyard.engines.local.fencing import MAJOR_GPU, MAJOR_SLICE, MEANS, V1, V2, minor_of
from gpuyard.engines.local.hosts import EmulatedGpus, ThisMachine
from gpuyard.engines.machine.launches import UnixAccount
from gpuyard.model import Outcome
from gpuyard.model.mig import Slice
from rigs import hostile
from rigs.others import OTHER, THIRD, needs_root

pytestmark = needs_root

SECRET = f"yard-secret-{os.getpid()}"
VICTIM = f"""#!/bin/sh
umask 000
for place in /tmp /var/tmp /dev/shm; do echo secret >$place/{SECRET}; done
echo ready $CUDA_VISIBLE_DEVICES
sleep 60
"""
SECRETS = [Path(place, SECRET) for place in ("/tmp", "/var/tmp", "/dev/shm")]
OWN = [Path(place, f"{SECRET}-mine") for place in ("/tmp", "/dev/shm")]


OWN_SLICE, OTHERS_SLICE = Slice(0, "3g.40gb", 0), Slice(0, "3g.40gb", 4)
"""Halves of one GPU."""


@dataclass
class Yard:
    """An engine that two users have jobs on: one minds its own business, the other does not."""

    rig: LocalRig
    cut: bool = False
    """Each of them has a slice of GPU 0; else GPU 0 is the hostile job's and GPU 1 the other's."""

    def start(self, key: str, job_id: int, recipe: Recipe, gpus: tuple[int, ...], *slices: Slice) -> None:
        self.rig.keys.add(key)
        whole = launch(self.rig, key, recipe=recipe, job_id=job_id, gpus=gpus)
        part = Part(self.rig.node, (0,), 428, 1000, 64, 1, slices)
        (reply,) = self.rig.engine.start(EPOCH, [replace(whole, parts=(part,)) if slices else whole])
        assert Answer.DONE is reply.answer, reply.why

    def output(self, key: str) -> str:
        return self.rig.engine.log(key, "stdout", "", 100_000).content.decode()

    def other(self) -> str:
        """What the other user's job calls its GPU or its slice."""
        return self.output("y-2-1").split()[1]

    def layer(self) -> Path:
        """A layer of the other user's images that anybody could read who came so far."""
        layer = self.rig.data / "images" / str(THIRD) / "layer" / "weights"
        if not layer.exists():
            self.rig.engine._images._make(
                str(layer.parents[1]), UnixAccount(THIRD, THIRD, str(THIRD), "/", "/bin/sh")
            )
            layer.parent.mkdir(mode=0o755)
            layer.write_text("secret")
            layer.chmod(0o644)
        return layer

    def victim(self) -> int:
        """A job of another user, with something in every place that is to be its own; one of its processes."""
        self.layer()
        recipe = Recipe(script=VICTIM, uid=THIRD, gid=THIRD, user=str(THIRD), env={"SECRET": "secret"})
        self.start("y-2-1", 2, recipe, (1,), *[OTHERS_SLICE][: self.cut])
        until(self.rig, "y-2-1", Phase.RUNNING)
        while "ready" not in self.output("y-2-1"):
            self.rig.let_pass(10)
        return pids_of(self.rig.data, "y-2-1")[0]

    @property
    def number(self) -> tuple[int, int]:
        """Major and minor number of the other's device."""
        return MAJOR_SLICE if self.cut else MAJOR_GPU, minor_of(self.other())

    def hostile(self, pid: int, gpus: tuple[int, ...] = (0,)) -> dict[str, Any]:
        """What a job of another user meets that wants all that the victim has."""
        device = f"{self.rig.data}/devices/{self.other()}"
        tmp = f"{self.rig.data}/attempts/y-2-1/private"
        program = f"#!/usr/bin/env python3\n{Path(hostile.__file__).read_text()}"
        words = (device, str(pid), tmp, SECRET, *map(str, self.number), str(self.layer()))
        recipe = Recipe(script=program, argv=words, uid=OTHER, gid=OTHER, user=str(OTHER))
        self.start("y-1-1", 1, recipe, gpus, *[OWN_SLICE][: self.cut])
        report = ended(self.rig, "y-1-1")
        assert Outcome.COMPLETED is report.outcome, (report, self.output("y-1-1"))
        found: dict[str, Any] = json.loads(self.output("y-1-1"))
        return found

    def told(self, kind: str) -> str:
        """What `yard doctor` says of a kind of request."""
        return next(each.by for each in self.rig.engine.protections() if each.kind == kind)

    def own(self, given: str) -> list[str]:
        """The devices that the hostile job is to have: a slice is reached through its GPU."""
        gpu = self.rig.engine._hosts()[self.rig.node].readings[0].uuid
        return sorted({gpu, given})

    def end(self) -> None:
        if "y-2-1" not in self.rig.keys:
            return
        self.rig.engine.stop(EPOCH, [StopRequest("y-2-1", Outcome.CANCELLED, 0)])
        ended(self.rig, "y-2-1")


@contextmanager
def opened(means: tuple[str, ...], *, use_cgroups: bool = True, cut: bool = False) -> Iterator[Yard]:
    """A yard whose folder every user may pass through, with these means to fence jobs."""
    folder = Path(tempfile.mkdtemp(prefix="yard-contract-"))
    folder.chmod(0o711)
    made = Yard(LocalRig(folder, fence_by=means, use_cgroups=use_cgroups), cut)
    try:
        yield made
    finally:
        made.end()
        made.rig.close()
        shutil.rmtree(folder)
        for path in [*SECRETS, *OWN]:
            path.unlink(missing_ok=True)


CUT = pytest.mark.parametrize("cut", [False, True], ids=["whole GPUs", "slices of one GPU"])


@CUT
@pytest.mark.parametrize("use_cgroups", [True, False], ids=["with cgroups", "by the view alone"])
def test_a_hostile_job_gets_at_nothing_of_anothers(use_cgroups: bool, cut: bool) -> None:
    with opened(MEANS, use_cgroups=use_cgroups, cut=cut) as yard:
        assert_nothing_is_reached(yard)


def assert_nothing_is_reached(yard: Yard) -> None:
    found = yard.hostile(yard.victim())
    own = yard.own(found.pop("given"))

    assert (own, ["open"] * len(own)) == (found.pop("own"), found.pop("own opens")), "its own are there"
    assert ("open", "open") == (found.pop("own tmp"), found.pop("own shm"))
    assert 0 == found.pop("others"), "processes of others that it sees"
    inside = found.pop("namespace")
    assert "open" == inside.pop("unshare"), "where a user may make a namespace, the tries in it count"
    assert {} == {name: met for name, met in (found | inside).items() if met == "open"}
    assert [] == [path for path in SECRETS if path.exists()]
    folders = [yard.rig.data / "attempts" / key / "private" for key in ("y-1-1", "y-2-1")]
    assert [False, True] == [folder.exists() for folder in folders], "a job's own /tmp goes with it"
    assert [] == [path for path in OWN if path.exists()]


@CUT
@pytest.mark.parametrize("means", [V1, V2])
def test_the_kernel_refuses_devices_of_others_that_a_job_sees(means: str, cut: bool) -> None:
    """Where a job comes by the name of another's device, it is refused all the same; its own is not."""
    with opened((means,), cut=cut) as yard:
        if yard.rig.engine._fencing.refuses != means:
            pytest.skip(f"this machine has no cgroup {means} that refuses devices")
        found = yard.hostile(yard.victim())
        met = dict(zip(found["own"], found["own opens"], strict=True))
        own, other = yard.own(found["given"]), yard.other()

        assert {**dict.fromkeys(own, "open"), other: "EPERM"} == {name: met[name] for name in [*own, other]}
        assert ("EPERM", "EPERM") == (found["device"], found["namespace"]["device"])
        layers = {name: each for name, each in {**found, **found["namespace"]}.items() if "layer" in name}
        assert {} == {name: each for name, each in layers.items() if each == "open"}
        assert "open" == found["tmp"], "the rest is left to the view"
        assert "the kernel refuses other devices" in yard.told("slice" if cut else "whole GPU")


def test_the_doctor_names_the_kernel_only_where_it_refuses_devices_to_jobs() -> None:
    """No driver is behind an emulated GPU, so one that is out of view is not refused besides."""
    with opened(MEANS) as yard:
        assert ["other GPUs are not in the job's view of the file system; a job of root can undo it"] * 2 == [
            yard.told("whole GPU"), yard.told("slice"),
        ]  # fmt: skip


def test_a_job_without_gpus_sees_none() -> None:
    with opened(MEANS) as yard:
        assert [] == yard.hostile(yard.victim(), gpus=())["own"]


@CUT
def test_without_a_fence_the_same_job_gets_at_devices_tmp_shm_and_commands(cut: bool) -> None:
    """So that the tries of the hostile job are known to be good ones. The fence of a store is its mode."""
    with opened((), cut=cut) as yard:
        pid = yard.victim()
        device = yard.rig.data / "devices" / yard.other()
        device.parent.mkdir(mode=0o755)
        os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(*yard.number))
        os.chmod(device, 0o666)
        yard.layer().parents[1].chmod(0o755)
        found = yard.hostile(pid)
        reached = {name for name, met in found.items() if met == "open"}

        assert {
            "device", "tmp", "var tmp", "shm", "command", "own tmp", "own shm", "layers", "layer",
        } == reached  # fmt: skip
        assert found["others"] > 0
        inside = {name for name, met in found["namespace"].items() if met == "open"}
        assert {"device", "layer", "bind layers"} <= inside


def test_a_strict_engine_does_not_start_where_nothing_is_enforced(tmp_path: Path) -> None:
    nodes = ThisMachine("n", emulate=EmulatedGpus(2, "H200"))
    with pytest.raises(
        Permanent, match=r"this machine cannot enforce it .*memory: .*cgroups are switched off"
    ):
        LocalEngine(tmp_path / "a", nodes=nodes, use_cgroups=False, strict=True)
    with pytest.raises(Permanent, match="whole GPU: fences are switched off"):
        LocalEngine(tmp_path / "b", nodes=nodes, fence_by=(), strict=True)
