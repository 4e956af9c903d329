"""`sbatch`: submit a batch script."""

import math
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from gpuyard.api.client import Client, Refused
from gpuyard.cli.commands.submit.jobfields import drop_unknown
from gpuyard.cli.commands.submit.scripts import refuse_folder
from gpuyard.cli.connection.places import has_defaults
from gpuyard.cli.slurm.language.getopt import Grammar, read
from gpuyard.cli.slurm.language.stopping import Stop, make_stop
from gpuyard.errors import BadInput
from gpuyard.intake.sbatch.options import OPTIONS

if TYPE_CHECKING:
    from gpuyard.intake.values import Intake

GRAMMAR = Grammar("sbatch", OPTIONS, anywhere=False, code=255)
HELP = """\
Usage: sbatch [OPTIONS(0)...] script [args(0)...]
Submits a batch script to the yard: a file, standard input, or --wrap=command. sbatch reads all options of
release 22.05: it warns of an option that a yard does not serve, and refuses one that the job cannot do without.
Partitions are pools, accounts are tenants, a QOS is a class. Output goes to slurm-%j.out unless --output says so."""
_UNREADABLE = 255
_COULD_NEVER = "could never start"
_SPREAD = ("tasks", "batch", "ranks", "gpus", "cpus", "memory_mib")
"""What differs between tasks that are folded into one for a single node and tasks that may lie on several."""
_RANGE_TRIED_MAX = 16
"""How many numbers of nodes of a range are tried."""
_NO_ALLOCATION = {"salloc": "Failed to allocate resources", "srun": "Unable to allocate resources"}
_FIRST_PAUSE_S, _PAUSE_MAX_S = 0.1, 2.0


def run(words: Sequence[str]) -> int:
    """Submit what the words say."""
    given = read(GRAMMAR, words)
    if given.has("version") or given.has("help") or given.has("usage"):
        print(HELP)
        return 0
    options = words[: len(words) - len(given.rest)]
    name, text, arguments = _script(given.rest, wrapped=given.has("wrap"))
    taken = take(options, name, text, arguments)
    for warning in taken.warnings:
        print(f"sbatch: warning: {warning.located(name)}", file=sys.stderr)
    fields = build_request(taken)
    drop_unknown([fields], lambda text: print(f"sbatch: warning: {text}", file=sys.stderr))
    if taken.options.test_only:
        return _test_only(fields)
    with Client() as yard:
        try:
            job = submitted(
                "sbatch", yard, fields, taken,
                lambda nodes: build_request(take([*options, f"--nodes={nodes}"], name, text, arguments)),
            )  # fmt: skip
        except (BadInput, Refused) as refusal:
            raise failed(refusal_text(refusal.message, refusal.hint)) from None
        if taken.options.parsable:
            print(job["id"], flush=True)
        elif not taken.options.quiet:
            print(f"Submitted batch job {job['id']}", flush=True)
        return _waited(yard, job["label"]) if taken.options.wait else 0


# -- reading -------------------------------------------------------------------------------------------------------


def _script(rest: Sequence[str], *, wrapped: bool) -> tuple[str, str, tuple[str, ...]]:
    """Name and text of the script, and its arguments."""
    if wrapped:
        if rest:
            raise make_stop("sbatch", "Script arguments not permitted with --wrap option")
        return "", "", ()
    if not rest:
        return "<stdin>", _text(sys.stdin.buffer.read(), "<stdin>"), ()
    path = _found(rest[0])
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError:
        raise make_stop("sbatch", f"Unable to open file {rest[0]}") from None
    return path, _text(content, rest[0]), tuple(rest[1:])


def _found(name: str) -> str:
    """The file, or the one on the PATH, as sbatch looks for it."""
    if "/" in name or os.path.isfile(name):
        return name
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        path = os.path.join(folder, name)
        if os.path.isfile(path) and os.access(path, os.R_OK):
            return path
    return name


def _text(content: bytes, name: str) -> str:
    """The script; refused in Slurm's words where Slurm refuses it."""
    from gpuyard.intake import BYTES_MAX, decode

    if not content:
        raise make_stop("sbatch", "Batch script is empty!")
    if not content.strip():
        raise make_stop("sbatch", "Batch script contains only whitespace!")
    if not content.startswith(b"#!"):
        raise Stop(
            "sbatch: error: This does not look like a batch script.  The first",
            "sbatch: error: line must start with #! followed by the path to an interpreter.",
            "sbatch: error: For instance: #!/bin/sh",
        )
    if b"\0" in content:
        raise Stop(
            "sbatch: error: The Slurm controller does not allow scripts that",
            "sbatch: error: contain a NULL character '\\0'.",
        )
    if b"\r\n" in content:
        raise Stop(
            "sbatch: error: Batch script contains DOS line breaks (\\r\\n)",
            "sbatch: error: instead of expected UNIX line breaks (\\n).",
        )
    return decode(content[: BYTES_MAX + 1], name)


def take(options: Sequence[str], name: str, text: str, arguments: tuple[str, ...]) -> "Intake":
    """The job that options and script describe."""
    from datetime import datetime

    from gpuyard.intake.sbatch.taking import read_sbatch
    from gpuyard.intake.values import Caller

    kept = list(options[:-1]) if options[-1:] == ["--"] else list(options)
    caller = Caller(
        now=datetime.now().astimezone(),
        cwd=os.getcwd(),
        arguments=tuple(kept),
        script_arguments=arguments,
        environment={key: value for key, value in os.environ.items() if key.startswith("SBATCH_")},
        slurm_output=True,
    )
    try:
        return read_sbatch(text, name, caller)
    except BadInput as wrong:
        raise make_stop(
            "sbatch", "\n".join([*wrong.message.splitlines(), *wrong.hint.splitlines()]), _UNREADABLE
        ) from None


def build_request(taken: "Intake") -> dict[str, Any]:
    """The job for the wire, with the environment that goes along."""
    from gpuyard.api.client import collect_environment
    from gpuyard.cli.slurm.commands.folding import fold_onto_node

    folded = fold_onto_node(taken)
    try:
        fields = {"cwd": os.getcwd()} | folded.request()
    except BadInput as wrong:
        raise failed("\n".join([*wrong.message.splitlines(), *wrong.hint.splitlines()])) from None
    fields["env"] = folded.environment(collect_environment())
    return fields


# -- handing in ----------------------------------------------------------------------------------------------------


def failed(why: str) -> Stop:
    """It was read, and is not taken."""
    return make_stop("sbatch", f"Batch job submission failed: {why}")


_IN_SLURM = {"tenant": "-A", "pool": "-p", "class": "-q"}
"""Options of `yard submit` that a remedy may name, as Slurm's commands have them."""


def refusal_text(message: str, hint: str) -> str:
    """A refusal of the yard, with remedies that the command takes that was typed."""
    lines = [
        re.sub(r"--(tenant|pool|class) ", lambda m: f"{_IN_SLURM[m[1]]} ", line) for line in hint.splitlines()
    ]
    return "\n".join([message, *lines])


def of_own_tenant(fields: dict[str, Any]) -> dict[str, Any]:
    """The job; one that names no tenant counts for that of the person's defaults, as with `yard submit`."""
    if fields.get("tenant") or not has_defaults():
        return fields
    from gpuyard.cli.connection.defaults import read_defaults

    own = read_defaults().get("tenant")
    return fields | {"tenant": own} if own else fields


def submitted(
    program: str, yard: Client, fields: dict[str, Any], taken: "Intake", over: Callable[[int], dict[str, Any]]
) -> Any:
    """Submit the job, with more nodes if it needs and allows them; `over` makes it for a number of nodes."""
    if yard.here:
        refuse_folder(fields)
    try:
        return yard.submit(of_own_tenant(fields))
    except Refused as refusal:
        if _COULD_NEVER not in refusal.message:
            raise
        if (job := _with_more_nodes(program, yard, taken, over)) is not None:
            return job
        if fields.get("tasks", 1) < taken.job.get("tasks", 1) and "nodes_min" not in taken.job:
            # Too large for one node; nothing says that it has to be one.
            spread = {name: taken.job[name] for name in _SPREAD if name in taken.job}
            rest = {name: fields[name] for name in fields if name not in _SPREAD}
            with suppress(Refused):
                return yard.submit(of_own_tenant(rest | spread))
        raise


def submit_allocation(
    program: str, yard: Client, fields: dict[str, Any], taken: "Intake", over: Callable[[int], dict[str, Any]]
) -> Any:
    """The same for a job that a program waits for, which says in Slurm's words that it gets nothing."""
    try:
        return submitted(program, yard, fields, taken, over)
    except (BadInput, Refused) as refusal:
        why = refusal_text(refusal.message, refusal.hint)
        raise make_stop(program, f"{_NO_ALLOCATION[program]}: {why}") from None


def _with_more_nodes(
    program: str, yard: Client, taken: "Intake", over: Callable[[int], dict[str, Any]]
) -> Any:
    """The job with the next number of nodes in its range that could start; None: there is none."""
    least = max(1, taken.job.get("nodes_min", 1))
    for nodes in range(least + 1, min(taken.options.nodes_most, least + _RANGE_TRIED_MAX) + 1):
        with suppress(Refused, Stop):
            job = yard.submit(of_own_tenant(over(nodes)))
            print(
                f"{program}: warning: on {nodes} nodes: on {nodes - 1} it could never start", file=sys.stderr
            )
            return job
    return None


def _waited(yard: Client, label: str) -> int:
    """The exit code of the job; of an array the highest."""
    pause_s = _FIRST_PAUSE_S
    while True:
        job = yard.job(label, explain=False)
        if job["state"] not in ("PENDING", "RUNNING", "SUSPENDED"):
            tasks: Sequence[Any] = job["jobs"] if "array" in job else [job]
            return max([task["exit_code"] or int(task["state"] != "COMPLETED") for task in tasks])
        time.sleep(pause_s)
        pause_s = min(_PAUSE_MAX_S, pause_s * 1.5)


def _test_only(fields: dict[str, Any]) -> int:
    """When and where it would start, in Slurm's words; the time is that at even odds."""
    from gpuyard.cli.slurm.language.pools import Pools
    from gpuyard.cli.slurm.language.times import moment_text
    from gpuyard.engines.name_lists import fold_names

    with Client() as yard:
        try:
            found = yard.dry_run(of_own_tenant(fields))
        except Refused as refusal:
            raise allocation_failed(refusal.message, refusal.hint) from None
        if not found["would_run"]:
            raise allocation_failed(found["why_never"], found["hint"])
        pools = Pools.of_fleet(yard.fleet())
    nodes = list(dict.fromkeys([each["node"] for each in found["nodes"]]))
    starts = found["starts_by_ms"] or {}
    at_ms = found["now_ms"] if found["starts_now"] else starts.get("p50") or found["bound_ms"]
    cores = max(1, math.ceil(fields.get("cpus", 1) * fields.get("tasks", 1)))
    where = fold_names(nodes) or "(not chosen yet)"
    partition = pools.partition(nodes, ",".join(fields.get("pools", [])))
    print(
        f"sbatch: Job {found['id']} to start at {moment_text(at_ms)} using {cores} processors on nodes {where} "
        f"in partition {partition}",
        file=sys.stderr,
    )
    return 0


def allocation_failed(why: str, hint: str) -> Stop:
    """It was read, and would never be taken."""
    return Stop(refusal_text(f"allocation failure: {why}", hint))
