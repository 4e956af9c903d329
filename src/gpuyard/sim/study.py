"""Several policies on one trace: the same jobs, the same fleet and the same failures for each of them.

A comparison is only worth something if nothing but the policy differs, so what the runs share is made here, once;
`sim/runs` runs them.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path

from gpuyard.core.explain.admission import impossible_reason
from gpuyard.errors import BadInput
from gpuyard.model import Ask, Market, Milli, PolicySpec, Pool, Reason, Settings, Whole
from gpuyard.model.units import HOUR_MS, MILLI
from gpuyard.policies import registry
from gpuyard.sim.faults import NodeChange, draw_failures, read_spot_reclaims
from gpuyard.sim.result import Result
from gpuyard.sim.simulate import NOTHING, Lacks, Progress, Simulation
from gpuyard.sim.trace import Trace

FAILURES_MAX = 2_000_000
"""More node failures than this are a mistake in the rate, and would fill the memory."""


@dataclass(frozen=True, slots=True)
class Faults:
    """What goes wrong with the nodes."""

    mtbf_hours: float | None = None
    """Mean time between failures of one node; None: nodes do not fail."""
    repair_hours: float = 1.0
    spot_trace: Path | None = None
    """Recorded availability that the spot nodes follow."""

    def __post_init__(self) -> None:
        mtbf, repair = self.mtbf_hours, self.repair_hours
        if mtbf is not None and not (isfinite(mtbf) and mtbf > 0 and isfinite(repair) and repair >= 0):
            raise BadInput(
                f"nodes cannot fail every {mtbf:g} hours and be repaired in {repair:g}",
                "Give hours: a mean time between failures above 0, and a time to repair of 0 or more.",
            )


class Study:
    """One trace on one fleet, for any number of policies."""

    def __init__(
        self,
        trace: Trace,
        pools: Sequence[Pool],
        settings: Settings,
        node_changes: Iterable[NodeChange] = (),
        lacks: Lacks = NOTHING,
    ) -> None:
        self.trace = trace
        self.pools = tuple(pools)
        self.settings = settings
        self.node_changes = tuple(node_changes)
        self.lacks = lacks
        self.results: list[Result] = []
        """Results of the policies run so far."""
        self.rejection: tuple[int, Reason] | None = None
        """The first job (by id) that could never start, and why. The same for every policy."""

    def simulate(self, spec: PolicySpec, progress: Progress | None = None) -> Result:
        """Run one policy, to the end of the trace or to Ctrl-C."""
        return self._simulation(spec).run(progress)

    def add(self, result: Result) -> None:
        """Take in what a policy came to."""
        self.results.append(result)
        if result.rejected and self.rejection is None:
            self.rejection = _first_rejection(self._simulation(self.settings.policy))

    def bare(self) -> "Study":
        """The same without results, for another process."""
        return Study(self.trace, self.pools, self.settings, self.node_changes, self.lacks)

    def _simulation(self, spec: PolicySpec) -> Simulation:
        return Simulation(
            self.trace,
            self.pools,
            self.settings,
            registry.build(spec),
            node_changes=self.node_changes,
            lacks=self.lacks,
        )


def _first_rejection(simulation: Simulation) -> tuple[int, Reason] | None:
    state, trace = simulation.state, simulation.trace
    judged: dict[tuple[int, int], Reason | None] = {}
    for row, spec in enumerate(trace.spec):
        key = (spec, trace.limit_ms[row] if state.walls is not None else 0)
        if key not in judged:
            judged[key] = impossible_reason(state, trace.specs[spec], key[1])
        reason = judged[key]
        if reason is not None:
            return row + 1, reason
    return None


def cut_trace(trace: Trace, jobs: int) -> Trace:
    """The trace up to a number of jobs."""
    if len(trace) <= jobs:
        return trace
    columns = ("spec", "submit_ms", "run_ms", "limit_ms", "deadline_ms")
    return replace(trace, **{column: getattr(trace, column)[:jobs] for column in columns})


# ----------------------------------------------------------------------
# Faults


def plan_node_changes(trace: Trace, pools: Sequence[Pool], faults: Faults, seed: int) -> list[NodeChange]:
    """When which nodes go down and come back, from the first submission until all work could be done.

    After that nothing fails any more, so that every simulation ends, even if its jobs take longer than its nodes last.
    """
    nodes = [node for pool in pools for node in pool.nodes]
    until_ms = _horizon_ms(trace, sum(node.gpus for node in nodes) * MILLI)
    causes: list[list[NodeChange]] = []
    if faults.mtbf_hours is not None:
        _check_rate(faults, len(nodes), until_ms)
        causes.append(
            draw_failures(
                len(nodes),
                until_ms,
                mtbf_hours=faults.mtbf_hours,
                repair_hours=faults.repair_hours,
                seed=seed,
            )
        )
    if faults.spot_trace is not None:
        spot = _spot_nodes(pools)
        if not spot:
            raise BadInput(
                "a spot trace needs spot nodes, and no pool has any",
                "Set 'market: spot' on a pool of the configuration.",
            )
        causes.append(read_spot_reclaims(faults.spot_trace, spot, until_ms))
    return causes[0] if len(causes) == 1 else list(_merged(causes))


def _check_rate(faults: Faults, nodes: int, until_ms: int) -> None:
    mtbf = faults.mtbf_hours
    assert mtbf is not None
    expected = nodes * until_ms / ((mtbf + faults.repair_hours) * HOUR_MS)
    if expected > FAILURES_MAX:
        raise BadInput(
            f"{nodes:,} nodes that fail every {mtbf:g} hours would fail {expected:,.0f} times in this trace",
            "The rate is per node and in hours; give a longer time between failures.",
        )


def _spot_nodes(pools: Sequence[Pool]) -> list[int]:
    markets = [pool.market for pool in pools for _node in pool.nodes]
    return [number for number, market in enumerate(markets) if market is Market.SPOT]


def _merged(causes: Sequence[Sequence[NodeChange]]) -> Iterator[NodeChange]:
    """One sequence of changes from several causes: a node is up again when no cause keeps it down any more."""
    changes = [(change, cause) for cause, own in enumerate(causes) for change in own]
    changes.sort(key=lambda pair: (pair[0].at_ms, pair[0].node, pair[0].up, pair[1]))
    down: dict[int, set[int]] = {}
    for change, cause in changes:
        held_by = down.setdefault(change.node, set())
        before = bool(held_by)
        if change.up:
            held_by.discard(cause)
        else:
            held_by.add(cause)
        if bool(held_by) != before:
            yield change


def _horizon_ms(trace: Trace, capacity_milli: int) -> int:
    """Twice the time that the trace takes without failures: its submissions, or its work if that takes longer."""
    if not len(trace):
        return 0
    milli = array("q", [_gpu_milli(spec.ask) for spec in trace.specs])
    work = sum(run_ms * milli[spec] for spec, run_ms in zip(trace.spec, trace.run_ms, strict=True))
    busy_ms = work // capacity_milli if capacity_milli else 0
    return 2 * (max(trace.submit_ms[-1], busy_ms) + max(trace.run_ms))


def _gpu_milli(ask: Ask) -> int:
    match ask.gpus:
        case Whole(count):
            return ask.tasks * count * MILLI
        case Milli(count, milli):
            return ask.tasks * count * milli
    # Asks that cannot be served yet are rejected and make no work.
    return 0
