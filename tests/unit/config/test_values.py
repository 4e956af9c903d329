"""A valid file becomes the values it means, in the units the rest of gpuyard counts in."""

from pathlib import Path

import pytest

from gpuyard.config import Cluster
from gpuyard.config.reading import load, loads
from gpuyard.engines.local.settings import LocalSettings
from gpuyard.errors import BadInput
from gpuyard.model import (
    Budget,
    GpuModel,
    JobClass,
    Market,
    Node,
    OwnedHardware,
    PolicySpec,
    Price,
    Quota,
    Settings,
    Tenant,
)
from gpuyard.model.prices import BookPlace, PriceBook
from gpuyard.model.units import DAY_MS, HOUR_MS, MINUTE_MS
from gpuyard.policies import registry

EVERYTHING = """\
version: 1
clusters:
  main:
    engine: local
    pools:
      h100:
        nodes: 8
        gpus: 8 x H100
        cpus: 96
        memory: 1T
        market: spot
        price: 2.50
        nvlink_group: 4
        numa: 2
        nodes_per_switch: 2
        switches_per_rack: 3
        emulate: true
  cloud:
    engine: slurm
    pools:
      p100: {nodes: 1, gpus: 2 x P100, cpus: 0.5, memory: 1536M}
gpu_models:
  P100: {memory: 16G, price: 1.46, nvlink: true, mig: false}
tenants:
  vision: {parent: research}
  research:
    weight: 3
    guarantee: {H100: 16}
    limit: {total: 48, H100: 32}
    borrow: 16
    lend: 0.5
    max_gpus_per_job: 16
    max_gpus_per_user: 8
    max_running_jobs: 100
    budget: {gpu_hours: 5000, window: 30d}
classes:
  urgent: {priority: 100, preemptible: false, limit: 24h, min_run: 10m, grace: 60s, tenants: research, users: [ana]}
  normal:
default_class: normal
prices: {P100: 1.10}
fairness: {half_life: 14d, period: 10m, share_weights: {H100: 6.88}}
earmark: 20m
policy: mine
gangs: eager
policies:
  mine:
    order: [class, fair]
    placement: first-fit
    backfill: none
    backfill_depth: 7
    depth_per_tenant: 3
    preemption: [class]
    quotas: false
"""


def test_every_key_of_the_settings() -> None:
    mine = PolicySpec(
        "mine", ("class", "fair"), "first-fit", "none", 7, 3, ("class",), False, turn_ms=HOUR_MS
    )

    assert (
        Settings(
            version=1,
            tenants=(
                Tenant(
                    "research",
                    3,
                    Quota(
                        guarantee={"total": 16_000, "H100": 16_000},
                        limit={"total": 48_000, "H100": 32_000},
                        borrow={"total": 16_000},
                        lend={"total": 500},
                        max_gpus_per_job=16_000,
                        max_gpus_per_user=8_000,
                        max_running_jobs=100,
                    ),
                    Budget(gpu_ms=5000 * HOUR_MS, window_ms=30 * DAY_MS),
                ),
                Tenant("research/vision", 1, Quota(), None),
            ),
            classes=(
                JobClass(
                    "urgent", 100, False, 24 * HOUR_MS, 10 * MINUTE_MS, MINUTE_MS, ("research",), ("ana",)
                ),
                JobClass("normal"),
            ),
            default_class="normal",
            gpu_models=(GpuModel("P100", 16_384, True, False, 1_460_000),),
            share_weights={"H100": 6880},
            prices={"P100": 1_100_000},
            half_life_ms=14 * DAY_MS,
            period_ms=10 * MINUTE_MS,
            earmark_ms=20 * MINUTE_MS,
            policy=mine,
            price_book=(Price(2_500_000, pool="main/h100"),),
            markets={"main/h100": "spot"},
        )
        == loads(EVERYTHING).settings
    )


def test_every_key_of_a_pool() -> None:
    pool = loads(EVERYTHING).pools[0]

    assert ("h100", "main", Market.SPOT) == (pool.name, pool.cluster, pool.market)
    assert (
        Node("h100-0001", "main", "h100", "H100", 8, 96_000, 1_048_576, 4, 2, "h100-sw1", "h100-rack1")
        == pool.nodes[0]
    )
    assert [
        ("h100-0001", "h100-sw1", "h100-rack1"),
        ("h100-0002", "h100-sw1", "h100-rack1"),
        ("h100-0003", "h100-sw2", "h100-rack1"),
        ("h100-0004", "h100-sw2", "h100-rack1"),
        ("h100-0005", "h100-sw3", "h100-rack1"),
        ("h100-0006", "h100-sw3", "h100-rack1"),
        ("h100-0007", "h100-sw4", "h100-rack2"),
        ("h100-0008", "h100-sw4", "h100-rack2"),
    ] == [(node.name, node.switch, node.rack) for node in pool.nodes]


def test_clusters_and_their_engines() -> None:
    assert {
        "main": Cluster("main", "local", ("h100",), frozenset({"h100"}), own=LocalSettings()),
        "cloud": Cluster("cloud", "slurm", ("p100",)),
    } == loads(EVERYTHING).clusters


@pytest.mark.parametrize(
    ("clusters", "more", "most"),
    [
        ("box: {engine: local}", "", (256, 1024)),
        ("box: {gpus: 8 x A100-80GB, emulate: true}", "", (256, 1024)),
        ("box: {pools: {a: {nodes: 1, gpus: 8 x H100, emulate: true}}}", "", (256, 1024)),
        ("box: {engine: local}", "attempts_per_user: 0\nattempts_per_node: 9", (0, 9)),
        ("box: {pools: {a: {nodes: 2, gpus: 8 x H100, emulate: true}}}", "", (0, 0)),
        ("box: {engine: slurm, shared_folder: /x}", "", (0, 0)),
        ("box: {engine: slurm, shared_folder: /x}", "attempts_per_user: 5", (5, 0)),
    ],
)
def test_users_of_one_machine_have_so_many_attempts(clusters: str, more: str, most: tuple[int, int]) -> None:
    found = loads(f"version: 1\nclusters:\n  {clusters}\n{more}\n").settings
    assert most == (found.attempts_per_user, found.attempts_per_node)


def test_what_the_smallest_file_means(fleet: str) -> None:
    smallest = loads(fleet)

    assert Settings(policy=registry.PRESETS["default"]) == smallest.settings
    assert {"main": Cluster("main", "local", ("h100",), own=LocalSettings())} == smallest.clusters
    assert dict(registry.PRESETS) == smallest.policies
    (pool,) = smallest.pools
    assert Market.RESERVED is pool.market
    # All GPUs are linked, all nodes are on one switch.
    assert {(8, 1, "h100-sw1", "h100-rack1")} == {
        (node.nvlink_group_size, node.numa_domains, node.switch, node.rack) for node in pool.nodes
    }


@pytest.mark.parametrize(
    ("gpus", "more", "price", "nvlink"),
    [
        ("8 x H100", "", 6_880_000, 8),
        ("8 x H100", "prices: {H100: 2.5}", 2_500_000, 8),
        ("4 x L4", "prices: {H100: 2.5}", 805_000, 0),
        ("1 x P40", "gpu_models: {P40: {memory: 24G, price: 0.7}}", 700_000, 0),
        ("1 x P40", "gpu_models: {P40: {memory: 24G, price: 0.7, nvlink: true}}\nprices: {P40: 0}", 0, 1),
        ("0", "", 0, 0),
    ],
)
def test_price_and_links_by_default(gpus: str, more: str, price: int, nvlink: int, fleet: str) -> None:
    config = loads(fleet.replace("8 x H100", gpus) + more)
    (pool,) = config.pools
    place = BookPlace(pool.cluster, pool.name, pool.nodes[0].gpu_model, pool.market.value, "")

    assert price == PriceBook.in_force(config.settings).price(place, 0)
    assert nvlink == pool.nodes[0].nvlink_group_size


def test_owned_hardware_energy_and_people_come_to_a_price(fleet: str) -> None:
    text = (
        "price_book:\n"
        "- {pool: h100, owned: {purchase: 250000, salvage: 19800, years: 4, gpus: 8, people: 8000}, "
        "energy: 0.25, pue: 1.3}\n"
        "- {model: H100, market: spot, from: 2026-11-01, price: 1.2}\n"
        "- {model: H100, market: spot, from: 2026-12-01, price: 1.1}\n"
    )
    region = fleet.replace("8 x H100", "8 x H100, region: eu-west")
    settings = loads(region + text).settings

    owned, november, december = settings.price_book
    # (250,000 - 19,800) / 4 + 8,000 = 65,550 USD a year for 8 GPUs of 8,766 hours.
    bought = OwnedHardware(250_000_000_000, 4000, 19_800_000_000, 8, 8_000_000_000)
    assert Price(934_719, pool="h100", micro_usd_kwh=325_000, owned=bought, pue_milli=1300) == owned
    assert (20_758, 20_788, 1_200_000) == (november.from_day, november.until_day, november.micro_usd_h)
    assert (20_788, 0, 1_100_000) == (december.from_day, december.until_day, december.micro_usd_h)
    assert {"main/h100": "eu-west"} == settings.regions


def test_a_pool_without_gpus_names_no_model(fleet: str) -> None:
    (pool,) = loads(fleet.replace("8 x H100", "0")).pools

    assert {("", 0)} == {(node.gpu_model, node.gpus) for node in pool.nodes}


def test_nodes_are_numbered_with_four_digits_or_as_many_as_it_takes(fleet: str) -> None:
    (pool,) = loads(fleet.replace("nodes: 4", "nodes: 10000")).pools

    assert ["h100-0001", "h100-9999", "h100-10000"] == [pool.nodes[at].name for at in (0, 9998, 9999)]


def test_tenants_are_sorted_by_path_whatever_the_order_in_the_file(fleet: str) -> None:
    names = "tenants: {c: {parent: b}, b: {parent: a}, a-b: {}, d: {parent: a}, a: }"

    paths = [tenant.path for tenant in loads(fleet + names).settings.tenants]

    assert ["a", "a/b", "a/b/c", "a/d", "a-b"] == paths


def test_promises_that_add_up_exactly_are_kept(fleet: str) -> None:
    tenants = """\
tenants:
  a: {guarantee: {H100: 24, total: 28}}
  b: {guarantee: 4, limit: 4}
  a1: {parent: a, guarantee: {H100: 23.5}}
  a2: {parent: a, guarantee: {H100: 0.5, total: 4.5}}
"""
    guarantees = [tenant.quota.guarantee for tenant in loads(fleet + tenants).settings.tenants]

    assert [
        {"total": 28_000, "H100": 24_000},
        {"total": 23_500, "H100": 23_500},
        {"total": 4_500, "H100": 500},
        {"total": 4_000},
    ] == guarantees


def test_names_stay_text_whatever_yaml_thinks_of_them(fleet: str) -> None:
    tenants = "tenants: {no: , 1.0: {parent: no}, 0x1F: {parent: 1.0}, 'null': , 2026-01-01: }"

    paths = [tenant.path for tenant in loads(fleet + tenants).settings.tenants]

    assert ["2026-01-01", "no", "no/1.0", "no/1.0/0x1F", "null"] == paths


def test_aliases_and_merge_keys(fleet: str) -> None:
    tenants = """\
tenants:
  a: &team {weight: 2, limit: &cap {H100: 4}}
  b: {<<: *team, weight: 3}
  c: {limit: *cap}
  d: {<<: [{lend: 1}, *team]}
"""
    assert [
        ("a", 2, {"H100": 4000}),
        ("b", 3, {"H100": 4000}),
        ("c", 1, {"H100": 4000}),
        ("d", 2, {"H100": 4000}),
    ] == [
        (tenant.path, tenant.weight, tenant.quota.limit) for tenant in loads(fleet + tenants).settings.tenants
    ]


def test_what_thousands_of_entries_take_over_from_one_is_read(fleet: str) -> None:
    """Aliases in proportion to what is written; those that multiply are refused, however short the file."""
    limits = ", ".join([f"{model}: 4" for model in ("H100", "A100-80GB", "L4", "T4")])
    tenants = f"tenants:\n  t0: &team {{weight: 2, limit: {{{limits}}}}}\n"
    tenants += "".join([f"  t{n}: {{<<: *team}}\n" for n in range(1, 3_000)])

    assert {2} == {tenant.weight for tenant in loads(fleet + tenants).settings.tenants}


def test_a_policy_by_name() -> None:
    loaded = loads(EVERYTHING)

    assert registry.with_gangs(registry.PRESETS["fair"], "eager") == loaded.policy("fair")
    assert registry.PRESETS["fifo"] == loaded.policy("fifo")
    assert loaded.settings.policy == loaded.policy("mine")
    with pytest.raises(BadInput) as caught:
        loaded.policy("mein")
    assert "unknown policy 'mein'; did you mean 'mine'?" == str(caught.value)


def test_load_reads_what_loads_reads(tmp_path: Path) -> None:
    path = tmp_path / "yard.yaml"
    path.write_text(EVERYTHING, encoding="utf-8")

    assert loads(EVERYTHING) == load(path) == load(str(path))
