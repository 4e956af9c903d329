"""Golden traces: every decision of every preset on a small trace, as text that is read in review.

`UPDATE_GOLDEN=1 make test` rewrites the files. A diff here is a change of behaviour: say in the commit why it is right.
"""

import os
from difflib import unified_diff
from pathlib import Path

import pytest

from gpuyard.model import JobClass, Market, Node, Plan, Pool, Quota, ReasonCode, Settings, Tenant
from gpuyard.policies import registry
from gpuyard.sim import generate
from gpuyard.sim.simulate import Simulation

HERE = Path(__file__).parent
GPUS = 32
SUBMITTERS = [
    ("research/ana", "batch", 4),
    ("research/ben", "batch", 3),
    ("product/kim", "batch", 3),
    ("product/lee", "urgent", 1),
    ("interns/max", "batch", 4),
]
SETTINGS = Settings(
    tenants=(
        Tenant("research", 3, Quota(guarantee={"total": 12_000})),
        Tenant("product", 2, Quota(guarantee={"total": 10_000}, lend={"total": 8_000})),
        Tenant("interns", 1, Quota(limit={"total": 12_000})),
    ),
    classes=(JobClass("batch"), JobClass("urgent", priority=100, preemptible=False)),
)


class Recorded:
    """Writes down what a simulation decides."""

    def __init__(self, nodes: tuple[Node, ...]) -> None:
        self.nodes = nodes
        self.lines: list[str] = []

    def __call__(self, plan: Plan, now_ms: int) -> None:
        said = [f"start {s.job_id}.{s.attempt} on {self._where(s.grants)}" for s in plan.starts]
        said += [f"stop {s.job_id}.{s.attempt} for {s.for_job} ({s.cause.value})" for s in plan.stops]
        said += [f"keep {self._where(e.grants)} for {e.job_id}" for e in plan.earmarks]
        said += [f"promise {r.job_id} by {r.at_ms / 1000:.3f}" for r in plan.reservations]
        if not plan.empty:
            counts: dict[str, int] = {}
            for code in plan.codes:
                if code != ReasonCode.STARTED:
                    name = ReasonCode(code).name.lower()
                    counts[name] = counts.get(name, 0) + 1
            waits = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
            left = plan.waiting - len(plan.starts)
            self.lines.append(
                f"{now_ms / 1000:.3f} {'; '.join(said)}" + (f"; {left} wait ({waits})" if left else "")
            )

    def _where(self, grants) -> str:
        names = self.nodes
        return " ".join(f"{names[g.node].name}:{g.gpus:0{names[g.node].gpus}b}" for g in grants)


def decisions(name: str) -> str:
    trace = generate.poisson(160, GPUS, 1.6, 11, tenants=SUBMITTERS)
    for row in range(0, len(trace), 3):
        trace.deadline_ms[row] = trace.submit_ms[row] + 2 * trace.limit_ms[row]
    nodes = tuple(
        Node(f"n{i}", "c", "p", "H100", 8, 96_000, 1_000_000, 4, switch=f"s{i // 4}")
        for i in range(GPUS // 8)
    )
    recorded = Recorded(nodes)
    result = Simulation(
        trace,
        [Pool("p", "c", Market.RESERVED, nodes)],
        SETTINGS,
        registry.build(registry.PRESETS[name]),
        watch=recorded,
    ).run()
    recorded.lines.append(
        f"end: {result.finished} finished, {result.timeouts} timed out, {result.preemptions} preempted, "
        f"mean wait {sum(result.wait_ms) // max(1, len(result.wait_ms)) / 1000:.3f} s, "
        f"destroyed {result.destroyed_gpu_ms // 1000} GPU-s"
    )
    return "\n".join(recorded.lines) + "\n"


@pytest.mark.parametrize("name", sorted(registry.PRESETS))
def test_decisions_are_as_recorded(name: str) -> None:
    """The same trace, the same decisions, to the GPU."""
    path = HERE / f"{name}.txt"
    found = decisions(name)
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(found, encoding="utf-8")
    recorded = path.read_text(encoding="utf-8") if path.exists() else ""
    if found != recorded:
        diff = unified_diff(recorded.splitlines(), found.splitlines(), "recorded", "now", lineterm="", n=1)
        pytest.fail(
            f"decisions of {name} changed (UPDATE_GOLDEN=1 records them):\n" + "\n".join(list(diff)[:60])
        )


def test_every_golden_file_belongs_to_a_preset() -> None:
    """A preset that is gone takes its file with it."""
    assert sorted(registry.PRESETS) == sorted(path.stem for path in HERE.glob("*.txt"))
