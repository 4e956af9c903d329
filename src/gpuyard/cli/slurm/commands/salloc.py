"""`salloc`: run a command once, on the first node of an allocation of its own; `srun` in it starts steps."""

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gpuyard.api.client import Client
from gpuyard.cli.slurm.commands.following import (
    attach_terminal,
    has_terminal,
    heed_signals,
    terminal_request,
    watch_output,
)
from gpuyard.cli.slurm.commands.sbatch import GRAMMAR as SBATCH
from gpuyard.cli.slurm.commands.sbatch import build_request, submit_allocation, take
from gpuyard.cli.slurm.language.getopt import Grammar, Read, parse_option_table, read
from gpuyard.cli.slurm.language.stopping import Stop, make_stop

if TYPE_CHECKING:
    from gpuyard.intake.values import Intake

_NOT_SALLOCS = frozenset(
    {
        "array",
        "wrap",
        "parsable",
        "wait",
        "ignore-pbs",
        "batch",
        "export-file",
        "test-only",
        "output",
        "error",
        "input",
    }
)
_OWN = parse_option_table("bell no-bell immediate,I? kill-command,K? no-shell wait-all-nodes= command-name=")
GRAMMAR = Grammar("salloc", SBATCH.besides(_OWN, _NOT_SALLOCS), anywhere=False)
HELP = """\
Usage: salloc [OPTIONS(0)...] [command(0) [args(0)...]]
Waits for the resources that the options ask for, runs the command once on them, shows its output, and ends with its
exit code; the default command is a shell. The command runs on the first node of the allocation, with a terminal if
salloc has one; srun in it reaches all nodes. Enter ~ . detaches from the command."""
_NOT_SERVED = 2


def run(words: Sequence[str]) -> int:
    """Run the command on its allocation."""
    given = read(GRAMMAR, words)
    if given.has("version") or given.has("help") or given.has("usage"):
        print(HELP)
        return 0
    if given.has("no-shell"):
        raise make_stop(
            "salloc",
            "--no-shell is not served: an allocation ends with its command\nuse: sbatch",
            _NOT_SERVED,
        )
    pty = has_terminal()
    if not given.rest and not pty:
        raise make_stop(
            "salloc",
            "a shell needs a terminal, but input or output is a file or a pipe: name the command to run, as in\n"
            "salloc -N1 --gpus=1 COMMAND",
            _NOT_SERVED,
        )
    taken, fields = _asked(given)
    quiet = given.has("quiet")
    for warning in taken.warnings:
        print(f"salloc: warning: {warning.text}", file=sys.stderr)
    heed_signals()
    with Client() as yard:
        job = submit_allocation("salloc", yard, fields, taken, lambda nodes: _asked(given, nodes)[1])
        if not quiet:
            print(f"salloc: Pending job allocation {job['id']}", file=sys.stderr, flush=True)
        code = (attach_terminal if pty else watch_output)("salloc", yard, job, quiet=quiet)
    if not quiet:
        print(f"salloc: Relinquishing job allocation {job['id']}", file=sys.stderr)
    return code


def _asked(given: Read, nodes: int = 0) -> tuple["Intake", dict[str, Any]]:
    """The options as they were read and as they are sent; with another number of nodes, where one is given."""
    own = {option.name for option in _OWN}
    kept = [f"--{name}" + (f"={value}" if value else "") for name, value in given.given if name not in own]
    try:
        taken = take([*kept, *([f"--nodes={nodes}"] if nodes else []), "--wrap=true"], "", "", ())
        fields = build_request(taken)
    except Stop as stop:
        raise Stop(*[line.replace("sbatch: ", "salloc: ", 1) for line in stop.lines], code=1) from None
    for name in ("script", "stdout"):
        fields.pop(name, None)
    fields["command"] = list(given.rest) or [os.environ.get("SHELL") or "/bin/sh"]
    if not given.has("job-name"):
        from gpuyard.intake.names import mend_job_name

        fields["name"] = mend_job_name(os.path.basename(given.rest[0])) if given.rest else "interactive"
    return taken, terminal_request(fields) if has_terminal() else fields
