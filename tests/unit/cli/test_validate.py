"""`yard validate`: a file is right, or every mistake has its line."""

import json
from pathlib import Path

import pytest

from .conftest import EXAMPLE, Yard


def test_a_right_file_is_summed_up(yard: Yard) -> None:
    done = yard("validate", EXAMPLE)
    assert (0, "") == (done.code, done.err)
    assert f"{EXAMPLE}: ok — 3 tenants, 64 GPUs in 2 pools, policy mine\n" == done.out


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
    ],
)
def test_a_machine_without_pools_has_its_gpus_counted(
    yard: Yard, tmp_path: Path, cluster: str, says: str
) -> None:
    file = tmp_path / "yard.yaml"
    file.write_text(f"version: 1\nclusters: {{box: {cluster}}}\ntenants: {{a: {{}}}}\n")
    assert f"{file}: ok — 1 tenant, {says}, policy default\n" == yard("validate", file).out
