"""A Slurm site as a yard.yaml."""

from pathlib import Path

import pytest
import yaml

from gpuyard.config import Config, loads
from gpuyard.config.slurm.importing import document
from gpuyard.config.slurm.importing_tenants import paths, tenant_of
from gpuyard.config.slurm.notes import Notes
from gpuyard.config.slurm.types import GpuTypes, told_types
from gpuyard.engines.slurm import site
from gpuyard.errors import BadInput

RECORDED = Path(__file__).parents[1] / "engines" / "slurm_22_05"
TEXTS = {path.name: path.read_text() for path in RECORDED.glob("*.txt") if path.name != "queue.txt"}


def taken(texts: dict[str, str], told: dict[str, str] | None = None) -> tuple[Config, Notes]:
    notes = Notes()
    found = document(site.read({**TEXTS, **texts}, {}), GpuTypes(told or {}), notes)
    return loads(yaml.safe_dump(found, sort_keys=False)), notes


def test_the_recorded_site() -> None:
    config, notes = taken({})

    (pool,) = config.pools
    assert ("main", 4) == (pool.name, len(pool.nodes))
    node = pool.nodes[0]
    assert (8, "A100-80GB", 64_000, 512_000) == (node.gpus, node.gpu_model, node.cpu_milli, node.memory_mib)
    tenants = {tenant.path: tenant for tenant in config.settings.tenants}
    assert {
        "product": 70,
        "research": 30,
        "research/nlp": 20,
        "research/nlp/nobody": 5,
        "research/vision": 10,
    } == {path: tenant.weight for path, tenant in tenants.items()}
    assert {"total": 16_000} == tenants["research/nlp"].quota.limit
    product = tenants["product"].quota
    assert ({"total": 24_000, "A100-80GB": 24_000}, 8000, 50) == (
        product.limit, product.max_gpus_per_job, product.max_running_jobs,
    )  # fmt: skip
    classes = {each.name: each for each in config.settings.classes}
    assert (10, True, 43_200_000, 0, 0) == _plain(classes["normal"])
    assert (100, False, None, 30_000, 0) == _plain(classes["high"])
    assert (0, True, 86_400_000, 0, 5000) == _plain(classes["scav"])
    assert "normal" == config.settings.default_class
    policy = config.settings.policy
    assert (("fair", "class"), "conservative", 500, ("class",)) == (
        policy.order, policy.backfill, policy.backfill_depth, policy.preemption,
    )  # fmt: skip
    assert any("DenyOnLimit" in text for text in notes.unsaid)
    assert any("A100-40GB or A100-80GB" in text for text in notes.guessed)


def _plain(klass) -> tuple[object, ...]:
    limit = None if klass.limit_ms > 10**11 else klass.limit_ms
    return klass.priority, klass.preemptible, limit, klass.grace_ms, klass.min_run_ms


def test_what_the_site_calls_its_gpus_can_be_told() -> None:
    config, notes = taken({}, told_types(["a100=A100-40GB"]))

    assert "A100-40GB" == config.pools[0].nodes[0].gpu_model
    assert {} == notes.guessed
    for wrong in ("a100", "=x", "a100=A100-40G"):
        with pytest.raises(BadInput):
            told_types([wrong])


def test_a_type_that_nobody_knows_becomes_a_model_of_the_file() -> None:
    nodes = TEXTS["nodes.txt"].replace("gpu:a100:8", "gpu:quadro_9:4")

    config, notes = taken({"nodes.txt": nodes})

    assert (4, "quadro_9") == (config.pools[0].nodes[0].gpus, config.pools[0].nodes[0].gpu_model)
    assert any("which you should set" in text for text in notes.guessed)


def test_nodes_that_differ_are_pools_of_their_own() -> None:
    lines = TEXTS["nodes.txt"].splitlines()
    lines[0] = (
        lines[0]
        .replace("RealMemory=512000", "RealMemory=1000")
        .replace("Partitions=main", "Partitions=main,x")
    )
    lines[1] = lines[1].replace("Gres=gpu:a100:8", "Gres=(null)")
    lines[2] = lines[2].replace("Partitions=main", "")

    config, notes = taken({"nodes.txt": "\n".join(lines)})

    assert [("main", 8, 1000), ("main-2", 0, 512_000), ("main-3", 8, 512_000)] == [
        (pool.name, pool.nodes[0].gpus, pool.nodes[0].memory_mib) for pool in config.pools
    ]
    assert any("n3 is in no partition" in text for text in notes.unsaid)


def test_gpu_minutes_are_a_budget_where_slurm_counts_them_by_the_week() -> None:
    rows = TEXTS["associations.txt"].replace("|gres/gpu=16||", "|gres/gpu=16|gres/gpu=600|")
    weekly = TEXTS["config.txt"].replace(
        "PriorityUsageResetPeriod = NONE", "PriorityUsageResetPeriod = WEEKLY"
    )

    faded, notes = taken({"associations.txt": rows})
    config, _ = taken({"associations.txt": rows, "config.txt": weekly})

    assert [None] == [tenant.budget for tenant in faded.settings.tenants if tenant.path == "research/nlp"]
    assert any("lets it fade" in text for text in notes.unsaid)
    (budget,) = [tenant.budget for tenant in config.settings.tenants if tenant.path == "research/nlp"]
    assert budget is not None
    assert (10 * 3_600_000, 7 * 86_400_000) == (budget.gpu_ms, budget.window_ms)


def test_jobs_belong_to_their_user_below_the_account() -> None:
    places = paths(site.read(TEXTS, {}))

    assert "research/nlp/ann" == tenant_of("nlp", "ann", places)
    assert "root" == tenant_of("root", "root", places)
    assert "gone/ann" == tenant_of("gone", "ann", places)


def test_a_site_without_accounting_is_a_site() -> None:
    notes = Notes()
    texts = {name: TEXTS[name] for name in ("config.txt", "nodes.txt", "partitions.txt")}
    found = document(site.read(texts, {"qos.txt": "sacctmgr: it is down"}), GpuTypes(), notes)

    assert "tenants" not in found
    assert "classes" not in found
    loads(yaml.safe_dump(found))
    assert any("it is down" in text for text in notes.unsaid)
