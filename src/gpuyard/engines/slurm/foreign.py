"""Slurm's nodes and jobs as an observer tells of them: plain values of the contract."""

from collections.abc import Mapping

from gpuyard.engines.contract import NodeReport
from gpuyard.engines.observer import ForeignJob, ForeignJobs, ForeignState
from gpuyard.engines.slurm.site.accounting import JobRow, Jobs
from gpuyard.engines.slurm.site.gpu_types import GpuTypes
from gpuyard.engines.slurm.site.notes import Notes
from gpuyard.engines.slurm.site.pools import group_nodes, read_gpus
from gpuyard.engines.slurm.site.site import SlurmSite
from gpuyard.engines.slurm.words.rows import SlurmNode
from gpuyard.engines.slurm.words.states import AGAIN, DRAINED, OUTCOMES, wait_cause
from gpuyard.model import Node, Outcome
from gpuyard.model.units import MILLI

ROOT = "root"
"""Slurm's account above all others, which is no tenant."""
ENDS = {**OUTCOMES, "PREEMPTED": Outcome.CANCELLED, "REQUEUED": Outcome.CANCELLED}
"""How a try ends. The yard lets nothing wait again here: where Slurm does, that is another try."""


# -- nodes -----------------------------------------------------------------------------------------------------------


def report_nodes(site: SlurmSite, cluster: str, types: GpuTypes) -> tuple[NodeReport, ...]:
    """All nodes: those of each pool together, then those that are in no partition."""
    notes = Notes()
    pools = group_nodes(site, types, notes)
    found = [_report(node, cluster, pool, types, notes) for pool, nodes in pools.items() for node in nodes]
    placed = {report.node.name for report in found}
    rest = [_report(node, cluster, "", types, notes) for node in site.nodes if node.name not in placed]
    return (*found, *rest)


def _report(slurm: SlurmNode, cluster: str, pool: str, types: GpuTypes, notes: Notes) -> NodeReport:
    gpus, model, group = read_gpus(slurm, types, notes)
    node = Node(
        slurm.name,
        cluster,
        pool,
        model,
        gpus,
        max(1, slurm.cpus) * MILLI,
        max(1, slurm.memory_mib),
        nvlink_group_size=group,
        features=slurm.features,
    )
    if slurm.states & DRAINED.keys():
        return NodeReport(node, True, drained=slurm.reason or "drained in Slurm")
    why = "" if slurm.up else f"{slurm.state.lower()}: {slurm.reason or 'no reason given'}"
    return NodeReport(node, slurm.up, why)


# -- jobs ------------------------------------------------------------------------------------------------------------


def read_foreign_jobs(jobs: Jobs, names: Mapping[str, str]) -> ForeignJobs:
    """The rows that could be read; `names` are tenants by accounts and users, where these are called otherwise."""
    rows = [foreign_job(row, names) for row in jobs.rows]
    return ForeignJobs(rows, jobs.broken, jobs.broken_named[0] if jobs.broken_named else "")


def foreign_job(row: JobRow, names: Mapping[str, str]) -> ForeignJob:
    """One try."""
    held = row.held
    return ForeignJob(
        number=row.array_id or row.id,
        submitted_ms=row.submit_ms,
        state=_state(row),
        index=row.array_index if row.array_id else None,
        name=row.name,
        user=row.user,
        member=names.get(row.user, row.user),
        account="" if row.account == ROOT else names.get(row.account, row.account),
        klass=row.qos,
        project=row.wckey,
        eligible_ms=row.eligible_ms,
        started_ms=row.start_ms if row.ran else 0,
        ended_ms=row.end_ms,
        limit_ms=row.limit_ms,
        gpus=held.gpus,
        cpu_milli=held.cpu_milli,
        memory_mib=held.memory_mib,
        width=held.nodes,
        models=row.asked.models,
        nodes=row.nodes,
        reason=row.reason,
        cause=wait_cause(row.reason),
        outcome=None if row.live else ENDS.get(row.state, Outcome.FAILED),
        exit_code=row.exit_code,
        why=row.state.lower() if row.state in AGAIN else "",
        again=row.state in AGAIN,
    )


def _state(row: JobRow) -> ForeignState:
    if not row.live:
        return ForeignState.ENDED
    if row.state == "PENDING":
        return ForeignState.WAITING
    return ForeignState.SUSPENDED if row.state == "SUSPENDED" else ForeignState.RUNNING
