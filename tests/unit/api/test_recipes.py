"""What a job runs, and with which variables, is its owner's and the administrators': arguments hold secrets."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from gpuyard.api.messages.schemas import JobRequest
from gpuyard.control.access.people import RunAs
from gpuyard.control.admission.admit import Admitted
from gpuyard.control.admission.entering import make_recipe_blob, make_spec
from gpuyard.control.admission.wanted import make_job
from gpuyard.control.views.request_again import rebuild_request
from gpuyard.wire.job_fields import JOB_FIELDS
from rigs.teams import ADMIN, Team, team


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    with team(tmp_path_factory.mktemp("recipes")) as made:
        yield made


def test_a_colleague_sees_the_job_and_not_what_is_in_it(yard: Team) -> None:
    job = yard.submit("ulla", command=["true", "--key", "s3cret"], env={"TOKEN": "s3cret"}, cwd="/tmp")
    for who, reads in (("ulla", True), ("tara", True), ("adam", True), ("carl", False), ("vera", False)):
        shown = yard.call("GET", f"/api/v1/jobs/{job}", yard.tokens[who])
        recipe = yard.call("GET", f"/api/v1/jobs/{job}/recipe", yard.tokens[who])
        assert 200 == shown.status
        assert {
            "run_s": 0,
            "gpu_hours": 0.0,
            "cost_usd": 0.0,
            "cpu_s": None,
            "memory_mib": None,
            "process_mib": None,
        } == shown.json["used"]
        assert (reads, reads) == (b"s3cret" in shown.body, b"s3cret" in recipe.body), who
        assert (200 if reads else 403) == recipe.status
        if reads:
            assert ["true", "--key", "s3cret"] == shown.json["files"]["command"]
            assert {"TOKEN": "s3cret"} == recipe.json["env"]


REQUESTS: list[dict[str, Any]] = [
    {
        "name": "again", "tenant": "research", "class": "batch", "script": "#!/bin/sh\necho $1\n", "command": ["a"],
        "gpus": 1, "gpu_milli": 250, "cpus": 1.5, "memory_mib": 2048, "time_limit_s": 600, "env": {"A": "1"},
        "cwd": "/tmp", "umask": 0o077, "stdout": "/tmp/out", "stderr": "/tmp/err", "open_mode": "append",
        "warn_signal": 10, "warn_s": 60, "warn_shell": True, "slurm_commands": True, "checkpoint_s": 60, "retries": 3,
        "requeue": False, "project": "vision", "labels": {"team": "a"},
    },
    {
        "name": "gang", "tenant": "research", "command": ["true"], "gpus": 1, "tasks": 4, "nodes_max": 1,
        "nodes_min": 1, "batch": True, "ranks": 8, "numa": "single", "array": "0,1,5",
        "array_limit": 2, "gpu_models": ["A100-80GB"],
    },
    {"name": "cores", "tenant": "research", "command": ["true"], "terminal": True, "cpus": 0.5},
    {"name": "whole", "tenant": "research", "command": ["true"], "gpus": 2, "exclusive": True},
    {"name": "memory", "tenant": "research", "command": ["true"], "gpu_memory_mib": 8192, "isolation": "shared"},
    {"name": "slices", "tenant": "research", "command": ["true"], "gpus": 1, "mig": "1g.10gb"},
    {"name": "placed", "tenant": "research", "command": ["true"], "gpus": 1, "on_nodes": ["NODE"]},
]  # fmt: skip


IN_AN_IMAGE: dict[str, Any] = {
    "name": "boxed", "tenant": "research", "command": ["python", "train.py"], "image": "docker.io/x/y:1",
    "entrypoint": ["/bin/sh"], "workdir": "/work", "volumes": ["/data:/mnt:ro", "scratch:/scratch"],
    "secrets": {"hf": "/home/ulla/.hf"}, "pull": "always", "gpus": 1, "constraint": "nvme&(rack1|rack2)",
    "select": ["zone in (a, b), !old | disks>4"], "prefer": ["80: zone=a"], "tolerate": ["gone for 5m", "*"],
    "containers": [{"image": "docker.io/x/z", "name": "first", "init": True, "command": ["true"]}],
    "clusters": ["here"], "pools": ["p1"], "not_nodes": ["n7"],
    "tasks": 2, "topology": {"level": "rack", "for_s": 60},
}  # fmt: skip
OF_ONE_SUBMISSION = {"begin_ms", "deadline_ms", "dependencies", "dependencies_any", "hold"}
"""What is not asked for again."""


def test_every_field_of_a_job_is_asked_for_again() -> None:
    tried = {name for each in [*REQUESTS, IN_AN_IMAGE] for name in each}
    known = {name for name, field in JOB_FIELDS.items() if field.wire}
    assert known == tried | OF_ONE_SUBMISSION


@pytest.mark.parametrize("asked", REQUESTS, ids=lambda asked: str(asked["name"]))
def test_a_job_tells_the_request_that_would_submit_it_again(yard: Team, asked: dict[str, Any]) -> None:
    node = yard.yard.replica.state.nodes.node[0].name
    first = {name: [node] if value == ["NODE"] else value for name, value in asked.items() if value != []}
    job = yard.submit("ulla", hold=True, **first)
    told = yard.call("GET", f"/api/v1/jobs/{job}/request", yard.tokens["ulla"]).json["request"]

    assert first == told
    second = yard.submit("ulla", hold=True, **told)
    assert told == yard.call("GET", f"/api/v1/jobs/{second}/request", yard.tokens["ulla"]).json["request"]
    for each in (job, second):
        yard.call("DELETE", f"/api/v1/jobs/{each}", yard.tokens["ulla"])


def test_a_job_in_an_image_tells_its_request_too() -> None:
    new = JobRequest(**IN_AN_IMAGE).new_job()
    wanted = new.wanted
    ask = wanted.ask_for(wanted.gpu_request)
    spec = make_spec(wanted, Admitted("research", "", ask, ""), ADMIN, ask, "", 0)

    assert IN_AN_IMAGE == rebuild_request(spec, 0, json.loads(make_recipe_blob(new, RunAs(0, 0, ""))))


@pytest.mark.parametrize("text", ["", *map(chr, range(1, 256)), "\u2028", "\ud800", "\U0001f600", '\\"/'])
def test_a_recipe_is_written_as_ever(text: str) -> None:
    """Its hash is its name: the same script of an earlier release is the same blob."""
    for new in (
        make_job(script=f"#!/bin/sh\n{text}\n"),
        make_job(command=(text,), script="#!", env={f"A{text}": "b", "B": text}),
    ):
        written = make_recipe_blob(new, RunAs(1000, 1 << 40, "ann"))
        assert json.dumps(json.loads(written), separators=(",", ":")).encode() == written
        found = json.loads(written)
        assert (new.recipe.script, list(new.recipe.argv), new.recipe.env) == (
            found["script"],
            found["argv"],
            found["env"],
        )


SCRIPT = """#!/bin/bash
#SBATCH --job-name=train --gpus=2 --time=1:00:00
#SBATCH --output=log-%j.txt
python3 train.py
"""


def read(yard: Team, text: str) -> Any:
    return yard.call("POST", "/api/v1/jobs/read", yard.tokens["ulla"], {"text": text, "cwd": "/home/ulla"})


def test_a_script_that_is_pasted_is_what_it_is_to_yard_submit_and_is_not_submitted(yard: Team) -> None:
    (found,) = read(yard, SCRIPT).json["jobs"]

    assert ("sbatch", 1, False) == (found["form"], found["line"], found["test_only"])
    wanted = found["request"]
    assert ("train", 2, 3600) == (wanted["name"], wanted["gpus"], wanted["time_limit_s"])
    assert ("/home/ulla", "log-%j.txt") == (wanted["cwd"], wanted["stdout"])
    assert "name: train" in found["yaml"]
    assert [] == yard.call("GET", "/api/v1/jobs?name=train", yard.tokens["adam"]).json["jobs"]
    tried = yard.call("POST", "/api/v1/jobs/dry-run", yard.tokens["ulla"], wanted)
    assert 200 == tried.status, tried.body


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gpus: two\ncommand: [a]", "pasted:1:"),
        ("#!/bin/sh\n#SBATCH --nodes=many\n", "pasted:2:"),
        ("just some words", "pasted:1:"),
        ("", "there is no job"),
        ("#!/bin/sh\n\0", "NUL"),
        ("---\n".join(["command: ['true']\n"] * 101), "101 jobs"),
    ],
)
def test_a_paste_that_is_no_job_is_refused_with_its_place(yard: Team, text: str, said: str) -> None:
    refused = read(yard, text)
    assert (422, True) == (refused.status, said in refused.json["detail"]), refused.body
