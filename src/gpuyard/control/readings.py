"""What a report may read of a yard. Nothing here changes anything."""

from gpuyard.control.access.rights import ALL, Sight
from gpuyard.control.commands.configs import Configurations
from gpuyard.control.duties.duty import Duties
from gpuyard.control.reading.model import Model
from gpuyard.control.replica.labels import row_label
from gpuyard.control.serve import Yard
from gpuyard.control.views.audit import read_audit
from gpuyard.control.views.curves import gpu_memory_mib
from gpuyard.control.views.gpus import gpus_view
from gpuyard.control.views.topology import topology_view
from gpuyard.control.views.views import Views, check_cluster
from gpuyard.engines.contract import HasFence, Protection, Usage
from gpuyard.model.mig import MIG_MODELS
from gpuyard.model.units import DAY_MS, MILLI
from gpuyard.store import Store
from gpuyard.wire.replies.fleet import GpusReply, TopologyReply
from gpuyard.wire.replies.jobs import CurvesReply, ListedJob
from gpuyard.wire.replies.people import AuditLine


class Readings:
    """The yard, for reading."""

    def __init__(self, yard: Yard) -> None:
        self._yard = yard

    @property
    def model(self) -> Model:
        """The read model: live jobs and nodes at one event, immutable and without a lock."""
        return self._yard.views.reading.latest()

    @property
    def views(self) -> Views:
        """Lists of jobs and nodes, and single jobs."""
        return self._yard.views

    @property
    def configs(self) -> Configurations:
        """The configuration in force, its versions, and the tenants."""
        return self._yard.configs

    @property
    def store(self) -> Store:
        """The log, the history, and the rows of projections."""
        return self._yard.store

    @property
    def duties(self) -> Duties:
        """What this server does by itself."""
        return self._yard.duties

    @property
    def leads(self) -> bool:
        """Whether this server leads."""
        return self._yard.leader.epoch() is not None

    @property
    def now_ms(self) -> int:
        """Now."""
        return self._yard.now_ms()

    def gpus(self, cluster: str = "", sight: Sight = ALL) -> GpusReply:
        """What engines say of each GPU, of all clusters or of one, and the jobs on it."""
        if cluster:
            check_cluster(cluster, {node.cluster for node in self.model.nodes})
        found = gpus_view(
            self._yard.replica, self._yard.engines, self._yard.store.yard, self._yard.watch, sight
        )
        return {**found, "gpus": [each for each in found["gpus"] if cluster in ("", each["cluster"])]}

    def topology(self, cluster: str = "") -> TopologyReply:
        """How the GPUs of nodes are linked, of all clusters or of one."""
        if cluster:
            check_cluster(cluster, {node.cluster for node in self.model.nodes})
        return topology_view(self._yard.replica, self._yard.engines, cluster)

    def protections(self) -> tuple[Protection, ...]:
        """What engines enforce, kind by kind; nothing: they leave that to others."""
        fencing = [engine for engine in self._yard.engines.values() if isinstance(engine, HasFence)]
        return tuple([each for engine in fencing for each in engine.protections()])

    def curves(self, view: ListedJob) -> CurvesReply:
        """What the last try of a job, as it is shown, did over time."""
        return self._yard.measures.curves_of(view)

    def usage(self, view: ListedJob) -> Usage:
        """What the last try of a job used, as far as its engine knows."""
        return self._yard.measures.usage_of(view)(view["attempts"])

    def price(self, view: ListedJob) -> int:
        """What an hour of a GPU of a job cost in micro-dollars on the day of its start; 0: it is not known."""
        day = (view["started_ms"] or self.now_ms) // DAY_MS
        return self._yard.measures.price_of_node(view["nodes"][0], day) if view["nodes"] else 0

    def gpu_memory_mib(self, view: ListedJob) -> int:
        """The GPU memory that a job has; 0: nobody knows."""
        return gpu_memory_mib(view, self._gpu_model(view)) if view["gpus"] else 0

    def gpu_sizes(self, view: ListedJob) -> list[tuple[str, int, int]]:
        """The slices that GPUs like a job's can be cut into: name, memory, and part of the compute in thousandths."""
        geometry = MIG_MODELS.get(self._gpu_model(view))
        if geometry is None:
            return []
        return [
            (each.name, each.memory_mib, MILLI * each.compute // geometry.compute)
            for each in geometry.profiles
            if "+" not in each.name
        ]

    def _gpu_model(self, view: ListedJob) -> str:
        nodes = self._yard.replica.state.nodes.node
        return next((each.gpu_model for each in nodes if each.name in view["nodes"][:1]), "")

    def audit(self, user: str, before_seq: int | None, limit: int) -> tuple[list[AuditLine], int | None]:
        """What people did, the newest first, and where the next lines begin."""
        model = self.model

        def node(number: int) -> str:
            return model.nodes[number].name if number < len(model.nodes) else str(number)

        def job(job_id: int) -> str:
            """Its label; if the job is no longer known, its number."""
            live = model.jobs.get(job_id)
            if live is not None:
                return live.job.label
            row = self.store.history.find(job_id)
            return row_label(row) if row is not None else str(job_id)

        return read_audit(self.store, node, job, user=user, before_seq=before_seq, limit=limit)
