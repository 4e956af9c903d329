"""All rules over one look."""

from gpuyard.engines.slurm.doctor import setup, work
from gpuyard.engines.slurm.doctor.evidence import Evidence, Finding, Level

RULES = (
    setup.check_daemons,
    setup.check_accounting,
    work.check_resources,
    work.check_nodes,
    setup.check_sharing,
    setup.check_priorities,
    setup.check_scheduling,
    setup.check_requeueing,
    work.check_jobs,
    work.check_asking,
    work.check_rows,
)
"""In the order of the report."""


def apply_rules(look: Evidence) -> list[Finding]:
    """Faults first, then advice; each in the order of the rules."""
    found = [finding for rule in RULES for finding in rule(look)]
    return sorted(found, key=lambda finding: finding.level is not Level.FAULT)
