"""Options that say what a job needs, shared by `submit` and `run`, and the request they make."""

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from gpuyard.api.connecting.surroundings import environment, here
from gpuyard.cli.commands.submit.jobplaces import limit_s, variables
from gpuyard.cli.connection.places import has_defaults
from gpuyard.cli.line.options import Argument, Called, Option
from gpuyard.errors import BadInput, YardError

WordsArgument = Annotated[
    list[str] | None,
    Argument(metavar="COMMAND [ARGS]...", help="What to run.", show_default=False),
]
Gpus = Annotated[
    str,
    Option(
        "-g",
        "--gpus",
        metavar="N|0.25|PROFILE",
        help="GPUs of each task: 2; a share of one: 0.25; MIG slices: 1g.18gb, 2x2g.35gb.",
        show_default=False,
    ),
]
GpuMemory = Annotated[
    str,
    Option(
        "--gpu-memory",
        metavar="SIZE",
        help="The cheapest part of a GPU with this much memory: 20G.",
        show_default=False,
    ),
]
Isolated = Annotated[
    str,
    Option(
        "--isolation",
        metavar="strict|shared|any",
        help="With --gpu-memory: strict is a MIG slice or a whole GPU, never a share.",
        show_default=False,
    ),
]
GpuModel = Annotated[
    list[str] | None,
    Option(
        "--gpu-model", metavar="MODEL", help="A GPU model that will do; may be repeated.", show_default=False
    ),
]
JobName = Annotated[
    str,
    Option(
        "-n",
        "--name",
        metavar="NAME",
        help="Name of the job. Default: that of its script or program.",
        show_default=False,
    ),
]
Tenant = Annotated[
    str, Option("--tenant", metavar="TENANT", help="The tenant that the job counts for.", show_default=False)
]
Klass = Annotated[
    str,
    Option(
        "--class",
        metavar="CLASS",
        help="The class of the job: its priority, time limit and grace.",
        show_default=False,
    ),
]
TimeLimit = Annotated[
    str,
    Option(
        "-t",
        "--time",
        metavar="TIME",
        help="Time limit: 30m, 2h, 1d12h, 2:00:00; a plain 90 is minutes.",
        show_default=False,
    ),
]
Tasks = Annotated[
    int, Option("--tasks", metavar="N", min=1, help="Number of tasks, which start together or not at all.")
]
Cpus = Annotated[
    float | None,
    Option(
        "-c",
        "--cpus",
        metavar="N",
        min=0,
        help="Cores of each task. Default: 1 without a GPU, else none; 0 counts none.",
        show_default=False,
    ),
]
Memory = Annotated[
    str,
    Option("-m", "--memory", metavar="SIZE", help="Memory of each task: 512M, 8G.", show_default=False),
]
Env = Annotated[
    list[str] | None,
    Option(
        "--env", metavar="NAME=VALUE", help="Set a variable of the job; may be repeated.", show_default=False
    ),
]
Export = Annotated[bool, Option("--export/--no-export", help="Pass on this shell's environment.")]
Signal = Annotated[
    str,
    Option(
        "--signal",
        metavar="SIG[@SECONDS]",
        help="Warn with this signal before it is stopped, so long ahead of its time limit; B:USR1@60: the shell alone.",
        show_default=False,
    ),
]
Array = Annotated[
    str,
    Option(
        "--array",
        metavar="INDICES",
        help="Make it an array of tasks: 0-9, 1,3,5 or 0-100:10; with %4 at the end at most 4 run at a time.",
        show_default=False,
    ),
]
After = Annotated[
    list[str] | None,
    Option(
        "--after",
        metavar="[KIND:]JOB",
        help="Wait for a job, an array or a task: afterok (if no kind is given), afterany, afternotok, after, "
        "aftercorr; or singleton. May be repeated.",
        show_default=False,
    ),
]
AfterOne = Annotated[bool, Option("--after-one", help="One of the jobs of --after is enough.")]
Stdout = Annotated[
    str, Option("--stdout", metavar="FILE", help="File for the output of the job.", show_default=False)
]
Stderr = Annotated[
    str,
    Option(
        "--stderr", metavar="FILE", help="File for its errors. Default: with its output.", show_default=False
    ),
]
OpenMode = Annotated[
    str,
    Option(
        "--open-mode",
        metavar="append|truncate",
        help="Whether --stdout and --stderr are written on, or begun anew.",
        show_default=False,
    ),
]
Retries = Annotated[
    int,
    Option("--retries", metavar="N", min=0, max=100, help="How often the job is tried again if it fails."),
]
Requeue = Annotated[
    bool, Option("--requeue/--no-requeue", help="Whether the job waits again when its node is lost.")
]
Hold = Annotated[bool, Option("--hold", help="Keep the job from starting until `yard release`.")]

Quiet = Annotated[bool, Option("-q", "--quiet", help="Do not say what the job waits for, nor where it runs.")]
DryRun = Annotated[
    bool,
    Option(
        "--dry-run", help="Say where and when the job would start and what it would cost; submit nothing."
    ),
]
HostProcess = Annotated[
    bool,
    Option("--host-process", help="Say nothing of images: a container's command runs on the node itself."),
]


def say_if_no_gpus(accepted: Mapping[str, Any], fields: Mapping[str, Any]) -> None:
    """Note that a job asks for no GPUs: most jobs want one, and `-g 0` says that this one does not."""
    if fields.get("gpus") or fields.get("gpu_memory_mib") or fields.get("mig"):
        return
    from gpuyard.cli.terminal.streams import notice

    behind = next((word for word in fields.get("command", ()) if word.split("=")[0] in ("-g", "--gpus")), "")
    if behind and fields.get("script"):
        text = f"asks for no GPUs: {behind} stands behind the script and goes to it; options of yard stand before it"
    else:
        text = "asks for no GPUs; -g 1 for one, -g 0 if it needs none"
    notice(f"job {accepted['label']} {text}", before="note: ")


def exports(ctx: Called, export: bool, image: str) -> bool:
    """Whether this shell's environment goes with the job: into an image only if that is asked for, for its PATH and
    the like are those of another system."""
    return export and (not image or was_given(ctx, "export"))


def was_empty(ctx: Called, option: str, value: str) -> bool:
    """Whether an option was given an empty value, as by an unset variable of a script."""
    return not value and was_given(ctx, option)


def was_given(ctx: Called, option: str) -> bool:
    """Whether an option was given, rather than left at its default."""
    return option in ctx.given


def request(
    *,
    gpus: str,
    gpu_memory: str,
    isolation: str,
    gpu_model: list[str] | None,
    name: str,
    tenant: str,
    klass: str,
    time_limit: str,
    tasks: int,
    cpus: float | None,
    memory: str,
    env: list[str] | None,
    env_file: str,
    export: bool,
    signal: str,
) -> dict[str, Any]:
    """The fields of a submission that both commands have."""
    fields: dict[str, Any] = {"gpus": 0, "tasks": tasks, "cwd": here()}
    fields |= _gpus(gpus) if gpus else {}
    if gpu_memory:
        if gpus:
            raise BadInput("-g and --gpu-memory say the same thing in two ways", "Leave one of them out.")
        fields["gpu_memory_mib"] = _quantity("--gpu-memory", gpu_memory, "memory_mib")
    if isolation:
        fields["isolation"] = isolation
    models = [part for each in gpu_model or [] for part in each.split(",") if part]
    if models:
        fields["gpu_models"] = models
    for key, value in (("name", name), ("tenant", tenant), ("class", klass)):
        if value:
            fields[key] = value
    if cpus is not None:
        fields["cpus"] = cpus
    if memory:
        fields["memory_mib"] = _quantity("--memory", memory, "memory_mib")
    if time_limit:
        fields["time_limit_s"] = limit_s("--time", time_limit)
    fields |= _signal(signal) if signal else {}
    fields["env"] = environment([*(variables(env_file) if env_file else ()), *(env or ())], export=export)
    return fields


def fallbacks(*, gpus: bool) -> dict[str, Any]:
    """The fields from a person's defaults, for what neither the command line nor a file says."""
    if not has_defaults():
        return {}
    from gpuyard.cli.connection.defaults import defaults, origin

    kept = defaults()
    fields: dict[str, Any] = {key: kept[key] for key in ("tenant", "class") if key in kept}
    try:
        if "pool" in kept:
            fields["pools"] = [part for part in kept["pool"].split(",") if part]
        if "time" in kept:
            fields["time_limit_s"] = limit_s("time", kept["time"])
        if gpus and "gpus" in kept:
            fields |= _gpus(kept["gpus"])
    except BadInput as error:
        raise BadInput(f"{origin('time')}: {error.message}", error.hint) from None
    return fields


def completed(ctx: Called, given: dict[str, Any]) -> dict[str, Any]:
    """What was given, and the person's defaults for what was not."""
    asked = was_given(ctx, "gpus") or was_given(ctx, "gpu_memory")
    kept = fallbacks(gpus=not asked)
    return given | {key: value for key, value in kept.items() if not given.get(key)}


def own_default(error: YardError, fields: Mapping[str, Any]) -> YardError:
    """Say where a refused tenant comes from, if the user did not type it."""
    from gpuyard.cli.connection.defaults import defaults, origin

    tenant = defaults().get("tenant")
    if tenant and fields.get("tenant") == tenant and "tenant" in error.message:
        error.hint = f"{error.hint} The tenant {tenant} is from {origin('tenant')}.".strip()
    return error


_GPUS_HINT = "A number of GPUs (2), a share of one (0.25), or MIG slices (1g.18gb, 2x2g.35gb)."


def _gpus(text: str) -> dict[str, Any]:
    """`2`, `0.25`, `1g.18gb` or `2x2g.35gb`."""
    plain = text.strip().lower()
    if plain.isdecimal():
        return {"gpus": int(plain)}
    share = re.fullmatch(r"0?\.(\d{1,3})", plain)
    if share and int(share[1]):
        return {"gpus": 1, "gpu_milli": int(share[1].ljust(3, "0"))}
    slices = re.fullmatch(r"(?:(\d{1,4})\s*x\s*)?(\d+g\.\d+gb(?:\+[a-z.]+)?)", plain)
    if slices and int(slices[1] or 1):
        return {"gpus": int(slices[1] or 1), "mig": slices[2]}
    if re.fullmatch(r"\d+\.\d+", plain):
        raise BadInput(f"-g {text}: a share is less than one GPU, to the thousandth", _GPUS_HINT)
    raise BadInput(f"-g {text!r} is nothing that a GPU can be asked for", _GPUS_HINT)


def _quantity(option: str, text: str, function: str) -> int:
    from gpuyard.config import quantities

    parse: Callable[[str], int] = getattr(quantities, function)
    try:
        return parse(text)
    except ValueError as error:
        raise BadInput(f"{option} {error}") from None


def _signal(text: str) -> dict[str, int]:
    if text[:2].upper() == "B:":
        # As for sbatch: the shell alone.
        return _signal(text[2:]) | {"warn_shell": True}
    import signal

    name, at, ahead = text.partition("@")
    if at and not ahead.isdecimal():
        raise BadInput(
            f"--signal {text!r}: after @ comes a number of seconds", "For example: --signal USR1@60"
        )
    if name.isdecimal():
        return {"warn_signal": int(name), "warn_s": int(ahead or 0)}
    try:
        number = signal.Signals[f"SIG{name.upper().removeprefix('SIG')}"]
    except KeyError:
        raise BadInput(
            f"--signal {text!r}: there is no signal {name!r}", "For example: --signal USR1@60"
        ) from None
    return {"warn_signal": int(number), "warn_s": int(ahead or 0)}
