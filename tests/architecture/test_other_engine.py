"""An engine in a package of its own: nothing in `src` knows it. It keeps the contract and runs jobs beside `local`."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from contract.rigs import LocalRig
from contract.test_promises import *  # noqa: F403 (the contract suite, run on the rig of this module)
from e2e.conftest import Box
from gpuyard.config.problems import ConfigError
from gpuyard.config.reading import loads
from gpuyard.control.fleet import chosen
from gpuyard.engines.local.engine import LocalEngine
from gpuyard.engines.registry import Context, EngineKind, kinds, register, unregister

PACKAGE = '''
"""Boxes: nodes of one kind, as many as a file says, whose jobs are processes of this machine."""

from gpuyard.config.fields import Count, Entry, key
from gpuyard.engines.contract import Engine
from gpuyard.engines.local.engine import LocalEngine
from gpuyard.engines.local.hosts import Pretended
from gpuyard.engines.local.engine import LocalEngine
from gpuyard.engines.registry import Context, EngineKind
from gpuyard.model import Node


class Keys(Entry):
    """What a cluster of boxes has below `boxes:`."""

    nodes: Count | None = key("How many boxes there are.", default=1)
    gpus: Count | None = key("GPUs of a box.", default=4)


def build(keys: Keys, context: Context) -> Engine:
    nodes = [
        Node(f"box-{i}", context.cluster, "boxes", "A100-80GB", keys.gpus or 4, 64_000, 500_000)
        for i in range(keys.nodes or 1)
    ]
    return LocalEngine(context.folder, nodes=Pretended(tuple(nodes)), yard=context.yard)


BOXES = EngineKind("boxes", build, Keys, words="jobs run in boxes")
'''
FILE = """
version: 1
clusters:
  here: {gpus: 2 x A100-80GB, emulate: true}
  there: {engine: boxes, boxes: {nodes: 2, gpus: 4}}
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package as `pip` would have installed it, with an entry point."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "boxes_engine.py").write_text(PACKAGE)
    told = folder / "boxes_engine-1.0.dist-info"
    told.mkdir()
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: boxes-engine\nVersion: 1.0\n")
    (told / "entry_points.txt").write_text("[gpuyard.engines]\nboxes = boxes_engine:BOXES\n")
    return folder


@pytest.fixture
def boxes(package: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EngineKind]:
    monkeypatch.syspath_prepend(package)
    yield kinds()["boxes"]
    sys.modules.pop("boxes_engine", None)


class BoxesRig(LocalRig):
    """As for the local engine: jobs are processes of this machine."""

    def __init__(self, folder: Path, kind: EngineKind) -> None:
        self.kind = kind
        super().__init__(folder)

    def reopen(self, **options: object) -> LocalEngine:
        assert self.kind.keys is not None
        keys = self.kind.keys.model_validate({"nodes": "2", "gpus": "8"})
        engine = self.kind.build(keys, Context("there", self.data, self.data.parent))
        self.engines.append(engine)  # type: ignore[arg-type]
        return engine  # type: ignore[return-value]


@pytest.fixture
def rig(tmp_path: Path, boxes: EngineKind) -> Iterator[LocalRig]:
    made = BoxesRig(tmp_path, boxes)
    yield made
    made.close()


def test_its_jobs_run_beside_those_of_local(tmp_path: Path, package: Path) -> None:
    box = Box(tmp_path / "data", FILE)
    effects = tmp_path / "effects"
    effects.mkdir()
    said = box("validate", box.config, PYTHONPATH=str(package))
    assert (
        "up: yes, here: jobs run on this machine: 2 x A100-80GB emulated; there: jobs run in boxes"
        in said.out
    )
    os.environ["PYTHONPATH"] = str(package)
    try:
        box.up()
    finally:
        del os.environ["PYTHONPATH"]
    try:
        script = f"#!/bin/sh\necho $SLURM_CLUSTER_NAME $SLURMD_NODENAME >>{effects}/$SLURM_JOB_ID\nsleep 3\n"
        (tmp_path / "job.sh").write_text(script)
        jobs = [str(box.submit("-g", 2, tmp_path / "job.sh")) for _ in range(8)]
        for job_id in jobs:
            box.wait(job_id, "COMPLETED")
        wrote = {path.name: path.read_text().splitlines() for path in effects.iterdir()}
        assert sorted(jobs) == sorted(wrote)
        assert [1] * 8 == [len(lines) for lines in wrote.values()]
        assert {"here", "there"} == {line.split()[0] for lines in wrote.values() for line in lines}
    finally:
        box("down")


def test_a_wrong_key_is_found_in_its_line(boxes: EngineKind) -> None:
    with pytest.raises(ConfigError, match=r"'gpus' of 'boxes' of cluster 'there' is not valid") as wrong:
        loads(FILE.replace("gpus: 4", "gpus: many"))
    assert "5:" in str(wrong.value)


def test_an_engine_that_is_registered_is_offered_too() -> None:
    register(EngineKind("toy", lambda _keys, _context: pytest.fail("nothing is built here")))
    try:
        fleet = chosen(loads("version: 1\nclusters: {one: {engine: toy}}\n"), "")
        assert "jobs are handed to toy" == fleet.words()
        with pytest.raises(ConfigError, match="engine toy has no keys"):
            loads("version: 1\nclusters: {one: {engine: toy, toy: {a: 1}}}\n")
    finally:
        unregister("toy")
    with pytest.raises(ConfigError, match="unknown engine 'toy'"):
        loads("version: 1\nclusters: {one: {engine: toy}}\n")
