"""A placement in a package of its own: found by its entry point, named in yard.yaml, used, with nothing changed in src.

The compiled build runs this file too (`tests/golden/test_compiled.py`).
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import gpuyard
from gpuyard.errors import YardError
from gpuyard.model import PolicySpec
from gpuyard.policies.registry import build

PLACEMENT = """
'''`emptiest`: the node with the most free GPUs, so that jobs keep out of each other's way.'''
from gpuyard.core.fleet.bits import each
from gpuyard.core.fleet.placing import grant_tasks, placer, share_best_fit

def whole(nodes, shape, way, among):
    able = [n for n in each(nodes.kinds[way.kind].members & among)
            if not nodes.closed[n] and nodes.free_mask[n].bit_count() >= shape.gpus]
    if not able:
        return None
    emptiest = max(able, key=lambda n: (nodes.free_mask[n].bit_count(), -n))
    return (grant_tasks(nodes, shape, emptiest, 1),)

place = placer(whole, share_best_fit)
"""

YARD = """\
version: 1
clusters: {lab: {engine: local, pools: {big: {nodes: 1, gpus: 8 x H100, cpus: 96, memory: 1T}}}}
policy: mine
policies: {mine: {order: [fifo], placement: PLACEMENT}}
"""

PROGRAM = """
import json, sys
import gpuyard
from gpuyard.config.reading import loads
from gpuyard.testing import Yard, nodes

settings = loads(open(sys.argv[1]).read()).settings
yard = Yard(settings.policy, nodes(3, gpus=8))
first, second, third, wide = [yard.submit(gpus) for gpus in (2, 2, 1, 8)]
yard.step()
placed = [[grant.node for grant in yard.state.jobs[job].grants] for job in (first, second, third, wide)]
print(json.dumps([gpuyard.compiled(), placed]))
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """The folder of an installed package."""
    (tmp_path / "emptiest.py").write_text(PLACEMENT, encoding="utf-8")
    info = tmp_path / "emptiest-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: emptiest\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[gpuyard.placements]\nemptiest = emptiest\n")
    return tmp_path


def python(*arguments: str | Path, package: Path | None = None) -> subprocess.CompletedProcess[str]:
    paths = [str(package)] if package else []
    before = os.environ.get("PYTHONPATH")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([*paths, *([before] if before else [])])}
    return subprocess.run([sys.executable, *arguments], env=env, capture_output=True, text=True, check=False)


def test_a_placement_of_a_package_places_jobs(package: Path) -> None:
    decided = {}
    for name in ("emptiest", "best-fit"):
        file = package / f"{name}.yaml"
        file.write_text(YARD.replace("PLACEMENT", name), encoding="utf-8")
        ran = python("-c", PROGRAM, file, package=package)
        assert 0 == ran.returncode, ran.stderr
        compiled, decided[name] = json.loads(ran.stdout)
        assert gpuyard.compiled() == compiled

    assert [[0], [1], [2], []] == decided["emptiest"]
    assert [[0], [0], [0], [1]] == decided["best-fit"]


def test_a_placement_that_is_not_installed_is_refused(package: Path) -> None:
    file = package / "yard.yaml"
    file.write_text(YARD.replace("PLACEMENT", "emptiest"), encoding="utf-8")
    assert 0 == python("-m", "gpuyard.cli", "validate", file, package=package).returncode

    refused = python("-m", "gpuyard.cli", "validate", file)
    assert 2 == refused.returncode
    assert "unknown placement 'emptiest'" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_package_that_cannot_be_loaded_is_named(package: Path) -> None:
    (package / "emptiest.py").write_text("place = nothing\n", encoding="utf-8")
    file = package / "yard.yaml"
    file.write_text(YARD.replace("PLACEMENT", "emptiest"), encoding="utf-8")

    refused = python("-m", "gpuyard.cli", "validate", file, package=package)
    assert 0 != refused.returncode
    assert "the placement emptiest (emptiest) cannot be loaded" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_policy_whose_package_was_removed_says_what_is_missing() -> None:
    with pytest.raises(YardError, match="policy 'mine' has the placement 'emptiest', which is not installed"):
        build(PolicySpec("mine", placement="emptiest"))
