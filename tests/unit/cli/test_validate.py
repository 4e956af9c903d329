"""`yard validate`: a file is right, or every mistake has its line."""

import json
from pathlib import Path

import pytest

from .conftest import EXAMPLE, Yard


def test_a_right_file_is_summed_up(yard: Yard) -> None:
    done = yard("validate", EXAMPLE)
    assert (0, "") == (done.code, done.err)
    here = "4 nodes of 8 x H100 in pool h100 and 4 nodes of 8 x A100-80GB in pool a100, emulated"
    wanted = [
        f"{EXAMPLE}: ok — 3 tenants, 64 GPUs in 2 pools, policy mine",
        "simulate: yes",
        f"up: yes, jobs run on this machine: {here}",
    ]
    assert wanted == done.out.splitlines()


def test_the_schema_is_json(yard: Yard) -> None:
    schema = json.loads(yard("validate", "--schema").out)
    assert "https://json-schema.org/draft/2020-12/schema" == schema["$schema"]
    assert {"clusters", "tenants", "classes", "policies"} <= set(schema["properties"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("version: 1\nclusters: {}\n", "bad.yaml:2:1: there are no clusters"),
        (EXAMPLE.read_text().replace("weight: 3", "wieght: 3"), "unknown key 'wieght' in tenant 'research'"),
        (
            EXAMPLE.read_text().replace("policy: mine", "policy: mien"),
            "unknown policy 'mien'; did you mean 'mine'",
        ),
        (EXAMPLE.read_text().replace("nodes: 4", "nodes: -4", 1), "'nodes' of pool 'h100' must be"),
        ("version: 1\nclusters: [\n", "bad.yaml:"),
        ("\x00", "bad.yaml"),
    ],
)
def test_a_mistake_has_its_place_and_a_remedy(yard: Yard, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "bad.yaml").write_text(text)

    done = yard("validate", "bad.yaml")
    assert (2, "") == (done.code, done.out)
    assert message in done.err
    assert done.err.startswith("yard: ")
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("words", "message"), [(["nowhere.yaml"], "no such file"), (["."], "is a directory")]
)
def test_what_is_no_file(yard: Yard, words: list[str], message: str) -> None:
    done = yard("validate", *words)
    assert 2 == done.code
    assert done.err.startswith(f"yard: {words[0]}: {message}")


def test_a_file_or_the_schema_but_not_both(yard: Yard) -> None:
    done = yard("validate", "yard.yaml", "--schema")
    assert (2, "") == (done.code, done.out)
    assert "a FILE or --schema" in done.err


@pytest.mark.parametrize(
    ("cluster", "says"),
    [
        ("{gpus: 8 x A100-80GB, emulate: true}", "8 emulated GPUs"),
        ("{engine: local}", "the GPUs of the machine it runs on"),
        ("{engine: slurm, slurm: {mode: observe}}", "the GPUs of Slurm"),
    ],
)
def test_a_cluster_without_pools_has_its_gpus_told(
    yard: Yard, tmp_path: Path, cluster: str, says: str
) -> None:
    file = tmp_path / "yard.yaml"
    file.write_text(f"version: 1\nclusters: {{box: {cluster}}}\ntenants: {{a: {{}}}}\n")
    assert f"{file}: ok — 1 tenant, {says}, policy default" == yard("validate", file).out.splitlines()[0]


POOL = "nodes: 4, gpus: 8 x H100, cpus: 96, memory: 1T"


@pytest.mark.parametrize(
    ("clusters", "simulate", "up"),
    [
        (f"{{a: {{pools: {{h: {{{POOL}, emulate: true}}}}}}}}", "yes", "yes, jobs run on this machine: 4 nodes of"),
        (f"{{a: {{pools: {{h: {{{POOL}}}}}}}}}", "yes", "no, because cluster 'a' has 4 nodes and engine local, "
         "which is this one machine; real nodes need Slurm. Add `emulate: true` to pool h "),
        (f"{{a: {{pools: {{h: {{{POOL.replace('4', '1')}}}}}}}}}", "yes", "yes, jobs run on this machine: the GPUs"),
        (f"{{a: {{engine: kubernetes, pools: {{h: {{{POOL}}}}}}}}}", "yes",
         "no, because cluster 'a' has engine kubernetes, which this release only simulates"),
        (f"{{a: {{engine: sim, pools: {{h: {{{POOL}}}}}}}}}", "yes",
         "no, because cluster 'a' has engine sim, which this release only simulates"),
        (f"{{a: {{pools: {{h: {{{POOL}}}}}}}, b: {{}}}}", "yes",
         "no, because cluster 'a' has 4 nodes and engine local, which is this one machine"),
        ("{a: {}, b: {}}", "no, because yard.yaml",
         "no, because clusters a and b have engine local, and this machine can be in one cluster only"),
        ("{a: {}, b: {engine: slurm, slurm: {shared_folder: /s}}}", "no, because yard.yaml",
         "yes, a: jobs run on this machine: the GPUs that are found; b: jobs are handed to Slurm"),
        ("{a: {}}", "no, because yard.yaml describes this machine, not a fleet to simulate. Add pools",
         "yes, jobs run on this machine: the GPUs that are found"),
        (f"{{a: {{engine: slurm, pools: {{h: {{{POOL}}}}}}}}}", "yes",
         "no, because cluster 'a' has no 'shared_folder'"),
        ("{a: {engine: slurm, slurm: {shared_folder: /s}}}", "no, because yard.yaml", "yes, jobs are handed to Slurm"),
        ("{a: {engine: slurm, slurm: {mode: observe}}}", "no, because yard.yaml",
         "yes, Slurm decides, and the yard looks on"),
    ],
)  # fmt: skip
def test_it_says_what_a_file_can_be_used_for(
    yard: Yard, tmp_path: Path, clusters: str, simulate: str, up: str
) -> None:
    (tmp_path / "yard.yaml").write_text(f"version: 1\nclusters: {clusters}\n")
    done = yard("validate", "yard.yaml")

    assert 0 == done.code, done.err
    _summed_up, simulates, runs = done.out.splitlines()
    assert simulates.startswith(f"simulate: {simulate}")
    assert runs.startswith(f"up: {up}")
    if not up.startswith("yes"):
        refused = yard("up", "--config", "yard.yaml", "--data", tmp_path / "data", "--port", "0")
        assert 2 == refused.code
        assert runs.removeprefix("up: no, because ").partition(". ")[0] in refused.err.replace("\n", " ")


def test_an_old_spelling_opens_with_a_note(yard: Yard, tmp_path: Path) -> None:
    (tmp_path / "yard.yaml").write_text("version: 1\nclusters: {a: {engine: slurm, shared_folder: /s}}\n")
    done = yard("validate", "yard.yaml")

    assert 0 == done.code, done.err
    assert "note: cluster 'a': 'shared_folder' should be below 'slurm:', as keys of that engine" in done.out
