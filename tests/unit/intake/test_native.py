"""Native YAML: the fields of the wire, with lines in every message, and out again as the same job."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuyard.api.messages.schemas import JobRequest
from gpuyard.errors import BadInput
from gpuyard.intake import PROPOSED
from gpuyard.intake.native import read_native, write_native
from gpuyard.intake.native_fields import FIELDS
from gpuyard.model import AfterKind
from gpuyard.wire.job_fields import DEPENDENCY_KINDS, JOB_FIELDS

EVERYTHING = """\
name: train
tenant: research/ana
project: vision
labels:
  stage: eval
class: high
command:
  - --epochs
  - '3'
script: |
  #!/bin/bash
  python train.py
image: docker.io/library/python:3.12
entrypoint:
  - /bin/sh
workdir: /work
volumes:
  - /data:/mnt:ro
secrets:
  token: /home/ana/.token
pull: always
containers:
  - name: fetch
    image: busybox
    init: true
    entrypoint:
      - /bin/sh
    command:
      - -c
      - 'true'
    workdir: /work
    env:
      A: '1'
    volumes:
      - scratch:/scratch
gpus: 2
gpu_models:
  - H100
gpu_milli: 250
mig: 1g.10gb
gpu_memory_mib: 1024
isolation: strict
tasks: 4
nodes_min: 2
nodes_max: 2
ranks: 8
topology:
  level: switch
  required: true
  for_s: 600
numa: single
batch: true
cpus: 1.5
memory_mib: 1024
exclusive: true
pools:
  - a
clusters:
  - main
constraint: ib
select:
  - zone=a
prefer:
  - '80: disk=nvme'
tolerate:
  - debug
on_nodes:
  - n1
not_nodes:
  - n2
licenses:
  matlab: 1
time_limit_s: 60
begin_ms: 1
deadline_ms: 2
array: 0-9
array_limit: 4
dependencies:
  - kind: after
    job: '12_3'
    delay_s: 60
  - kind: singleton
dependencies_any: true
env:
  SEED: '7'
  EMPTY: ''
cwd: /data
stdout: a
stderr: b
open_mode: append
warn_signal: 10
warn_s: 60
warn_shell: true
slurm_commands: true
checkpoint_s: 600
retries: 2
requeue: false
hold: true
"""


def one(text: str) -> dict[str, Any]:
    (found,) = read_native(text, "job.yaml")
    return found.job


FROM_THE_SHELL_ALONE = {"umask", "terminal"}
"""Fields that come from the shell in which somebody submits, and that no file says."""


def test_the_fields_are_those_of_the_wire_and_the_proposed_ones() -> None:
    wire = {field.alias or name for name, field in JobRequest.model_fields.items()} - FROM_THE_SHELL_ALONE

    assert FIELDS.keys() == wire | PROPOSED.keys()
    assert {name for name, says in JOB_FIELDS.items() if says.wire} == wire | FROM_THE_SHELL_ALONE
    assert {name for name, says in JOB_FIELDS.items() if not says.wire} == PROPOSED.keys()
    assert not wire & PROPOSED.keys(), "the wire has it now: take it out of PROPOSED"


def test_the_bounds_are_those_of_the_wire() -> None:
    bounds = {}
    for name, schema in JobRequest.model_json_schema(by_alias=True)["properties"].items():
        (each,) = [part for part in schema.get("anyOf", [schema]) if part.get("type") != "null"]
        if "minimum" in each and name not in FROM_THE_SHELL_ALONE:
            bounds[name] = (each["minimum"], each["maximum"])

    assert bounds == {name: (FIELDS[name].least, FIELDS[name].most) for name in bounds}
    # `singleton` names no job, `aftercorr` the task beside: the scheduler has no kind of its own for that.
    assert {kind.value for kind in AfterKind} | {"aftercorr"} == set(DEPENDENCY_KINDS)


def test_every_field_goes_in_and_out() -> None:
    job = one(EVERYTHING)

    assert list(FIELDS) == list(job)
    assert EVERYTHING == write_native([job])


def test_the_wire_takes_the_job() -> None:
    # A job asks for GPUs in one way only, and a script takes the place of an entrypoint.
    left_out = {*PROPOSED, "gpu_milli", "mig", "gpu_memory_mib", "isolation", "entrypoint"}
    accepted = {name: value for name, value in one(EVERYTHING).items() if name not in left_out}

    assert JobRequest.model_validate(accepted).new_job().wanted.retries == 2


def test_a_file_may_hold_many() -> None:
    text = "command: [a]\n---\n# nothing\n---\ncommand: [b]\ngpus: 1\n...\n---\n{command: [c]}\n"
    found = read_native(text, "f")

    assert [(["a"], 1), (["b"], 5), (["c"], 9)] == [(each.job["command"], each.line) for each in found]
    assert [each.job for each in found] == [
        each.job for each in read_native(write_native([each.job for each in found]), "g")
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("command: [a]\ngpu: 1\n", "f:2:1: unknown field 'gpu'; did you mean 'gpus'"),
        ("command: [a]\ngpus: two\n", "f:2:7: 'gpus' must be a whole number, not 'two'"),
        ("command: [a]\ngpus: -1\n", "f:2:7: 'gpus' must be a whole number of at least 0"),
        ("command: [a]\ngpus: 1.5\n", "f:2:7: 'gpus' must be a whole number"),
        ("command: [a]\ngpus:\n", "'gpus' must be a whole number; it has no value"),
        ("command: [a]\ngpus: [1]\n", "f:2:7: 'gpus' must be a whole number, not a list"),
        ("command: [a]\nhold: yes\n", "f:2:7: 'hold' must be true or false"),
        ("command: a\n", "f:1:10: 'command' must be a list"),
        ("command: [a, [b]]\n", "f:1:14: 'command' must be a text, not a list"),
        ("command: [a]\ncpus: 0.0001\n", "f:2:7: 'cpus' "),
        ("command: [a]\nenv: [A]\n", "f:2:6: 'env' must be a mapping"),
        ("command: [a]\ngpus: 1\ngpus: 2\n", "f:3:1: duplicate key 'gpus'"),
        ("name: x\n", "f:1:1: there is nothing to run"),
        ("command: [a]\n---\ngpus: x\ncommand: [b]\n", "f:3:7: 'gpus' must be"),
        (
            "command: [a]\ndependencies: [{kind: afterward, job: 1}]\n",
            "f:2:16: 'dependencies' has an unknown kind",
        ),
        ("command: [a]\ndependencies: [{kind: afterok}]\n", "needs a 'job'"),
        (
            "command: [a]\ndependencies: [{kind: afterok, jobb: 1}]\n",
            "f:2:32: 'dependencies' has an unknown key 'jobb'",
        ),
        ("command: [a]\n---\n- b\n", "f:3:1: a job must be written as"),
        ("command: [a\n", "f:1:"),
    ],
)
def test_a_mistake_is_reported_with_its_place(text: str, says: str) -> None:
    with pytest.raises(BadInput) as refused:
        read_native(text, "f")

    assert says in refused.value.message


def test_every_mistake_of_every_job_is_reported_at_once() -> None:
    with pytest.raises(BadInput) as refused:
        read_native("command: [a]\ngpus: x\nholt: true\n---\ncommand: b\n", "f")

    assert ["f:2:7", "f:3:1", "f:5:10"] == [
        line.split(": ")[0] for line in refused.value.message.splitlines()
    ]


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=60)
LINES = st.lists(TEXT, max_size=5).map("\n".join)
JOBS = st.fixed_dictionaries(
    {"command": st.lists(TEXT, min_size=1, max_size=3)},
    optional={
        "script": LINES.map(lambda text: f"#!/bin/sh\n{text}"),
        "name": TEXT,
        "gpus": st.integers(0, 100_000),
        "cpus": st.integers(0, 100_000_000).map(
            lambda milli: milli // 1000 if milli % 1000 == 0 else milli / 1000
        ),
        "env": st.dictionaries(TEXT.filter(lambda name: name not in ("", "<<")), LINES, max_size=3),
        "hold": st.booleans(),
        "array": st.sampled_from(["0-9", "1", "007"]),
        "dependencies": st.lists(
            st.one_of(
                st.just({"kind": "singleton"}),
                st.fixed_dictionaries({"kind": st.just("afterok"), "job": st.integers(1, 1 << 53)}),
            )
        ),
    },
)


@given(st.lists(JOBS, min_size=1, max_size=3))
@settings(max_examples=300, deadline=None)
def test_what_is_written_is_read_back_as_the_same(jobs: list[dict[str, Any]]) -> None:
    text = write_native(jobs)

    assert jobs == [each.job for each in read_native(text, "f")]
    assert text == write_native([each.job for each in read_native(text, "f")])
