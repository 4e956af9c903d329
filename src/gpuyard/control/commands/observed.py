"""Clusters that schedule themselves: what is refused here, and the command of their own scheduler that does it."""

from collections.abc import Mapping

from gpuyard.control.refusals import Impossible
from gpuyard.core.jobs.records import JobRecord
from gpuyard.engines.observer import OwnScheduler
from gpuyard.errors import quote


class ObservedClusters:
    """Their schedulers, by cluster."""

    def __init__(self, schedulers: Mapping[str, OwnScheduler] | None = None, *, only: bool = False) -> None:
        """`only`: the yard drives no cluster, so nothing can be asked of it."""
        self._schedulers = schedulers or {}
        self._only = next(iter(self._schedulers)) if only else ""

    def __bool__(self) -> bool:
        return bool(self._schedulers)

    def place_of(self, origin: str) -> tuple[str, str]:
        """The observed cluster that an origin names, and its key there; twice empty: none of them.

        Where one cluster is observed and none is driven, origins name no cluster.
        """
        cluster, _, key = origin.rpartition(":")
        if not cluster and len(self._schedulers) == 1:
            cluster = self._only
        return (cluster, key) if key and cluster in self._schedulers else ("", "")

    def name_of(self, origin: str) -> str:
        """What the scheduler of the cluster is called that an origin names; empty: it names none of them."""
        cluster, _ = self.place_of(origin)
        return self._schedulers[cluster].name if cluster else ""

    def check_driven(self, what: str, about: str = "") -> None:
        """Raise where the yard drives no cluster; `what` is a field of `OwnScheduler`, or a verb about a job."""
        if self._only:
            raise self.refusal(self._only, what, about)

    def of_job(self, record: JobRecord, what: str) -> Impossible | None:
        """Why something is not done to a job: another scheduler has it. None: it is the yard's."""
        cluster, colon, key = record.job.spec.origin.rpartition(":")
        if not colon or cluster not in self._schedulers:
            return None
        return self.refusal(cluster, what, key.partition("@")[0])

    def refusal(self, cluster: str, what: str, about: str = "") -> Impossible:
        """Why something is not done in a cluster, with what to do instead."""
        own = self._schedulers[cluster]
        instead = f"Use {own.commands[what]} {about}" if what in own.commands else own.instead[what]
        return Impossible(
            f"cluster {quote(cluster)} is observed: {own.name} decides there, and nothing is changed from here",
            f"{instead}; or {own.otherwise}." if own.otherwise else f"{instead}.",
        )

    def check(self, clusters: tuple[str, ...], what: str) -> None:
        """Raise where the yard drives no cluster, or not all of these."""
        self.check_driven(what)
        for cluster in clusters:
            if cluster in self._schedulers:
                raise self.refusal(cluster, what)
