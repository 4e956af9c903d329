"""The engines of one server: opened, compared with the log, by cluster, and made once more for the leader."""

from collections.abc import Callable, Mapping

from gpuyard.control.clusters import Clusters
from gpuyard.control.commands.observed import ObservedClusters
from gpuyard.control.fleet import Fleet
from gpuyard.control.loop.folder_memory import Witness, open_memory
from gpuyard.control.places import DataDir
from gpuyard.control.replica.labels import current_key
from gpuyard.control.replica.replica import Replica
from gpuyard.core.jobs.records import JobRecord
from gpuyard.engines.contract import EngineError, Phase
from gpuyard.engines.engine_process import EngineApart, Line, fork_spare
from gpuyard.engines.local.engine import LocalEngine
from gpuyard.engines.machine.beside_process import Child
from gpuyard.engines.observer import ForeignJob, Observer
from gpuyard.errors import YardError
from gpuyard.model import WaitCause


def fork_spare_process(fleet: Fleet, leads: bool) -> Child[Line] | None:
    """A process for the engine of this machine, made before anything is open that it must not have."""
    return fork_spare() if leads and any([cluster.here for cluster in fleet.clusters]) else None


class OpenEngines:
    """The engines of all clusters."""

    def __init__(
        self, fleet: Fleet, data: DataDir, waiting: Callable[[], Mapping[str, Mapping[str, ForeignJob]]]
    ) -> None:
        """`waiting`: jobs of which observers told why they wait, by cluster and key."""
        self._fleet = fleet
        self._waiting = waiting
        self._data = data
        try:
            engines = fleet.engines(data)
        except EngineError as error:
            raise YardError(str(error)) from error
        own = next((cluster.name for cluster in fleet.clusters if cluster.here), "")
        # Every other cluster has a folder by its name.
        self.by_cluster = Clusters(engines, own, lambda name: data.engine_of(name).exists())
        looks = {name: each.scheduler for name, each in self.by_cluster.items() if isinstance(each, Observer)}
        self.observed = ObservedClusters(looks, only=len(looks) == len(self.by_cluster))
        self.here = {name: each for name, each in self.by_cluster.items() if isinstance(each, LocalEngine)}
        """The engines whose nodes are this machine, by cluster."""
        self.behind = ""
        """What people should know about a log that was behind the engine's folder; empty: nothing."""

    @property
    def closing(self) -> list[Callable[[], None]]:
        """What closes each of them, in the order of the file."""
        return [engine.close for engine in self.by_cluster.values()]

    def compare_log(self, replica: Replica, older_log: bool) -> dict[str, Witness]:
        """Whether the log knows at least what the local engine's folder has seen. `older_log`: go on if it does not."""
        return {name: self._witness(engine, replica, older_log) for name, engine in self.here.items()}

    def _witness(self, engine: LocalEngine, replica: Replica, older_log: bool) -> Witness:
        store = replica.store
        with replica.lock:
            replica.catch_up()
            owned = {current_key(store.yard, record) for record in replica.state.running.values()}
        alive = [report.key for report in engine.listing() if report.phase is not Phase.ENDED]
        strange = [key for key in alive if key not in owned]
        witness, self.behind = open_memory(self._data.engine, store, strange, told=older_log)
        engine.adopt(witness.adopted)
        return witness

    def apart(self, spare: Child[Line] | None, witnesses: Mapping[str, Witness]) -> dict[str, EngineApart]:
        """The engines of this machine as the leader has them: in processes of their own, which no request delays."""
        made = {}
        for cluster in self._fleet.clusters if spare is not None else ():
            if cluster.here:
                making = cluster.making(witnesses[cluster.name].adopted, self._data, self._fleet.settings)
                made[cluster.name] = EngineApart(self.here[cluster.name], making, spare)
                spare = None
        return made

    def reason(self, record: JobRecord) -> str:
        """Why a job waits in the words of the scheduler that decides about it; empty: none does, or it does not say."""
        found = self._told_of(record)
        if found is not None:
            return found.reason
        origin = record.job.spec.origin
        named, _ = self.observed.place_of(origin)
        return "it waits there" if named and origin.startswith(f"{named}:") else ""

    def named_reason(self, record: JobRecord) -> str:
        """The same, with the name of that scheduler."""
        reason = self.reason(record)
        return f"{self.scheduler_name(record)}: {reason}" if reason else ""

    def scheduler_name(self, record: JobRecord) -> str:
        """What the scheduler is called that decides about a job; empty: the yard does."""
        return self.observed.name_of(record.job.spec.origin)

    def cause(self, record: JobRecord) -> WaitCause:
        """What a job waits for, as that scheduler says."""
        found = self._told_of(record)
        return found.cause if found is not None else WaitCause.UNKNOWN

    def _told_of(self, record: JobRecord) -> ForeignJob | None:
        """What was told of a job that another scheduler decides about; None: nothing."""
        cluster, key = self.observed.place_of(record.job.spec.origin)
        return self._waiting().get(cluster, {}).get(key)
