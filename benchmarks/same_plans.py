"""Does this checkout decide the same as another one? Both simulate the same histories, and every plan is compared.

    python benchmarks/same_plans.py BEFORE [--histories 1000] [--first 0]

BEFORE is another checkout, for instance a clone of the commit before. A history is a fleet, tenants, classes, a policy,
jobs and failures of nodes, all drawn from its number: most are small and full of rare things, every fourth is a yard of
`yard bench`. Each checkout prints one hash for each history, of every plan with its time: what starts where, what
stops, what is kept and promised, which jobs were examined and with which answer, and of what was measured in the end. A
change that is for speed alone gives the same hashes; the first histories that differ are named.
"""

import argparse
import hashlib
import os
import subprocess
import sys
from pathlib import Path
from random import Random

HOUR_MS = 3_600_000
NAMED_MAX = 10
PLANS_MAX = 1500
"""A history ends after so many plans."""


def hashed(number: int) -> str:
    """Simulate a history with the checkout that is on the path, and hash all that it decides."""
    from gpuyard.model import Plan  # noqa: PLC0415 (that of the checkout being measured)
    from gpuyard.sim.simulate import Simulation  # noqa: PLC0415

    digest = hashlib.sha256()
    left = [PLANS_MAX]

    def watch(plan: Plan, now_ms: int) -> None:
        digest.update(repr((now_ms, tuple(plan))).encode())
        left[0] -= 1
        if not left[0]:
            # Jobs that wait for a budget, or stop each other in turn, would go on for months.
            raise KeyboardInterrupt

    random = Random(f"history {number}")
    trace, pools, settings, policy, changes = benched(random) if number % 4 == 0 else drawn(random)
    try:
        result = Simulation(trace, pools, settings, policy, node_changes=changes, watch=watch).run()
    except Exception as error:
        # A defect, but no difference, if both have it: it is told.
        digest.update(repr(error).encode())
        return f"{digest.hexdigest()[:32]}-{type(error).__name__}"
    measured = (result.finished, result.timeouts, result.preemptions, result.destroyed_gpu_ms)
    columns = (result.job_id, result.wait_ms, result.samples.used_milli, *result.samples.tenant_used_milli)
    digest.update(repr((measured, [list(column) for column in columns])).encode())
    return digest.hexdigest()[:32]


def benched(random: Random):  # type: ignore[no-untyped-def]
    """The yard that benchmarks run on, smaller."""
    from gpuyard.cli.commands.bench.bench_yard import bench_yard  # noqa: PLC0415
    from gpuyard.policies.registry import PRESETS, build  # noqa: PLC0415

    name = random.choice(["default", "default", "default", "fifo", *PRESETS])
    yard = bench_yard(random.choice((32, 64, 128, 256)), name, random.choice((0, 0, 0, 4)))
    trace = yard.trace(
        random.choice((100, 200, 400)), random.choice((0.7, 1.05, 1.3)), random.randrange(1 << 30)
    )
    nodes = sum([len(pool.nodes) for pool in yard.config.pools])
    changes = failures(random, nodes, trace.submit_ms[-1]) if random.random() < 0.2 else []
    return trace, yard.config.pools, yard.config.settings, build(yard.policy), changes


def drawn(random: Random):  # type: ignore[no-untyped-def]
    """A small yard with everything that a policy can look at."""
    from gpuyard.model import PolicySpec  # noqa: PLC0415
    from gpuyard.policies.registry import ORDERS, PLACEMENTS, PREEMPTIONS, PRESETS, build  # noqa: PLC0415

    pools = fleet(random)
    spec = random.choice(list(PRESETS.values()))
    if random.random() < 0.4:
        spec = PolicySpec(
            "drawn",
            tuple(random.sample(sorted(ORDERS), random.randint(1, 3))),
            random.choice(sorted(PLACEMENTS)),
            random.choice(("easy", "easy", "conservative", "none")),
            random.choice((3, 20, 100)),
            random.choice((2, 10, 50)),
            tuple(random.sample(sorted(PREEMPTIONS), random.randint(0, 2))),
            random.random() < 0.8,
        )
    gpus = sum([node.gpus for pool in pools for node in pool.nodes])
    trace = jobs(random, pools)
    changes = (
        failures(random, sum([len(p.nodes) for p in pools]), 3 * HOUR_MS) if random.random() < 0.3 else []
    )
    return trace, pools, rules(random, gpus, spec), build(spec), changes


def fleet(random: Random):  # type: ignore[no-untyped-def]
    """One to three pools of nodes that are alike."""
    from gpuyard.model import Market, Node, Pool  # noqa: PLC0415

    pools, count = [], 0
    for index in range(random.choice((1, 1, 2, 3))):
        model, size = random.choice(("H100", "H100", "A100-80GB", "L40S")), random.choice((2, 4, 8, 8))
        cluster = random.choice(("main", "main", "other"))
        group = random.choice((0, 0, 2, size))
        cores, memory = random.choice((16_000, 64_000)), random.choice((65_536, 262_144))
        nodes = []
        for _ in range(random.randint(1, 6)):
            switch = f"s{count // 3}"
            nodes.append(
                Node(f"n{count}", cluster, f"p{index}", model, size, cores, memory, group, switch=switch)
            )
            count += 1
        pools.append(Pool(f"p{index}", cluster, Market.RESERVED, tuple(nodes)))
    return pools


def rules(random: Random, gpus: int, spec):  # type: ignore[no-untyped-def]
    """Tenants with quotas and budgets, classes, and the rest of a configuration."""
    from gpuyard.model import Budget, JobClass, NamedBudget, Quota, Settings, Tenant, Window  # noqa: PLC0415
    from gpuyard.model.settings import BudgetAction  # noqa: PLC0415
    from gpuyard.model.units import NO_LIMIT_MS  # noqa: PLC0415

    plain = random.random() < 0.2
    tenants = []
    for path in () if plain else ("a", "a/x", "a/y", "b", "b/z", "c"):
        if random.random() < 0.3:
            continue
        part = lambda: {"total": random.randint(0, gpus) * 1000}  # noqa: E731
        rare = lambda value, other, chance=0.15: value if random.random() < chance else other  # noqa: E731
        quota = Quota(
            guarantee=rare(part(), {}, 0.5),
            limit=rare(part(), {}, 0.3),
            borrow=rare(part(), {}),
            lend=rare(part(), {}),
            max_gpus_per_job=rare(random.randint(1, gpus) * 1000, None),
            max_gpus_per_user=rare(random.randint(1, gpus) * 1000, None),
            max_running_jobs=rare(random.randint(1, 6), None),
        )
        budget = rare(Budget(random.randint(1, 40) * HOUR_MS, 6 * HOUR_MS), None, 0.03)
        tenants.append(Tenant(path, random.choice((1, 1, 2, 5)), quota, budget))
    budgets = []
    if random.random() < 0.08:
        action = random.choice(list(BudgetAction))
        spent_ms = random.randint(1, 60) * HOUR_MS
        budgets.append(NamedBudget("one", spent_ms, tenant="a", window=Window.WEEK, action=action))
    # A job without a limit never starts under a budget, and its windows would be followed for months.
    budgeted = budgets or any([tenant.budget for tenant in tenants])
    most_ms = 4 * HOUR_MS if budgeted else NO_LIMIT_MS
    classes = (
        JobClass("batch", 0, True, most_ms, random.choice((0, 300_000)), random.choice((0, 30_000))),
        JobClass("urgent", priority=100, preemptible=False, limit_ms=4 * HOUR_MS),
        JobClass("low", -10, limit_ms=most_ms),
    )
    return Settings(
        tenants=tuple(tenants),
        classes=classes,
        period_ms=random.choice((60_000, 300_000)),
        half_life_ms=random.choice((HOUR_MS, 24 * HOUR_MS)),
        whole_gpus=random.choice((0, 0, 0, 2)),
        attempts_per_node=random.choice((0, 0, 0, 3)),
        attempts_per_user=random.choice((0, 0, 0, 5)),
        policy=spec,
        budgets=tuple(budgets),
    )


def jobs(random: Random, pools):  # type: ignore[no-untyped-def]
    """More jobs than the fleet can take at once, many of them alike."""
    from gpuyard.model import Ask, JobSpec, Mig, Milli, Whole  # noqa: PLC0415
    from gpuyard.sim.trace import Trace  # noqa: PLC0415

    trace = Trace("drawn")
    size = max([node.gpus for pool in pools for node in pool.nodes])
    form = random.choice(("whole", "whole", "mixed"))
    for _ in range(random.randint(2, 14)):
        request, tasks = Whole(random.choice((1, 1, 2, size // 2, size))), random.choice((1, 1, 1, 2, 3))
        if form == "mixed" and random.random() < 0.4:
            request, tasks = Milli(random.choice((1, 2)), random.choice((125, 250, 500))), 1
            if random.random() < 0.3:
                request = Mig(1, random.choice(("1g.10gb", "2g.20gb", "3g.40gb")))
        ask = Ask(
            request,
            tasks,
            cpu_milli=random.choice((0, 0, 2000, 8000)),
            memory_mib=random.choice((0, 0, 8192)),
            models=random.choice(((), (), ("H100",))),
            pools=random.choice(((), (), ("p0",))),
            nodes_max=random.choice((0, 0, 0, 4)),
        )
        trace.specs.append(
            JobSpec(
                random.choice(("a", "a/x", "a/y", "b/z", "c", "new")),
                ask,
                klass=random.choice(("batch", "batch", "urgent", "low")),
                checkpoint_ms=random.choice((0, 0, 600_000)),
                restart_cost_ms=random.choice((0, 60_000)),
                user=random.choice(("", "ann", "bob")),
            )
        )
    at_ms, mean_ms = 0, random.choice((5_000, 60_000, 240_000))
    for _ in range(random.randint(40, 160)):
        at_ms += (
            0
            if random.random() < 0.2 and trace.run_ms
            else int(random.expovariate(1 / mean_ms)) * (len(trace) > 0)
        )
        run_ms = int(random.lognormvariate(0, 1.5) * 600_000) + 1
        trace.spec.append(random.randrange(len(trace.specs)))
        trace.submit_ms.append(at_ms)
        trace.run_ms.append(run_ms)
        trace.limit_ms.append(
            random.choice((0, run_ms // 2 + 1, 2 * run_ms, 3 * run_ms + 60_000, 2 * HOUR_MS))
        )
        trace.deadline_ms.append(random.choice((0, at_ms + 4 * run_ms)))
    return trace


def failures(random: Random, nodes: int, until_ms: int):  # type: ignore[no-untyped-def]
    """Nodes that go down and come back."""
    from gpuyard.sim.faults import draw_failures  # noqa: PLC0415

    return draw_failures(
        nodes,
        until_ms,
        mtbf_hours=max(1.0, until_ms / HOUR_MS),
        repair_hours=0.3,
        seed=random.randrange(1 << 30),
    )


def run(tree: Path, first: int, last: int, python: Path) -> list[str]:
    """The hashes of a checkout."""
    command = [str(python), str(Path(__file__).resolve()), "--hash", f"{first}:{last}"]
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    done = subprocess.run(command, env=environment, cwd=tree, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.split()


def differing(before: list[str], now: list[str], first: int) -> list[int]:
    """The histories with different hashes; the first one's number is `first`."""
    return [first + at for at, (was, then) in enumerate(zip(before, now, strict=True)) if was != then]


def main() -> int:
    """Run both checkouts and compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", nargs="?", type=Path)
    parser.add_argument("--histories", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--hash", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.hash:
        first, last = map(int, options.hash.split(":"))
        for number in range(first, last):
            print(hashed(number), flush=True)
        return 0
    if options.before is None:
        parser.error("which checkout to compare with?")
    first, last = options.first, options.first + options.histories
    here, python = Path(__file__).resolve().parents[1], Path(sys.executable)
    before = run(options.before.resolve(), first, last, python)
    now = run(here, first, last, python)
    differ = differing(before, now, first)
    print(f"{options.histories - len(differ)} of {options.histories} histories give the same plans")
    raised = [first + at for at, each in enumerate(now) if "-" in each]
    if raised:
        print(f"these end in an error: {', '.join(map(str, raised[:NAMED_MAX]))}")
    if differ:
        print(f"not these: {', '.join(map(str, differ[:NAMED_MAX]))}")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
