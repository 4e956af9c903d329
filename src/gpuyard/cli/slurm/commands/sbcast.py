"""`sbcast`: put a file on every node of the job. The nodes of a yard on one machine share its file system: one copy."""

import errno
import os
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress

from gpuyard.cli.slurm.language.getopt import Grammar, parse_option_table, read
from gpuyard.cli.slurm.language.stopping import Stop, make_stop

GRAMMAR = Grammar(
    "sbcast",
    parse_option_table(
        """
        compress,C? exclude= fanout,F= force,f help jobid,j= preserve,p send-libs? size,s= timeout,t= treewidth=
        usage verbose,v version,V
        """
    ),
    anywhere=False,
)
HELP = """\
Usage: sbcast [-fpv] SOURCE DEST
Copies a file to the nodes of the job in which it runs. The nodes of a yard are on one machine: it is there once."""


def run(words: Sequence[str]) -> int:
    """Copy the file."""
    given = read(GRAMMAR, words)
    if len(given.rest) != 2:
        count = len(given.rest)
        raise make_stop(
            "sbcast", f"Need two file names, have {count} names" if count else "No file names specified"
        )
    if given.has("send-libs"):
        raise make_stop("sbcast", "--send-libs is not served: libraries are where the program finds them")
    job = os.environ.get("SLURM_JOB_ID", "")
    if not job or not os.environ.get("YARD_JOB_ID"):
        raise make_stop("sbcast", "Need a job id to run this command. Run from within a Slurm job.")
    if given.has("jobid") and given.last("jobid") != job:
        raise make_stop("sbcast", f"--jobid={given.last('jobid')}: a file is copied from within its job only")
    source, target = given.rest
    if os.path.isdir(target) or target.endswith("/"):
        target = os.path.join(target, os.path.basename(source))
    try:
        _copy(source, target, force=given.has("force"), preserve=given.has("preserve"))
    except OSError as wrong:
        raise Stop(f"sbcast: error: {wrong.filename or target}: {wrong.strerror}") from None
    if given.has("verbose"):
        print(f"sbcast: {source} is {target} on every node of job {job}", file=sys.stderr)
    return 0


def _copy(source: str, target: str, *, force: bool, preserve: bool) -> None:
    """Copy under another name until it is whole: a task that looks for it finds all of it or nothing."""
    if not force and os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, "is there already; --force replaces it", target)
    draft = f"{target}.{os.getpid()}.sbcast"
    try:
        shutil.copy(source, draft)
        if preserve:
            shutil.copystat(source, draft)
        os.replace(draft, target)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(draft)
