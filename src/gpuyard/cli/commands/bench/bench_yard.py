"""The yard that benchmarks run on: made of numbers alone, so that it is the same for everyone.

A policy that looks at tenants and classes is measured with some: three teams with weights, guarantees and limits that
submit other shares than they are guaranteed, and two classes, so that quotas bind and borrowing, reclaim and
preemption really happen. Other policies are measured without them, as other simulators do.
"""

from dataclasses import dataclass

from gpuyard.cli.commands.foresight.fleet import choose_policies, make_preset_config, make_uniform_pool
from gpuyard.config import Config
from gpuyard.model import JobClass, NamedBudget, PolicySpec, Quota, Settings, Tenant, Window
from gpuyard.model.settings import TOTAL
from gpuyard.model.units import MILLI
from gpuyard.sim import generate
from gpuyard.sim.trace import Trace

GPU_MODEL = "H100"
GPUS_PER_NODE = 8

_TEAMS = (
    # Path, weight, and percent of the GPUs: guaranteed, at most.
    ("research", 3, 40, 100),
    ("product", 2, 25, 60),
    ("interns", 1, 10, 35),
)

_SUBMITTERS = (
    # Tenant, class, and how many jobs in twenty.
    ("research", "batch", 9),
    ("product", "batch", 4),
    ("product", "urgent", 1),
    ("interns", "batch", 6),
)

_CLASSES = (JobClass("batch"), JobClass("urgent", priority=100, preemptible=False))

_PLENTY_MS = 10**18
"""GPU time that no benchmark spends."""
_ONE_TENANT = (("default", "", 1),)


@dataclass(frozen=True, slots=True)
class BenchYard:
    """A fleet, its settings, the policy to measure and the tenants that submit."""

    config: Config
    policy: PolicySpec
    submitters: tuple[tuple[str, str, int], ...]

    def trace(self, jobs: int, load: float, seed: int) -> Trace:
        """Poisson arrivals of these submitters on this fleet."""
        return generate.poisson(
            jobs, self.gpus, load, seed, tenants=self.submitters, gpus_per_node=GPUS_PER_NODE
        )

    @property
    def gpus(self) -> int:
        return sum(node.gpus for pool in self.config.pools for node in pool.nodes)


def bench_yard(gpus: int, policy: str, budgets: int = 0) -> BenchYard:
    """The yard to measure a preset on, with so many budgets that count its jobs and have enough for all of them."""
    pool = make_uniform_pool(gpus, GPU_MODEL, GPUS_PER_NODE)
    (spec,) = choose_policies(make_preset_config(Settings(), pool), [policy])
    shared = looks_at_who_asks(spec)
    tenants = tuple(_tenant(gpus, *team) for team in _TEAMS) if shared else ()
    whose = ("", *[tenant.path for tenant in tenants])
    rules = [
        NamedBudget(f"budget-{n}", _PLENTY_MS, tenant=whose[n % len(whose)], window=Window.QUARTER)
        for n in range(budgets)
    ]
    settings = Settings(tenants=tenants, classes=_CLASSES, policy=spec, budgets=tuple(rules))
    return BenchYard(make_preset_config(settings, pool), spec, _SUBMITTERS if shared else _ONE_TENANT)


def looks_at_who_asks(spec: PolicySpec) -> bool:
    """Whether tenants and classes make a difference to a policy."""
    return not {"class", "fair"}.isdisjoint(spec.order) or not {"class", "reclaim"}.isdisjoint(
        spec.preemption
    )


def _tenant(gpus: int, path: str, weight: int, guaranteed_percent: int, most_percent: int) -> Tenant:
    # Every tenant must be able to run the largest job, or small fleets would measure rejections.
    largest = min(gpus, max(generate.SIZES))
    guarantee = gpus * guaranteed_percent // 100
    most = max(largest, gpus * most_percent // 100)
    quota = Quota(guarantee={TOTAL: guarantee * MILLI}, limit={TOTAL: most * MILLI})
    return Tenant(path, weight, quota)
