"""A job as Slurm took it (`scontrol show job`) and as we read it, in the same fields, so that they can be compared."""

import re
import subprocess
from dataclasses import dataclass
from dataclasses import field as field_
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpuyard.intake import Caller
from gpuyard.intake.sbatch import read_sbatch
from gpuyard.intake.sbatch.hostlists import expand
from gpuyard.intake.sbatch.taking import understand
from rigs.slurm.cluster import SlurmCluster


@dataclass(frozen=True)
class Case:
    """What is said besides the script."""

    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = field_(default_factory=dict)


def submit(slurm: SlurmCluster, path: Path, case: Case) -> str:
    """What `scontrol` says of the job, which is held and then cancelled."""
    # The options of the comparison come before those of the case, which win.
    command = ["sbatch", "--parsable", "--hold", *case.arguments, str(path)]
    environment = {**slurm.environment, **case.environment}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, cwd=slurm.folder
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    number = done.stdout.split()[-1].partition(";")[0]
    try:
        return slurm.command("scontrol", "show", "job", number)
    finally:
        slurm.command("scancel", number)


def field(said: str, name: str) -> str:
    """A field of `scontrol show job`; names of jobs may hold spaces, all other values do not."""
    end = "(.*)$" if name in ("JobName", "WorkDir") else r"(\S*)"
    match = re.search(rf"\b{re.escape(name)}={end}", said, re.MULTILINE)
    value = match[1] if match else ""
    return "" if value in ("(null)", "N/A", "Unknown") else value


def mib(text: str) -> int:
    """`1.50G`, `512M`, `0`."""
    match = re.fullmatch(r"([\d.]+)([KMGT]?)", text)
    assert match, text
    return round(float(match[1]) * {"": 1, "K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2}[match[2]])


def minutes(text: str) -> int | None:
    """`1-02:03:00` in minutes; no limit is none."""
    if text in ("UNLIMITED", "Partition_Limit"):
        return None
    days, _, clock = text.rpartition("-")
    hours, mins, seconds = map(int, clock.split(":"))
    assert seconds == 0
    return (int(days or 0) * 24 + hours) * 60 + mins


def numbers(text: str) -> list[int]:
    """`1,3-5,0-9:3` in full."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        match = re.fullmatch(r"(\d+)(?:-(\d+)(?::(\d+))?)?", part)
        assert match, text
        found.update(range(int(match[1]), int(match[2] or match[1]) + 1, int(match[3] or 1)))
    return sorted(found)


def tres(said: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in field(said, "TRES").split(",") if "=" in part)


def slurms(said: str) -> dict[str, Any]:
    """What Slurm read."""
    asked = tres(said)
    nodes = field(said, "NumNodes")
    least, dash, most = nodes.partition("-")
    # Tasks that Slurm has looked at one by one, as `aftercorr` wants, are records of their own by then.
    pieces = [each.partition("%") for each in re.findall(r"\bArrayTaskId=(\S+)", said)]
    when = field(said, "EligibleTime")
    deadline = field(said, "Deadline")
    dependency = (
        field(said, "Dependency").replace("(unfulfilled)", "").replace("(failed)", "").replace("_*", "")
    )
    return {
        "name": field(said, "JobName"),
        "nodes": (int(least), int(most)) if dash else int(least),
        "tasks": int(field(said, "NumTasks")),
        "cpus per task": int(field(said, "CPUs/Task")),
        "cpus": int(asked["cpu"]),
        "gpus": int(asked.get("gres/gpu", 0)),
        "memory": mib(asked["mem"]),
        "time": minutes(field(said, "TimeLimit")),
        "array": numbers(",".join(tasks for tasks, _, _ in pieces)),
        "array limit": max((int(limit or 0) for _, _, limit in pieces), default=0),
        "dependency": dependency,
        "nodelist": sorted(expand(field(said, "ReqNodeList"))) if field(said, "ReqNodeList") else [],
        "exclude": sorted(expand(field(said, "ExcNodeList"))) if field(said, "ExcNodeList") else [],
        "begin": when,
        "deadline": deadline,
        "requeue": field(said, "Requeue") == "1",
        "exclusive": field(said, "OverSubscribe") == "NO",
        "folder": field(said, "WorkDir"),
        "partition": field(said, "Partition"),
        "features": field(said, "Features"),
    }


def ours(path: Path, case: Case, folder: str) -> dict[str, Any]:
    """The same fields from our reading and from the native job that was made of it."""
    caller = Caller(now=datetime.now(UTC), cwd=folder, arguments=case.arguments, environment=case.environment)
    text = path.read_text()
    settings, _, reading, _, _ = understand(text, path.name, caller)
    job = read_sbatch(text, path.name, caller).job
    tasks = job.get("tasks", 1)
    separator = "?" if reading.dependencies.any_will_do else ","
    return {
        "name": reading.name,
        "nodes": (reading.nodes_min, reading.nodes_max) if "nodes" in settings else reading.nodes_min,
        "tasks": job.get("ranks", tasks),
        "cpus per task": reading.cpus_per_task,
        "cpus": job["cpus"] * tasks,
        "gpus": job.get("gpus", 0) * tasks,
        "memory": job.get("memory_mib", 0) * tasks,
        "time": job["time_limit_s"] // 60 if "time_limit_s" in job else None,
        "array": numbers(job.get("array", "")),
        "array limit": job.get("array_limit", 0),
        "dependency": separator.join(map(written, job.get("dependencies", []))),
        "nodelist": sorted(job.get("on_nodes", [])),
        "exclude": sorted(job.get("not_nodes", [])),
        "begin": moment(job.get("begin_ms")),
        "deadline": moment(job.get("deadline_ms")),
        "requeue": job.get("requeue", True),
        "exclusive": job.get("exclusive", False),
        "folder": job.get("cwd", folder),
        "partition": ",".join(job.get("pools", ["main"])),
        "features": settings["constraint"].value if "constraint" in settings else "",
    }


def written(each: dict[str, Any]) -> str:
    """A dependency as Slurm writes it."""
    if each["kind"] == "singleton":
        return "singleton"
    delay = f"+{each['delay_s'] // 60}" if "delay_s" in each else ""
    return f"{each['kind']}:{each['job']}{delay}"


def moment(when_ms: int | None) -> str:
    return "" if when_ms is None else datetime.fromtimestamp(when_ms / 1000).strftime("%Y-%m-%dT%H:%M:%S")  # noqa: DTZ006


def differences(slurm: SlurmCluster, path: Path, case: Case) -> dict[str, tuple[Any, Any]]:
    """Fields in which Slurm and we differ: its value, ours."""
    said = submit(slurm, path, case)
    theirs, mine = slurms(said), ours(path, case, str(slurm.folder))
    if isinstance(theirs["nodes"], tuple) and isinstance(mine["nodes"], int):
        # Concluded from other options, and then exact.
        mine["nodes"] = (mine["nodes"], mine["nodes"])
    if not isinstance(theirs["nodes"], tuple) and mine["nodes"] == 0:
        # Nobody said how many nodes: Slurm prints a guess, and we leave it open.
        theirs["nodes"] = 0
    if mine["memory"] == 0:
        # Without a word about memory, or with --mem=0, this cluster gives whole nodes; a yard counts nothing.
        theirs["memory"] = 0
    return {name: (theirs[name], mine[name]) for name in theirs if theirs[name] != mine[name]}
