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
DEPENDENCY_KINDS = ("after", "afterany", "afterok", "afternotok", "aftercorr", "singleton")
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
    "name": _text("For people. Left out: made from the command."),
    "tenant": _text(
        "The tenant that the job counts for, as in research/ana. Left out: the default tenant of the user."),
    "project": _text("The project that the job is booked for: the same as the label 'project'.", "vision"),
    "labels": JobField(Form.NAMED_TEXTS, f"Labels for reports, by key: up to {LABELS_MAX}.", {}),
    "class": _text("How it is treated. Left out: the default class."),
    "command": _texts("Program and arguments. With a script: the script's arguments.", ["nvidia-smi"]),
    "script": _text("A script, which begins with #!. Up to 1 MiB."),
    "image": _text("Container image to run it in. Left out: it is a process of the node.",
        "docker.io/pytorch/pytorch:2.4.0-cuda12.4-cudnn9-runtime"),
    "entrypoint": _texts("In place of the image's entrypoint; 'command' holds its arguments.", ["/bin/sh", "-c"]),
    "workdir": _text("Folder inside the image to run in. Left out: 'cwd', else the image's own.", "/workspace"),
    "volumes": _texts("What the image sees besides 'cwd': /data, /data:/mnt:ro, or NAME:/scratch for an empty folder "
        "that goes with the attempt.", ["/data:/mnt:ro"]),
    "secrets": JobField(Form.NAMED_TEXTS, "Files of the node that the image sees as /run/secrets/NAME, by NAME.", {}),
    "pull": JobField(Form.CHOICE, "When the image is pulled. Left out: missing, which is once per user and node.", "",
        choices=("missing", "always", "never")),
    "containers": JobField(Form.CONTAINERS, "Further containers of the same job: init steps before its own, and others "
        "beside it.", ()),
    "gpus": _whole("GPUs of each task.", 0, 100_000),
    "gpu_models": _texts("GPU models that will do; `A100` means all of its sizes. Left out: any.", ["H100"]),
    "gpu_milli": _whole("A share of one GPU, in thousandths, instead of whole ones.", 0, 999),
    "mig": _text("MIG profile of the slices that 'gpus' counts.", "1g.18gb"),
    "gpu_memory_mib": _whole("GPU memory instead of a number: the cheapest that has it is taken.",
        0, 1 << 24),
    "isolation": _text("With gpu_memory_mib: strict is a MIG slice or a whole GPU, shared is a share."),
    "tasks": _whole("Tasks that start together or not at all.", 1, 10_000, 1),
    "nodes_min": _whole("Nodes it is spread over at least.", 0, 100_000),
    "nodes_max": _whole("Nodes it may be spread over. 0: as few as possible.", 0, 100_000),
    "ranks": _whole("Processes it means to start in all. 0: as many as tasks.", 0, 1_000_000),
    "batch": _yes_no("Run it once, in the first task; the others hold room for what it starts there."),
    "cpus": JobField(Form.NUMBER, "Cores of each task, to a thousandth. Left out: 1 where it has no GPU, else none.",
        None, 0, 100_000),
    "memory_mib": _whole("Main memory of each task, in MiB.", 0, 1 << 30),
    "exclusive": _yes_no("Whole nodes, shared with no other job."),
    "pools": _texts("Pools that will do. Left out: any."),
    "clusters": _texts("Clusters that will do, the preferred one first. Left out: any."),
    "constraint": _text("Features its nodes must have: nvme, 'nvme&ib' or 'rack1|rack2'.", "nvme"),
    "on_nodes": _texts("Nodes that will do. Left out: any."),
    "not_nodes": _texts("Nodes that will not."),
    "licenses": JobField(Form.NAMED_NUMBERS, "licenses it holds while it runs, by name with their number",
        least=1, most=1_000_000, wire=False),
    "time_limit_s": _whole("When an attempt is stopped. Left out: as its class says.", 1, LIMIT_S_MAX, None),
    "begin_ms": _whole("The job does not start before, in ms since 1970.", 0, TIME_MS_MAX),
    "deadline_ms": _whole("When the job should be done, in ms since 1970.", 0, TIME_MS_MAX),
    "array": JobField(Form.TEXT, "Make it an array of tasks that start one by one: 0-9, 1,3,5 or 0-100:10."),
    "array_limit": _whole("How many tasks of the array may run at a time. 0: all.", 0, 1_000_000),
    "dependencies": JobField(Form.DEPENDENCIES, "Jobs it waits for.", ()),
    "dependencies_any": _yes_no("One of them is enough."),
    "env": JobField(Form.NAMED_TEXTS, "Variables of its environment. Up to 256 KiB.", {}),
    "cwd": _text("Folder to run in. Left out: one of its own."),
    "umask": JobField(Form.WHOLE, "Permissions that files of the job do not get. 18 is 022, the default.", 0o022,
        0, 0o777, native=False),
    "stdout": _text("File for its output. Left out: kept for `logs`."),
    "stderr": _text("File for its errors. Left out: together with its output."),
    "open_mode": JobField(Form.CHOICE,
        "What becomes of these files if they are there. Left out: kept only when it runs again.", "",
        choices=("append", "truncate")),
    "warn_signal": _whole("Signal sent ahead of TERM. 0: none.", 0, 64),
    "warn_s": _whole("How long ahead of the time limit it is sent.", 0, _DAY_S),
    "warn_shell": _yes_no("Send that signal to the job's first process alone, not to what it started."),
    "terminal": JobField(Form.BOOLEAN, "Give it a terminal for its input and output: `yard attach` is at it.", False,
        native=False),
    "slurm_commands": _yes_no("Put Slurm's commands on its PATH (srun, scontrol, …), as the yard answers them."),
    "checkpoint_s": _whole("How often it saves its work. 0: never.", 0, 30 * _DAY_S),
    "retries": _whole("How often it is tried again after it failed by itself.", 0, 100),
    "requeue": _yes_no("Whether it waits again when its node is lost.", default=True),
    "hold": _yes_no("Do not start it before it is released."),
}
# fmt: on
"""Every field, in the order in which native YAML is written."""


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
        "GPUs of each task: 2; a share of one: 0.25; MIG slices: 1g.18gb, 2x2g.35gb.", more=("gpu_milli", "mig"),
        kind=Form.TEXT),
    JobOption("--gpu-memory", "gpu_memory_mib", "SIZE", "The cheapest part of a GPU with this much memory: 20G.",
        kind=Form.TEXT),
    JobOption("--isolation", "isolation", "strict|shared|any",
        "With --gpu-memory: strict is a MIG slice or a whole GPU, never a share."),
    JobOption("-n --name", "name", "NAME", "Name of the job. Default: that of its script or program."),
    JobOption("-t --time", "time_limit_s", "TIME", "Time limit: 30m, 2h, 1d12h, 2:00:00; a plain 90 is minutes.",
        kind=Form.TEXT),
    JobOption("--class", "class", "CLASS", "The class of the job: its priority, time limit and grace."),
    JobOption("--tenant", "tenant", "TENANT", "The tenant that the job counts for."),
    JobOption("--project", "project", "PROJECT", "The project that the job is booked for in `yard cost`."),
    JobOption("--label", "labels", "KEY=VALUE", "A label of the job, which `yard cost --by label:KEY` sums up by; may "
        "be repeated."),
    JobOption("--array", "array", "INDICES",
        "Make it an array of tasks: 0-9, 1,3,5 or 0-100:10; with %4 at the end at most 4 run at a time.",
        more=("array_limit",), run=False),
    JobOption("--after", "dependencies", "[KIND:]JOB", "Wait for a job, an array or a task: afterok (if no kind is "
        "given), afterany, afternotok, after, aftercorr; or singleton. May be repeated.", run=False),
    JobOption("--after-one", "dependencies_any", None, "One of the jobs of --after is enough.", run=False),
    JobOption("--image", "image", "IMAGE", "Run in this container image, as you, with the folder of the job in it."),
    JobOption("--volume", "volumes", "FOLDER[:INSIDE[:ro]]",
        "A folder of the node that the image sees; may be repeated. NAME:INSIDE is an empty one."),
    JobOption("--secret", "secrets", "NAME=FILE",
        "A file of the node that the image sees as /run/secrets/NAME; may be repeated."),
    JobOption("--pull", "pull", "missing|always|never",
        "When the image is pulled. Default: once for each user and node."),
    JobOption("--tasks", "tasks", "N", "Number of tasks, which start together or not at all."),
    JobOption("-c --cpus", "cpus", "N", "Cores of each task. Default: 1 without a GPU, else none; 0 counts none."),
    JobOption("-m --memory", "memory_mib", "SIZE", "Memory of each task: 512M, 8G.", kind=Form.TEXT),
    JobOption("--gpu-model", "gpu_models", "MODEL", "A GPU model that will do; A100: any size of it. May be repeated."),
    JobOption("-D --chdir", "cwd", "FOLDER", "Run in this folder, not in the current one."),
    JobOption("-p --pool", "pools", "POOL", "A pool that will do; may be repeated."),
    JobOption("--cluster", "clusters", "CLUSTER",
        "A cluster that will do; may be repeated, the preferred one first."),
    JobOption("--constraint", "constraint", "FEATURES",
        "Features that its nodes must have: nvme, 'nvme&ib', 'rack1|rack2'."),
    JobOption("--nodes", "nodes_min", "N|MIN-MAX", "How many nodes to spread the tasks over: 2, or 2-4.",
        more=("nodes_max",), kind=Form.TEXT),
    JobOption("--node", "on_nodes", "NODE", "A node that will do; may be repeated."),
    JobOption("--exclude", "not_nodes", "NODE", "A node that will not do; may be repeated."),
    JobOption("--exclusive", "exclusive", None, "Take whole nodes, shared with no other job."),
    JobOption("--begin", "begin_ms", "TIME", "Do not start before: 16:00, +2h, tomorrow, 2027-01-20T08:00.",
        kind=Form.TEXT),
    JobOption("--deadline", "deadline_ms", "TIME", "When the job should be done; as --begin.", kind=Form.TEXT),
    JobOption("--checkpoint-every", "checkpoint_s", "TIME", "How often the job saves its work: 30m.", kind=Form.TEXT),
    JobOption("--stdout", "stdout", "FILE", "File for the output of the job.", run=False),
    JobOption("--stderr", "stderr", "FILE", "File for its errors. Default: with its output.", run=False),
    JobOption("--open-mode", "open_mode", "append|truncate",
        "Whether --stdout and --stderr are written on, or begun anew.", run=False),
    JobOption("--env", "env", "NAME=VALUE", "Set a variable of the job; may be repeated."),
    JobOption("--env-file", "env", "FILE", "Set the variables of this file, NAME=VALUE a line.", kind=Form.TEXT),
    JobOption("--export/--no-export", "env", None, "Pass on this shell's environment.", kind=Form.BOOLEAN),
    JobOption("--signal", "warn_signal", "SIG[@SECONDS]", "Warn with this signal before it is stopped, so long ahead "
        "of its time limit; B:USR1@60: the shell alone.", more=("warn_s", "warn_shell"), kind=Form.TEXT),
    JobOption("--retries", "retries", "N", "How often the job is tried again if it fails.", run=False),
    JobOption("--requeue/--no-requeue", "requeue", None, "Whether the job waits again when its node is lost.",
        run=False),
    JobOption("--hold", "hold", None, "Keep the job from starting until `yard release`.", run=False),
)
# fmt: on
"""In the order in which the help has them. A field that has none comes from a file, or from the shell."""
