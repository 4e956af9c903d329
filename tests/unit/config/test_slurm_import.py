"""A Slurm site as a yard.yaml."""

from pathlib import Path

import pytest
import yaml

from gpuyard.cli.slurm.admin.site_options import parse_types
from gpuyard.config import Config
from gpuyard.config.reading import loads
from gpuyard.config.slurm.importing import make_document, name_classes
from gpuyard.config.slurm.importing_tenants import find_places, find_tenant
from gpuyard.engines.slurm.site import site
from gpuyard.engines.slurm.site.gpu_types import GpuTypes
from gpuyard.engines.slurm.site.notes import Notes
from gpuyard.errors import BadInput

RECORDED = Path(__file__).parents[1] / "engines" / "slurm_22_05"
TEXTS = {path.name: path.read_text() for path in RECORDED.glob("*.txt") if path.name != "queue.txt"}


def taken(texts: dict[str, str], told: dict[str, str] | None = None) -> tuple[Config, Notes]:
    notes = Notes()
    found = make_document(site.read({**TEXTS, **texts}, {}), GpuTypes(told or {}), notes)
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


def test_cards_that_no_nvlink_joins_are_a_pool_without_a_group() -> None:
    nodes = [
        f"NodeName=n{n} CPUTot=64 RealMemory=512000 Gres=gpu:{kind}:8 State=IDLE Partitions=main"
        for n, kind in enumerate(("a100-sxm4-80gb", "a100-pcie-80gb"), start=1)
    ]
    partition = "PartitionName=main Nodes=n1,n2"
    config, _notes = taken({"nodes.txt": "\n".join(nodes), "partitions.txt": partition})

    assert [("A100-80GB", 8), ("A100-80GB", 0)] == [
        (node.gpu_model, node.nvlink_group_size) for pool in config.pools for node in pool.nodes
    ]


def test_what_the_site_calls_its_gpus_can_be_told() -> None:
    config, notes = taken({}, parse_types(["a100=A100-40GB"]))

    assert "A100-40GB" == config.pools[0].nodes[0].gpu_model
    assert {} == notes.guessed
    for wrong in ("a100", "=x", "a100=A100-40G"):
        with pytest.raises(BadInput):
            parse_types([wrong])


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
    places = find_places(site.read(TEXTS, {}))

    assert "research/nlp/ann" == find_tenant("nlp", "ann", places)
    assert "root" == find_tenant("root", "root", places)
    assert "gone/ann" == find_tenant("gone", "ann", places)


WIDE = (
    TEXTS["associations.txt"].partition("\n")[0] + "|GrpTRESRunMins|GrpSubmit|GrpWall|MaxTRESMins|MaxSubmit"
)


def rows(*lines: str) -> dict[str, str]:
    """Associations with all columns: account, user, parent, share, GrpTRES, GrpJobs, MaxTRES, and the last five."""
    found = [WIDE]
    for line in lines:
        account, user, parent, share, group, jobs, job, *more = line.split("|")
        more = more or [""] * 5
        found.append(
            "|".join(
                [
                    "yardrig",
                    account,
                    user,
                    "",
                    parent,
                    share,
                    group,
                    "",
                    jobs,
                    job,
                    "",
                    "",
                    "normal",
                    "",
                    *more,
                ]
            )
        )
    return {"associations.txt": "\n".join(found) + "\n"}


def test_limits_that_cannot_be_said_are_listed() -> None:
    names = (
        "GrpTRESMins|GrpTRESRunMins|GrpJobs|MaxTRESPA|MaxJobsPA|MaxSubmitPU|MaxSubmitPA|MinTRES|"
        "UsageFactor|LimitFactor"
    )
    cells = "gres/gpu=60|gres/gpu=61|62|gres/gpu=63|64|65|66|gres/gpu=1|2.000000|0.500000"
    head, normal, *rest = TEXTS["qos.txt"].splitlines()
    usual = "||||||||1.000000|"
    qos = "\n".join([f"{head}|{names}", f"{normal}|{cells}", *[f"{line}|{usual}" for line in rest]])

    _, notes = taken(
        {
            "qos.txt": qos,
            **rows(
                "root|||1||||||||77",
                "lab||root|1||||gres/gpu=70|71|2-00:00:00|gres/gpu=73|77",
                "lab|ann||1||||||||78",
                "lab|bob||1|||||||gres/gpu=73|77",
            ),
        }
    )

    of_qos = [text for text in notes.unsaid if "QOS 'normal': a class has no such limit" in text]
    assert [
        "GrpTRESMins gres/gpu=60", "GrpTRESRunMins gres/gpu=61", "GrpJobs 62", "MaxTRESPerAccount gres/gpu=63",
        "MaxJobsPerAccount 64", "MaxSubmitJobsPerUser 65", "MaxSubmitJobsPerAccount 66", "MinTRESPerJob gres/gpu=1",
        "UsageFactor 2.000000", "LimitFactor 0.500000",
    ] == [text.partition(" of QOS")[0] for text in of_qos]  # fmt: skip
    assert not any("a class has no such limit" in text for text in notes.unsaid if "'normal'" not in text)
    of_lab = [text for text in notes.unsaid if "a tenant has no such limit" in text]
    # What ann and bob have from their account is told once.
    assert [
        "GrpTRESRunMins gres/gpu=70 of account 'lab'", "GrpSubmitJobs 71 of account 'lab'",
        "GrpWall 2-00:00:00 of account 'lab'", "MaxTRESMinsPerJob gres/gpu=73 of account 'lab'",
        "MaxSubmitJobs 78 of user 'ann'",
    ] == [text.removesuffix(": a tenant has no such limit") for text in of_lab]  # fmt: skip
    assert any("limits of the account root (MaxSubmitJobs 77)" in text for text in notes.unsaid)
    assert any("associations.txt has no column for GrpJobsAccrue" in text for text in notes.unsaid)


def test_a_limit_that_everybody_has_from_root_is_listed() -> None:
    _, notes = taken(rows("root|||1|||gres/gpu=4", "lab||root|1|||gres/gpu=4"))

    assert any("limits of the account root (MaxTRESPerJob gres/gpu=4)" in text for text in notes.unsaid)


def test_who_may_run_nothing_gets_no_gpu() -> None:
    config, notes = taken(
        rows("root|||1|||", "off||root|1||0|", "none||root|1|||gres/gpu=0", "on||root|1||7|")
    )

    quotas = {tenant.path: tenant.quota for tenant in config.settings.tenants}
    assert ({"total": 0}, None) == (quotas["off"].limit, quotas["off"].max_running_jobs)
    assert ({"total": 0}, None) == (quotas["none"].limit, quotas["none"].max_gpus_per_job)
    assert ({}, 7) == (quotas["on"].limit, quotas["on"].max_running_jobs)
    assert any("GrpJobs 0 of account 'off': it may run nothing" in text for text in notes.unsaid)


def test_numbers_that_are_too_large_cost_nobody_the_rest() -> None:
    config, notes = taken(rows("root|||1|||", "lab||root|2000000||3000000|"))

    (lab,) = config.settings.tenants
    assert (1_000_000, None) == (lab.weight, lab.quota.max_running_jobs)
    assert any("fairshare=2000000 of account 'lab'" in text for text in notes.guessed)
    assert any("GrpJobs 3000000 of account 'lab'" in text for text in notes.unsaid)


def test_names_that_no_tenant_has_are_mended_and_kept_apart() -> None:
    texts = rows(
        "root|||1|||", "_x||root|3|||", "x||root|4|||", "_x|jane@uni.edu||5|||", "x|jane-uni.edu||6|||",
        "y+||_x|7|||",
    )  # fmt: skip
    config, notes = taken(texts)
    places = find_places(site.read({**TEXTS, **texts}, {}))

    weights = {tenant.path: tenant.weight for tenant in config.settings.tenants}
    assert {
        "x": 4, "x/jane-uni.edu": 6, "x-2": 3, "x-2/jane-uni.edu-2": 5, "x-2/y-": 7,
    } == weights  # fmt: skip
    for account, user in (("x", "jane-uni.edu"), ("_x", "jane@uni.edu")):
        assert find_tenant(account, user, places) in weights
    assert "x-2/y-" == find_tenant("y+", "", places)
    # Who observes the cluster is told too.
    slurm = config.clusters["yardrig"].own
    assert slurm is not None
    assert {"_x": "x-2", "y+": "y-", "jane@uni.edu": "jane-uni.edu-2"} == slurm.names
    for was, name in (
        ("account '_x'", "x-2"),
        ("user 'jane@uni.edu'", "jane-uni.edu-2"),
        ("account 'y+'", "y-"),
    ):
        assert any(text.startswith(f"{was} is called '{name}'") for text in notes.guessed)
    assert {"jane@uni.edu": "x-2", "jane-uni.edu": "x"} == {
        name: account.tenant for name, account in (config.access.users if config.access else {}).items()
    }


def test_two_qos_do_not_become_one_class() -> None:
    qos = TEXTS["qos.txt"].replace("\nhigh|", "\n_scav|").replace("normal,scav", "normal")

    config, _ = taken({"qos.txt": qos})

    assert {"normal": 10, "scav-2": 100, "scav": 0} == {
        each.name: each.priority for each in config.settings.classes
    }
    assert {"normal": "normal", "scav": "scav", "_scav": "scav-2"} == name_classes(
        site.read({**TEXTS, "qos.txt": qos}, {})
    )


def test_a_user_of_an_account_that_is_not_listed_costs_nobody_the_rest() -> None:
    config, notes = taken(rows("root|||1|||", "lab||gone|2|||", "away|ann||3|||"))

    assert ["lab"] == [tenant.path for tenant in config.settings.tenants]
    assert any("user 'ann' is in account 'away', which is not listed" in text for text in notes.unsaid)


def test_a_site_without_accounting_is_a_site() -> None:
    notes = Notes()
    texts = {name: TEXTS[name] for name in ("config.txt", "nodes.txt", "partitions.txt")}
    found = make_document(site.read(texts, {"qos.txt": "sacctmgr: it is down"}), GpuTypes(), notes)

    assert "tenants" not in found
    assert "classes" not in found
    loads(yaml.safe_dump(found))
    assert any("it is down" in text for text in notes.unsaid)
