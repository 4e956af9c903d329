"""Which commands there are, and the way in and out of each."""

import io
import sys
from collections.abc import Sequence
from importlib import import_module

from gpuyard.cli.slurm.language.stopping import Stop
from gpuyard.cli.terminal.streams import terminal_width, wrap_text
from gpuyard.cli.terminal.visible_text import visible_lines, visible_text
from gpuyard.engines.machine.job_commands import INSTEAD, VERSION
from gpuyard.errors import YardError

_INTERRUPTED = 130
_NOT_SERVED = 2


def run_program(name: str, words: Sequence[str]) -> int:
    """Run one of Slurm's commands; its exit code. Only defects of ours escape as exceptions."""
    _write_at_once()
    if name in INSTEAD:
        print(f"{name}: error: a yard has no {name}: {INSTEAD[name]}", file=sys.stderr)
        return _NOT_SERVED
    try:
        module = import_module(f"gpuyard.cli.slurm.commands.{name}")
        code = _plain(module, words)
        if code is None:
            from gpuyard.api.connecting.calling import telling_older_servers

            with telling_older_servers():
                code = int(module.run(list(words)))
        sys.stdout.flush()
    except Stop as stop:
        sys.stdout.flush()
        for line in stop.lines:
            print(visible_lines(line), file=sys.stderr)
        return stop.code
    except YardError as wrong:
        sys.stdout.flush()
        lines = wrong.message.splitlines() or ["failed"]
        for line in [*lines, *([wrong.hint] if wrong.hint else [])]:
            print(f"{name}: error: {visible_text(line)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return _INTERRUPTED
    except OSError as wrong:
        from gpuyard.cli.terminal.streams import give_up_output

        code = give_up_output()
        if not isinstance(wrong, BrokenPipeError):
            where = f"{wrong.filename}: " if wrong.filename else ""
            print(f"{name}: error: {where}{wrong.strerror or wrong}", file=sys.stderr)
    return code


def _write_at_once() -> None:
    """Buffer the output until it is flushed, as C programs do: jobs run with PYTHONUNBUFFERED.

    Without that, `scontrol show hostnames | head -n 1` under `set -o pipefail` fails now and then: `head` leaves after
    the first line, and what is written later has no reader.
    """
    if isinstance(sys.stdout, io.TextIOWrapper) and not sys.stdout.line_buffering:
        sys.stdout.reconfigure(write_through=False)


def _plain(module: object, words: Sequence[str]) -> int | None:
    """--help, --usage and --version, which all of them have and which need no yard."""
    first = words[0] if words else ""
    if first in ("--version", "-V"):
        from gpuyard import __version__

        print(f"{VERSION} (gpuyard {__version__})")
        return 0
    if first in ("--help", "--usage"):
        print(_fitting(module.HELP))  # type: ignore[attr-defined]
        return 0
    return None


def _fitting(text: str) -> str:
    """A help text, on a terminal in lines that fit there."""
    if not sys.stdout.isatty():
        return text
    width, lines = terminal_width(sys.stdout), []
    for line in text.split("\n"):
        blanks = line[: len(line) - len(line.lstrip())]
        lines += wrap_text(line, blanks, f"{blanks}  ", width) if len(line) > width else [line]
    return "\n".join(lines)
