"""The jobs of `bench_slurm` under the simulator: the same order and backfill, without a cluster."""

import json
from collections.abc import Sequence

from figures import Row, table
from slurm_drive import HALF_LIFE_MIN, NODES
from slurm_trace import GPUS_PER_NODE, WEIGHTS, Ran, Sent, figures_of

from gpuyard.config.reading import loads
from gpuyard.model import JobSpec
from gpuyard.policies import registry
from gpuyard.sim.generate import make_gang_ask
from gpuyard.sim.simulate import Simulation
from gpuyard.sim.trace import Trace

_CONFIG = """\
version: 1
clusters:
  simulated:
    engine: local
    pools:
      main: {{nodes: {nodes}, gpus: {gpus} x A100-80GB, cpus: 64, memory: 500G}}
tenants:
{tenants}
policies:
  own: {{order: {order}, backfill: {backfill}, backfill_depth: 1000, depth_per_tenant: 1000}}
policy: own
fairness: {{half_life: {half_life}m, period: 1m}}
"""
_KINDS = ((("class", "fair"), "easy"), (("class", "fair"), "conservative"), (("class", "sjf"), "easy"))


def trace_of(sent: Sequence[Sent], turn_ms: int) -> Trace:
    """The stream as a trace; every job holds its GPUs so much longer, which is what a turn costs."""
    trace, known = Trace("bench_slurm"), dict[JobSpec, int]()
    for each in sent:
        spec = JobSpec(each.tenant, make_gang_ask(each.gpus, GPUS_PER_NODE))
        if spec not in known:
            known[spec] = len(trace.specs)
            trace.specs.append(spec)
        trace.spec.append(known[spec])
        trace.submit_ms.append(each.at_ms)
        trace.run_ms.append(each.run_ms + turn_ms)
        trace.limit_ms.append(60_000 * each.limit_min)
        trace.deadline_ms.append(0)
    return trace


def simulated(sent: Sequence[Sent], order: Sequence[str], backfill: str, turn_ms: int) -> Row:
    """The figures of one simulation."""
    config = loads(
        _CONFIG.format(
            nodes=NODES,
            gpus=GPUS_PER_NODE,
            tenants="\n".join(f"  {tenant}: {{weight: {weight}}}" for tenant, weight in WEIGHTS.items()),
            order=json.dumps(list(order)),
            backfill=backfill,
            half_life=HALF_LIFE_MIN,
        )
    )
    result = Simulation(
        trace_of(sent, turn_ms), config.pools, config.settings, registry.build(config.settings.policy)
    ).run()
    waits = dict(zip(result.job_id, result.wait_ms, strict=True))
    starts = {each.number: each.at_ms + waits[each.number] for each in sent}
    ran = [Ran(each, each.at_ms, starts[each.number], starts[each.number] + each.run_ms) for each in sent]
    return {"side": f"{' then '.join(order)}, {backfill}", **figures_of(ran)}


def rows_of(sent: Sequence[Sent], turn_ms: int) -> list[Row]:
    """Every kind."""
    return [simulated(sent, order, backfill, turn_ms) for order, backfill in _KINDS]


def text_of(rows: Sequence[Row], turn_ms: int) -> str:
    """The table."""
    keys = {
        "makespan s": "makespan_s",
        "wait mean s": "wait_mean_s",
        "p95": "wait_p95_s",
        "gangs of 16 and more, mean s": "big_wait_mean_s",
        "utilisation %": "utilisation_pct",
        "unfairness %": "unfairness_pct",
    }
    lines = [[row["side"], *[row[key] for key in keys.values()]] for row in rows]
    return (
        table(["simulated", *keys], lines)
        + f"\n\nEvery job holds its GPUs for {turn_ms} ms more than it runs."
    )
