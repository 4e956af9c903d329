"""`yard slurm`: one of Slurm's commands, all of them on the PATH, or an admin's look at a real cluster."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from gpuyard.cli.line.commands import CommandEntry
from gpuyard.cli.slurm.programs import run_program
from gpuyard.engines.machine import job_commands
from gpuyard.engines.machine.job_commands import INSTEAD, PROGRAMS
from gpuyard.errors import BadInput, YardError


def install(words: Sequence[str]) -> int:
    """Write them into the folder, and say what to put on the PATH."""
    import shlex

    if len(words) != 1 or not words[0]:
        raise BadInput(
            "--install-links takes one folder", "For example: yard slurm --install-links ~/.local/slurm"
        )
    folder = Path(os.path.abspath(os.path.expanduser(words[0])))
    _write(folder)
    print(f"{', '.join(PROGRAMS)} are in {folder}")
    print(f"{', '.join(INSTEAD)} there say what to use instead")
    print(f"export PATH={shlex.quote(str(folder))}:$PATH")
    return 0


def _write(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        foreign = [name for name in (*PROGRAMS, *INSTEAD) if not _ours(folder / name)]
        if foreign:
            raise BadInput(
                f"{folder / foreign[0]} is there and was not made by `yard`; nothing was written",
                "Name an empty folder, or move the file away.",
            )
        job_commands.write(folder)
    except OSError as error:
        raise YardError(f"{error.filename or folder}: {error.strerror}") from None


def _ours(path: Path) -> bool:
    """Whether there is nothing yet, or what we made."""
    if not os.path.lexists(path):
        return True
    if not path.is_file() or path.is_symlink():
        return False
    with path.open("rb") as file:
        return job_commands.MARK.encode() in file.read(4096)


COMMANDS = {
    "import": CommandEntry(
        "slurm.admin.importing", "Turn a cluster into a yard.yaml and a trace of its jobs.", "run"
    ),
    "export": CommandEntry(
        "slurm.admin.exporting", "Turn the policy of a yard.yaml into Slurm's configuration.", "run"
    ),
    "doctor": CommandEntry("slurm.admin.doctor", "Check a cluster and say what to change.", "run"),
}

HELP = """\
Usage: yard slurm COMMAND [ARGS]...
       yard slurm --install-links DIR

Slurm's commands for this yard, with the same options, columns, messages and exit codes.
Partitions are pools, accounts are tenants, a QOS is a class.

Commands:
  sbatch     Submit a batch script.
  squeue     Show the jobs that run and wait.
  scancel    Cancel jobs.
  sinfo      Show partitions and nodes.
  sacct      Show today's jobs, those that ended too.
  srun       Run a command and watch it; inside a job, a step of it.
  scontrol   Show jobs, nodes and partitions; hold, release, requeue, suspend, resume, drain.
  sshare     Show shares and how much of them was used.
  sreport    Show GPU and core time by cluster, account and user.
  salloc     Run a command on an allocation of its own.
  sbcast     In a job: copy a file to its nodes.
  sstat      Show what running jobs use.
  seff       Show how a job ended and what it used.
  sattach    Attach to the output of a running job.

For administrators of a Slurm cluster:
  import     Turn a cluster into a yard.yaml and a trace of its jobs.
  export     Turn the policy of a yard.yaml into Slurm's configuration.
  doctor     Check a cluster and say what to change.

Options:
  --install-links DIR  Link the commands into DIR under their own names, for the PATH.
  -h, --help           Show this message and exit.
"""
_BAD_INPUT = 2
assert all(f"  {name} " in HELP for name in (*PROGRAMS, *COMMANDS))


def run(words: Sequence[str]) -> int:
    """Run what the words after `yard slurm` say; the exit code."""
    if not words or words[0] in ("-h", "--help"):
        print(HELP, end="", file=sys.stdout if words else sys.stderr)
        return 0 if words else _BAD_INPUT
    first, *rest = words
    if first in PROGRAMS or first in INSTEAD:
        return run_program(first, rest)
    if first in COMMANDS:
        from gpuyard.cli.line.options import call_command

        return call_command(f"yard slurm {first}", first, COMMANDS[first], rest)
    if first.split("=")[0] == "--install-links":
        folders = [first.partition("=")[2], *rest] if "=" in first else rest
        return install(folders)
    from gpuyard.cli.line.options import unknown_command

    raise unknown_command("yard slurm", first, [*PROGRAMS, *COMMANDS, "--install-links"])
