"""Partitions by the names that scripts have for them: what a job is told and what lists show is one rule."""

import pytest

from gpuyard.cli.slurm.language.jobs import SlurmJob, job_from_view
from gpuyard.cli.slurm.language.pools import Pools
from gpuyard.wire.partition_names import choose_partition, list_partitions

ONE_POOL = {"gpu": ["local"], "short": ["local"]}
TWO_POOLS = {"gpu": ["a100", "h100"], "gpu-a100": ["a100"]}
NODES = [{"name": "n1", "pool": "a100"}, {"name": "n2", "pool": "h100"}]
POOLS = Pools(NODES, {"partitions": TWO_POOLS, "accounts": {"nlp": "research/text"}, "qos": {"high": "prod"}})


@pytest.mark.parametrize(
    ("pool", "asked", "names", "expected"),
    [
        ("local", "", {}, "local"),
        ("local", "short", ONE_POOL, "short"),
        ("local", "", ONE_POOL, "gpu"),
        ("local", "local", ONE_POOL, "local"),
        ("h100", "gpu-a100,gpu", TWO_POOLS, "gpu"),
        ("a100", "", TWO_POOLS, "gpu-a100"),
        ("h100", "", TWO_POOLS, "h100"),
        # A name that was mapped when the job was submitted, and is not any more.
        ("local", "old", ONE_POOL, "gpu"),
    ],
)
def test_a_job_has_the_partition_that_it_asked_for(
    pool: str, asked: str, names: dict[str, list[str]], expected: str
) -> None:
    assert expected == choose_partition(pool, asked, names)


def test_a_pool_that_has_a_name_to_itself_is_listed_by_that_name_alone() -> None:
    assert {"gpu": ("local",), "short": ("local",)} == list_partitions(["local"], ONE_POOL)
    assert {"gpu": ("a100", "h100"), "gpu-a100": ("a100",), "h100": ("h100",)} == list_partitions(
        ["a100", "h100"], TWO_POOLS
    )
    assert {"local": ("local",)} == list_partitions(["local"], {})


def test_a_job_that_named_no_partition_is_in_all_that_have_its_pool() -> None:
    anywhere, named_one = job("n2", "", []), job("n1", "gpu-a100", ["a100"])

    assert ["h100", "gpu-a100"] == [anywhere.partition, named_one.partition]
    shown = [POOLS.uses_partition(anywhere, [name]) for name in ("gpu", "h100", "gpu-a100")]
    assert [True, True, False] == shown
    assert [False, True] == [POOLS.uses_partition(named_one, [name]) for name in ("gpu", "gpu-a100")]
    assert not POOLS.in_partition(anywhere, ["gpu"]), "scancel -p gpu ends what was submitted there"


def job(node: str, partition: str, pools: list[str], tenant: str = "", klass: str = "") -> SlurmJob:
    found = {
        "id": 1, "label": "1", "name": "x", "tenant": tenant, "user": "u", "class": klass, "state": "RUNNING",
        "reason": "", "gpus": 1, "tasks": 1, "cpus": 1, "memory_mib": 0, "nodes": [node] if node else [],
        "gpu_models": [], "pools": pools, "partition": partition, "submitted_ms": 1, "started_ms": 2,
        "ended_ms": None, "time_limit_s": None, "array_id": None, "array_index": None, "exit_code": None,
        "restarts": 0,
    }  # fmt: skip
    return job_from_view(found, POOLS, 3)


def test_a_filter_knows_every_name_that_a_script_may_use() -> None:
    named_gpu = job("n1", "gpu", ["a100", "h100"])
    assert "gpu" == named_gpu.partition
    assert POOLS.in_partition(named_gpu, ["gpu"])
    assert POOLS.in_partition(named_gpu, ["a100"]), "a pool that lists show as gpu-a100"
    assert not POOLS.in_partition(named_gpu, ["gpu-a100"])
    unnamed = job("", "", [])
    assert "gpu-a100,h100" == unnamed.partition
    assert POOLS.in_partition(unnamed, ["h100"])
    assert not POOLS.in_partition(job("n2", "", []), ["a100", "nowhere"])


def test_accounts_and_qos_are_known_by_both_names() -> None:
    theirs = job("n1", "", [], tenant="research/text/ana", klass="prod")
    assert [True, True, True, False] == [
        POOLS.of_account(theirs.tenant, [name]) for name in ("nlp", "research", "research/text", "text")
    ]
    assert [True, True, False] == [POOLS.of_qos(theirs, [name]) for name in ("high", "prod", "low")]


def test_a_server_from_before_has_no_names() -> None:
    assert {"a100", "h100"} == set(Pools.of_fleet({"nodes": NODES}).listed)
