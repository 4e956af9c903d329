"""The reference books with walls of pools: what a wall changes of a job that comes, and of room that is kept.

Whether a job may enter a pool is judged in `judge`, node by node.
"""

from dataclasses import replace

from gpuyard.model import ConfigSet, Event, JobClass
from gpuyard.model.walls import Wall
from harness.reference.books import Books, Live
from harness.reference.judge import layouts


class WalledBooks(Books):
    """Books that know which pools a job may enter."""

    def fold(self, event: Event) -> None:
        """As ever; what is kept for a job in a pool that is closed to it now is kept no longer."""
        super().fold(event)
        if isinstance(event, ConfigSet):
            for live in self.jobs.values():
                if live.earmark is None:
                    continue
                numbers = {grant.node for grant in live.earmark.grants}
                could = layouts(self, live.job.spec.ask, walled=live)
                if not any(
                    numbers <= set(layout.numbers) and len(numbers) <= layout.nodes_max for layout in could
                ):
                    live.earmark = None

    def klass(self, live: Live) -> JobClass:
        """The class, raised by the pools that the job names, and not preemptible in pools that are not."""
        klass, ask = super().klass(live), live.job.spec.ask
        here = {f"{cluster}/{pool}": pool for pool in ask.pools for cluster in self._clusters()}
        named = {place: self.settings.walls[place] for place in here if place in self.settings.walls}
        if ask.clusters:
            named = {place: wall for place, wall in named.items() if place.partition("/")[0] in ask.clusters}
        all_named = {here[place] for place in here if place in self.settings.walls} == set(ask.pools)
        tier = min([wall.priority for wall in named.values()], default=0) if all_named else 0
        runs_in = [self.nodes[grant.node] for grant in live.attempt.grants] if live.attempt else []
        walls = [self.settings.walls.get(f"{node.cluster}/{node.pool}", Wall()) for node in runs_in]
        sheltered = any(not wall.preemptible for wall in walls)
        priority = klass.priority + tier * 10_000_000_000
        return replace(klass, priority=priority, preemptible=klass.preemptible and not sheltered)

    def _clusters(self) -> set[str]:
        return {place.partition("/")[0] for place in self.settings.walls}

    def default_ms(self, live: Live) -> int:
        """The longest that one of the pools gives that could hold the job and take it."""
        # It has no limit yet, so that no time limit keeps it out.
        assert live.limit_ms == 0
        nodes = [
            self.nodes[number]
            for layout in layouts(self, live.job.spec.ask, walled=live)
            for number in layout.numbers
        ]
        most_ms = self.klass(live).limit_ms
        walls = [self.settings.walls.get(f"{node.cluster}/{node.pool}", Wall()) for node in nodes]
        given = [wall.default_time_ms or wall.time_limit_ms or most_ms for wall in walls]
        return min(most_ms, max(given, default=most_ms))
