"""Options that say where and when a job runs and in which surroundings, shared by `submit` and `run`."""

import os
import re
import time
from typing import Annotated, Any

from gpuyard.cli.line.options import Option
from gpuyard.errors import BadInput

Chdir = Annotated[
    str,
    Option(
        "-D",
        "--chdir",
        metavar="FOLDER",
        help="Run in this folder, not in the current one.",
        show_default=False,
    ),
]
Pool = Annotated[
    list[str] | None,
    Option("-p", "--pool", metavar="POOL", help="A pool that will do; may be repeated.", show_default=False),
]
Clusters = Annotated[
    list[str] | None,
    Option(
        "--cluster",
        metavar="CLUSTER",
        help="A cluster that will do; may be repeated, the preferred one first.",
        show_default=False,
    ),
]
Constraint = Annotated[
    str,
    Option(
        "--constraint",
        metavar="FEATURES",
        help="Features that its nodes must have: nvme, 'nvme&ib', 'rack1|rack2'.",
        show_default=False,
    ),
]
Nodes = Annotated[
    str,
    Option(
        "--nodes",
        metavar="N|MIN-MAX",
        help="How many nodes to spread the tasks over: 2, or 2-4.",
        show_default=False,
    ),
]
OnNodes = Annotated[
    list[str] | None,
    Option("--node", metavar="NODE", help="A node that will do; may be repeated.", show_default=False),
]
Exclude = Annotated[
    list[str] | None,
    Option("--exclude", metavar="NODE", help="A node that will not do; may be repeated.", show_default=False),
]
Exclusive = Annotated[bool, Option("--exclusive", help="Take whole nodes, shared with no other job.")]
Begin = Annotated[
    str,
    Option(
        "--begin",
        metavar="TIME",
        help="Do not start before: 16:00, +2h, tomorrow, 2027-01-20T08:00.",
        show_default=False,
    ),
]
Deadline = Annotated[
    str,
    Option("--deadline", metavar="TIME", help="When the job should be done; as --begin.", show_default=False),
]
EnvFile = Annotated[
    str,
    Option(
        "--env-file",
        metavar="FILE",
        help="Set the variables of this file, NAME=VALUE a line.",
        show_default=False,
    ),
]
Checkpoint = Annotated[
    str,
    Option(
        "--checkpoint-every",
        metavar="TIME",
        help="How often the job saves its work: 30m.",
        show_default=False,
    ),
]


def place(
    *,
    chdir: str,
    pool: list[str] | None,
    cluster: list[str] | None,
    constraint: str,
    nodes: str,
    node: list[str] | None,
    exclude: list[str] | None,
    exclusive: bool,
    begin: str,
    deadline: str,
    checkpoint: str,
) -> dict[str, Any]:
    """The fields of a submission that these options make."""
    fields: dict[str, Any] = {}
    now_ms = time.time_ns() // 1_000_000
    if chdir:
        fields["cwd"] = os.path.abspath(os.path.expanduser(chdir))
    for key, names in (
        ("pools", _listed(pool)),
        ("clusters", _listed(cluster)),
        ("on_nodes", _hosts(node)),
        ("not_nodes", _hosts(exclude)),
    ):
        if names:
            fields[key] = names
    if constraint:
        fields["constraint"] = constraint
    if exclusive:
        fields["exclusive"] = True
    if nodes:
        fields |= _spread(nodes)
    for key, option, text in (("begin_ms", "--begin", begin), ("deadline_ms", "--deadline", deadline)):
        if text:
            fields[key] = moment_ms(option, text)
    if fields.get("deadline_ms", now_ms) < now_ms:
        raise BadInput(
            f"--deadline {deadline}: that time is over", "Give a time to come, such as +8h or 18:00."
        )
    if checkpoint:
        fields["checkpoint_s"] = limit_s("--checkpoint-every", checkpoint)
    return fields


def _listed(given: list[str] | None) -> list[str]:
    return [part for each in given or [] for part in each.split(",") if part]


def _hosts(given: list[str] | None) -> list[str]:
    """Nodes by name, or many as in `gpu[1-3]`."""
    if not any("[" in each for each in given or []):
        return _listed(given)
    from gpuyard.intake.sbatch.hostlists import expand

    try:
        return [name for each in given or [] for name in expand(each)]
    except ValueError as error:
        raise BadInput(f"a list of nodes {error}") from None


def _spread(text: str) -> dict[str, int]:
    least, dash, most = text.partition("-")
    if not least.isdecimal() or (dash and not most.isdecimal()) or not int(least):
        raise BadInput(f"--nodes {text!r} is no number of nodes", "For example: --nodes 2, or --nodes 2-4")
    return {"nodes_min": int(least), "nodes_max": int(most or least)}


def moment_ms(option: str, text: str) -> int:
    """A time to come, in milliseconds since 1970: `+2h`, or any form that Slurm's --begin takes."""
    from datetime import datetime

    now = datetime.now().astimezone()
    if text.startswith("+"):
        return round(now.timestamp() * 1000) + _parsed(option, text[1:])
    from gpuyard.intake.sbatch.moments import moment

    try:
        return round(moment(text, now).timestamp() * 1000)
    except ValueError as error:
        raise BadInput(f"{option} {error}", f"Also: {option} +2h, two hours from now.") from None


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
            f"{option} {text} is no time at all", f"For example: {option} 2h; left out, its class says."
        )
    return seconds


def _parsed(option: str, text: str) -> int:
    from gpuyard.durations import duration_positive_ms

    try:
        return duration_positive_ms(text)
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
