"""`scontrol show`: everything about a job, a node or a partition, field by field."""

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from gpuyard.api.client import Client, Refused
from gpuyard.cli.slurm.language.ids import parse_id
from gpuyard.cli.slurm.language.jobs import SlurmJob, job_from_view, memory_text
from gpuyard.cli.slurm.language.pools import Pools
from gpuyard.cli.slurm.language.sacct_fields import SacctLine, exit_code_text, limit_text
from gpuyard.cli.slurm.language.sinfo_groups import SinfoLine, SlurmNode, group_nodes
from gpuyard.cli.slurm.language.sinfo_groups import node_from_view as node_of_view
from gpuyard.cli.slurm.language.squeue_fields import find_group, find_uid
from gpuyard.cli.slurm.language.stopping import Stop, make_stop
from gpuyard.cli.slurm.language.times import full_span_text, moment_text
from gpuyard.cli.terminal.visible_text import visible_text
from gpuyard.engines.name_lists import fold_names

_ENTITIES = ("job", "node", "partition", "hostnames", "hostlist", "hostlistsorted")


def show(words: Sequence[str], *, one_line: bool) -> int:
    """Print what is named."""
    if not words:
        raise Stop("too few arguments for keyword:show")
    entity, *names = words
    entity, sign, value = entity.partition("=")
    names = [value, *names] if sign else names
    kind = next((each for each in _ENTITIES if each.startswith(entity.lower().removesuffix("s"))), "")
    kind = {"jobid": "job", "nodename": "node", "partitionname": "partition"}.get(entity.lower(), kind)
    if entity.lower() in ("hostlist", "hostlistsorted", "hostnames"):
        return _hosts(entity.lower(), names)
    if not kind:
        raise Stop(f"invalid entity:{entity} for keyword:show ")
    with Client() as yard:
        if kind == "job":
            blocks = _jobs(yard, names)
        elif kind == "node":
            blocks = _nodes(yard, names)
        else:
            blocks = _partitions(yard, names)
    if not blocks:
        print(
            {"job": "No jobs in the system", "node": "No nodes in the system"}.get(
                kind, "No partitions in the system"
            )
        )
    for block in [[visible_text(line) for line in block] for block in blocks]:
        if one_line:
            print(" ".join(block))
        else:
            print("\n   ".join(block) + "\n")
    return 0


def _hosts(what: str, names: Sequence[str]) -> int:
    from gpuyard.engines.name_lists import natural_key
    from gpuyard.intake.sbatch.hostlists import expand

    text = ",".join(names)
    if what == "hostnames":
        text = text or os.environ.get("SLURM_JOB_NODELIST", "")
    if not text:
        raise Stop("invalid host list" if what == "hostnames" else "invalid hostlist: (null)")
    try:
        found = expand(text)
    except ValueError as wrong:
        raise make_stop("scontrol", f"the host list {wrong}") from None
    if what == "hostnames":
        print("\n".join(found))
    else:
        print(fold_names(sorted(found, key=natural_key) if what == "hostlistsorted" else found))
    return 0


# -- jobs --------------------------------------------------------------------------------------------------------


def _jobs(yard: Client, names: Sequence[str]) -> list[list[str]]:
    pools = Pools.of_fleet(yard.fleet())
    labels = list(names)
    if not labels:
        labels = [row[1] for row in yard.queue()["rows"]]
    blocks = []
    for label in labels:
        wanted = parse_id(label)
        if wanted is None:
            raise make_stop("scontrol", f"Invalid job id specified: {label}")
        try:
            # The start is estimated for one named job only; for every job it would take hours.
            found = yard.job(wanted.label, explain=bool(names))
        except Refused as refusal:
            if refusal.status != 404 or not names:
                continue
            raise Stop("slurm_load_jobs error: Invalid job id specified") from None
        tasks = (
            [yard.job(each["label"], explain=False) for each in found["jobs"]]
            if "array" in found
            else [found]
        )
        for each in tasks:
            blocks.append(job_block(dict(each), job_from_view(each, pools, int(time.time() * 1000))))
    return blocks


def job_block(view: Mapping[str, Any], job: SlurmJob) -> list[str]:
    """The lines of one job."""
    array = f" ArrayJobId={job.array_id} ArrayTaskId={job.array_index}" if job.array_id else ""
    gid, group = find_group(job.user)
    pending = job.state == "PENDING"
    # Slurm's tasks are ranks; a task of the yard may have several.
    ranks = (view.get("files") or {}).get("ranks") or job.tasks
    cpus = max(1, round(job.cpus * job.tasks / ranks))
    lines = [
        f"JobId={job.id}{array} JobName={job.name}",
        f"UserId={job.user}({find_uid(job.user)}) GroupId={group}({gid}) MCS_label=N/A",
        f"Priority=N/A Nice=0 Account={job.tenant} QOS={job.klass}",
        f"JobState={job.state} Reason={job.reason} Dependency={_dependency(job)}",
        f"Requeue=1 Restarts={job.restarts} BatchFlag=1 Reboot=0 ExitCode={exit_code_text(SacctLine(job))}",
        f"RunTime={full_span_text(job.ran_s)} TimeLimit={limit_text(job)} TimeMin=N/A",
        f"SubmitTime={moment_text(job.submitted_ms)} EligibleTime={moment_text(job.submitted_ms)}",
        f"StartTime={moment_text(job.started_ms or job.start_guess_ms, 'Unknown')} EndTime={_end(job)} Deadline=N/A",
        f"Partition={job.partition} AllocNode:Sid=N/A",
        "ReqNodeList=(null) ExcNodeList=(null)",
        f"NodeList={job.nodelist}",
        *([f"BatchHost={job.nodes[0]}"] if job.nodes else []),
        f"NumNodes={job.node_count} NumCPUs={job.cpu_count} NumTasks={ranks} CPUs/Task={cpus} "
        "ReqB:S:C:T=0:0:*:*",
        f"TRES={job.tres()}",
        f"MinCPUsNode={max(1, round(job.cpus))} MinMemoryNode={memory_text(job.memory_mib) if job.memory_mib else 0} "
        "MinTmpDiskNode=0",
        f"Features={job.gpu_models.replace(',', '|') or '(null)'} DelayBoot=00:00:00",
        "OverSubscribe=OK Contiguous=0 Licenses=(null) Network=(null)",
        *_files(view, job),
        *([f"TresPerNode={job.tres_per_node()}"] if job.gpus else []),
    ]
    said = [f"{why['by']}: {why['text']}" for why in view.get("why", [])] if pending else []
    # Slurm shows a comment here, which a yard does not keep; the reason for waiting is more useful.
    return [*lines, *([f"Comment={'; '.join(said)}"] if said else [])]


def _dependency(job: SlurmJob) -> str:
    return ",".join([f"{each}(unfulfilled)" for each in job.waits_for.split(",") if each]) or "(null)"


def _end(job: SlurmJob) -> str:
    if job.started_ms and not job.ended_ms and job.limit_s:
        return moment_text(job.started_ms + job.limit_s * 1000)
    return moment_text(job.ended_ms, "Unknown")


def _files(view: Mapping[str, Any], job: SlurmJob) -> list[str]:
    """Where it runs and writes, with `%j` and its like filled in."""
    from gpuyard.engines.patterns import expand

    files = view.get("files") or {}
    if not files.get("cwd"):
        return []
    values: dict[str, str | int] = {
        "j": job.id,
        "A": job.array_id or job.id,
        "x": job.name,
        "u": job.user,
        "n": 0,
        "t": 0,
    }
    values |= {"a": job.array_index} if job.array_id else {}
    values |= {"N": job.nodes[0]} if job.nodes else {}
    lines = [f"WorkDir={files['cwd']}"]
    out = files["stdout"]
    for name, path in (("StdErr", files["stderr"] or out), ("StdIn", "/dev/null"), ("StdOut", out)):
        if path:
            lines.append(f"{name}={os.path.join(files['cwd'], expand(path, values))}")
    return lines


# -- nodes and partitions ------------------------------------------------------------------------------------------


def _nodes(yard: Client, names: Sequence[str]) -> list[list[str]]:
    from gpuyard.intake.sbatch.hostlists import expand

    fleet = yard.fleet()
    pools = Pools.of_fleet(fleet)
    nodes = {node["name"]: node_of_view(node) for node in fleet["nodes"]}
    wanted = list(nodes)
    if names:
        try:
            wanted = expand(",".join(names))
        except ValueError as wrong:
            raise make_stop("scontrol", f"the node list {wrong}") from None
    missing = [name for name in wanted if name not in nodes]
    if missing:
        # Among the results, as Slurm has it.
        print(f"Node {missing[0]} not found")
        raise Stop
    return [_node_block(nodes[name], pools) for name in wanted]


_LONG_STATES = {"draining": "+DRAIN", "drained": "IDLE+DRAIN"}


def _node_block(node: SlurmNode, pools: Pools) -> list[str]:
    state = "MIXED+DRAIN" if node.state == "draining" else _LONG_STATES.get(node.state, node.state.upper())
    held = [f"cpu={node.cpus_used}"] if node.jobs else []
    held += [f"mem={memory_text(node.memory_used)}"] if node.memory_used else []
    held += [f"gres/gpu={node.gpus_used}"] if node.gpus_used else []
    whole = f"cpu={node.cpus},mem={memory_text(node.memory_mib)},billing={node.cpus}"
    lines = [
        f"NodeName={node.name} CoresPerSocket={node.cpus} ",
        f"CPUAlloc={node.cpus_used} CPUEfctv={node.cpus} CPUTot={node.cpus} CPULoad=N/A",
        f"AvailableFeatures={node.features}",
        f"ActiveFeatures={node.features}",
        f"Gres={node.gres}",
        f"NodeAddr={node.name} NodeHostName={node.name} ",
        f"RealMemory={node.memory_mib} AllocMem={node.memory_used} FreeMem={node.memory_mib - node.memory_used} "
        "Sockets=1 Boards=1",
        f"State={state} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A",
        f"Partitions={','.join(pools.with_pool(node.pool))} ",
        f"CfgTRES={whole}" + (f",gres/gpu={node.gpus}" if node.gpus else ""),
        f"AllocTRES={','.join(held)}",
    ]
    return [*lines, *([f"Reason={node.why}"] if node.why else [])]


def _partitions(yard: Client, names: Sequence[str]) -> list[list[str]]:
    fleet = yard.fleet()
    pools = Pools.of_fleet(fleet)
    missing = [name for name in names if name not in pools.known]
    if missing:
        print(f"Partition {missing[0]} not found")
        raise Stop
    nodes = [node_of_view(node) for node in fleet["nodes"]]
    wanted = {name: pools.known[name] for name in sorted(names)} if names else pools.listed
    return [_partition_block(group) for group in group_nodes(nodes, wanted, pools.default, lambda _: "")]


def _partition_block(group: SinfoLine) -> list[str]:
    nodes = group.nodes
    cpus, gpus = sum([node.cpus for node in nodes]), sum([node.gpus for node in nodes])
    memory = memory_text(sum([node.memory_mib for node in nodes]))
    return [
        f"PartitionName={group.partition}",
        "AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL",
        f"AllocNodes=ALL Default={'YES' if group.default else 'NO'} QoS=N/A",
        "DefaultTime=NONE DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO",
        "MaxNodes=UNLIMITED MaxTime=UNLIMITED MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED",
        f"Nodes={group.nodelist}",
        "PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=NO OverSubscribe=NO",
        "OverTimeLimit=NONE PreemptMode=REQUEUE",
        f"State=UP TotalCPUs={cpus} TotalNodes={len(nodes)} SelectTypeParameters=NONE",
        "JobDefaults=(null)",
        "DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED",
        f"TRES=cpu={cpus},mem={memory},node={len(nodes)},billing={cpus}"
        + (f",gres/gpu={gpus}" if gpus else ""),
    ]
