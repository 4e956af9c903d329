"""`srun`: run a command and watch it; inside a job, start processes on what the job has."""

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gpuyard.api.client import Client
from gpuyard.cli.slurm.commands.following import (
    attach_terminal,
    heed_signals,
    need_terminal,
    terminal_request,
    watch_output,
)
from gpuyard.cli.slurm.commands.sbatch import GRAMMAR as SBATCH
from gpuyard.cli.slurm.commands.sbatch import submit_allocation, take
from gpuyard.cli.slurm.language.getopt import Grammar, Read, parse_option_table, read
from gpuyard.cli.slurm.language.ids import bad_id, parse_id
from gpuyard.cli.slurm.language.stopping import Stop, make_stop
from gpuyard.errors import BadInput

if TYPE_CHECKING:
    from gpuyard.intake.values import Intake

_NOT_SRUNS = frozenset(
    {"array", "wrap", "parsable", "wait", "ignore-pbs", "batch", "get-user-env", "export-file", "test-only"}
)
_OWN = parse_option_table(
    """
    label,l unbuffered,u pty? wait,W= immediate,I? kill-on-bad-exit,K? mpi= cpu-bind= relative,r= exact
    overlap jobid= no-allocate,Z threads,T= disable-status,X multi-prog preserve-env,E prolog= epilog=
    task-prolog= task-epilog= resv-ports? slurmd-debug= bcast? whole interactive het-group= msg-timeout=
    quit-on-interrupt
    """
)
GRAMMAR = Grammar("srun", SBATCH.besides(_OWN, _NOT_SRUNS), anywhere=False, code=255)
HELP = """\
Usage: srun [OPTIONS(0)...] executable(0) [args(0)...]
Runs a command on the yard, follows its output, and ends with its exit code. With -n N it runs N times at
once, as a gang. Inside a job it starts the processes there, on what the job has; --label marks their lines. With --pty
the command has a terminal: srun --gpus=1 --pty bash. Enter ~ . detaches from it. With --jobid the command runs inside a
job that runs already, on what that job has: srun --jobid=12 --overlap nvidia-smi."""
_REFUSED = {
    "no-allocate": "every command needs an allocation",
    "het-group": "there are no heterogeneous jobs",
}
_SILENT = frozenset(
    {
        "label", "unbuffered", "kill-on-bad-exit", "disable-status", "exact", "overlap", "cpu-bind", "mpi", "wait",
        "preserve-env", "pty", "threads", "msg-timeout", "quit-on-interrupt", "whole", "slurmd-debug",
    }
)  # fmt: skip
"""Options for how to start and watch; they ask for no resources."""
_ITS_OWN_GPUS = 'CUDA_VISIBLE_DEVICES=$YARD_TASK_GPUS; export CUDA_VISIBLE_DEVICES; exec "$@"'
"""Tasks of a gang see all GPUs of the job on their node, for programs that choose by LOCAL_RANK. With GPUs by task,
Slurm shows each its own."""


def run(words: Sequence[str]) -> int:
    """Run the command."""
    given = read(GRAMMAR, words)
    if given.has("version") or given.has("help") or given.has("usage"):
        print(HELP)
        return 0
    for name, why in _REFUSED.items():
        if given.has(name):
            raise make_stop("srun", f"--{name} is not served: {why}")
    if not given.rest:
        raise Stop("srun: fatal: No command given to execute.")
    if given.has("jobid") and given.last("jobid") != os.environ.get("SLURM_JOB_ID"):
        return _beside(given)
    if given.has("multi-prog") and not os.environ.get("YARD_JOB_ID"):
        raise make_stop("srun", "--multi-prog is served inside a job only: submit a script with sbatch")
    if os.environ.get("SLURM_JOB_ID") and os.environ.get("YARD_JOB_ID"):
        from gpuyard.cli.slurm.commands.stepping import run_step

        return run_step(given)
    return _allocated(given)


def _beside(given: Read) -> int:
    """Run the command inside a job that runs already, on what that job has."""
    from gpuyard.cli.commands.inside.attach import attach_shell
    from gpuyard.cli.connection.piped_command import run as run_piped

    job = given.last("jobid")
    if parse_id(job) is None:
        raise bad_id("srun", job)
    tasks = given.last("ntasks") or "1"
    if tasks != "1" or (given.last("nodes") or "1") != "1":
        raise make_stop(
            "srun", "--jobid runs a command once, beside the job's first task: leave --ntasks and --nodes out"
        )
    with Client() as yard:
        if given.has("pty"):
            need_terminal("srun")
            return attach_shell(yard, job, given.rest)
        return run_piped(yard, job, given.rest, reads=given.last("input").lower() != "none")


def _allocated(given: Read) -> int:
    """Outside a job: submit, watch, end as it ends."""
    _warn(given)
    if given.has("pty"):
        need_terminal("srun")
    taken, fields = _asked(given)
    for warning in taken.warnings:
        print(f"srun: warning: {warning.text}", file=sys.stderr)
    heed_signals()
    with Client() as yard:
        job = submit_allocation("srun", yard, fields, taken, lambda nodes: _asked(given, nodes)[1])
        show = attach_terminal if given.has("pty") else watch_output
        return show("srun", yard, job, quiet=given.has("quiet"))


def _warn(given: Read) -> None:
    own = {option.name for option in _OWN}
    if given.has("label"):
        print(
            "srun: warning: --label is served inside a job only: the lines of a gang have no labels",
            file=sys.stderr,
        )
    for name, _ in given.given:
        if name in own and name not in _SILENT:
            print(f"srun: warning: --{name} is not served", file=sys.stderr)


def _asked(given: Read, nodes: int = 0) -> tuple["Intake", dict[str, Any]]:
    """The options as they were read and as they are sent; with another number of nodes, where one is given."""
    from gpuyard.api.client import collect_environment
    from gpuyard.cli.slurm.commands.folding import fold_into_gang

    own = {option.name for option in _OWN}
    kept = [f"--{name}" + (f"={value}" if value else "") for name, value in given.given if name not in own]
    try:
        taken = take([*kept, *([f"--nodes={nodes}"] if nodes else []), "--wrap=true"], "", "", ())
    except Stop as stop:
        raise Stop(*[line.replace("sbatch: ", "srun: ", 1) for line in stop.lines], code=stop.code) from None
    gang = fold_into_gang(taken)
    try:
        fields = {"cwd": os.getcwd()} | gang.request()
    except BadInput as wrong:
        raise make_stop("srun", f"Unable to allocate resources: {wrong.message}") from None
    del fields["script"]
    fields["command"] = [*_bound(given), *given.rest]
    if not given.has("job-name"):
        from gpuyard.intake.names import mend_job_name

        fields["name"] = mend_job_name(os.path.basename(given.rest[0]))
    if not given.has("output"):
        fields.pop("stdout", None)
    fields["env"] = gang.environment(collect_environment())
    if given.has("pty"):
        fields = terminal_request(fields)
    return taken, fields


def _bound(given: Read) -> tuple[str, ...]:
    """What comes before the command where each task is to see its own GPUs."""
    unbound = given.last("gpu-bind").partition(":")[0].lower() in ("none", "closest")
    return () if unbound or not given.has("gpus-per-task") else ("sh", "-c", _ITS_OWN_GPUS, "srun")
