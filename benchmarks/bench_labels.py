"""How long a pass takes when every waiting job chooses its nodes by labels.

`python benchmarks/bench_labels.py` fills 5,000 nodes with 50 labels each, keeps 10,000 jobs waiting and times decisions
in CPU time: once with jobs that select (`In`, `NotIn`, `Exists`, two at once) and, every fourth, prefer, and once with
the same jobs that do neither. Each way is run in a process of its own.
"""

import argparse
import json
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any

from gpuyard.cli.commands.bench.bench_yard import GPUS_PER_NODE, bench_yard
from gpuyard.cli.commands.bench.crowd import LoadedState
from gpuyard.core import apply
from gpuyard.model import JobSubmitted, Pool
from gpuyard.model.placement import Term, parse_terms
from gpuyard.sim.simulate import percentile_ms

VALUES = 10
"""Values that each label has over the fleet."""


class Choosy(LoadedState):
    """A full cluster whose waiting jobs choose by labels."""

    clock = staticmethod(time.process_time_ns)
    labels = 0
    chooses = False

    def _arrive(self) -> None:
        """Bring the queue to its length."""
        while self.state.queue.count < self._waiting and self._row < len(self._trace):
            job, row = self._trace.job(self._row), self._row
            self._row += 1
            spec = job.spec
            if self.chooses:
                ask = replace(spec.ask, selects=selection(row, self.labels))
                if row % 4 == 0:
                    ask = replace(
                        ask, prefers=((50, parse_terms(f"l{row % self.labels}=v{row % VALUES}")[0]),)
                    )
                spec = replace(spec, ask=ask)
            apply(self.state, JobSubmitted(self._now_ms, job._replace(spec=spec, submitted_ms=self._now_ms)))


def selection(row: int, labels: int) -> tuple[Term, ...]:
    """What the job of a row selects: about a tenth to nine tenths of the nodes."""
    key, other = row * 7 % labels, row * 11 % labels
    texts = (
        f"l{key} in (v{row % VALUES}, v{(row + 3) % VALUES})",
        f"l{key}!=v{row % VALUES}",
        f"l{key}, l{other}!=v{row % VALUES}",
        f"l{key}=v{row % VALUES} | l{other} in (v1, v2, v3)",
    )
    return parse_terms(texts[row % len(texts)])


def measure(
    nodes: int, waiting: int, labels: int, passes: int, policy: str, *, chooses: bool
) -> dict[str, Any]:
    """Decisions in CPU time."""
    yard = bench_yard(nodes * GPUS_PER_NODE, policy)
    marked = [
        replace(
            pool,
            nodes=tuple(
                [
                    replace(
                        node,
                        labels=tuple(
                            [(f"l{each}", f"v{(number * (each + 1)) % VALUES}") for each in range(labels)]
                        ),
                    )
                    for number, node in enumerate(pool.nodes)
                ]
            ),
        )
        for pool in yard.config.pools
    ]
    pools: tuple[Pool, ...] = tuple(marked)
    Choosy.labels, Choosy.chooses = labels, chooses
    crowd = Choosy(replace(yard, config=replace(yard.config, pools=pools)), waiting, passes, 0)
    for _ in range(passes):
        crowd.step()
    return {
        "chooses": chooses,
        "asks": len({record.shape.index for record in crowd.state.jobs.values()}),
        "waiting": crowd.state.queue.count,
        "running": len(crowd.state.running),
        "starts": crowd.starts,
        **{f"p{percent}_ms": round(percentile_ms(crowd.decide_ns, percent), 3) for percent in (50, 99)},
        "max_ms": round(max(crowd.decide_ns) / 1e6, 3),
    }


def main() -> None:
    """Read the command line, and measure both ways."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--waiting", type=int, default=10_000)
    parser.add_argument("--labels", type=int, default=50)
    parser.add_argument("--passes", type=int, default=200)
    parser.add_argument("--policy", default="default")
    parser.add_argument("--one", choices=("plain", "choosy"))
    given = parser.parse_args()
    if given.one:
        said = measure(
            given.nodes,
            given.waiting,
            given.labels,
            given.passes,
            given.policy,
            chooses=given.one == "choosy",
        )
        print(json.dumps(said))
        return
    for one in ("plain", "choosy"):
        subprocess.run([sys.executable, __file__, *sys.argv[1:], "--one", one], check=True)


if __name__ == "__main__":
    main()
