"""All rules over one look."""

from gpuyard.engines.slurm.doctor import setup, work
from gpuyard.engines.slurm.doctor.evidence import Evidence, Finding, Level

RULES = (
    setup.daemons,
    setup.accounting,
    work.resources,
    work.nodes,
    setup.sharing,
    setup.priorities,
    setup.scheduling,
    setup.requeueing,
    work.jobs,
    work.asking,
    work.rows,
)
"""In the order of the report."""


def findings(look: Evidence) -> list[Finding]:
    """Faults first, then advice; each in the order of the rules."""
    found = [finding for rule in RULES for finding in rule(look)]
    return sorted(found, key=lambda finding: finding.level is not Level.FAULT)
