"""The schema for editors, the documentation and the example say the same as the code."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuyard.config.editors import json_schema
from gpuyard.config.reading import load, loads
from gpuyard.model import CATALOGUE
from gpuyard.policies import registry

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
DOCUMENTATION = ROOT / "docs" / "how-to" / "yard-yaml.md"


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return json_schema()


def objects(schema: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The objects with fixed keys, by name."""
    return {"YardFile": schema, **schema["$defs"]}


def fields(schema: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for name, each in objects(schema).items():
        for key, field in each["properties"].items():
            yield name, key, field


def test_the_schema_says_what_it_is(schema: dict[str, Any]) -> None:
    assert "https://json-schema.org/draft/2020-12/schema" == schema["$schema"]
    assert "gpuyard configuration (yard.yaml)" == schema["title"]
    assert ["version", "clusters"] == schema["required"]
    assert schema == json.loads(json.dumps(schema))


def test_no_object_takes_other_keys(schema: dict[str, Any]) -> None:
    assert [] == [name for name, each in objects(schema).items() if each["additionalProperties"] is not False]


def test_every_key_is_described(schema: dict[str, Any]) -> None:
    short = [f"{name}.{key}" for name, key, field in fields(schema) if len(field.get("description", "")) < 15]

    assert [] == short


def test_every_optional_key_says_what_holds_without_it(schema: dict[str, Any]) -> None:
    silent = [
        f"{name}.{key}"
        for name, key, field in fields(schema)
        if key not in objects(schema)[name].get("required", [])
        and "default" not in field
        and "Default:" not in field["description"]
    ]

    # Sections: without them there are none, or all their keys have their defaults.
    assert [
        "YardFile.gpu_models",
        "YardFile.tenants",
        "YardFile.fairness",
        "YardFile.retention",
        "YardFile.policies",
    ] == silent


def test_the_parts_of_policies_are_those_of_the_registry(schema: dict[str, Any]) -> None:
    policy = schema["$defs"]["PolicyEntry"]["properties"]

    assert list(registry.PLACEMENTS) == policy["placement"]["enum"]
    assert list(registry.BACKFILLS) == policy["backfill"]["enum"]
    assert list(registry.ORDERS) == policy["order"]["items"]["enum"]
    assert list(registry.PREEMPTIONS) == policy["preemption"]["items"]["enum"]


def test_a_default_written_out_changes_nothing(schema: dict[str, Any], fleet: str) -> None:
    bare = yaml.safe_load(fleet)
    bare |= {"tenants": {"a": {}}, "classes": {"batch": {}}, "fairness": {}, "policies": {"mine": {}}}
    bare["retention"] = {}
    bare["budgets"] = {"lab": {"gpu_hours": 1}}
    bare["gpu_models"] = {"P40": {"memory": "24G", "price": 1}}
    oidc = {"issuer": "https://id.example.org", "client_id": "yard", "groups": {"ml": {}}}
    bare["auth"] = {"users": {"ana": {}}, "oidc": oidc, "limits": {}}
    address = {"url": "http://127.0.0.1"}
    kinds = {"loki": address, "elasticsearch": address, "otlp": address, "syslog": {"to": "udp://127.0.0.1"}}
    bare["logs"] = {"sinks": [{kind: dict(keys)} for kind, keys in kinds.items()]}
    bare["telemetry"] = {"prometheus": dict(address)}
    rest = {"url": "http://127.0.0.1:6820", "token_file": "/etc/gpuyard/slurm.jwt"}
    bare["clusters"]["slurm"] = {"engine": "slurm", "slurm": {"shared_folder": "/shared", "rest": rest}}
    bare["clusters"]["slurm"]["walls"] = {"debug": {"time_limit": "1h"}}
    owned = {"purchase": 100, "years": 1}
    bare["price_book"] = [{"price": 1, "energy": 0.3}, {"pool": "h100", "owned": owned}]
    full = json.loads(json.dumps(bare))
    places = {
        "YardFile": full,
        "ClusterEntry": full["clusters"]["main"],
        "SlurmKeys": full["clusters"]["slurm"]["slurm"],
        "RestEntry": full["clusters"]["slurm"]["slurm"]["rest"],
        "PoolEntry": full["clusters"]["main"]["pools"]["h100"],
        "WallEntry": full["clusters"]["slurm"]["walls"]["debug"],
        "GpuModelEntry": full["gpu_models"]["P40"],
        "PriceEntry": full["price_book"][0],
        "OwnedEntry": full["price_book"][1]["owned"],
        "TenantEntry": full["tenants"]["a"],
        "ClassEntry": full["classes"]["batch"],
        "NamedBudgetEntry": full["budgets"]["lab"],
        "FairnessEntry": full["fairness"],
        "RetentionEntry": full["retention"],
        "PolicyEntry": full["policies"]["mine"],
        "AuthEntry": full["auth"],
        "UserEntry": full["auth"]["users"]["ana"],
        "OidcEntry": full["auth"]["oidc"],
        "GroupEntry": full["auth"]["oidc"]["groups"]["ml"],
        "LimitsEntry": full["auth"]["limits"],
        "LokiKeys": full["logs"]["sinks"][0]["loki"],
        "ElasticsearchKeys": full["logs"]["sinks"][1]["elasticsearch"],
        "OtlpKeys": full["logs"]["sinks"][2]["otlp"],
        "SyslogKeys": full["logs"]["sinks"][3]["syslog"],
        "PrometheusKeys": full["telemetry"]["prometheus"],
    }
    written = 0
    for name, key, field in fields(schema):
        if "default" in field and not field.get("deprecated"):
            places[name][key] = field["default"]
            written += 1

    assert 81 == written
    assert loads(json.dumps(bare)) == loads(json.dumps(full))


def test_the_documentation_has_every_key_and_its_default(schema: dict[str, Any]) -> None:
    rows = [line for line in DOCUMENTATION.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    keys = {key: row for row in rows for key in re.findall(r"[`.…](\w+)`", row.split("|")[1])}

    assert set() == {key for _, key, _ in fields(schema)} - keys.keys() - {"budget"}
    for name, key, field in fields(schema):
        default = field.get("default")
        shown = json.dumps(default) if isinstance(default, bool) else str(default).replace("'", "")
        # `limit`, `memory` and `user` are keys of several objects, whose rows this does not tell apart.
        if default is not None and key not in ("limit", "memory", "user"):
            assert shown in keys[key].split("|")[3], f"{name}.{key}"


@pytest.mark.parametrize(
    ("key", "parts"),
    [
        ("order", registry.ORDERS),
        ("placement", registry.PLACEMENTS),
        ("backfill", registry.BACKFILLS),
        ("preemption", registry.PREEMPTIONS),
    ],
)
def test_the_documentation_has_every_part_of_policies(key: str, parts: dict[str, object]) -> None:
    (row,) = re.findall(rf"^\| `{key}` \| .*", DOCUMENTATION.read_text(encoding="utf-8"), flags=re.MULTILINE)

    assert [] == [part for part in parts if f"`{part}`" not in row]


def test_the_documentation_has_every_model_of_the_catalogue() -> None:
    (sentence,) = re.findall(r"The catalogue has (.*)\.\n", DOCUMENTATION.read_text(encoding="utf-8"))

    assert list(CATALOGUE) == re.split(r", | and ", sentence)


def test_the_smallest_file_of_the_documentation_is_valid() -> None:
    blocks = re.findall(
        r"```yaml\n(version: 1\n.*?)```", DOCUMENTATION.read_text(encoding="utf-8"), flags=re.DOTALL
    )

    assert [32] == [sum(node.gpus for node in loads(block).pools[0].nodes) for block in blocks]


def test_the_example_is_three_teams_on_64_gpus() -> None:
    example = load(ROOT / "examples" / "yard.yaml")

    assert 64 == sum(node.gpus for pool in example.pools for node in pool.nodes)
    assert ["interns", "product", "research"] == [tenant.path for tenant in example.settings.tenants]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_is_valid(path: Path) -> None:
    assert load(path).pools


def test_importing_the_package_imports_neither_yaml_nor_pydantic() -> None:
    program = (
        "import sys; from gpuyard import config; config.ConfigError; config.Config;"
        "print(sorted({'yaml', 'pydantic', 'pydantic_core'} & set(sys.modules)));"
        "import gpuyard.config.reading; print('yaml' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert "[]\nTrue\n" == ran.stdout
