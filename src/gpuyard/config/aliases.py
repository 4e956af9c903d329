"""Names that scripts use for pools, tenants and classes: a site that moves here need not edit its scripts."""

from gpuyard.config.findings import Findings
from gpuyard.config.schema import YardFile
from gpuyard.config.values import Engine
from gpuyard.errors import quoted, remedy
from gpuyard.model import Settings

MACHINE = "local"
"""The pool of a machine that has no pools in the file."""

_DEFAULTS = Settings()


def check_aliases(file: YardFile, findings: Findings) -> None:
    """Refuse names that lead nowhere."""
    pools = _pools(file)
    for name, wanted in (file.partitions or {}).items():
        if pools is not None and name in pools:
            text = f"partition {quoted(name)} is a pool; give it another name, or remove the line"
            findings.at_key(("partitions", name), text)
        for index, pool in enumerate(wanted):
            if pools is not None and pool not in pools:
                text = f"unknown pool {quoted(pool)} for partition {quoted(name)}; {remedy(pool, pools, 'pools')}"
                findings.at(("partitions", name, index), text)
    for name, tenant in (file.accounts or {}).items():
        if file.tenants and tenant.split("/")[0] not in file.tenants:
            known = remedy(tenant, file.tenants, "tenants")
            findings.at(
                ("accounts", name), f"unknown tenant {quoted(tenant)} for account {quoted(name)}; {known}"
            )
    classes = [klass.name for klass in _DEFAULTS.classes] if file.classes is None else list(file.classes)
    for name, klass in (file.qos or {}).items():
        if klass not in classes:
            known = remedy(klass, classes, "classes")
            findings.at(("qos", name), f"unknown class {quoted(klass)} for QOS {quoted(name)}; {known}")


def _pools(file: YardFile) -> list[str] | None:
    """The pools that there will be; None: Slurm knows."""
    found: list[str] = []
    for entry in file.clusters.values():
        if entry.pools is None and entry.engine == Engine.SLURM.value:
            return None
        found += entry.pools if entry.pools is not None else [MACHINE]
    return found
