"""Each wrong key or value is refused at its own place, in words that say what to write instead."""

from collections.abc import Callable

import pytest

Refusals = Callable[[str], list[str]]

DURATION = "must be a duration such as 90s, 10m, 24h, 7d or 1h30m"
TOP_KEYS = (
    "version, clusters, gpu_models, tenants, classes, default_class, "
    "prices, currency, price_book, budgets, fairness, earmark, whole_gpus, attempts_per_user, attempts_per_node, "
    "waiting_per_user, recipes_per_user, mps_users, partitions, accounts and 8 more"
)

# What is added to a valid file on line 6, and the problem it is refused with.
ADDED = [
    ("retention: {scirpts: 1d}", "6:13: unknown key 'scirpts' in 'retention'; did you mean 'scripts'?"),
    ("retention: {logs: 0s}", "6:19: 'logs' of 'retention' must be longer than zero, not 0s"),
    ("retention: {logs: always}", f"6:19: 'logs' of 'retention' {DURATION}, not 'always'"),
    # Keys.
    (
        "price_book: [{modell: H100, price: 1}]",
        "6:15: unknown key 'modell' in 'price_book'; did you mean 'model'?",
    ),
    ("tennants: {}", "6:1: unknown key 'tennants' at the top level; did you mean 'tenants'?"),
    ("Policy: fair", "6:1: unknown key 'Policy' at the top level; did you mean 'policy'?"),
    (
        "telemetry: {prometheus: {url: http://127.0.0.1:9090, clusters: [nain]}}",
        "6:65: unknown cluster 'nain'; did you mean 'main'?",
    ),
    (
        "telemetry: {prometheus: {url: http://127.0.0.1:9090, every: 1h}}",
        "6:61: 'every' must be from 1s to 5m",
    ),
    (
        "telemetry: {prometheus: {url: http://10.0.0.1:9090, token_file: /t}}",
        "6:31: 'url' must begin with https:// where a credential is sent, not 'http://10.0.0.1:9090'",
    ),
    ("zzz: 1", f"6:1: unknown key 'zzz' at the top level; known keys: {TOP_KEYS}"),
    (
        "tenants: {research: {wieght: 3}}",
        "6:22: unknown key 'wieght' in tenant 'research'; did you mean 'weight'?",
    ),
    (
        "tenants:\n  research:\n    weight: 3\n    gaurantee: 16\n",
        "9:5: unknown key 'gaurantee' in tenant 'research'; did you mean 'guarantee'?",
    ),
    (
        "tenants: {a: {budget: {gpu_hours: 3, windo: 1d, window: 1d}}}",
        "6:38: unknown key 'windo' in 'budget' of tenant 'a'; did you mean 'window'?",
    ),
    ("classes: {batch: {prio: 1}}", "6:19: unknown key 'prio' in class 'batch'; did you mean 'priority'?"),
    ("policies: {mine: {ordr: [fifo]}}", "6:19: unknown key 'ordr' in policy 'mine'; did you mean 'order'?"),
    (
        "gpu_models: {X: {memory: 1G, price: 1, nvlnk: true}}",
        "6:40: unknown key 'nvlnk' in GPU model 'X'; did you mean 'nvlink'?",
    ),
    ("fairness: {halflife: 7d}", "6:12: unknown key 'halflife' in 'fairness'; did you mean 'half_life'?"),
    (
        "tenants: {a: {budget: {gpu_hours: 3}}}",
        "6:15: 'budget' of tenant 'a' has no 'window'; add 'window: 30d'",
    ),
    ("gpu_models: {X: {price: 1}}", "6:14: GPU model 'X' has no 'memory'; add 'memory: 16G'"),
    (
        "tenants: {'a b': {}}",
        "6:11: 'a b' cannot be a name; use letters, digits, '.', '_' and '-', at most 63 of them, "
        "and begin with a letter or a digit",
    ),
    (
        f"tenants: {{{'a' * 64}: {{}}}}",
        f"6:11: '{'a' * 59}…' cannot be a name; use letters, digits, '.', '_' and '-', at most 63 of them, "
        "and begin with a letter or a digit",
    ),
    (
        "policies: {-x: {}}",
        "6:12: '-x' cannot be a name; use letters, digits, '.', '_' and '-', at most 63 of them, "
        "and begin with a letter or a digit",
    ),
    # Kinds.
    ("tenants: [a]", "6:10: 'tenants' must be a mapping of keys to values, not a list"),
    ("tenants: {a: b}", "6:14: tenant 'a' must be a mapping of keys to values, not 'b'"),
    ("tenants: {a: {weight: {x: 1}}}", "6:23: 'weight' of tenant 'a' must be a single value, not a mapping"),
    ("tenants: {a: {weight: [1]}}", "6:23: 'weight' of tenant 'a' must be a single value, not a list"),
    (
        "tenants: {a: {budget: }}",
        "6:15: 'budget' of tenant 'a' must be a mapping of keys to values, not nothing",
    ),
    (
        "tenants: {a: {limit: [8]}}",
        "6:22: 'limit' of tenant 'a' must be a mapping of keys to values, not a list",
    ),
    (
        "policies: {mine: {order: fifo}}",
        "6:26: 'order' of policy 'mine' must be a list such as [a, b], not 'fifo'",
    ),
    ("policies: {mine: {order: [[a]]}}", "6:27: 'order' of policy 'mine' must be a single value, not a list"),
    (
        "tenants:\n  a:\n    weight:\n",
        "8:5: 'weight' of tenant 'a' has no value; give it one or remove the key",
    ),
    ("tenants: {a: {weight: ~}}", "6:23: 'weight' of tenant 'a' has no value; give it one or remove the key"),
    # Numbers.
    ("tenants: {a: {weight: three}}", "6:23: 'weight' of tenant 'a' must be a whole number, not 'three'"),
    ("tenants: {a: {weight: 1.5}}", "6:23: 'weight' of tenant 'a' must be a whole number, not 1.5"),
    ("tenants: {a: {weight: 1e3}}", "6:23: 'weight' of tenant 'a' must be a whole number, not '1e3'"),
    ("tenants: {a: {weight: ''}}", "6:23: 'weight' of tenant 'a' must be a whole number, not ''"),
    ("tenants: {a: {weight: 0}}", "6:23: 'weight' of tenant 'a' must be a whole number of at least 1, not 0"),
    (
        "tenants: {a: {max_running_jobs: -2}}",
        "6:33: 'max_running_jobs' of tenant 'a' must be a whole number of at least 1, not -2",
    ),
    (
        "tenants: {a: {guarantee: .nan}}",
        "6:26: 'guarantee' of tenant 'a' must be a number of GPUs, not '.nan'",
    ),
    ("tenants: {a: {guarantee: nan}}", "6:26: 'guarantee' of tenant 'a' must be a number of GPUs, not 'nan'"),
    (
        "tenants: {a: {limit: {H100: .inf}}}",
        "6:29: 'H100' of 'limit' of tenant 'a' must be a number of GPUs, not '.inf'",
    ),
    (
        "tenants: {a: {guarantee: 0.0001}}",
        "6:26: 'guarantee' of tenant 'a' is finer than 0.001 GPU, the smallest part that is counted: 0.0001",
    ),
    (
        "tenants: {a: {guarantee: 101%}}",
        "6:26: 'guarantee' of tenant 'a' must be a percentage of at most 100, not 101",
    ),
    (
        "tenants: {a: {guarantee: 40% off}}",
        "6:26: 'guarantee' of tenant 'a' must be a percentage such as 40% or '40% of POOL', not '40% off'",
    ),
    (
        "tenants: {a: {limit: {H100: 0.0001%}}}",
        "6:29: 'H100' of 'limit' of tenant 'a' must be a percentage such as 40% or '40% of POOL', not '0.0001%'",
    ),
    (
        "tenants: {a: {guarantee: -1}}",
        "6:26: 'guarantee' of tenant 'a' must be a number of GPUs of at least 0, not -1",
    ),
    (
        "tenants: {a: {max_gpus_per_job: 0}}",
        "6:33: 'max_gpus_per_job' of tenant 'a' must be a number of GPUs of at least 0.001, not 0",
    ),
    (
        "tenants: {a: {borrow: 64000001}}",
        "6:23: 'borrow' of tenant 'a' must be a number of GPUs of at most 64000000, not 64000001",
    ),
    (
        "tenants: {a: {budget: {gpu_hours: 0, window: 1d}}}",
        "6:35: 'gpu_hours' of 'budget' of tenant 'a' must be a number of GPU-hours of at least 0.001, not 0",
    ),
    # Money.
    ("prices: {H100: -1}", "6:16: 'H100' of 'prices' must be an amount in USD of at least 0, not -1"),
    (
        "currency: EUR",
        "6:11: 'currency' is USD, in which the books are kept, not 'EUR': convert the prices to USD",
    ),
    (
        "price_book: [{price: -1}]",
        "6:22: 'price' of 'price_book' must be an amount in USD of at least 0, not -1",
    ),
    (
        "price_book: [{from: 11/2026, price: 1}]",
        "6:21: 'from' of 'price_book' is a day such as 2026-11-01, not '11/2026'",
    ),
    ("prices: {H100: $2}", "6:16: 'H100' of 'prices' must be an amount in USD, not '$2'"),
    (
        "prices: {H100: 2.0000001}",
        "6:16: 'H100' of 'prices' is finer than 0.000001 USD, the smallest part that is counted: 2.0000001",
    ),
    (
        "fairness: {share_weights: {H100: 0}}",
        "6:34: 'H100' of 'share_weights' of 'fairness' must be an amount in USD of at least 0.001, not 0",
    ),
    (
        "fairness: {share_weights: {H100: 1.0005}}",
        "6:34: 'H100' of 'share_weights' of 'fairness' is finer than 0.001 USD, "
        "the smallest part that is counted: 1.0005",
    ),
    # Durations.
    ("earmark: 10", f"6:10: 'earmark' {DURATION}, not '10'"),
    ("earmark: 1d2d", f"6:10: 'earmark' {DURATION}, not '1d2d'"),
    ("earmark: 1:30", f"6:10: 'earmark' {DURATION}, not '1:30'"),
    ("earmark: -5m", f"6:10: 'earmark' {DURATION}, not '-5m'"),
    ("earmark: 0s", "6:10: 'earmark' must be longer than zero, not 0s"),
    ("earmark: 3651d", "6:10: 'earmark' must be at most 3650d, not 3651d"),
    ("classes: {batch: {limit: 0m}}", "6:26: 'limit' of class 'batch' must be longer than zero, not 0m"),
    ("classes: {batch: {grace: 10}}", f"6:26: 'grace' of class 'batch' {DURATION}, not '10'"),
    # Truth.
    (
        "classes: {batch: {preemptible: yes}}",
        "6:32: 'preemptible' of class 'batch' must be true or false, not 'yes'",
    ),
    ("policies: {mine: {quotas: 1}}", "6:27: 'quotas' of policy 'mine' must be true or false, not '1'"),
    # Memory.
    (
        "gpu_models: {X: {memory: 16, price: 1}}",
        "6:26: 'memory' of GPU model 'X' must be an amount of memory such as 512M, 80G or 1T, not '16'",
    ),
]


@pytest.mark.parametrize(("added", "problem"), ADDED, ids=[added for added, _ in ADDED])
def test_wrong_key_or_value(added: str, problem: str, fleet: str, refusals: Refusals) -> None:
    assert [f"yard.yaml:{problem}"] == refusals(fleet + added)


# A key of a pool, and the problem it is refused with. The value begins on line 10.
POOL = [
    ("nodes: 0", "must be a whole number of at least 1, not 0"),
    ("nodes: -4", "must be a whole number of at least 1, not -4"),
    ("nodes: 2.5", "must be a whole number, not 2.5"),
    ("nodes: 1000001", "must be a whole number of at most 1000000, not 1000001"),
    (f"nodes: {'9' * 5000}", f"must be a whole number, not '{'9' * 59}…'"),
    ("gpus: 65 x H100", "must be at most 64 GPUs in a node, not 65"),
    ("gpus: 8", "must name the GPU model, as in '8 x H100'; found only '8'"),
    ("gpus: H100", "must be a number and a GPU model such as '8 x H100', or 0, not 'H100'"),
    ("gpus: -8 x H100", "must be a number and a GPU model such as '8 x H100', or 0, not '-8 x H100'"),
    ("gpus: 0 x H100", "must be plain 0 for nodes without GPUs, not '0 x H100'"),
    ("cpus: 0", "must be a number of cores of at least 0.001, not 0"),
    ("cpus: .inf", "must be a number of cores, not '.inf'"),
    ("memory: 1000", "must be an amount of memory such as 512M, 80G or 1T, not '1000'"),
    ("memory: 80g", "must be an amount of memory such as 512M, 80G or 1T, not '80g'"),
    ("memory: 0G", "must be more than zero, not 0G"),
    ("memory: 1K", "must be a whole number of MiB (1M), not 1K"),
    ("memory: 2000T", "must be at most 1024T, not 2000T"),
    ("market: spott", "names an unknown market 'spott'; did you mean 'spot'?"),
    ("market: on_demand", "names an unknown market 'on_demand'; did you mean 'on-demand'?"),
    ("market: free", "names an unknown market 'free'; known markets: reserved, on-demand, spot"),
    ("price: .nan", "must be an amount in USD, not '.nan'"),
    ("price: 1000001", "must be an amount in USD of at most 1000000, not 1000001"),
    ("nvlink_group: 65", "must be a whole number of at most 64, not 65"),
    ("numa: 0", "must be a whole number of at least 1, not 0"),
    ("nodes_per_switch: 0", "must be a whole number of at least 1, not 0"),
    ("switches_per_rack: 0", "must be a whole number of at least 1, not 0"),
    ("reserve: 8", "must be a mapping of keys to values, not '8'"),
    ("emulate: on", "must be true or false, not 'on'"),
    ("time_limit: 0s", "must be longer than zero, not 0s"),
    ("default_time: 1", f"{DURATION}, not '1'"),
    ("max_nodes_per_job: 0", "must be a whole number of at least 1, not 0"),
    ("min_gpus_per_job: 0", "must be a number of GPUs of at least 0.001, not 0"),
]


@pytest.mark.parametrize(("line", "problem"), POOL, ids=[line[:30] for line, _ in POOL])
def test_wrong_value_in_a_pool(line: str, problem: str, refusals: Refusals) -> None:
    key = line.partition(":")[0]
    usual = {"nodes": "4", "gpus": "8 x H100", "cpus": "96", "memory": "1T"}
    usual.pop(key, None)
    others = [f"{name}: {value}" for name, value in usual.items()]
    lines = ["version: 1", "clusters:", "  main:", "    pools:", "      big:"]
    text = "\n".join(lines + [f"        {each}" for each in (*others, line)])
    place = f"{6 + len(others)}:{8 + len(key) + 3}"

    assert [f"yard.yaml:{place}: {key!r} of pool 'big' {problem}"] == refusals(text)


def test_all_problems_are_reported_in_the_order_of_the_file(fleet: str, refusals: Refusals) -> None:
    text = (
        fleet.replace("nodes: 4, ", "").replace("cpus: 96", "cpu: 96")
        + "earmark: 5\ntenants: {a: {weigt: 1}}\n"
    )

    assert [
        "yard.yaml:5:7: pool 'h100' has no 'nodes'; add 'nodes: 8'",
        "yard.yaml:5:7: pool 'h100' has no 'cpus'; add 'cpus: 96'",
        "yard.yaml:5:30: unknown key 'cpu' in pool 'h100'; did you mean 'cpus'?",
        f"yard.yaml:6:10: 'earmark' {DURATION}, not '5'",
        "yard.yaml:7:15: unknown key 'weigt' in tenant 'a'; did you mean 'weight'?",
    ] == refusals(text)


def test_a_file_of_another_kind_does_not_fill_the_screen(fleet: str, refusals: Refusals) -> None:
    lines = refusals(fleet + "".join(f"key{number}: 1\n" for number in range(1000)))

    assert 51 == len(lines)
    assert "yard.yaml: and more problems; mend these first" == lines[-1]


def test_one_problem_is_one_line_whatever_the_file_holds(fleet: str, refusals: Refusals) -> None:
    text = fleet + 'policy: "de\\nfault"\ntenants: {a: {parent: "\\e[31m"}}\n'

    assert [
        "yard.yaml:6:9: unknown policy 'de\\nfault'; did you mean 'default'?",
        "yard.yaml:7:23: unknown tenant '\\x1b[31m' as parent of 'a'; add it first",
    ] == refusals(text)
