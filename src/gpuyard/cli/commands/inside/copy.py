"""`yard cp`: files into a job and out of it."""

import json
import sys
from typing import Annotated

from gpuyard.api.client import Client
from gpuyard.cli.connection.places import open_client
from gpuyard.cli.connection.visits import Visit
from gpuyard.cli.line.options import Argument
from gpuyard.cli.terminal.streams import print_aside, print_notice
from gpuyard.cli.terminal.visible_text import visible_text
from gpuyard.engines.node.visits import copying
from gpuyard.errors import BadInput, YardError, count_text, error_text
from gpuyard.quantities import bytes_text

_NAMED_MAX = 3

From = Annotated[
    str, Argument(metavar="FROM", help="A file or a folder, here or in a job, as in 12:results.csv.")
]
To = Annotated[str, Argument(metavar="TO", help="The target: an existing folder, or a new name.")]


def cp(source: From, target: To) -> None:
    """Copy a file or a folder into or out of a running job.

    `yard cp 12:results.csv .`, `yard cp data 12:/tmp`. Paths in the job start from its folder, and its owner's rights
    apply. You reach the files of the node that the job sees, its own /tmp included.
    """
    out, into = _in_job(source), _in_job(target)
    if bool(out) == bool(into):
        raise BadInput(
            "one of the two paths has to be in a job, and the other here",
            "For example: yard cp 12:results.csv .",
        )
    with open_client() as yard:
        try:
            if out:
                _fetch(yard, *out, target)
            elif into:
                _send(yard, source, *into)
        except copying.Trouble as trouble:
            raise YardError(str(trouble)) from trouble
        except ConnectionError as error:
            raise YardError(
                f"the connection was lost: {error_text(error)}",
                "Each copied file is complete: copy the rest again.",
            ) from error
        except OSError as error:
            raise YardError(f"{error.filename or ''}: {error.strerror or error}".lstrip(": ")) from error


def _in_job(text: str) -> tuple[str, str] | None:
    """Job and path of `12:path`."""
    job, colon, path = text.partition(":")
    return (job, path or ".") if colon and job[:1].isdecimal() and "/" not in job else None


def _raise_if_any(failed: copying.Failed, files: int) -> None:
    """Say which files were not copied, here and there, and how many; the others are there."""
    if not failed.count:
        return
    named = "; ".join(
        [f"{visible_text(path)}: {visible_text(why)}" for path, why in failed.first[:_NAMED_MAX]]
    )
    more = f"; and {failed.count - _NAMED_MAX} more" if failed.count > _NAMED_MAX else ""
    were = "was" if failed.count == 1 else "were"
    raise YardError(
        f"{count_text(failed.count, 'file')} {were} not copied: {named}{more}",
        f"The others were copied: {count_text(files, 'file')}.",
    )


def _fetch(yard: Client, job: str, path: str, target: str) -> None:
    failed = copying.Failed()
    taker, whole = copying.Taker(target, failed), False
    try:
        with Visit(yard, job, {"do": "read", "path": path}) as visit:
            for kind, content in visit.messages():
                if kind == b"f":
                    taker.head(content)
                elif kind == b"d":
                    taker.data(content)
                elif kind == b"x":
                    whole, told = True, json.loads(content)
                    _say_left_out(told["left_out"])
                    failed.learn(told)
                    break
    finally:
        taker.close(whole)
    _say(taker.files, taker.bytes)
    _raise_if_any(failed, taker.files)


def _send(yard: Client, source: str, job: str, path: str) -> None:
    left_out: list[str] = []
    failed = copying.Failed()
    with Visit(yard, job, {"do": "write", "path": path}) as visit:
        visit.begin()
        try:
            for head, file in copying.list_entries(source, left_out.append, failed):
                visit.socket.send(b"f" + json.dumps(head).encode())
                for piece in copying.read_pieces(head, file):
                    visit.socket.send(b"d" + piece)
                    if visit.socket.waiting():
                        # It says something before the end only if it gives up.
                        next(visit.messages())
            visit.socket.send(b"z")
        except ConnectionError:
            # It has given up and gone; why, is the last that it has said.
            next(visit.messages())
            raise
        for kind, content in visit.messages():
            if kind == b"x":
                told = json.loads(content)
                _say_left_out(left_out)
                _say(told["files"], told["bytes"])
                failed.learn(told)
                _raise_if_any(failed, told["files"])
                return


def _say_left_out(paths: list[str]) -> None:
    if paths:
        named = ", ".join(map(visible_text, paths[:_NAMED_MAX])) + (
            " and others" if len(paths) > _NAMED_MAX else ""
        )
        print_notice(f"left out, being neither files nor folders: {named}", before="yard: ")


def _say(files: int, size: int) -> None:
    if sys.stderr.isatty():
        print_aside(f"{files} {'file' if files == 1 else 'files'}, {bytes_text(size)}")
