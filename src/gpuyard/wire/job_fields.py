"""The fields of a job, in one table: what each holds, within which bounds, and the option of `yard submit` for it.

The body of a submission (`api/messages/schemas.py`) takes bounds, defaults and texts from here, native YAML (`intake`)
its keys and how they are read, and the command line its bounds. A field that is added here is taken in all three.
"""

from enum import Enum
from typing import Any, NamedTuple

TIME_MS_MAX = 253_402_300_799_999
"""The end of the year 9999: no library can write a later one."""
LIMIT_S_MAX = 3650 * 86_400
"""The longest time limit."""
DELAY_S_MAX = 366 * 86_400
"""The longest delay after the start of another job."""
_DAY_S = 86_400


class Kind(Enum):
    """What a field holds."""

    TEXT = "text"
    TEXTS = "texts"
    WHOLE = "whole"
    NUMBER = "number"
    BOOLEAN = "boolean"
    CHOICE = "choice"
    NAMED_TEXTS = "named texts"
    NAMED_NUMBERS = "named numbers"
    DEPENDENCIES = "dependencies"
    CONTAINERS = "containers"


class JobField(NamedTuple):
    """One field."""

    kind: Kind
    text: str
    option: str = ""
    """Of `yard submit`; empty: nothing that people type."""
    default: Any = None
    """Left out of a submission."""
    least: int | None = None
    most: int | None = None
    examples: tuple[Any, ...] = ()
    choices: tuple[str, ...] = ()
    wire: bool = True
    """Whether a submission has it: not one that is only proposed."""
    native: bool = True
    """Whether native YAML has it: not what comes from the shell alone."""


def _text(text: str, option: str, *examples: Any) -> JobField:
    return JobField(Kind.TEXT, text, option, "", examples=examples)


def _texts(text: str, option: str, *examples: Any) -> JobField:
    # The description shows an empty list; a tuple need not be copied for each job.
    return JobField(Kind.TEXTS, text, option, (), examples=examples)


def _whole(text: str, option: str, least: int, most: int, default: int | None = 0) -> JobField:
    return JobField(Kind.WHOLE, text, option, default, least, most)


def _yes_no(text: str, option: str, *, default: bool = False) -> JobField:
    return JobField(Kind.BOOLEAN, text, option, default)


# fmt: off
JOB_FIELDS: dict[str, JobField] = {
    "name": _text("For people. Left out: made from the command.", "--name"),
    "tenant": _text("The tenant that the job counts for, as in research/ana. Left out: the default tenant of the user.",
        "--tenant"),
    "class": _text("How it is treated. Left out: the default class.", "--class"),
    "command": _texts("Program and arguments. With a script: the script's arguments.", "COMMAND", ["nvidia-smi"]),
    "script": _text("A script, which begins with #!. Up to 1 MiB.", "COMMAND"),
    "image": _text("Container image to run it in. Left out: it is a process of the node.", "--image",
        "docker.io/pytorch/pytorch:2.4.0-cuda12.4-cudnn9-runtime"),
    "entrypoint": _texts("In place of the image's entrypoint; 'command' holds its arguments.", "", ["/bin/sh", "-c"]),
    "workdir": _text("Folder inside the image to run in. Left out: 'cwd', else the image's own.", "", "/workspace"),
    "volumes": _texts("What the image sees besides 'cwd': /data, /data:/mnt:ro, or NAME:/scratch for an empty folder "
        "that goes with the attempt.", "--volume", ["/data:/mnt:ro"]),
    "secrets": JobField(Kind.NAMED_TEXTS, "Files of the node that the image sees as /run/secrets/NAME, by NAME.",
        "--secret", {}),
    "pull": JobField(Kind.CHOICE, "When the image is pulled. Left out: missing, which is once per user and node.",
        "--pull", "", choices=("missing", "always", "never")),
    "containers": JobField(Kind.CONTAINERS, "Further containers of the same job: init steps before its own, and others "
        "beside it.", "", ()),
    "gpus": _whole("GPUs of each task.", "--gpus", 0, 100_000),
    "gpu_models": _texts("GPU models that will do. Left out: any.", "--gpu-model", ["H100"]),
    "gpu_milli": _whole("A share of one GPU, in thousandths, instead of whole ones.", "--gpus", 0, 999),
    "mig": _text("MIG profile of the slices that 'gpus' counts.", "--gpus", "1g.18gb"),
    "gpu_memory_mib": _whole("GPU memory instead of a number: the cheapest that has it is taken.", "--gpu-memory",
        0, 1 << 24),
    "isolation": _text("With gpu_memory_mib: strict is a MIG slice or a whole GPU, shared is a share.", "--isolation"),
    "tasks": _whole("Tasks that start together or not at all.", "--tasks", 1, 10_000, 1),
    "nodes_min": _whole("Nodes it is spread over at least.", "--nodes", 0, 100_000),
    "nodes_max": _whole("Nodes it may be spread over. 0: as few as possible.", "--nodes", 0, 100_000),
    "ranks": _whole("Processes it means to start in all. 0: as many as tasks.", "", 0, 1_000_000),
    "batch": _yes_no("Run it once, in the first task; the others hold room for what it starts there.", ""),
    "cpus": JobField(Kind.NUMBER, "Cores of each task, to a thousandth. Left out: 1 where it has no GPU, else none.",
        "--cpus", None, 0, 100_000),
    "memory_mib": _whole("Main memory of each task, in MiB.", "--memory", 0, 1 << 30),
    "exclusive": _yes_no("Whole nodes, shared with no other job.", "--exclusive"),
    "pools": _texts("Pools that will do. Left out: any.", "--pool"),
    "clusters": _texts("Clusters that will do, the preferred one first. Left out: any.", "--cluster"),
    "constraint": _text("Features its nodes must have: nvme, 'nvme&ib' or 'rack1|rack2'.", "--constraint", "nvme"),
    "on_nodes": _texts("Nodes that will do. Left out: any.", "--node"),
    "not_nodes": _texts("Nodes that will not.", "--exclude"),
    "licenses": JobField(Kind.NAMED_NUMBERS, "Licenses it needs.", least=1, most=1_000_000, wire=False),
    "time_limit_s": _whole("When an attempt is stopped. Left out: as its class says.", "--time", 1, LIMIT_S_MAX, None),
    "begin_ms": _whole("The job does not start before, in ms since 1970.", "--begin", 0, TIME_MS_MAX),
    "deadline_ms": _whole("When the job should be done, in ms since 1970.", "--deadline", 0, TIME_MS_MAX),
    "array": JobField(Kind.TEXT, "Make it an array of tasks that start one by one: 0-9, 1,3,5 or 0-100:10.", "--array"),
    "array_limit": _whole("How many tasks of the array may run at a time. 0: all.", "--array", 0, 1_000_000),
    "dependencies": JobField(Kind.DEPENDENCIES, "Jobs it waits for.", "--after", ()),
    "dependencies_any": _yes_no("One of them is enough.", "--after-one"),
    "env": JobField(Kind.NAMED_TEXTS, "Variables of its environment. Up to 256 KiB.", "--env", {}),
    "cwd": _text("Folder to run in. Left out: one of its own.", "--chdir"),
    "umask": JobField(Kind.WHOLE, "Permissions that files of the job do not get. 18 is 022, the default.", "", 0o022,
        0, 0o777, native=False),
    "stdout": _text("File for its output. Left out: kept for `logs`.", "--stdout"),
    "stderr": _text("File for its errors. Left out: together with its output.", "--stderr"),
    "open_mode": JobField(Kind.CHOICE,
        "What becomes of these files if they are there. Left out: kept only when it runs again.", "--open-mode", "",
        choices=("append", "truncate")),
    "warn_signal": _whole("Signal sent ahead of TERM. 0: none.", "--signal", 0, 64),
    "warn_s": _whole("How long ahead of the time limit it is sent.", "--signal", 0, _DAY_S),
    "warn_shell": _yes_no("Send that signal to the job's first process alone, not to what it started.", "--signal"),
    "slurm_commands": _yes_no("Put Slurm's commands on its PATH (srun, scontrol, …), as the yard answers them.", ""),
    "checkpoint_s": _whole("How often it saves its work. 0: never.", "--checkpoint-every", 0, 30 * _DAY_S),
    "retries": _whole("How often it is tried again after it failed by itself.", "--retries", 0, 100),
    "requeue": _yes_no("Whether it waits again when its node is lost.", "--requeue", default=True),
    "hold": _yes_no("Do not start it before it is released.", "--hold"),
}
# fmt: on
"""Every field, in the order in which native YAML is written."""
