"""Accounts, users and QOS as `sacctmgr` has them. Pure readers from printed text to typed rows.

Some limits have a meaning here and are read into fields of their own. The others are kept as they are written, so that
the reader of a site can say that they are there.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuyard.engines.slurm.words.forms import (
    Unreadable,
    drop_null,
    limit_ms,
    parse_duration_ms,
    parse_table,
    parse_tres_map,
    parse_whole,
    split_names,
)

_ASSOCIATION_READ = (
    "Cluster", "Account", "User", "Partition", "ParentName", "Fairshare", "GrpTRES", "GrpTRESMins", "GrpJobs",
    "MaxTRESPerJob", "MaxJobs", "MaxWall", "QOS", "DefaultQOS",
)  # fmt: skip
_QOS_READ = (
    "Name", "Priority", "GraceTime", "Preempt", "PreemptMode", "PreemptExemptTime", "Flags", "GrpTRES",
    "MaxTRESPerJob", "MaxTRESPerUser", "MaxJobsPerUser", "MaxWall",
)  # fmt: skip
_ASSOCIATION_KEPT = {
    "GrpTRESRunMins": "grptresrunmins",
    "GrpSubmitJobs": "grpsubmit",
    "GrpJobsAccrue": "grpjobsaccrue",
    "GrpWall": "grpwall",
    "MaxTRESMinsPerJob": "maxtresmins",
    "MaxTRESPerNode": "maxtrespernode",
    "MaxSubmitJobs": "maxsubmit",
    "MaxJobsAccrue": "maxjobsaccrue",
}
"""Limits that are kept as they are written: what `format=` calls them, and how the header does."""
_QOS_KEPT = {
    "GrpTRESMins": "grptresmins",
    "GrpTRESRunMins": "grptresrunmins",
    "GrpJobs": "grpjobs",
    "GrpSubmitJobs": "grpsubmit",
    "GrpJobsAccrue": "grpjobsaccrue",
    "GrpWall": "grpwall",
    "MaxTRESPerNode": "maxtrespernode",
    "MaxTRESMinsPerJob": "maxtresmins",
    "MaxTRESPerAccount": "maxtrespa",
    "MaxTRESRunMinsPerUser": "maxtresrunminspu",
    "MaxTRESRunMinsPerAccount": "maxtresrunminspa",
    "MaxJobsPerAccount": "maxjobspa",
    "MaxSubmitJobsPerUser": "maxsubmitpu",
    "MaxSubmitJobsPerAccount": "maxsubmitpa",
    "MaxJobsAccruePerUser": "maxjobsaccruepu",
    "MaxJobsAccruePerAccount": "maxjobsaccruepa",
    "MinTRESPerJob": "mintres",
    "MinPrioThreshold": "minpriothres",
    "UsageFactor": "usagefactor",
    "UsageThreshold": "usagethres",
    "LimitFactor": "limitfactor",
}
_AS_USUAL = {"UsageFactor": 1.0, "LimitFactor": 0.0, "UsageThreshold": 0.0, "MinPrioThreshold": 0.0}
"""Values that mean that nothing is set."""

ASSOCIATION_FIELDS = (*_ASSOCIATION_READ, *_ASSOCIATION_KEPT)
QOS_FIELDS = (*_QOS_READ, *_QOS_KEPT)
ASSOCIATION_FIELDS_OLD, QOS_FIELDS_OLD = _ASSOCIATION_READ, _QOS_READ
"""For releases that do not know all of them: with one unknown field `sacctmgr` prints nothing at all."""


@dataclass(frozen=True, slots=True)
class Association:
    """An account, or a user in an account."""

    cluster: str
    account: str
    user: str
    """Empty: the row is the account's own."""
    partition: str
    parent: str
    share: int | None
    """None: it shares what its account has (`fairshare=parent`)."""
    group_tres: Mapping[str, str]
    group_minutes: Mapping[str, str]
    group_jobs: int | None
    job_tres: Mapping[str, str]
    max_jobs: int | None
    max_wall_ms: int
    qos: tuple[str, ...]
    default_qos: str
    kept: Mapping[str, str] = field(default_factory=dict)
    """Limits that are set and have no field here, by Slurm's names for them."""


@dataclass(frozen=True, slots=True)
class Qos:
    """A quality of service."""

    name: str
    priority: int
    grace_ms: int
    preempts: tuple[str, ...]
    preempt_mode: str
    """Empty: the cluster's."""
    exempt_ms: int | None
    """How long its jobs run before they may be preempted; None: as the cluster says."""
    flags: tuple[str, ...]
    group_tres: Mapping[str, str]
    job_tres: Mapping[str, str]
    user_tres: Mapping[str, str]
    user_jobs: int | None
    max_wall_ms: int
    """0: no limit."""
    kept: Mapping[str, str] = field(default_factory=dict)
    """Limits that are set and have no field here, by Slurm's names for them."""


def read_associations(text: str) -> list[Association]:
    """`sacctmgr --parsable2 show assoc` with `ASSOCIATION_FIELDS`."""
    return [
        Association(
            cluster=cells.get("cluster", ""),
            account=_need(cells, "account", number),
            user=cells.get("user", ""),
            partition=cells.get("partition", ""),
            parent=cells.get("parentname", ""),
            share=_share(cells.get("share", cells.get("fairshare", "")), number),
            group_tres=parse_tres_map(cells.get("grptres", "")),
            group_minutes=parse_tres_map(cells.get("grptresmins", "")),
            group_jobs=_number(cells.get("grpjobs", "")),
            job_tres=parse_tres_map(cells.get("maxtres", cells.get("maxtresperjob", ""))),
            max_jobs=_number(cells.get("maxjobs", "")),
            max_wall_ms=limit_ms(cells.get("maxwall", ""), "MaxWall"),
            qos=split_names(cells.get("qos", "")),
            default_qos=cells.get("defqos", cells.get("defaultqos", "")),
            kept=_kept(cells, _ASSOCIATION_KEPT),
        )
        for number, cells in parse_table(text)
    ]


def read_qos(text: str) -> list[Qos]:
    """`sacctmgr --parsable2 show qos` with `QOS_FIELDS`."""
    return [
        Qos(
            name=_need(cells, "name", number),
            priority=parse_whole(cells.get("priority") or "0", "Priority", 1 << 32),
            grace_ms=limit_ms(cells.get("gracetime", ""), "GraceTime"),
            preempts=split_names(cells.get("preempt", "")),
            preempt_mode=_mode(cells.get("preemptmode", "")),
            exempt_ms=_exempt_ms(cells.get("preemptexempttime", "")),
            flags=split_names(cells.get("flags", "")),
            group_tres=parse_tres_map(cells.get("grptres", "")),
            job_tres=parse_tres_map(cells.get("maxtres", "")),
            user_tres=parse_tres_map(cells.get("maxtrespu", "")),
            user_jobs=_number(cells.get("maxjobspu", "")),
            max_wall_ms=limit_ms(cells.get("maxwall", ""), "MaxWall"),
            kept=_kept(cells, _QOS_KEPT),
        )
        for number, cells in parse_table(text)
    ]


def find_untold_associations(text: str) -> tuple[str, ...]:
    """Limits for which an answer about accounts has no column."""
    return _untold(text, _ASSOCIATION_KEPT)


def find_untold_qos(text: str) -> tuple[str, ...]:
    """Limits for which an answer about QOS has no column."""
    return _untold(text, _QOS_KEPT)


def _untold(text: str, kept: Mapping[str, str]) -> tuple[str, ...]:
    columns = {name.strip().lower().replace(" ", "") for name in text.partition("\n")[0].split("|")}
    return tuple(name for name, header in kept.items() if not {header, name.lower()} & columns)


def _kept(cells: Mapping[str, str], kept: Mapping[str, str]) -> dict[str, str]:
    found = {name: drop_null(cells.get(header, cells.get(name.lower(), ""))) for name, header in kept.items()}
    return {name: value for name, value in found.items() if value and not _as_usual(name, value)}


def _as_usual(name: str, value: str) -> bool:
    try:
        return name in _AS_USUAL and float(value) == _AS_USUAL[name]
    except ValueError:
        return False


def _need(cells: Mapping[str, str], name: str, line: int) -> str:
    value = cells.get(name, "").strip()
    if not value:
        raise Unreadable(f"line {line} has no {name}; is it what sacctmgr --parsable2 printed?")
    return value


def _share(text: str, line: int) -> int | None:
    if text.strip().lower() == "parent":
        return None
    return parse_whole(text or "1", f"Fairshare in line {line}", 1 << 31)


def _number(text: str) -> int | None:
    return parse_whole(text, "a limit", 1 << 32) if drop_null(text) else None


def _mode(text: str) -> str:
    mode = drop_null(text).lower()
    return "" if mode == "cluster" else mode


def _exempt_ms(text: str) -> int | None:
    return parse_duration_ms(text, "PreemptExemptTime") if drop_null(text) else None
