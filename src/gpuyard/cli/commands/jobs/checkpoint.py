"""`yard checkpoint`: a job has saved its work, or saves it now, so that a stop at any moment leaves it whole.

`echo $step > file` empties the file before it writes: a job that is killed between the two has lost what it had saved.
With `--write` what is saved goes to a file beside, to the disk, and under its name in one step.
"""

import os
import shlex
import signal as signals
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from gpuyard.cli.connection.places import open_client
from gpuyard.cli.line.options import Argument, Option
from gpuyard.errors import BadInput, YardError, find_hint

_PIECE_BYTES = 1 << 20
_READABLE = 0o666


def checkpoint(
    words: Annotated[
        list[str] | None,
        Argument(
            metavar="[JOB] | WORD...",
            help="The job. Default: the one that this command runs in. With --write: the words to write.",
        ),
    ] = None,
    write: Annotated[
        Path | None,
        Option(
            "--write",
            metavar="FILE",
            help="Replace FILE in one step by these words, or by standard input.",
        ),
    ] = None,
) -> None:
    """Report that a running job has just saved its work, so that less work counts as lost if it is stopped.

    A job that writes $YARD_CHECKPOINT_FILE need not report it: the yard reads the time of that file. `yard checkpoint
    --write "$YARD_CHECKPOINT_FILE" "$step"` replaces the file in one step: the new content is written to disk beside
    FILE and then renamed, so a job that is stopped meanwhile finds either the old content or the new.
    """
    given = list(words or ())
    if write is not None:
        # A job that is stopped sends this to all of its processes: the draft goes, and the old content stays.
        before = signals.signal(signals.SIGTERM, _interrupt)
        # Words that are all empty are a variable without a value, which is nothing to go back to.
        text = "".join([" ".join(given), "\n"]) if any(given) else ""
        try:
            replace_file(write, [os.fsencode(text)] if given else _standard_input())
        finally:
            signals.signal(signals.SIGTERM, before)
        _tell_of(write)
        return
    if len(given) > 1:
        raise BadInput("a checkpoint belongs to one job", "For example: yard checkpoint 17")
    job = given[0] if given else os.environ.get("YARD_JOB_ID", "")
    if not job:
        raise BadInput(
            "no job was named, and this command does not run in one", "For example: yard checkpoint 17"
        )
    with open_client() as yard:
        yard.checkpoint(job)


def replace_file(path: Path, pieces: "Iterator[bytes] | list[bytes]") -> None:
    """Give `path` a new content in one step, on the disk; nothing at all to write leaves it as it was."""
    target = Path(os.path.realpath(path))
    mode = _mode_of(target)
    try:
        fd, draft = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as error:
        raise _unwritable(path, error) from None
    try:
        with os.fdopen(fd, "wb") as file:
            size = sum([file.write(piece) for piece in pieces])
            if not size:
                raise BadInput(f"there was nothing to write: {path} stays as it was")
            file.flush()
            os.fchmod(fd, mode)
            os.fsync(fd)
        os.replace(draft, target)
        _sync_names(target.parent)
    except BaseException as error:
        with suppress(FileNotFoundError):
            os.unlink(draft)
        if isinstance(error, OSError):
            raise _unwritable(path, error) from None
        raise


def _mode_of(target: Path) -> int:
    """The mode that the file has, or that a new one gets from the umask."""
    try:
        found = target.stat()
    except OSError:
        mask = os.umask(0)
        os.umask(mask)
        return _READABLE & ~mask
    if not stat.S_ISREG(found.st_mode):
        raise BadInput(f"--write {target}: this is not a plain file", "Name a file that it can replace.")
    return stat.S_IMODE(found.st_mode)


def _sync_names(folder: Path) -> None:
    """The new name is on the disk, too, where the file system can say so of a folder."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _unwritable(path: Path, error: OSError) -> YardError:
    if isinstance(error, FileNotFoundError):
        target = Path(os.path.realpath(path)) if path.is_symlink() else path
        return YardError(
            f"--write {path}: the folder is not there", f"mkdir -p {shlex.quote(str(target.parent))}"
        )
    return YardError(
        f"--write {path}: {error.strerror}", f"The file stays as it was. {find_hint(error)}".strip()
    )


def _interrupt(*_: object) -> None:
    raise SystemExit(128 + signals.SIGTERM)


def _standard_input() -> Iterator[bytes]:
    if sys.stdin is None or sys.stdin.isatty():
        state = "closed" if sys.stdin is None else "a terminal"
        raise BadInput(
            f"nothing to write was given, and standard input is {state}",
            'For example: yard checkpoint --write "$YARD_CHECKPOINT_FILE" "$step"',
        )
    while piece := sys.stdin.buffer.read(_PIECE_BYTES):
        yield piece


def _tell_of(path: Path) -> None:
    """In a job that saves elsewhere than in its own checkpoint file, whose time the yard reads, tell the yard."""
    job, own = os.environ.get("YARD_JOB_ID", ""), os.environ.get("YARD_CHECKPOINT_FILE", "")
    if not job or (own and os.path.realpath(own) == os.path.realpath(path)):
        return
    from gpuyard.cli.terminal.streams import print_notice

    try:
        with open_client() as yard:
            yard.checkpoint(job)
    except YardError as error:
        # The work is saved, which is what was asked for: the yard only counts it as older than it is.
        print_notice(f"note: {path} is written, and the yard could not be told: {error}")
