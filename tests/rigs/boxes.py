"""An engine in a package of its own, which nothing in `src` knows: boxes, whose jobs are processes of this machine."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from contract.rigs import LocalRig
from gpuyard.engines.local.engine import LocalEngine
from gpuyard.engines.registry import Context, EngineKind, kinds

PACKAGE = '''
"""Boxes: nodes of one kind, as many as a file says, whose jobs are processes of this machine."""

from gpuyard.keys.fields import Count, YamlMapping, key
from gpuyard.engines.contract import Engine
from gpuyard.engines.local.engine import LocalEngine
from gpuyard.engines.local.hosts import PretendedNodes
from gpuyard.engines.registry import Context, EngineKind
from gpuyard.model import Node


class Keys(YamlMapping):
    """What a cluster of boxes has below `boxes:`."""

    nodes: Count | None = key("How many boxes there are.", default=1)
    gpus: Count | None = key("GPUs of a box.", default=4)


def build(keys: Keys, context: Context) -> Engine:
    nodes = [
        Node(f"box-{i}", context.cluster, "boxes", "A100-80GB", keys.gpus or 4, 64_000, 500_000)
        for i in range(keys.nodes or 1)
    ]
    return LocalEngine(context.folder, nodes=PretendedNodes(tuple(nodes)), yard=context.yard)


BOXES = EngineKind("boxes", build, Keys, words="jobs run in boxes")
'''


def install(folder: Path) -> Path:
    """Write the package as `pip` would have installed it, with an entry point."""
    (folder / "boxes_engine.py").write_text(PACKAGE)
    told = folder / "boxes_engine-1.0.dist-info"
    told.mkdir()
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: boxes-engine\nVersion: 1.0\n")
    (told / "entry_points.txt").write_text("[gpuyard.engines]\nboxes = boxes_engine:BOXES\n")
    return folder


@contextmanager
def found(folder: Path) -> Iterator[EngineKind]:
    """The engine of the package in a folder, found as that of any installed package."""
    sys.path.insert(0, str(folder))
    try:
        yield kinds()["boxes"]
    finally:
        sys.path.remove(str(folder))
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
        assert isinstance(engine, LocalEngine)
        self.engines.append(engine)
        return engine
