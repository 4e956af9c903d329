"""`sattach`: come to what a running job shows, and go again; the job goes on."""

from collections.abc import Sequence

from gpuyard.api.client import Client
from gpuyard.cli.commands.jobs.waiting import copy_output
from gpuyard.cli.connection.terminal_session import Attached
from gpuyard.cli.connection.visits import NotThere
from gpuyard.cli.slurm.commands.following import exit_code_of, has_terminal, heed_signals
from gpuyard.cli.slurm.language.getopt import Grammar, parse_option_table, read
from gpuyard.cli.slurm.language.ids import bad_id, parse_id
from gpuyard.cli.slurm.language.stopping import make_stop

GRAMMAR = Grammar(
    "sattach",
    parse_option_table(
        """
        error-filter= help input-filter= label,l layout output-filter= pty quiet,Q usage verbose,v version,V
        """
    ),
)
HELP = """\
Usage: sattach [-Q] [--pty] jobid[.stepid]
Shows the output of a job from its beginning, follows it, and ends with the exit code of the job. On a terminal it
attaches to a job that has a terminal: Enter ~ . detaches. Ctrl-C leaves a job without a terminal; the job goes on."""
_NOT_SERVED = ("input-filter", "output-filter", "error-filter", "layout")


def run(words: Sequence[str]) -> int:
    """Attach."""
    given = read(GRAMMAR, words)
    for name in _NOT_SERVED:
        if given.has(name):
            raise make_stop("sattach", f"--{name} is not served: a yard has one output for all tasks")
    if len(given.rest) != 1:
        raise make_stop("sattach", "One job must be named, as in: sattach 12.0")
    wanted = parse_id(given.rest[0])
    if wanted is None or len(wanted.indices) > 1:
        raise bad_id("sattach", given.rest[0])
    quiet = given.has("quiet")
    heed_signals()
    with Client() as yard:
        if has_terminal():
            from gpuyard.cli.commands.jobs.waiting import Waiting

            try:
                with Waiting("sattach: ", quiet=quiet) as line:
                    session = Attached(yard, wanted.label, {"do": "attach"}, line, f"job {wanted.label}")
                    session.run()
                return 0 if session.detached else exit_code_of("sattach", session.end)
            except NotThere as why:
                if given.has("pty"):
                    raise make_stop("sattach", why.message) from None
        elif given.has("pty"):
            raise make_stop("sattach", "--pty needs a terminal, but input or output is a file or a pipe")
        return exit_code_of("sattach", copy_output(yard, wanted.label, before="sattach: ", quiet=quiet))
