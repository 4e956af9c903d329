"""An engine in a package of its own runs jobs beside `local`, and nothing in `src` knows it.

`tests/contract/test_other_engine.py` holds it to the contract.
"""

import os
from pathlib import Path

import pytest

from e2e.conftest import Box
from gpuyard.config.reading import loads
from gpuyard.control.fleet import choose_fleet
from gpuyard.engines.registry import EngineKind, register, unregister
from gpuyard.keys.problems import ConfigError
from rigs.boxes import found, install

FILE = """
version: 1
clusters:
  here: {gpus: 2 x A100-80GB, emulate: true}
  there: {engine: boxes, boxes: {nodes: 2, gpus: 4}}
"""
JOB = "#!/bin/sh\necho $SLURM_CLUSTER_NAME $SLURMD_NODENAME >>%s/$SLURM_JOB_ID\n%s\n"


@pytest.mark.rig  # It needs no server, but takes long.
def test_its_jobs_run_beside_those_of_local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    effects, package = tmp_path / "effects", tmp_path / "site"
    effects.mkdir()
    package.mkdir()
    already = [path for path in (os.environ.get("PYTHONPATH"),) if path]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(install(package)), *already]))
    box = Box(tmp_path / "data", FILE)
    said = box("validate", box.config).out.splitlines()
    assert "ok — 0 tenants, 2 emulated GPUs and the GPUs of boxes, policy default" in said[0]
    runs = said[2]
    assert "up: yes, here: jobs run on this machine: 2 x A100-80GB emulated; there: jobs run in boxes" == runs
    box.up()
    try:
        (tmp_path / "job.sh").write_text(JOB % (effects, "sleep 3"))
        jobs = [box.submit("-g", 2, tmp_path / "job.sh") for _ in range(8)]
        for job_id in jobs:
            box.wait(job_id, "COMPLETED")
        wrote = {int(path.name): path.read_text().splitlines() for path in effects.iterdir()}
        assert jobs == sorted(wrote)
        assert [1] * 8 == [len(lines) for lines in wrote.values()]
        assert {"here", "there"} == {line.split()[0] for lines in wrote.values() for line in lines}
        # They run until they have been listed.
        listed = tmp_path / "listed"
        (tmp_path / "long.sh").write_text(JOB % (effects, f"until test -e {listed}; do sleep 0.1; done"))
        named = [box.submit("-g", 2, "--cluster", "there", tmp_path / "long.sh") for _ in range(3)]
        there, here = [
            box("queue", "--cluster", name, "-o", "csv", "--columns", "id").out.split()[1:]
            for name in ("there", "here")
        ]
        assert [str(job_id) for job_id in named] == there
        assert [] == here
        listed.touch()
        nowhere = box("queue", "--cluster", "nowhere")
        assert (True, True) == (nowhere.code > 0, "there is no cluster 'nowhere'" in nowhere.err)
        for job_id in named:
            assert ["there"] == box.wait(job_id, "COMPLETED")["clusters"]
        assert ["there"] * 3 == [(effects / str(job_id)).read_text().split()[0] for job_id in named]
        unknown = box("submit", "-g", 2, "--cluster", "nowhere", "--", "true")
        assert (2, True) == (unknown.code, "unknown cluster 'nowhere'" in unknown.err)
        shown = box("nodes", "--cluster", "there", "-o", "csv", "--columns", "name,cluster").out.split()
        assert ["name,cluster", "box-0,there", "box-1,there"] == shown
        assert 2 == box("nodes", "--cluster", "nowhere").code
    finally:
        box("down")


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (
            "gpus: many",
            "yard.yaml:5:50: 'gpus' of 'boxes' of cluster 'there' must be a whole number, not 'many'",
        ),
        ("gpu: 4", "yard.yaml:5:44: unknown key 'gpu' in 'boxes' of cluster 'there'; did you mean 'gpus'?"),
    ],
)
def test_a_wrong_key_is_found_in_its_line(tmp_path: Path, wrong: str, text: str) -> None:
    with found(install(tmp_path)), pytest.raises(ConfigError) as refused:
        loads(FILE.replace("gpus: 4", wrong))
    assert text == str(refused.value)


def test_an_engine_that_is_registered_is_offered_too() -> None:
    register(EngineKind("toy", lambda _keys, _context: pytest.fail("nothing is built here")))
    try:
        fleet = choose_fleet(loads("version: 1\nclusters: {one: {engine: toy}}\n"), "")
        assert "jobs are handed to toy" == fleet.words()
        with pytest.raises(ConfigError, match="engine toy has no keys"):
            loads("version: 1\nclusters: {one: {engine: toy, toy: {a: 1}}}\n")
    finally:
        unregister("toy")
    with pytest.raises(ConfigError, match="unknown engine 'toy'"):
        loads("version: 1\nclusters: {one: {engine: toy}}\n")
