"""Options of `submit` and `run`, made from the table of them, and read into the fields of a job that they set."""

import os
import re
import sys
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Annotated, Any

from gpuyard.api.client import collect_environment, current_folder
from gpuyard.cli.connection.places import has_defaults
from gpuyard.cli.line.options import Argument, Called, Option, Parameter
from gpuyard.errors import BadInput, YardError, suggest_end
from gpuyard.wire.job_fields import GPU_PARTS, JOB_FIELDS, JOB_OPTIONS, LEVELS, Form, JobOption, label_fault

WordsArgument = Annotated[
    list[str] | None, Argument(metavar="COMMAND [ARGS]...", help="The command or script to run.")
]
_OPTIONS = {option.name: option for option in JOB_OPTIONS}
_NUMBERS: dict[str, type] = {Form.WHOLE: int, Form.NUMBER: float}
_ONE_TEXT = (Form.TEXT, Form.CHOICE)


def job_options(*, run: bool = False, fields: Container[str] = JOB_FIELDS) -> Iterator[Parameter]:
    """The options of the table, as the reader of command lines wants them; `fields`: those that set one of these."""
    for option in JOB_OPTIONS:
        if (run and not option.run) or option.field not in fields:
            continue
        field, kind = JOB_FIELDS[option.field], option.kind
        says = Option(*option.names, metavar=option.metavar, help=option.help, unset=True)
        if kind in _NUMBERS:
            says.min, says.max = field.least, field.most
            yield Parameter(option.name, _NUMBERS[kind], False, says, field.default, False)
        elif kind == Form.BOOLEAN:
            # A flag that has an opposite is on.
            yield Parameter(option.name, bool, False, says, "/" in option.names[-1], False)
        else:
            one = kind in _ONE_TEXT
            yield Parameter(option.name, str, not one, says, "" if one else None, False)


def build_request(ctx: Called, options: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that the given options set, and the surroundings that every job has."""
    fields: dict[str, Any] = {"cwd": current_folder()}
    for name, value in options.items():
        # An empty text, as of a variable of a script that is not set, says nothing; but for --array.
        if name in ctx.given and (value != "" or name == "array"):
            fields |= _read(_OPTIONS[name], value, options)
    if "gpu_memory_mib" in fields and "gpus" in fields:
        raise BadInput("-g and --gpu-memory both say which GPUs the job asks for", "Leave one of them out.")
    # Not into an image, unless that is asked for: PATH and the like are those of another system.
    fields["env"] = _environment(
        options, options["export"] and (not options["image"] or "export" in ctx.given)
    )
    return fields


def read_changes(ctx: Called, options: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that the given options set anew; a list or a text that is given empty is emptied."""
    fields: dict[str, Any] = {}
    for name, value in options.items():
        if name not in ctx.given:
            continue
        option = _OPTIONS[name]
        if name == "label":
            fields["labels"] = dict(map(_new_label, value))
        elif value in ("", [""]):
            fields[option.field] = "" if option.kind in _ONE_TEXT else []
        else:
            fields |= _read(option, value, options)
    return fields


def _new_label(text: str) -> tuple[str, str]:
    """`KEY=VALUE`, or `KEY=` for a label that goes."""
    key, sign, value = text.partition("=")
    return (key, "") if sign and not value and not label_fault(key, "-") else _label(text)


def _environment(options: Mapping[str, Any], export: bool) -> dict[str, str]:
    """The variables that were typed, over those of a file, over this shell's where they are exported."""
    of_file = variables(options["env_file"]) if options["env_file"] else ()
    return collect_environment([*of_file, *(options["env"] or ())], export=export)


def change_request(original: Mapping[str, Any], ctx: Called, options: Mapping[str, Any]) -> dict[str, Any]:
    """The request of another job, with what was typed in place of its own; variables and labels are added to them."""
    said = {
        name: value
        for name, value in build_request(ctx, options).items()
        if name != "env" and (name != "cwd" or "chdir" in ctx.given)
    }
    given = [_OPTIONS[name] for name in ctx.given if name in _OPTIONS]
    gone = {name for option in given for name in (option.field, *option.more)} - {"env"}
    if gone & set(GPU_PARTS[:-1]):
        gone.update(GPU_PARTS)
    kept = {name: value for name, value in original.items() if name not in gone}
    if "labels" in said:
        said["labels"] = {**original.get("labels", {}), **said["labels"]}
    export = options["export"] and "export" in ctx.given
    more = {
        name: value
        for name, value in _environment(options, export).items()
        # A script that goes back to the folder it was submitted from goes where the first one went.
        if export or not name.startswith("SLURM_SUBMIT_")
    }
    return kept | said | {"env": {**original.get("env", {}), **more}}


def _read(option: JobOption, value: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """What one option sets: read by its own rule, or else by the unit of its field."""
    word, field = option.names[-1], option.field
    if field == "env":
        return {}
    if option.name in _RULES:
        found = _RULES[option.name](value)
        return found if isinstance(found, dict) else {field: found} if found else {}
    if field in ("stdout", "stderr"):
        return {field: _file(word, value, array=bool(options["array"]))}
    if option.kind == Form.TEXTS:
        return {field: found} if (found := _listed(value)) else {}
    if option.kind == Form.TEXT:
        unit = field.rpartition("_")[2]
        return {field: _UNITS[unit](word, value) if unit in _UNITS else value}
    return {field: value}


_CUDA = r"(?i)\bcuda\b|\bnvidia-smi\b|\btorchrun\b|\bnvcc\b"
"""Words of a job that means to use a GPU. Not compiled here: few jobs ask for none."""


def say_if_no_gpus(label: str, fields: Mapping[str, Any]) -> None:
    """Note that a job asks for no GPUs: most jobs want one, and `-g 0` says that this one does not."""
    if fields.get("gpus") or fields.get("gpu_memory_mib") or fields.get("mig"):
        return
    from gpuyard.cli.terminal.streams import print_notice

    behind = next((word for word in fields.get("command", ()) if word.split("=")[0] in ("-g", "--gpus")), "")
    if behind and fields.get("script"):
        text = f"asks for no GPUs: {behind} stands behind the script and goes to it; options of yard stand before it"
    else:
        said = re.search(_CUDA, "\n".join([fields.get("script", ""), *fields.get("command", ())]))
        says = f"says {said[0]} and " if said else ""
        text = f"{says}asks for no GPUs; -g 1 for one, -g 0 if it needs none"
    print_notice(f"job {label} {text}" if label else f"it {text}", before="note: ")


def wants_notes() -> bool:
    """Whether notes about earlier jobs are read: on a terminal, unless somebody has switched them off."""
    if not sys.stderr.isatty():
        return False
    if not has_defaults():
        return True
    from gpuyard.cli.connection.defaults import read_defaults

    return read_defaults().get("notes") != "off"


def read_fallbacks(*, gpus: bool) -> dict[str, Any]:
    """The fields from a person's defaults, for what neither the command line nor a file says."""
    if not has_defaults():
        return {}
    from gpuyard.cli.connection.defaults import default_origin, read_defaults

    kept = read_defaults()
    fields: dict[str, Any] = {key: kept[key] for key in ("tenant", "class") if key in kept}
    try:
        if "pool" in kept:
            fields["pools"] = _listed([kept["pool"]])
        if "time" in kept:
            fields["time_limit_s"] = limit_s("time", kept["time"])
        if gpus and "gpus" in kept:
            fields |= _gpus(kept["gpus"])
    except BadInput as error:
        raise BadInput(f"{default_origin('time')}: {error.message}", error.hint) from None
    return fields


def complete_request(ctx: Called, given: dict[str, Any]) -> dict[str, Any]:
    """What was given, and the person's defaults for what was not."""
    kept = read_fallbacks(gpus=not ctx.given & {"gpus", "gpu_memory"})
    return given | {key: value for key, value in kept.items() if not given.get(key)}


def blame_default(error: YardError, fields: Mapping[str, Any]) -> YardError:
    """Say where a refused tenant comes from, if the user did not type it."""
    from gpuyard.cli.connection.defaults import default_origin, read_defaults

    tenant = read_defaults().get("tenant")
    if (
        tenant
        and fields.get("tenant") == tenant
        and re.search(rf"\btenant|may not submit for {re.escape(tenant)}:", error.message)
    ):
        error.hint = f"{error.hint} The tenant {tenant} is from {default_origin('tenant')}.".strip()
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
    raise BadInput(f"-g {text!r} is not an ask for GPUs", _GPUS_HINT)


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
        known = [each.name.removeprefix("SIG") for each in signal.Signals]
        raise BadInput(
            f"--signal {text!r}: there is no signal {name!r}{suggest_end(name, known)}",
            "For example: --signal USR1@60",
        ) from None
    return {"warn_signal": int(number), "warn_s": int(ahead or 0)}


def _volume(text: str) -> str:
    """The volume with whole paths; a first part without a slash is the name of an empty folder."""
    source, colon, rest = text.partition(":")
    return f"{_path(source) if source.startswith(('/', '.', '~')) or not colon else source}{colon}{rest}"


def _secret(text: str) -> tuple[str, str]:
    name, sign, file = text.partition("=")
    if not (name and sign and file):
        raise BadInput(f"--secret {text!r} names no file", "For example: --secret hf=~/.hf_token")
    return name, _path(file)


def _label(text: str) -> tuple[str, str]:
    key, _sign, value = text.partition("=")
    if fault := label_fault(key, value):
        raise BadInput(
            f"--label {text!r} is not a label: {fault}", "Write KEY=VALUE, as in --label stage=pretraining."
        )
    return key, value


def _path(text: str) -> str:
    return os.path.abspath(os.path.expanduser(text))


def _array(text: str) -> dict[str, Any]:
    if not text:
        raise BadInput("--array names no task", "For example: --array 0-9; without --array it is one job.")
    indices, percent, at_a_time = text.partition("%")
    if percent and not at_a_time.isdecimal():
        raise BadInput(f"--array {text!r}: after % comes a number", "For example: --array 0-99%8")
    fields: dict[str, Any] = {"array": indices} if indices else {}
    return fields | ({"array_limit": int(at_a_time)} if at_a_time else {})


def _dependency(text: str) -> dict[str, str]:
    """`12`, `12_3`, `afterany:12` or `singleton`."""
    kind, _, job = text.rpartition(":")
    if text == "singleton":
        return {"kind": text}
    return {"kind": kind or "afterok", "job": job}


def _file(option: str, path: str, *, array: bool) -> str:
    """The whole path of a file for output; patterns in it that stand for nothing are reported."""
    if "%" in path:
        from gpuyard.cli.terminal.streams import print_notice
        from gpuyard.engines.patterns import check_pattern

        for text in check_pattern(path, array=array):
            print_notice(f"{option} {path}: {text}", before="warning: ", style="bold yellow")
    return os.path.abspath(path)


def _listed(given: list[str]) -> list[str]:
    return [part for each in given for part in each.split(",") if part]


def _hosts(given: list[str]) -> list[str]:
    """Nodes by name, or many as in `gpu[1-3]`."""
    if not any("[" in each for each in given):
        return _listed(given)
    from gpuyard.intake.sbatch.hostlists import expand

    try:
        return [name for each in given for name in expand(each)]
    except ValueError as error:
        raise BadInput(f"a list of nodes {error}") from None


def _spread(text: str) -> dict[str, int]:
    least, dash, most = text.partition("-")
    if not least.isdecimal() or (dash and not most.isdecimal()) or not int(least):
        raise BadInput(f"--nodes {text!r} is not a number of nodes", "For example: --nodes 2, or --nodes 2-4")
    return {"nodes_min": int(least), "nodes_max": int(most or least)}


def _topology(text: str) -> dict[str, Any]:
    """`switch`, `prefer:rack` or `switch@2h`."""
    prefer, colon, level = text.rpartition(":") if text.startswith("prefer:") else ("", "", text)
    level, at, span = level.partition("@")
    hint = (
        "A level is switch, rack or fabric: --topology switch, --topology prefer:rack, --topology switch@2h"
    )
    if level not in LEVELS:
        raise BadInput(f"--topology {text!r} names no level{suggest_end(level, LEVELS)}", hint)
    if at and (prefer or not span):
        raise BadInput(f"--topology {text!r}: after @ comes how long the level is required", hint)
    found: dict[str, Any] = {"level": level}
    if colon:
        found["required"] = False
    return {"topology": found | ({"for_s": limit_s("--topology", span)} if at else {})}


def moment_ms(option: str, text: str) -> int:
    """A time to come, in milliseconds since 1970."""
    from gpuyard.cli.line.times import now_ms, parse_coming_ms

    found = parse_coming_ms(option, text, now_ms())
    if found >= now_ms():
        return found
    if option == "--deadline":
        raise BadInput(
            f"{option} {text}: that time has passed", "Give a time in the future, such as +8h or 18:00."
        )
    from gpuyard.cli.terminal.streams import print_notice

    print_notice(f"{option} {text}: that time has passed, so the job may start at once", before="note: ")
    return found


_CLOCK = r"(?:([0-9]{1,4})-)?([0-9]{1,6})(?::([0-9]{1,6}))?(?::([0-9]{1,6}))?"
"""Not compiled here: that takes longer than the rest of this module."""


def limit_s(option: str, text: str) -> int:
    """A span in seconds: `90s`, `2h`, `1d12h`, or as Slurm has it `90` (minutes), `90:00`, `2:00:00`, `1-12`."""
    clock = re.fullmatch(_CLOCK, text.strip())
    if clock is None:
        return _parsed(option, text.strip()) // 1000
    days, *figures = clock.groups()
    first, second, third = (int(figure or 0) for figure in figures)
    if days is not None:
        seconds = int(days) * 86_400 + first * 3600 + second * 60 + third
    elif figures[2] is not None:
        seconds = first * 3600 + second * 60 + third
    else:
        seconds = first * 60 + second
    if not seconds:
        raise BadInput(
            f"{option} {text} is not a time", f"For example: {option} 2h; left out, its class says."
        )
    return seconds


def _parsed(option: str, text: str) -> int:
    from gpuyard.quantities import parse_positive_duration_ms

    try:
        return parse_positive_duration_ms(text)
    except ValueError as error:
        raise BadInput(f"{option} {error}") from None


def variables(file: str) -> list[str]:
    """The variables of a file as NAME=VALUE: a line each; comments, `export` and quotes as shells have them."""
    import shlex

    found = []
    try:
        with open(file, encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                text = line.strip().removeprefix("export ").lstrip()
                if not text or text.startswith("#"):
                    continue
                name, sign, value = text.partition("=")
                if not sign or not name.isidentifier():
                    raise BadInput(f"{file}:{number}: is not NAME=VALUE")
                if value[:1] in ("'", '"'):
                    try:
                        value = "".join(shlex.split(value, comments=True)[:1])
                    except ValueError:
                        raise BadInput(f"{file}:{number}: has a quote that does not end") from None
                found.append(f"{name}={value}")
    except OSError as error:
        raise BadInput(f"--env-file {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadInput(f"--env-file {file}: is not UTF-8 text") from None
    return found


def _memory_mib(option: str, text: str) -> int:
    from gpuyard.quantities import parse_memory_mib

    try:
        return parse_memory_mib(text)
    except ValueError as error:
        raise BadInput(f"{option} {error}") from None


_UNITS: dict[str, Callable[[str, str], Any]] = {"s": limit_s, "ms": moment_ms, "mib": _memory_mib}
_RULES: dict[str, Callable[[Any], Any]] = {
    "gpus": _gpus,
    "array": _array,
    "after": lambda jobs: [_dependency(each) for each in jobs],
    "chdir": _path,
    "volume": lambda volumes: [_volume(each) for each in volumes],
    "secret": lambda secrets: {"secrets": dict(map(_secret, secrets))},
    "label": lambda labels: {"labels": dict(map(_label, labels))},
    "select": list,
    "prefer": list,
    "tolerate": list,
    "nodes": _spread,
    "node": _hosts,
    "exclude": _hosts,
    "signal": _signal,
    "topology": _topology,
}
"""Options that are no plain value of one field."""


def drop_unknown(jobs: Sequence[dict[str, Any]], warn: Callable[[str], None]) -> None:
    """Take excluded nodes and clusters that the yard does not have out of jobs of scripts, and say so.

    A script of another cluster names that cluster, and excludes its bad nodes. Nodes that a script asks for must exist.
    """
    if not any(job.get("slurm_commands") and (job.get("not_nodes") or job.get("clusters")) for job in jobs):
        return
    from gpuyard.api.client import Client
    from gpuyard.engines.name_lists import fold_names

    with Client() as yard:
        nodes = yard.nodes()
    there, clusters = {node["name"] for node in nodes}, {node["cluster"] for node in nodes}
    for job in jobs:
        strange = [name for name in job.get("clusters", ()) if name not in clusters]
        if strange and job.get("slurm_commands"):
            job["clusters"] = [name for name in job["clusters"] if name in clusters]
            left = "" if job["clusters"] else ", so any may be taken"
            warn(f"--clusters: there is no cluster {', '.join(strange)} here{left}")
        unknown = [name for name in job.get("not_nodes", ()) if name not in there]
        if unknown and job.get("slurm_commands"):
            job["not_nodes"] = [name for name in job["not_nodes"] if name in there]
            warn(f"--exclude: there is no node {fold_names(unknown)} here, so nothing is left out for it")
