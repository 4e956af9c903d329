"""Turns a batch script, with its environment and command line, into a job in native fields."""

import posixpath
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gpuyard.engines import patterns
from gpuyard.errors import BadInput, quote
from gpuyard.intake.names import is_segment, is_tenant, mend_job_name
from gpuyard.intake.sbatch.conclusions import conclude
from gpuyard.intake.sbatch.constraints import Constraint, parse_constraint, parse_preferred
from gpuyard.intake.sbatch.getopt import Unreadable, parse_options
from gpuyard.intake.sbatch.images import image_fields
from gpuyard.intake.sbatch.layers import Setting, settle
from gpuyard.intake.sbatch.reading import Reading, Values, read
from gpuyard.intake.sbatch.shape import find_shape
from gpuyard.intake.sbatch.unsupported import NOTHING_ASKED, REFUSED, WARNINGS
from gpuyard.intake.sbatch.words import Word, check_script, read_directives
from gpuyard.intake.text import REPLACED
from gpuyard.intake.values import PROPOSED, Caller, Form, Intake, SubmitOptions, Warning, refuse
from gpuyard.model.gpu_names import find_models, parse_mig_profile
from gpuyard.wire.job_fields import PROJECT, SCRIPT_BYTES_MAX, label_fault

_MEMORY = {
    "mem": "SLURM_MEM_PER_NODE",
    "mem-per-cpu": "SLURM_MEM_PER_CPU",
    "mem-per-gpu": "SLURM_MEM_PER_GPU",
}
_AS_WRITTEN = {
    "account": "SLURM_JOB_ACCOUNT", "qos": "SLURM_JOB_QOS", "partition": "SLURM_JOB_PARTITION",
    "ntasks-per-node": "SLURM_NTASKS_PER_NODE", "ntasks-per-gpu": "SLURM_NTASKS_PER_GPU",
    "ntasks-per-core": "SLURM_NTASKS_PER_CORE", "ntasks-per-socket": "SLURM_NTASKS_PER_SOCKET",
    "gpus-per-node": "SLURM_GPUS_PER_NODE", "gpus-per-task": "SLURM_GPUS_PER_TASK",
    "gpus-per-socket": "SLURM_GPUS_PER_SOCKET", "cpus-per-gpu": "SLURM_CPUS_PER_GPU", "gpu-bind": "SLURM_GPU_BIND",
    "hint": "SLURM_HINT", "distribution": "SLURM_DISTRIBUTION", "threads-per-core": "SLURM_THREADS_PER_CORE",
    "dependency": "SLURM_JOB_DEPENDENCY", "export": "SLURM_EXPORT_ENV",
}  # fmt: skip


def variables(reading: Reading, settings: Mapping[str, Setting]) -> dict[str, str]:
    """The variables, by the options that were given."""
    found = {
        variable: settings[option].value for option, variable in _AS_WRITTEN.items() if option in settings
    }
    if "," in found.get("SLURM_JOB_PARTITION", ""):
        # With several partitions, Slurm sets the one where the job runs.
        del found["SLURM_JOB_PARTITION"]
    if reading.memory_mib:
        found[_MEMORY[reading.memory_per]] = str(reading.memory_mib)
    if reading.overcommit:
        found["SLURM_OVERCOMMIT"] = "1"
    return found


_WRAPPED = "#!/bin/sh\n# This script was created by sbatch --wrap.\n\n{command}\n"
_GPU_OPTIONS = ("gpus", "gpus-per-task", "gpus-per-node", "gpus-per-socket", "gres")
_UNNAMED = frozenset({"", "-", "<stdin>"})


def split_command(words: Sequence[str]) -> tuple[list[str], str, list[str]]:
    """A command line of sbatch: its options, the script (empty: none is named) and the script's arguments."""
    try:
        _, rest = parse_options([Word(word, 0) for word in words])
    except Unreadable as error:
        raise BadInput(f"sbatch: {error}") from None
    options = list(words[: len(words) - len(rest)])
    if options and options[-1] == "--" and _complete(options[:-1]):
        options.pop()
    left = [word.text for word in rest]
    return options, left[0] if left else "", left[1:]


def _complete(options: Sequence[str]) -> bool:
    """Whether no option lacks its value: `--` may also be the value of the last one."""
    try:
        parse_options([Word(word, 0) for word in options])
    except Unreadable:
        return False
    return True


class Understood(NamedTuple):
    """A script half-way: in Slurm's terms."""

    settings: dict[str, Setting]
    values: Values
    reading: Reading
    warnings: list[Warning]
    script: str


def read_sbatch(text: str, file: str, caller: Caller) -> Intake:
    """The job that a batch script describes; `BadInput` with every problem if it cannot be served."""
    settings, values, reading, warnings, script = understand(text, file, caller)
    job, options = _job(reading, values, settings, caller)
    _name(job, reading, values, settings)
    if values.problems:
        raise refuse(values.problems, file)
    job |= {"script": script, "slurm_commands": True} | (
        {"command": list(caller.script_arguments)} if caller.script_arguments else {}
    )
    found = sorted(dict.fromkeys([*warnings, *values.warnings]))
    lines = {name: settings[name].line for name in PROPOSED if name in settings}
    return Intake(
        form=Form.SBATCH, file=file, line=1, job=job, warnings=tuple(found), options=options, lines=lines
    )


def understand(text: str, file: str, caller: Caller) -> Understood:
    """What Slurm would read in a script: the first half of the way, and what tests/slurm compares."""
    words: list[Word] = []
    warnings: list[Warning] = []
    command = settle([], {}, caller.arguments, file).get("wrap")
    if command is not None:
        if caller.script_arguments or text:
            raise BadInput("sbatch: --wrap makes the script; give none beside it")
        script = _WRAPPED.format(command=command.value)
    else:
        script = text
        _check_size(script, file)
        check_script(script, file)
        words, warnings = read_directives(script, file)
        warnings += [
            Warning(number, "a byte of this comment is not UTF-8, and is replaced")
            for number, line in enumerate(script.split("\n"), start=1)
            if REPLACED in line
        ]
    settings = settle(words, caller.environment, caller.arguments, file)
    values = Values(settings)
    name = "wrap" if command is not None else "sbatch" if file in _UNNAMED else posixpath.basename(file)
    reading = conclude(read(values, name, caller.now), values)
    _unsupported(settings, values)
    if values.problems:
        raise refuse(values.problems, file)
    return Understood(settings, values, reading, warnings, script)


def _check_size(script: str, file: str) -> None:
    if len(script) > SCRIPT_BYTES_MAX or len(script.encode("utf-8", "replace")) > SCRIPT_BYTES_MAX:
        raise BadInput(
            f"{file}: the script is larger than {SCRIPT_BYTES_MAX // 1024} KiB",
            "Put the data it holds into files of their own.",
        )


def _unsupported(settings: dict[str, Setting], values: Values) -> None:
    for name, setting in settings.items():
        if name in REFUSED:
            values.problem(name, REFUSED[name])
        elif name == "wrap" and setting.line:
            values.warn(name, "in a script means nothing; the script itself runs")
        elif name == "sockets-per-node" and "gpus-per-socket" in settings:
            continue
        elif name in WARNINGS and setting.value.lower() != NOTHING_ASKED.get(name):
            values.warn(name, f"is not served: {WARNINGS[name]}")


def _job(
    reading: Reading, values: Values, settings: dict[str, Setting], caller: Caller
) -> tuple[dict[str, Any], SubmitOptions]:
    job: dict[str, Any] = {"name": ""}
    job |= _place(reading, values)
    job |= _resources(reading, values)
    job |= _times(reading, values, caller)
    if reading.array:
        job["array"] = reading.array.text
        job |= {"array_limit": reading.array.limit} if reading.array.limit else {}
    if reading.dependencies.each:
        job["dependencies"] = [dict(each) for each in reading.dependencies.each]
        job |= {"dependencies_any": True} if reading.dependencies.any_will_do else {}
    job |= _files(values, caller, array=reading.array is not None)
    job |= image_fields(values, caller)
    if env := _variables(reading, settings) | reading.export.values:
        job["env"] = env
    job |= {"requeue": False} if "no-requeue" in settings else {}
    job |= {"hold": True} if "hold" in settings else {}
    options = SubmitOptions(
        test_only="test-only" in settings,
        parsable="parsable" in settings,
        quiet="quiet" in settings,
        wait="wait" in settings,
        # Into an image only what the script names: PATH and the like are those of another system.
        export_all=reading.export.everything and ("image" not in job or "export" in settings),
        export_names=reading.export.names,
        variables=variables(reading, settings),
        nodes_most=reading.nodes_max if reading.nodes_max > max(1, job.get("nodes_max", 1)) else 0,
    )
    return job, options


_SAID_VARIABLES = {
    "gpus-per-task": "SLURM_GPUS_PER_TASK", "gpus-per-node": "SLURM_GPUS_PER_NODE", "gpu-bind": "SLURM_GPU_BIND",
    "ntasks-per-node": "SLURM_NTASKS_PER_NODE", "cpus-per-gpu": "SLURM_CPUS_PER_GPU",
    "mem-per-cpu": "SLURM_MEM_PER_CPU", "mem-per-gpu": "SLURM_MEM_PER_GPU", "distribution": "SLURM_DISTRIBUTION",
}  # fmt: skip
"""Variables that sbatch sets only if the option is given: `srun` in the job reads some of them as options."""


def _variables(reading: Reading, settings: dict[str, Setting]) -> dict[str, str]:
    found = {variable: settings[name].value for name, variable in _SAID_VARIABLES.items() if name in settings}
    for name in ("SLURM_MEM_PER_CPU", "SLURM_MEM_PER_GPU"):
        # In MiB, whatever the unit was.
        found |= {name: str(reading.memory_mib)} if name in found else {}
    return found


def _name(job: dict[str, Any], reading: Reading, values: Values, settings: dict[str, Setting]) -> None:
    job["name"] = mend_job_name(reading.name)
    if job["name"] != reading.name and "job-name" in settings:
        values.warn("job-name", f"cannot stay {quote(reading.name)}; it is {quote(job['name'])} here")


def _place(reading: Reading, values: Values) -> dict[str, Any]:
    """Its tenant, its class, and where it may run."""
    found: dict[str, Any] = {}
    account, qos = values.text("account"), values.text("qos")
    if account:
        found["tenant"] = account
        if not is_tenant(account):
            values.problem("account", f"cannot be a tenant: {quote(account)}")
    if qos:
        found["class"] = qos
        if not is_segment(qos):
            values.problem("qos", f"cannot be a class: {quote(qos)}")
    project = values.text("wckey")
    if project:
        # What Slurm books by workload key is booked by project here.
        found["project"] = project
        if fault := label_fault(PROJECT, project):
            values.problem("wckey", f"cannot be a project: {fault}")
    pools = [name for name in values.text("partition").split(",") if name]
    if pools:
        found["pools"] = pools
        if not all(map(is_segment, pools)):
            values.problem("partition", f"cannot be the name of a pool: {quote(','.join(pools))}")
    clusters = [name for name in values.text("clusters").split(",") if name and name != "all"]
    if clusters:
        found["clusters"] = clusters
        if not all(map(is_segment, clusters)):
            values.problem("clusters", f"cannot be the name of a cluster: {quote(','.join(clusters))}")
    if reading.nodelist:
        found["on_nodes"] = list(reading.nodelist)
    if reading.exclude:
        found["not_nodes"] = list(reading.exclude)
    if reading.licenses:
        found["licenses"] = dict(reading.licenses)
    if values.has("exclusive"):
        if values.text("exclusive").lower() in ("user", "mcs"):
            values.warn(
                "exclusive", "by user is not served: nodes are shared as usual, or with no job at all"
            )
        else:
            found["exclusive"] = True
    return found


def _resources(reading: Reading, values: Values) -> dict[str, Any]:
    asked = find_shape(reading, values)
    found: dict[str, Any] = {}
    if asked.gpus:
        found["gpus"] = asked.gpus
    found |= _models(reading, values, with_gpus=asked.gpus > 0)
    if asked.tasks > 1:
        found["tasks"] = asked.tasks
        # Slurm starts a script once, on the first node, however many nodes the job has.
        found["batch"] = True
        found |= {"nodes_min": asked.nodes, "nodes_max": asked.nodes_most} if asked.nodes else {}
        found |= _topology(reading, values)
    if reading.ntasks != asked.tasks:
        found["ranks"] = reading.ntasks
    found["cpus"] = asked.cpus
    if asked.memory_mib:
        found["memory_mib"] = asked.memory_mib
    for other in reading.gres_others:
        values.warn("gres", f"{quote(other)} is not served: only GPUs are counted")
    return found


def _topology(reading: Reading, values: Values) -> dict[str, Any]:
    """One switch for all tasks, for as long as the script would wait for it."""
    most, wait_s = reading.switches
    if most > 1:
        text = f"of {most} is read as a wish: its nodes are on as few switches as have room, and it waits for none"
        values.warn("switches", text)
    if most != 1:
        return {}
    return {"topology": {"level": "switch"} | ({"for_s": wait_s} if wait_s else {})}


def _models(reading: Reading, values: Values, *, with_gpus: bool) -> dict[str, Any]:
    """The suitable GPU models, from the type in an option and from features that name one."""
    found: dict[str, Any] = {}
    asked = [each for each in (reading.gpus, reading.gpus_per_node, reading.gpus_per_task) if each]
    kinds = list(dict.fromkeys([each.kind for each in asked]))
    if len(kinds) > 1:
        name = next(each for each in _GPU_OPTIONS if values.has(each))
        written = " and ".join([kind or "none" for kind in kinds])
        values.problem(name, f"and another option name different types: {written}")
    models: list[str] = []
    if kinds and kinds[0].lower() == "gpu":
        name = next(each for each in _GPU_OPTIONS if values.has(each))
        values.warn(name, "names a type 'gpu', for which Slurm would look in vain; read as any GPU")
    elif kinds and kinds[0]:
        profile = parse_mig_profile(kinds[0])
        plain = kinds[0][: -len(profile)].rstrip("_.-") if profile else kinds[0]
        models = list(find_models(plain)) if plain else []
        found |= {"mig": profile} if profile else {}
    wanted = values.get(
        "constraint", lambda text: parse_constraint(text, with_gpus=with_gpus), Constraint((), "")
    )
    if models and wanted.models:
        both = [model for model in models if model in wanted.models]
        if not both:
            values.problem(
                "constraint", f"asks for {' or '.join(wanted.models)}, and the GPUs are {kinds[0]}"
            )
        models = both
    models = models or list(wanted.models)
    if models and with_gpus:
        found["gpu_models"] = models
    if wanted.text:
        found["constraint"] = wanted.text
    nothing: list[str] = []
    if preferred := values.get("prefer", parse_preferred, nothing):
        found["prefer"] = preferred
    return found


def _times(reading: Reading, values: Values, caller: Caller) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if reading.minutes:
        found["time_limit_s"] = reading.minutes * 60
    elif reading.minutes == 0:
        values.warn("time", "asks for no limit; the limit of its class holds")
    if reading.begin is not None and reading.begin > caller.now:
        found["begin_ms"] = int(reading.begin.timestamp()) * 1000
    if reading.deadline is not None:
        found["deadline_ms"] = int(reading.deadline.timestamp()) * 1000
        if reading.deadline <= caller.now:
            values.problem("deadline", "has passed already")
    if reading.signal is not None:
        found |= {"warn_signal": reading.signal.number, "warn_s": reading.signal.ahead_s}
        found |= {"warn_shell": True} if reading.signal.shell_only else {}
        if reading.signal.overlaps:
            values.warn("signal", "'R:' is not served: there are no reservations to overlap with")
    return found


def _open_mode(text: str) -> str:
    """`append` or `truncate`; sbatch looks at the first letter."""
    mode = {"a": "append", "t": "truncate"}.get(text[:1].lower(), "")
    if not mode:
        raise ValueError(f"must be append or truncate, not {quote(text)}")
    return mode


def _files(values: Values, caller: Caller, *, array: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    folder = values.text("chdir")
    if folder:
        folder = posixpath.normpath(posixpath.join(caller.cwd, folder))
        if not folder.startswith("/"):
            values.problem("chdir", f"must be an absolute path here, not {quote(folder)}")
        found["cwd"] = folder
    for option, key in (("output", "stdout"), ("error", "stderr")):
        path = values.text(option)
        if path and path.lower() != "none":
            found[key] = path
            for text in patterns.check_pattern(path, array=array):
                values.warn(option, f"{quote(path)}: {text}")
    mode = values.get("open-mode", _open_mode, "")
    found |= {"open_mode": mode} if mode else {}
    if caller.slurm_output and "stdout" not in found:
        found["stdout"] = "slurm-%A_%a.out" if array else "slurm-%j.out"
    return found
