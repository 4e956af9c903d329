"""Pure: what slurmrestd answers, as the rows of `translate`. Its words changed from release to release.

v0.0.38 and before: `"job_state": "RUNNING"`, numbers as they are, -1 or null for none. v0.0.40 and later: lists of
states, and numbers as `{"set": true, "infinite": false, "number": 5}`.
"""

from collections.abc import Mapping
from typing import Any

from gpuyard.engines.slurm.words.hosts import expand
from gpuyard.engines.slurm.words.translate import (
    Partition,
    Reservation,
    SlurmJob,
    SlurmNode,
    main_state,
    read_gres,
    read_tres,
)


def number(value: Any) -> int:
    """A number in either form; 0: none, or no end of it."""
    if isinstance(value, Mapping):
        value = value.get("number") if value.get("set") and not value.get("infinite") else 0
    return value if type(value) is int and value > 0 else 0


def states(value: Any) -> list[str]:
    """States in either form, in capitals."""
    found = value if isinstance(value, list) else [value]
    return [str(each).upper() for each in found if each]


def _names(value: Any) -> tuple[str, ...]:
    if isinstance(value, list):
        return tuple([str(each) for each in value])
    return tuple([each for each in str(value or "").split(",") if each])


def _text(value: Any) -> str:
    return str(value) if value else ""


def job_of(entry: Mapping[str, Any]) -> SlurmJob:
    """One of `jobs`."""
    found = read_tres(_text(entry.get("tres_alloc_str")) or _text(entry.get("tres_req_str")))
    return SlurmJob(
        id=number(entry.get("job_id")),
        het_id=number(entry.get("het_job_id")),
        state=main_state(states(entry.get("job_state"))),
        reason=_text(entry.get("state_reason")),
        uid=number(entry.get("user_id")),
        submit_s=number(entry.get("submit_time")),
        nodes=expand(_text(entry.get("nodes"))),
        gpus=found.get("gres/gpu", 0),
        cpus=found.get("cpu", 0),
        memory_mib=found.get("mem", 0),
        partition=_text(entry.get("partition")),
        comment=_text(entry.get("comment")),
    )


def node_of(entry: Mapping[str, Any]) -> SlurmNode:
    """One of `nodes`."""
    name = _text(entry.get("name"))
    return SlurmNode(
        name=name,
        address=_text(entry.get("address")) or name,
        states=frozenset(states(entry.get("state")) + states(entry.get("state_flags") or [])),
        reason=_text(entry.get("reason")),
        cpus=number(entry.get("effective_cpus")) or number(entry.get("cpus")),
        memory_mib=max(0, number(entry.get("real_memory")) - number(entry.get("specialized_memory"))),
        gres=read_gres(_text(entry.get("gres"))),
        features=_names(entry.get("active_features")),
        partitions=_names(entry.get("partitions")),
    )


def partition_of(entry: Mapping[str, Any]) -> Partition:
    """One of `partitions`."""
    nodes = entry.get("nodes")
    listed = nodes.get("configured") if isinstance(nodes, Mapping) else nodes
    state = entry.get("partition", {}).get("state") if isinstance(entry.get("partition"), Mapping) else None
    flags = states(entry.get("flags") or []) + states((entry.get("partition") or {}).get("flags") or [])
    longest = entry.get("max_time_limit")
    if isinstance(entry.get("maximums"), Mapping):
        longest = entry["maximums"].get("time")
    return Partition(
        name=_text(entry.get("name")),
        nodes=expand(_text(listed)),
        up="UP" in states(state if state is not None else entry.get("state", "UP")),
        default="DEFAULT" in flags,
        max_minutes=number(longest),
    )


def reservation_of(entry: Mapping[str, Any]) -> Reservation:
    """One of `reservations`."""
    return Reservation(
        name=_text(entry.get("name")),
        nodes=expand(_text(entry.get("node_list"))),
        start_s=number(entry.get("start_time")),
        end_s=number(entry.get("end_time")),
        flags=frozenset(states(entry.get("flags") or [])),
    )
