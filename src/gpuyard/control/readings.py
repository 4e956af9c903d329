"""What a report may read of a yard. Nothing here changes anything."""

from gpuyard.control.commands.configs import Configurations
from gpuyard.control.reading.model import Model
from gpuyard.control.replica.labels import row_label
from gpuyard.control.serve import Yard
from gpuyard.control.views.audit import audit
from gpuyard.control.views.signals import gpus_view
from gpuyard.control.views.views import Views
from gpuyard.store import Store
from gpuyard.wire.replies.fleet import GpusReply
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
    def now_ms(self) -> int:
        """Now."""
        return self._yard.now_ms()

    def gpus(self) -> GpusReply:
        """What the engine says of each GPU, and the jobs on it."""
        return gpus_view(self._yard.books, self._yard.engine, self._yard.store.yard)

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
            row = self.store.history(job_id)
            return row_label(row) if row is not None else str(job_id)

        return audit(self.store, node, job, user=user, before_seq=before_seq, limit=limit)
