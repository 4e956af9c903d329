"""The line that says what a job waits for while a user watches: `waiting: no room, 1st in line, likely within 4 min`.

It goes to standard error, for standard output is the job's own. A terminal has one line, drawn again in its place; a
file or a pipe has one when the wait begins and another when the reason changes.
"""

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO

from gpuyard.api.connecting.calling import NoServer
from gpuyard.cli.terminal.streams import print_notice, style_text, terminal_width
from gpuyard.cli.terminal.visible_text import visible_text
from gpuyard.quantities import span_up

if TYPE_CHECKING:
    from gpuyard.api.client import Client
    from gpuyard.wire.replies.jobs import End, Standing

_ERASE = "\r\x1b[2K"
_MARGIN = 3
"""Columns left free for the ^C that a terminal echoes: a line that wraps cannot be erased."""
PATIENCE_MS = 3_000
"""A wait so short is not worth a line in a file."""
_LONG_MS = 60_000
_CODES = {"COMPLETED": 0, "TIMEOUT": 124, "OUT_OF_MEMORY": 137, "CANCELLED": 143}
"""Exit codes for ends that are not the program's own."""


class Waiting:
    """Shows the state of a job; for `with`, so that the line is gone in any case."""

    def __init__(
        self,
        before: str = "yard: ",
        *,
        quiet: bool = False,
        stream: TextIO | None = None,
        look: Callable[[], Mapping[str, Any]] | None = None,
    ) -> None:
        """`look` reads the job. With it, a job that ended before it was seen running is said to have run, too."""
        self._before = before
        self._look = look
        self._quiet = quiet
        self._stream = stream or sys.stderr
        self._terminal = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self._drawn = False
        self._said = ""
        self._placed = False
        """Whether it is said where the job runs."""

    def __enter__(self) -> "Waiting":
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def told(self, standing: "Standing") -> None:
        """Show news of the job."""
        if self._quiet or not standing:
            return
        if standing["state"] == "PENDING":
            self._placed = False
            self._wait(standing)
        elif standing["state"] == "SUSPENDED":
            self._line(f"suspended; yard continue {standing['label']} lets it go on")
        else:
            self._runs(standing)

    def begins(self) -> None:
        """The job's own output or its end comes next: erase the line, and say where it runs if nobody has said it."""
        self.clear()
        if self._quiet or self._placed or self._look is None or not (self._terminal or self._said):
            return
        # A yard that is away for a moment is asked again before the next piece: the output waits for no line.
        with suppress(NoServer):
            job = self._look()
            # A job that was cancelled before it started ran nowhere.
            if job.get("nodes"):
                self._runs(job)
            self._placed = True

    def _runs(self, job: Mapping[str, Any]) -> None:
        self.clear()
        if self._terminal or self._said:
            self._line(visible_text(f"running on {', '.join(job.get('nodes', ())) or 'the yard'}"))
        self._said, self._placed = "", True

    def clear(self) -> None:
        """Erase the line: something else is to be written there."""
        if self._drawn:
            self._drawn = False
            with suppress(OSError):
                self._stream.write(_ERASE)
                self._stream.flush()

    def _wait(self, standing: "Standing") -> None:
        waited_ms = standing["now_ms"] - standing["submitted_ms"]
        text = words(standing)
        if self._terminal:
            if waited_ms >= _LONG_MS:
                text += f" ({span_up(waited_ms)} so far)"
            most = max(20, terminal_width(self._stream) - _MARGIN)
            fits = text if len(text) <= most else text[: most - 1] + "…"
            with suppress(OSError):
                self._stream.write(f"{_ERASE}{style_text(fits, 'dim', self._stream)}")
                self._stream.flush()
            self._drawn = True
        elif waited_ms >= PATIENCE_MS and standing["reason"] != self._said:
            self._line(text)
            self._said = standing["reason"]

    def _line(self, text: str) -> None:
        self.clear()
        with suppress(OSError):
            print(text if self._terminal else f"{self._before}{text}", file=self._stream, flush=True)


def words(standing: "Standing") -> str:
    """`waiting: no room, 1st in line, likely within 4 min`."""
    from gpuyard.reports.table import ordinal

    reason, place, by_ms = standing["reason"], standing["place"], standing["starts_by_ms"]
    parts = [] if not reason or reason.startswith("in line") else [reason]
    parts += [] if place is None else [f"{ordinal(place)} in line"]
    if by_ms is not None:
        parts.append(f"likely within {span_up(by_ms - standing['now_ms'])}")
    return visible_text(f"waiting: {', '.join(parts) or 'in line'}")


def copy_output(
    yard: "Client",
    job_id: int | str,
    *,
    before: str = "yard: ",
    quiet: bool = False,
    silent: bool = False,
    submitted: bool = False,
) -> "End":
    """Copy the job's output to standard output until it ends, and say what it waits for on standard error.

    `submitted`: by this command, which says where the job ran even if it ended before it was seen running.
    """
    out = sys.stdout.buffer
    look = (lambda: yard.job(job_id, explain=False)) if submitted else None
    with Waiting(before, quiet=quiet, look=look) as line:
        for item in yard.follow(job_id, standing=None if quiet else line.told):
            if isinstance(item, bytes):
                if not silent:
                    line.begins()
                    out.write(item)
                    out.flush()
                continue
            line.begins()
            return item
    raise AssertionError("a job that is followed ends")


def exit_code_of(end: "End") -> int:
    """The exit code for a job's end, which is said if it is not the program's own."""
    code = _CODES["TIMEOUT"] if end["state"] == "TIMEOUT" else end["exit_code"] or _CODES.get(end["state"], 1)
    own = end["exit_code"] is not None and end["reason"] in ("", f"exit code {end['exit_code']}")
    if end["state"] not in ("COMPLETED", "FAILED") or (end["state"] == "FAILED" and not own):
        why = f": {visible_text(end['reason'])}" if end["reason"] else ""
        print_notice(f"job {end['label']} ended with {end['state']}{why}", before="yard: ")
    return code
