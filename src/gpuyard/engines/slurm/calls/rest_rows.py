"""Pure: what slurmrestd answers, as the rows that the commands give. Its words changed from release to release.

v0.0.38 and before: `"job_state": "RUNNING"`, numbers as they are, -1 or null for none. v0.0.40 and later: lists of
states, and numbers as `{"set": true, "infinite": false, "number": 5}`.
"""

from collections.abc import Mapping
from typing import Any

from gpuyard.engines.name_lists import expand
from gpuyard.engines.slurm.words.forms import parse_gres, parse_tres_map
from gpuyard.engines.slurm.words.queue import SlurmJob, choose_state, read_held
from gpuyard.engines.slurm.words.rows import Partition, Reservation, SlurmNode
from gpuyard.model.units import MINUTE_MS


def read_number(value: Any) -> int:
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


def read_job(entry: Mapping[str, Any]) -> SlurmJob:
    """One of `jobs`."""
    held = read_held(_text(entry.get("tres_alloc_str")) or _text(entry.get("tres_req_str")))
    return SlurmJob(
        id=read_number(entry.get("job_id")),
        het_id=read_number(entry.get("het_job_id")),
        state=choose_state(states(entry.get("job_state"))),
        reason=_text(entry.get("state_reason")),
        uid=read_number(entry.get("user_id")),
        submit_s=read_number(entry.get("submit_time")),
        nodes=expand(_text(entry.get("nodes"))),
        gpus=held.gpus,
        cpus=held.cpus,
        memory_mib=held.memory_mib,
        partition=_text(entry.get("partition")),
        comment=_text(entry.get("comment")),
    )


def read_node(entry: Mapping[str, Any]) -> SlurmNode:
    """One of `nodes`."""
    name = _text(entry.get("name"))
    return SlurmNode(
        name=name,
        address=_text(entry.get("address")) or name,
        state="+".join(states(entry.get("state")) + states(entry.get("state_flags") or [])),
        reason=_text(entry.get("reason")),
        cpus=read_number(entry.get("effective_cpus")) or read_number(entry.get("cpus")),
        memory_mib=max(
            0, read_number(entry.get("real_memory")) - read_number(entry.get("specialized_memory"))
        ),
        gres=parse_gres(_text(entry.get("gres"))),
        features=_names(entry.get("active_features")),
        partitions=_names(entry.get("partitions")),
        reason_ms=read_number(entry.get("reason_changed_at")) * 1000,
        version=_text(entry.get("version") or entry.get("slurmd_version")),
        alloc=parse_tres_map(_text(entry.get("tres_used"))),
        sockets=read_number(entry.get("sockets")) or 1,
        boot_ms=read_number(entry.get("boot_time")) * 1000,
    )


def read_partition(entry: Mapping[str, Any]) -> Partition:
    """One of `partitions`."""
    nodes = entry.get("nodes")
    listed = nodes.get("configured") if isinstance(nodes, Mapping) else nodes
    state = _part(entry, "partition", "state")
    tier = _part(entry, "priority", "tier", "priority_tier")
    flags = states(entry.get("flags") or []) + states(_part(entry, "partition", "flags") or [])
    return Partition(
        name=_text(entry.get("name")),
        nodes=expand(_text(listed)),
        state="+".join(states(state if state is not None else entry.get("state", "UP"))),
        default="DEFAULT" in flags,
        max_ms=read_number(_part(entry, "maximums", "time", "max_time_limit")) * MINUTE_MS,
        default_ms=read_number(_part(entry, "defaults", "time", "default_time_limit")) * MINUTE_MS,
        accounts=_names(_part(entry, "accounts", "allowed", "allowed_accounts")),
        qos=_text(_part(entry, "qos", "assigned", "qos")),
        priority_tier=1 if tier is None else read_number(tier),
        tres=parse_tres_map(_text(_part(entry, "tres", "configured", "tres"))),
        default_memory=_has_default(entry),
        billing=parse_tres_map(_text(_part(entry, "tres", "billing_weights", "billing_weights"))),
    )


def _part(entry: Mapping[str, Any], section: str, name: str, before: str = "") -> Any:
    """A value of a section, or under the name that it had `before` there were sections; None: neither is there."""
    found = entry.get(section)
    return found.get(name) if isinstance(found, Mapping) else entry.get(before)


def _has_default(entry: Mapping[str, Any]) -> bool:
    own = ("memory_per_cpu", "partition_memory_per_cpu", "memory_per_node", "partition_memory_per_node")
    found = [read_number(_part(entry, "defaults", name, f"default_{name}")) for name in own]
    return any(found) or "DefMemPerGPU" in _text(_part(entry, "defaults", "job"))


def read_reservation(entry: Mapping[str, Any]) -> Reservation:
    """One of `reservations`."""
    return Reservation(
        name=_text(entry.get("name")),
        start_ms=read_number(entry.get("start_time")) * 1000,
        end_ms=read_number(entry.get("end_time")) * 1000,
        nodes=expand(_text(entry.get("node_list"))),
        flags=tuple(states(entry.get("flags") or [])),
        users=_names(entry.get("users")),
        accounts=_names(entry.get("accounts")),
    )
