"""The fields of a job, in one table: what each holds, within which bounds; and the options that people type for them.

The body of a submission (`api/messages/schemas.py`) takes bounds, defaults and texts from here, native YAML (`intake`)
its keys and how they are read, `yard submit` and `yard run` their options. Written out without NamedTuple and Enum:
those two commands start with it.
"""

from typing import Any

TIME_MS_MAX = 253_402_300_799_999
"""The end of the year 9999: no library can write a later one."""
LIMIT_S_MAX = 3650 * 86_400
"""The longest time limit."""
DELAY_S_MAX = 366 * 86_400
"""The longest delay after the start of another job."""
ARRAY_TASKS_MAX = 10_000
SCRIPT_BYTES_MAX = 1 << 20
NAME_MAX = 128
"""Characters of a job's name."""
TEXT_MAX = 1000
"""Characters of an array's indices, or of a constraint."""
DEPENDENCIES_MAX = 1000
LEVELS = ("switch", "rack", "fabric")
"""How near to each other the nodes of a gang are, from the nearest."""
DEPENDENCY_KINDS = ("after", "afterany", "afterok", "afternotok", "aftercorr", "singleton")
SELECTIONS_MAX = 100
"""Selections, preferences or tolerations of one job."""
LABELS_MAX = 16
"""Labels of one job."""
LABEL_KEY_MAX = 63
LABEL_VALUE_MAX = 128
PROJECT = "project"
"""The label that has a field, an option and a dimension of its own."""
_DAY_S = 86_400


def label_fault(key: str, value: str) -> str:
    """Why this cannot be a label; empty: it can."""
    bare = key
    for sign in "-_./":
        bare = bare.replace(sign, "")
    if not (key and len(key) <= LABEL_KEY_MAX and key.isascii() and bare.isalnum() and key[0].isalnum()):
        return (
            f"a key has up to {LABEL_KEY_MAX} letters, digits and . _ - / and begins with a letter or a digit"
        )
    if not (value and len(value) <= LABEL_VALUE_MAX and value.isprintable() and value == value.strip()):
        return f"a value has 1 to {LABEL_VALUE_MAX} characters in one line, without spaces at its ends"
    return ""


class Form:
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
    TOPOLOGY = "topology"


class JobField:
    """One field."""

    __slots__ = ("choices", "default", "examples", "kind", "least", "most", "native", "text", "wire")

    def __init__(
        self,
        kind: str,
        text: str,
        default: Any = None,
        least: int | None = None,
        most: int | None = None,
        examples: tuple[Any, ...] = (),
        choices: tuple[str, ...] = (),
        wire: bool = True,
        native: bool = True,
    ) -> None:
        self.kind = kind
        """One of `Form`."""
        self.text = text
        self.default = default
        """Left out of a submission."""
        self.least, self.most = least, most
        self.examples = examples
        self.choices = choices
        self.wire = wire
        """Whether a submission has it: not one that is only proposed."""
        self.native = native
        """Whether native YAML has it: not what comes from the shell alone."""


def _text(text: str, *examples: Any) -> JobField:
    return JobField(Form.TEXT, text, "", examples=examples)


def _texts(text: str, *examples: Any) -> JobField:
    # The description shows an empty list; a tuple need not be copied for each job.
    return JobField(Form.TEXTS, text, (), examples=examples)


def _whole(text: str, least: int, most: int, default: int | None = 0) -> JobField:
    return JobField(Form.WHOLE, text, default, least, most)


def _yes_no(text: str, *, default: bool = False) -> JobField:
    return JobField(Form.BOOLEAN, text, default)


# fmt: off
JOB_FIELDS: dict[str, JobField] = {
    "name": _text("The job's name. Default: made from the command."),
    "tenant": _text(
        "The tenant that the job counts for, as in research/ana. Default: the default tenant of the user."),
    "project": _text("The project that the job is booked to: the same as the label 'project'.", "vision"),
    "labels": JobField(Form.NAMED_TEXTS, f"Labels for reports, by key: up to {LABELS_MAX}.", {}),
    "class": _text("The class of the job. Default: the default class."),
    "command": _texts("The program and its arguments. With a script: the script's arguments.",
    ["nvidia-smi"]),
    "script": _text("A script, which begins with #!. Up to 1 MiB."),
    "image": _text("The container image to run the job in. Default: none, the job is a process of the node.",
        "docker.io/pytorch/pytorch:2.4.0-cuda12.4-cudnn9-runtime"),
    "entrypoint": _texts("In place of the image's entrypoint; 'command' holds its arguments.", ["/bin/sh", "-c"]),
    "workdir": _text("The folder inside the image to run in. Default: 'cwd', else the image's own.",
        "/workspace"),
    "volumes": _texts("What is mounted in the image besides 'cwd': /data, /data:/mnt:ro, or "
        "NAME:/scratch for an empty folder that is removed with the attempt.", ["/data:/mnt:ro"]),
    "secrets": JobField(Form.NAMED_TEXTS, "Files of the node to mount in the image as "
        "/run/secrets/NAME, by NAME.", {}),
    "pull": JobField(Form.CHOICE, "When to pull the image. Default: missing, which is once for each "
        "user and node.", "",
        choices=("missing", "always", "never")),
    "containers": JobField(Form.CONTAINERS, "More containers of the same job: init steps before its own "
        "container, and others beside it.", ()),
    "gpus": _whole("GPUs of each task.", 0, 100_000),
    "gpu_models": _texts("Acceptable GPU models; `A100` means all of its sizes. Default: any.", ["H100"]),
    "gpu_milli": _whole("A share of one GPU, in thousandths, instead of whole GPUs.", 0, 999),
    "mig": _text("The MIG profile of the slices that 'gpus' counts.", "1g.18gb"),
    "gpu_memory_mib": _whole("GPU memory instead of a number of GPUs: the job has the cheapest part of "
        "a GPU with that much.",
        0, 1 << 24),
    "isolation": _text("With gpu_memory_mib: strict is a MIG slice or a whole GPU, shared is a share."),
    "tasks": _whole("Number of tasks, which start together or not at all.", 1, 10_000, 1),
    "nodes_min": _whole("The fewest nodes to spread the job over.", 0, 100_000),
    "nodes_max": _whole("The most nodes to spread the job over. 0: as few as possible.", 0, 100_000),
    "ranks": _whole("How many processes the job will start in all. 0: as many as tasks.", 0, 1_000_000),
    "topology": JobField(Form.TOPOLOGY, "The level of the fabric within which the nodes of a job of several tasks are: "
        "switch, rack or fabric. Default: as near to each other as there is room.", None,
        examples=({"level": "switch"},)),
    "numa": JobField(Form.CHOICE, "single: the GPUs of each task are in one NUMA domain of a node, with its cores "
        "and its memory. Default: in as few domains as there is room.", "", choices=("single",)),
    "batch": _yes_no("Run the command once, in the first task; the other tasks hold room for what it starts there."),
    "cpus": JobField(Form.NUMBER, "Cores of each task, to a thousandth. Default: 1 without a GPU, else 0.",
        None, 0, 100_000),
    "memory_mib": _whole("Main memory of each task, in MiB.", 0, 1 << 30),
    "exclusive": _yes_no("Take whole nodes, shared with no other job."),
    "pools": _texts("Acceptable pools. Default: any."),
    "clusters": _texts("Acceptable clusters, preferred one first. Default: any."),
    "constraint": _text("Features that the nodes must have: nvme, 'nvme&ib' or 'rack1|rack2'.", "nvme"),
    "select": _texts("Labels that the nodes must have, all of these: 'zone=a', 'zone in (a, b)', 'nvme', '!old', "
        "'disks>4'; several with commas, alternatives with |.", ["zone=a, nvme"]),
    "prefer": _texts("Labels of nodes that are tried first, each with its weight from 1 to 100: '80: zone=a'. "
        "Default: a weight of 1.", ["80: zone=a"]),
    "tolerate": _texts("Taints that the job puts up with: 'KEY', 'KEY=VALUE:EFFECT', '*' for all; 'KEY for 5m': stay "
        "so long when the taint is set.", ["maintenance"]),
    "on_nodes": _texts("Acceptable nodes. Default: any."),
    "not_nodes": _texts("Nodes to avoid."),
    "licenses": JobField(Form.NAMED_NUMBERS, "licenses that the job holds while it runs, by name with their number",
        least=1, most=1_000_000, wire=False),
    "time_limit_s": _whole("How long an attempt may run before it is stopped. Default: the limit of its "
        "class.", 1, LIMIT_S_MAX, None),
    "begin_ms": _whole("The job does not start before this time, in ms since 1970.", 0, TIME_MS_MAX),
    "deadline_ms": _whole("When the job should have ended, in ms since 1970.", 0, TIME_MS_MAX),
    "array": JobField(Form.TEXT, "Make it an array of tasks that start one by one: 0-9, 1,3,5 or 0-100:10."),
    "array_limit": _whole("How many tasks of the array may run at a time. 0: all.", 0, 1_000_000),
    "dependencies": JobField(Form.DEPENDENCIES, "Jobs that the job waits for.", ()),
    "dependencies_any": _yes_no("Wait for any one of them instead of all."),
    "env": JobField(Form.NAMED_TEXTS, "Environment variables, up to 256 KiB.", {}),
    "cwd": _text("The folder to run in. Default: one that the yard makes for the job."),
    "umask": JobField(Form.WHOLE, "Permissions that the job's files do not have. 18 is 022, the default.", 0o022,
        0, 0o777, native=False),
    "stdout": _text("The file for the job's output. Default: the yard keeps the output for `logs`."),
    "stderr": _text("The file for the job's errors. Default: together with its output."),
    "open_mode": JobField(Form.CHOICE,
        "Whether to append to existing output files or to overwrite them. Default: append only in a "
        "later attempt.", "",
        choices=("append", "truncate")),
    "warn_signal": _whole("The signal that is sent ahead of TERM. 0: none.", 0, 64),
    "warn_s": _whole("How long ahead of the time limit that signal is sent.", 0, _DAY_S),
    "warn_shell": _yes_no("Send that signal to the job's first process alone, not to what it started."),
    "terminal": JobField(Form.BOOLEAN, "Give the job a terminal for its input and output, for `yard attach`.", False,
        native=False),
    "slurm_commands": _yes_no("Put Slurm's commands (srun, scontrol, …), which the yard answers, on the job's PATH."),
    "checkpoint_s": _whole("How often the job saves its work. 0: never.", 0, 30 * _DAY_S),
    "retries": _whole("How often to try the job again after it failed by itself.", 0, 100),
    "requeue": _yes_no("Whether the job goes back to the queue when its node is lost.", default=True),
    "hold": _yes_no("Do not start the job before it is released."),
}
# fmt: on
"""Every field, in the order in which native YAML is written."""

GPU_PARTS = ("gpus", "gpu_milli", "mig", "gpu_memory_mib", "isolation")
"""Fields that say the same thing in several ways: a new value of one takes the place of all, but for the last."""
CHANGEABLE = (
    "name", "tenant", "project", "labels", "class", *GPU_PARTS, "gpu_models", "cpus", "memory_mib", "pools", "clusters",
    "constraint", "on_nodes", "not_nodes", "time_limit_s", "begin_ms", "deadline_ms", "dependencies",
    "dependencies_any", "array_limit", "checkpoint_s", "retries", "requeue",
)  # fmt: skip
"""Fields that `update` changes of a job that waits."""
CHANGEABLE_RUNNING = frozenset(
    {"name", "project", "labels", "retries", "requeue", "array_limit", "time_limit_s"}
)
"""Those of a job that runs."""
NICE_S_MAX = 30 * 86_400
"""By how much a place in the line is moved."""


class JobOption:
    """What a person types for fields of a job."""

    __slots__ = ("field", "help", "kind", "metavar", "more", "name", "names", "run")

    def __init__(
        self,
        names: str,
        field: str,
        metavar: str | None,
        help: str,
        *,
        more: tuple[str, ...] = (),
        kind: str = "",
        run: bool = True,
    ) -> None:
        self.names = names.split()
        self.name = self.names[-1].partition("/")[0][2:].replace("-", "_")
        """As a parameter of the command."""
        self.field = field
        """That it sets. Its bounds and its default are this field's."""
        self.more = more
        """Other fields that the same text may set."""
        self.metavar = metavar
        self.help = help
        self.kind = kind or JOB_FIELDS[field].kind
        """One of `Form`: what is typed. A text that stands for a number is read by the unit of the field."""
        self.run = run
        """Whether `yard run` has it too, which stays with its job."""


# fmt: off
JOB_OPTIONS = (
    JobOption("-g --gpus", "gpus", "N|0.25|PROFILE",
        "GPUs of each task: 2; a share of one GPU: 0.25; MIG slices: 1g.18gb, 2x2g.35gb.",
        more=("gpu_milli", "mig"), kind=Form.TEXT),
    JobOption("--gpu-memory", "gpu_memory_mib", "SIZE", "The cheapest part of a GPU with this much memory: 20G.",
        kind=Form.TEXT),
    JobOption("--isolation", "isolation", "strict|shared|any",
        "With --gpu-memory: strict is a MIG slice or a whole GPU, never a share."),
    JobOption("-n --name", "name", "NAME", "The job's name. Default: the name of its script or program."),
    JobOption("-t --time", "time_limit_s", "TIME", "Time limit: 30m, 2h, 1d12h, 2:00:00; a plain 90 is minutes.",
        kind=Form.TEXT),
    JobOption("--class", "class", "CLASS", "The class of the job: its priority, time limit and grace."),
    JobOption("--tenant", "tenant", "TENANT", "The tenant that the job counts for."),
    JobOption("--project", "project", "PROJECT", "The project that `yard cost` books the job to."),
    JobOption("--label", "labels", "KEY=VALUE", "A label of the job, for `yard cost --by label:KEY`; "
        "may be repeated."),
    JobOption("--array", "array", "INDICES",
        "Make it an array of tasks: 0-9, 1,3,5 or 0-100:10; %4 at the end: run at most 4 at a time. "
        "Each task takes an id.",
        more=("array_limit",), run=False),
    JobOption("--after", "dependencies", "[KIND:]JOB", "Wait for a job, an array or a task. KIND: "
        "afterok (default), afterany, afternotok, after, aftercorr or singleton; may be repeated.", run=False),
    JobOption("--after-one", "dependencies_any", None, "Wait for any one of the jobs of --after instead "
        "of all.", run=False),
    JobOption("--image", "image", "IMAGE", "Run in this container image, as your user, with the job's "
        "folder mounted."),
    JobOption("--volume", "volumes", "FOLDER[:INSIDE[:ro]]",
        "Mount this folder of the node in the image; NAME:INSIDE mounts an empty one. May be repeated."),
    JobOption("--secret", "secrets", "NAME=FILE",
        "Mount this file of the node in the image as /run/secrets/NAME; may be repeated."),
    JobOption("--pull", "pull", "missing|always|never",
        "When to pull the image. Default: missing, which is once for each user and node."),
    JobOption("--tasks", "tasks", "N", "Number of tasks, which start together or not at all."),
    JobOption("-c --cpus", "cpus", "N", "Cores of each task; 0 reserves none. Default: 1 without a GPU, else 0."),
    JobOption("-m --memory", "memory_mib", "SIZE", "Memory of each task: 512M, 8G.", kind=Form.TEXT),
    JobOption("--gpu-model", "gpu_models", "MODEL", "An acceptable GPU model; A100 means all of its "
        "sizes. May be repeated."),
    JobOption("-D --chdir", "cwd", "FOLDER", "Run in this folder. Default: the current one."),
    JobOption("-p --pool", "pools", "POOL", "An acceptable pool; may be repeated."),
    JobOption("--cluster", "clusters", "CLUSTER",
        "An acceptable cluster; may be repeated, preferred one first."),
    JobOption("--constraint", "constraint", "FEATURES",
        "Features that the nodes must have: nvme, 'nvme&ib', 'rack1|rack2'."),
    JobOption("--select", "select", "LABELS",
        "Labels that the nodes must have: zone=a, 'zone in (a, b), !old', 'nvme | ib'; may be repeated."),
    JobOption("--prefer", "prefer", "[WEIGHT:]LABELS",
        "Labels of nodes that are tried first: zone=a, '80: zone=a'; may be repeated."),
    JobOption("--tolerate", "tolerate", "TAINT",
        "A taint that the job puts up with: KEY, KEY=VALUE:EFFECT, 'KEY for 5m'; may be repeated."),
    JobOption("--nodes", "nodes_min", "N|MIN-MAX", "How many nodes to spread the tasks over: 2, or 2-4.",
        more=("nodes_max",), kind=Form.TEXT),
    JobOption("--topology", "topology", "[prefer:]LEVEL[@TIME]",
        "All tasks on one switch, rack or fabric. prefer: only if there is room; @TIME: required for this long.",
        kind=Form.TEXT),
    JobOption("--numa", "numa", "single", "The GPUs, cores and memory of each task in one NUMA domain."),
    JobOption("--node", "on_nodes", "NODE", "An acceptable node; may be repeated."),
    JobOption("--exclude", "not_nodes", "NODE", "A node to avoid; may be repeated."),
    JobOption("--exclusive", "exclusive", None, "Take whole nodes, shared with no other job."),
    JobOption("--begin", "begin_ms", "TIME", "Do not start before this time: 16:00, +2h, tomorrow, 2027-01-20T08:00.",
        kind=Form.TEXT),
    JobOption("--deadline", "deadline_ms", "TIME", "When the job should have ended, written like "
        "--begin.", kind=Form.TEXT),
    JobOption("--checkpoint-every", "checkpoint_s", "TIME", "How often the job saves its work: 30m.", kind=Form.TEXT),
    JobOption("--stdout", "stdout", "FILE", "The file for the job's output.", run=False),
    JobOption("--stderr", "stderr", "FILE", "The file for the job's errors. Default: together with its "
        "output.", run=False),
    JobOption("--open-mode", "open_mode", "append|truncate",
        "Whether to append to the files of --stdout and --stderr or to overwrite them.", run=False),
    JobOption("--env", "env", "NAME=VALUE", "Set a variable of the job; may be repeated."),
    JobOption("--env-file", "env", "FILE", "Set the variables of this file, one NAME=VALUE per line.",
        kind=Form.TEXT),
    JobOption("--export/--no-export", "env", None, "Pass on this shell's environment.", kind=Form.BOOLEAN),
    JobOption("--signal", "warn_signal", "SIG[@SECONDS]", "Send this signal before the job is stopped, SECONDS "
        "ahead of its time limit; B:USR1@60: only to the shell.", more=("warn_s", "warn_shell"), kind=Form.TEXT),
    JobOption("--retries", "retries", "N", "How often to try the job again if it fails.", run=False),
    JobOption("--requeue/--no-requeue", "requeue", None, "Whether the job goes back to the queue when "
        "its node is lost.", run=False),
    JobOption("--hold", "hold", None, "Do not start the job before `yard release`.", run=False),
)
# fmt: on
"""In the order in which the help has them. A field that has none comes from a file, or from the shell."""
