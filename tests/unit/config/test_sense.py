"""Names that lead nowhere and numbers that contradict each other are refused at the place to mend."""

import re
from collections.abc import Callable

import pytest

from gpuyard import config
from gpuyard.config.reading import loads
from gpuyard.engines import registry as engines
from gpuyard.policies import registry
from gpuyard.testing import Life, SimEngine

Refusals = Callable[[str], list[str]]

OR_ADD = "Or add it under 'gpu_models'"

BOX = "clusters: {box: {engine: local, gpus: 8 x A100-80GB, emulate: true}}"
POOLS = "pools: {h100: {nodes: 8, gpus: 8 x H100, cpus: 96, memory: 1T}}"

# What is added to a fleet of 32 H100 on line 6, and all problems it is refused with.
ADDED: list[tuple[str, list[str]]] = [
    # Names that scripts have.
    ("partitions: {gpu: h10}", ["6:19: unknown pool 'h10' for partition 'gpu'; did you mean 'h100'?"]),
    ("partitions: {gpu: [h100, zz]}", ["6:26: unknown pool 'zz' for partition 'gpu'; known pools: h100"]),
    (
        "partitions: {h100: h100}",
        ["6:14: partition 'h100' is a pool; give it another name, or remove the line"],
    ),
    (
        "tenants: {research: {}}\naccounts: {p1: reserch, p2: research/ann}",
        ["7:16: unknown tenant 'reserch' for account 'p1'; did you mean 'research'?"],
    ),
    ("qos: {normal: bacth}", ["6:15: unknown class 'bacth' for QOS 'normal'; did you mean 'batch'?"]),
    # Prices.
    (
        "price_book: [{model: H10, price: 1}]",
        [f"6:15: unknown GPU model 'H10'; did you mean 'H100'? {OR_ADD}"],
    ),
    (
        "price_book: [{pool: h10, price: 1}, {pool: old, until: 2026-11-01, price: 1}]",
        [
            "6:21: unknown pool 'h10'; did you mean 'h100'?; the price of a pool that is gone has an 'until'",
        ],
    ),
    (
        "price_book: [{pool: h100}]",
        ["6:14: this entry has no price; give 'price', or 'owned' with 'purchase' and 'years'"],
    ),
    (
        "price_book: [{price: 1, owned: {purchase: 9, years: 1, salvage: 10}, pue: 1.2}]",
        [
            "6:14: this entry has both 'price' and 'owned'; keep one of them",
            "6:32: is worth more at its end than it was bought for; give a smaller 'salvage'",
            "6:75: needs 'energy', the price of a kWh",
        ],
    ),
    (
        "price_book:\n- {from: 2026-12-01, price: 1}\n- {from: 2026-11-01, until: 2026-12-02, price: 2}",
        [
            "7:3: two prices of everything overlap from 2026-12-01 on; "
            "end the earlier one with 'until: 2026-12-01', or remove one of them"
        ],
    ),
    # GPU models.
    ("prices: {h100: 2}", [f"6:10: unknown GPU model 'h100'; did you mean 'H100'? {OR_ADD}"]),
    (
        "prices: {A100: 2}",
        [f"6:10: unknown GPU model 'A100'; did you mean 'A100-40GB' or 'A100-80GB'? {OR_ADD}"],
    ),
    (
        "prices: {MI300X: 2}",
        [
            "6:10: unknown GPU model 'MI300X'; known GPU models: T4, V100, A10, A30, L4, L40, L40S, "
            "RTX-6000, RTX-A6000, RTX-6000-Ada, RTX-PRO-4500, RTX-PRO-6000, A100-40GB, "
            "A100-80GB, H100, H200, B200; or add it under 'gpu_models'"
        ],
    ),
    (
        "tenants: {a: {guarantee: {total: 1, H1000: 1}}}",
        [f"6:37: unknown GPU model 'H1000'; did you mean 'H100'? {OR_ADD}"],
    ),
    (
        "tenants:\n  a: {guarantee: 1}\n  b: {parent: a, guarantee: {H1000: 1}}",
        [f"8:30: unknown GPU model 'H1000'; did you mean 'H100'? {OR_ADD}"],
    ),
    (
        "fairness: {share_weights: {H10: 1}}",
        [f"6:28: unknown GPU model 'H10'; did you mean 'H100'? {OR_ADD}"],
    ),
    (
        "gpu_models: {H100: {memory: 80G, price: 1}}",
        ["6:14: GPU model 'H100' is in the catalogue already; change its price under 'prices'"],
    ),
    (
        "gpu_models: {total: {memory: 80G, price: 1}}",
        ["6:14: a GPU model cannot be named 'total', which quotas use for the sum"],
    ),
    # The tree.
    (
        "tenants: {research: {}, vision: {parent: reserch}}",
        ["6:42: unknown tenant 'reserch' as parent of 'vision'; did you mean 'research'?"],
    ),
    ("tenants: {a: {parent: zzz}}", ["6:23: unknown tenant 'zzz' as parent of 'a'; add it first"]),
    (
        "tenants:\n  a: {parent: c}\n  b: {parent: a}\n  c: {parent: b}\n  d: {parent: d}\n  e: {parent: a}",
        [
            "7:15: tenants form a cycle of parents: a -> c -> b -> a; remove one 'parent'",
            "10:15: tenants form a cycle of parents: d -> d; remove one 'parent'",
        ],
    ),
    (
        "tenants:\n  t0:\n" + "".join(f"  t{n}: {{parent: t{n - 1}}}\n" for n in range(1, 17)),
        ["23:17: tenant 't16' is more than 16 levels deep; that is the limit"],
    ),
    # Promises.
    (
        "tenants: {a: {guarantee: 8, limit: 4}}",
        [
            "6:36: the limit of tenant 'a', 4 GPUs, is below its guarantee, 8 GPUs; "
            "raise the limit or lower the guarantee"
        ],
    ),
    (
        "tenants: {a: {guarantee: {H100: 2}, limit: {H100: 1.5}}}",
        [
            "6:51: the limit of tenant 'a', 1.5 H100, is below its guarantee, 2 H100; "
            "raise the limit or lower the guarantee"
        ],
    ),
    (
        "tenants: {a: {guarantee: {H100: 2}, limit: 1}}",
        [
            "6:44: the limit of tenant 'a', 1 GPU, is below its guarantee, 2 GPUs; "
            "raise the limit or lower the guarantee"
        ],
    ),
    (
        "tenants: {a: {guarantee: {H100: 8, total: 4}}}",
        ["6:43: tenant 'a' is guaranteed 8 GPUs by model, but only 4 GPUs in total; raise the total"],
    ),
    (
        "tenants:\n  a: {guarantee: 8}\n  b: {parent: a, guarantee: 6}\n  c: {parent: a, guarantee: 2.5}",
        [
            "7:18: the tenants below 'a' are guaranteed 8.5 GPUs, but it has a guarantee of only 8 GPUs; "
            "raise it or lower theirs"
        ],
    ),
    (
        "tenants:\n  a:\n  b: {parent: a, guarantee: 6}",
        [
            "7:3: the tenants below 'a' are guaranteed 6 GPUs, but it has a guarantee of only 0 GPUs; "
            "raise it or lower theirs"
        ],
    ),
    (
        "tenants:\n  a: {guarantee: {total: 8, H100: 4}}\n  b: {parent: a, guarantee: {H100: 6}}",
        [
            "7:35: the tenants below 'a' are guaranteed 6 H100, but it has a guarantee of only 4 H100; "
            "raise it or lower theirs"
        ],
    ),
    (
        "tenants:\n  a: {guarantee: 8}\n  b: {parent: a, guarantee: {H100: 6}}",
        [
            "7:18: the tenants below 'a' are guaranteed 6 H100, but it has a guarantee of only 0 H100; "
            "raise it or lower theirs"
        ],
    ),
    (
        "tenants:\n  a: {guarantee: 20}\n  b: {guarantee: 20}\n  c: {guarantee: 1}",
        [
            "8:18: the tenants at the top are guaranteed 41 GPUs (a 20, b 20, c 1), "
            "but the fleet has only 32 GPUs; lower a guarantee or add nodes"
        ],
    ),
    (
        "tenants:\n  a: {guarantee: {A100-80GB: 1}}",
        [
            "7:30: the tenants at the top are guaranteed 1 A100-80GB (a 1), "
            "but the fleet has only 0 A100-80GB; lower a guarantee or add nodes"
        ],
    ),
    # Percentages.
    (
        "tenants:\n  a: {guarantee: 60%}\n  b: {guarantee: 40.001%}",
        [
            "8:18: the tenants at the top are guaranteed 100.001% of the GPUs of the fleet (a 60%, b 40.001%), "
            "and that is more than there is; lower one of them"
        ],
    ),
    (
        "tenants:\n  a: {guarantee: {H100: 60% of h100}}\n  b: {guarantee: {H100: 41% of h100}}",
        [
            "8:25: the tenants at the top are guaranteed 101% of the H100 of pool 'h100' (a 60%, b 41%), "
            "and that is more than there is; lower one of them"
        ],
    ),
    (
        "tenants:\n  a: {guarantee: 50%}\n  b: {parent: a, guarantee: 30%}\n  c: {parent: a, guarantee: 30%}",
        [
            "7:18: the tenants below 'a' are guaranteed 18 GPUs, but it has a guarantee of only 16 GPUs; "
            "raise it or lower theirs"
        ],
    ),
    (
        "tenants:\n  a: {guarantee: 60%}\n  b: {guarantee: 14}",
        [
            "8:18: the tenants at the top are guaranteed 33 GPUs (a 19, b 14), "
            "but the fleet has only 32 GPUs; lower a guarantee or add nodes"
        ],
    ),
    (
        "tenants: {a: {guarantee: 40%, limit: 30%}}",
        [
            "6:38: the limit of tenant 'a', 9 GPUs, is below its guarantee, 12 GPUs; "
            "raise the limit or lower the guarantee"
        ],
    ),
    (
        "tenants: {a: {limit: 40% of h10}}",
        ["6:22: unknown pool 'h10' in 'limit' of tenant 'a'; did you mean 'h100'?"],
    ),
    (
        "tenants: {a: {limit: {A100-80GB: 40%}}}",
        [
            "6:34: 'limit' of tenant 'a' is 40%, and the fleet has no A100-80GB: that would be nothing; "
            "add nodes first, or give a number"
        ],
    ),
    # One job.
    (
        "tenants: {a: {per_job: {gpus: {min: 4, default: 1, max: 2}}}}",
        ["6:37: 'min' of 'gpus' of 'per_job' of tenant 'a' is above 'default'; lower it, or raise 'default'"],
    ),
    (
        "tenants: {a: {max_gpus_per_job: 4, per_job: {gpus: {max: 2}, memory: {default: 2T}}}}",
        [
            "6:58: tenant 'a' has 'max_gpus_per_job' and 'max' of 'gpus' of 'per_job', which are the same; "
            "remove one of them",
            "6:80: 'default' of 'memory' of 'per_job' of tenant 'a' is more than any node has: "
            "the largest has 1024G of memory; lower it",
        ],
    ),
    # Classes.
    (
        "default_class: urgnt\nclasses: {urgent: , batch: }",
        ["6:16: unknown class 'urgnt'; did you mean 'urgent'?"],
    ),
    ("default_class: urgent", ["6:16: unknown class 'urgent'; known classes: batch"]),
    (
        "classes: {urgent: {}, slow: {}}",
        [
            "6:1: there is no class 'batch', the default for jobs that name none; "
            "add it, or set 'default_class' to one of: urgent, slow"
        ],
    ),
    ("classes:", ["6:1: there are no classes; add one or remove the key"]),
    (
        "classes: {batch: {min_run: 31d, grace: 30d1s}}",
        [
            "6:28: 'min_run' of class 'batch' must be at most 30d, not 31d",
            "6:40: 'grace' of class 'batch' must be at most 30d, not 30d1s",
        ],
    ),
    (
        "tenants: {a: , b: {parent: a}}\n"
        "classes: {batch: {tenants: [a]}, top: {tenants: [a/b, b], users: []}, own: {users: ana, tenants: a/x}}",
        [
            "7:19: class 'batch' is the default for jobs that name none, and has to be everybody's; "
            "remove 'tenants', or set another 'default_class'",
            "7:55: unknown tenant 'b' for class 'top'; did you mean 'a/b'?",
            "7:66: 'users' of class 'top' is empty; name at least one, or remove the key",
            "7:98: unknown tenant 'a/x' for class 'own'; did you mean 'a/b'?",
        ],
    ),
    (
        "classes: {batch: , top: {tenants: [a]}}",
        ["6:36: unknown tenant 'a' for class 'top'; the file has no tenants"],
    ),
    # Fairness.
    ("fairness: {half_life: 1m}", ["6:23: 'half_life' (1m) must not be shorter than 'period' (5m)"]),
    ("fairness: {period: 8d}", ["6:20: 'half_life' (7d) must not be shorter than 'period' (8d)"]),
    # Policies.
    ("policy: deflt", ["6:9: unknown policy 'deflt'; did you mean 'default'?"]),
    ("policy: mein\npolicies: {mine: {}}", ["6:9: unknown policy 'mein'; did you mean 'mine'?"]),
    ("policy: qqq", [f"6:9: unknown policy 'qqq'; known policies: {', '.join(registry.PRESETS)}"]),
    ("policies: {fair: {}}", ["6:12: policy 'fair' is a preset; give yours another name"]),
    (
        "policies:\n  mine:\n    order: [fifo, fiar, fifo]\n    placement: bestfit\n    backfill: esy\n"
        "    preemption: [clas]\n",
        [
            "8:19: unknown order 'fiar'; did you mean 'fair'?",
            "8:25: 'fifo' is twice in 'order' of policy 'mine'; remove one of them",
            "9:16: unknown placement 'bestfit'; did you mean 'best-fit'?",
            "10:15: unknown backfill 'esy'; did you mean 'easy'?",
            "11:18: unknown preemption 'clas'; did you mean 'class'?",
        ],
    ),
    (
        "policies: {mine: {order: []}}",
        ["6:26: 'order' of policy 'mine' is empty; name at least one, as in [fifo]"],
    ),
]


@pytest.mark.parametrize(
    ("pool", "problem"),
    [
        (
            "{nodes: 1, gpus: 8 x H100, cpus: 64, memory: 1T, reserve: {cpus: 9}}",
            "'cpus' of 'reserve' of pool 'p' is too much: 8 times 9 cores are more than the 64 cores of a node",
        ),
        (
            "{nodes: 1, gpus: 8 x H100, cpus: 64, memory: 1T, reserve: {memory: 129G}}",
            "'memory' of 'reserve' of pool 'p' is too much: 8 times 129 GiB are more than the 1024 GiB of a node",
        ),
        (
            "{nodes: 1, gpus: 0, cpus: 64, memory: 1T, reserve: {cpus: 9}}",
            "'reserve' of pool 'p' is for the GPUs of a node, and its nodes have none; remove it",
        ),
    ],
)
def test_a_reserve_that_no_node_has(pool: str, problem: str, refusals: Refusals) -> None:
    text = f"version: 1\nclusters: {{main: {{engine: slurm, pools: {{p: {pool}}}}}}}\n"
    (found,) = refusals(text)
    assert found.endswith(problem), found


@pytest.mark.parametrize(("added", "problems"), ADDED, ids=[added[:60] for added, _ in ADDED])
def test_what_makes_no_sense(added: str, problems: list[str], fleet: str, refusals: Refusals) -> None:
    assert [f"yard.yaml:{problem}" for problem in problems] == refusals(fleet + added)


@pytest.mark.parametrize(
    ("text", "mended"),
    [
        ("version: 1\n", "version: 1\n{}"),
        ("version: 1\ntenants: {a: {}}\n", "version: 1\ntenants: {{a: {{}}}}\n{}\n"),
        ("version: 1\nclusters: {}\n", "version: 1\n{}\n"),
        ("version: 1\nclusters: {a: {engine: sim}}\n", "version: 1\nclusters: {{a: {{engine: sim, {}}}}}\n"),
        ("version: 1\nclusters: {a: {pools: {}}}\n", "version: 1\nclusters: {{a: {{{}}}}}\n"),
    ],
)
def test_what_is_shown_for_what_is_missing_is_a_file(text: str, mended: str, refusals: Refusals) -> None:
    (problem,) = refusals(text)
    assert loads(mended.format(problem.rpartition(" '")[2].removesuffix("'"))).clusters


# The clusters of a file from its line 2 on, and all problems they are refused with.
CLUSTERS: list[tuple[str, list[str]]] = [
    ("clusters:", [f"2:1: there are no clusters; write '{BOX}'"]),
    ("clusters: {a: {pools: {}}}", [f"2:16: cluster 'a' has no pools; add one, as in '{POOLS}'"]),
    ("clusters: {a: {engine: sim}}", [f"2:12: cluster 'a' has no 'pools'; add '{POOLS}'"]),
    (
        "clusters: {a: {engine: slrm, pools: {}}}",
        ["2:24: 'engine' of cluster 'a' names an unknown engine 'slrm'; did you mean 'slurm'?"],
    ),
    (
        "clusters:\n"
        "  a: {engine: sim, pools: {p: {nodes: 1, gpus: 0, cpus: 1, memory: 1G, emulate: true}}}\n"
        "  b: {pools: {p: {nodes: 1, gpus: 0, cpus: 1, memory: 1G}}}",
        [
            "3:81: 'emulate' of pool 'p' is for engine local only, "
            "and this cluster's engine is sim; remove it",
            "4:15: pool 'p' is also in cluster 'a', so their nodes would have the same names; rename one",
        ],
    ),
    (
        "clusters: {a: {pools: {\n"
        "  p: {nodes: 600000, gpus: 0, cpus: 1, memory: 1G},\n"
        "  q: {nodes: 600000, gpus: 0, cpus: 1, memory: 1G}}}}",
        ["4:14: pool 'q' brings the fleet to 1200000 nodes; the limit is 1000000"],
    ),
    (
        "clusters: {a: {pools: {p: {nodes: 1, gpus: 8 x H10, cpus: 1, memory: 1G, nvlink_group: 3}}}}",
        [f"2:44: unknown GPU model 'H10'; did you mean 'H100'? {OR_ADD}"],
    ),
    (
        "clusters: {a: {pools: {p: {nodes: 1, gpus: 8 x H100, cpus: 1, memory: 1G, "
        "nvlink_group: 3, numa: 3}}}}",
        [
            "2:89: 'nvlink_group' of pool 'p' must divide the 8 GPUs of a node evenly, not 3",
            "2:98: 'numa' of pool 'p' must split the 8 GPUs of a node evenly, not in 3",
        ],
    ),
    (
        "clusters: {a: {pools: {p: {nodes: 1, gpus: 8 x T4, cpus: 1, memory: 1G, nvlink_group: 8}}}}",
        ["2:87: 'nvlink_group' of pool 'p' must be 0: T4 has no NVLink"],
    ),
    (
        "clusters: {a: {pools: {p: {nodes: 1, gpus: 0, cpus: 1, memory: 1G, nvlink_group: 2}}}}",
        ["2:82: 'nvlink_group' of pool 'p' must be 0: its nodes have no GPUs"],
    ),
]


@pytest.mark.parametrize(("clusters", "problems"), CLUSTERS, ids=[text[:60] for text, _ in CLUSTERS])
def test_fleets_that_make_no_sense(clusters: str, problems: list[str], refusals: Refusals) -> None:
    assert [f"yard.yaml:{problem}" for problem in problems] == refusals(f"version: 1\n{clusters}\n")


def test_a_search_with_very_many_finds_ends(fleet: str, refusals: Refusals) -> None:
    lines = refusals(fleet + "tenants:\n" + "".join(f"  t{n}: {{parent: u{n}}}\n" for n in range(5000)))

    assert 51 == len(lines)
    assert lines[0].startswith(
        "yard.yaml:7:16: unknown tenant 'u0' as parent of 't0'; known tenants: t1, t2, t3"
    )


# -- this machine as a cluster ------------------------------------------------------------------------------------


def test_a_local_cluster_without_pools_is_the_machine_itself() -> None:
    real = loads("version: 1\nclusters: {box: {engine: local, allow_root: true}}\n")
    emulated = loads("version: 1\nclusters: {box: {gpus: 8 x A100-80GB, emulate: true}}\n")

    assert ((), None, True) == (real.pools, real.clusters["box"].gpus, real.clusters["box"].allow_root)
    assert (8, "A100-80GB") == emulated.clusters["box"].gpus


def test_an_engine_of_another_package_runs_jobs_of_root_where_the_file_says_so() -> None:
    """The yard allows them only where all clusters do."""
    engines.register(
        engines.EngineKind("elsewhere", lambda _keys, _context: SimEngine(int, [], lambda _launch: Life(0)))
    )
    try:
        found = loads(
            "version: 1\nclusters: {box: {engine: local}, far: {engine: elsewhere, allow_root: true}}\n"
        )
    finally:
        engines.unregister("elsewhere")

    assert {"box": False, "far": True} == {name: each.allow_root for name, each in found.clusters.items()}


@pytest.mark.parametrize(
    ("cluster", "text"),
    [
        (
            "{engine: sim, allow_root: true, pools: {p: {nodes: 1, gpus: 8 x H100, cpus: 8, memory: 8G}}}",
            "'allow_root' of cluster 'box' is for engines that run jobs, not for sim; remove it",
        ),
        ("{engine: kubernetes}", f"cluster 'box' has no 'pools'; add '{POOLS}'"),
        ("{engine: slurm}", "cluster 'box' has no 'shared_folder'; add 'shared_folder: /shared/gpuyard'"),
        ("{engine: slurm, shared_folder: here}", "'shared_folder' of cluster 'box' must be an absolute path"),
        ("{engine: slurm, shared_folder: /s, gpus: 8 x H100}", "'gpus' of cluster 'box' is found by itself"),
        (
            "{engine: slurm, shared_folder: /s, mode: steer}",
            "unknown mode 'steer'; known modes: drive, observe",
        ),
        (
            "{engine: slurm, shared_folder: /s, gpu_types: {a100: A100}}",
            "did you mean 'A100-40GB' or 'A100-80GB'?",
        ),
        ("{engine: slurm, shared_folder: /s, rest: {url: here, token_file: /t}}", "must begin with http://"),
        (
            "{engine: slurm, shared_folder: /s, rest: {url: 'http://h'}}",
            "'rest' of cluster 'box' has no 'token_file'",
        ),
        (
            "{engine: slurm, shared_folder: /s, handof: 5s}",
            "unknown key 'handof' in cluster 'box'; did you mean",
        ),
        (
            "{engine: slurm, slurm: {shared_folder: /s, handof: 5s}}",
            "yard.yaml:2:60: unknown key 'handof' in 'slurm' of cluster 'box'; did you mean 'handoff'?",
        ),
        (
            "{engine: slurm, mode: drive, slurm: {shared_folder: /s, mode: observe}}",
            "'mode' of cluster 'box' is also below 'slurm:'; remove one of the two",
        ),
        ("{engine: slurm, slurm: {shared_folder: here}}", "yard.yaml:2:56: 'shared_folder' of cluster 'box'"),
        ("{engine: slurm, slurm: here}", "'slurm' of cluster 'box' must be a mapping"),
        ("{slurm: {partitions: [gpu]}}", "'partitions' of cluster 'box' is for engine slurm only"),
        ("{partitions: [gpu]}", "'partitions' of cluster 'box' is for engine slurm only"),
        ("{gpus: 8 x A100-80GB}", "add 'emulate: true' to pretend to have them"),
        ("{emulate: true}", "has 'emulate' and no 'gpus'; add 'gpus: 8 x A100-80GB'"),
        ("{gpus: 8 x A100-8GB, emulate: true}", "did you mean 'A100-80GB'?"),
        (
            "{emulate: true, pools: {p: {nodes: 1, gpus: 0, cpus: 1, memory: 1G}}}",
            "'emulate' of cluster 'box' is for a cluster without pools; move it into a pool",
        ),
    ],
)
def test_a_machine_that_makes_no_sense(cluster: str, text: str) -> None:
    with pytest.raises(config.ConfigError, match=re.escape(text)):
        loads(f"version: 1\nclusters: {{box: {cluster}}}\n")


def test_the_keys_of_slurm_mean_the_same_below_its_name_and_beside_engine() -> None:
    keys = "shared_folder: /s, partitions: [gpu], rest: {url: 'http://h', token_file: /t}"
    nested = loads(f"version: 1\nclusters: {{hpc: {{engine: slurm, slurm: {{{keys}}}}}}}\n")
    flat = loads(f"version: 1\nclusters: {{hpc: {{engine: slurm, {keys}}}}}\n")
    assert nested.clusters == flat.clusters
    assert () == nested.notes
    (note,) = flat.notes
    assert "cluster 'hpc': 'shared_folder', 'partitions', 'rest' should be below 'slurm:'" in note


def test_a_guarantee_on_a_machine_is_held_against_what_it_pretends_to_have() -> None:
    tenants = "tenants: {a: {guarantee: 9}}\n"
    with pytest.raises(config.ConfigError, match="the fleet has only 8 GPUs"):
        loads(f"version: 1\nclusters: {{box: {{gpus: 8 x H100, emulate: true}}}}\n{tenants}")
    assert loads(f"version: 1\nclusters: {{box: {{}}}}\n{tenants}").settings.tenants
