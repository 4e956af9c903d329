"""What Slurm's daemons wrote about one job in their own logs, as far as these can be read from here.

slurmctld's log is on its machine and a slurmd's on its node, and both are usually root's: a yard beside them sees them,
and any other shows nothing. Only the end of a log is looked through, and few lines of it are shown.
"""

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress

TAIL_BYTES = 4 << 20
LINES_MAX = 40
LINE_CHARS = 300
NODES_MAX = 8


def log_files(settings: Mapping[str, str], nodes: Sequence[str]) -> list[tuple[str, str]]:
    """Names of daemons with the files that they log to, by `scontrol show config`."""
    found = [("slurmctld", settings.get("SlurmctldLogFile", ""))]
    of_nodes = settings.get("SlurmdLogFile", "")
    for node in nodes[:NODES_MAX]:
        path = of_nodes.replace("%n", node).replace("%h", node.partition(".")[0])
        if path not in [known for _name, known in found]:
            found.append((f"slurmd {node}" if path != of_nodes else "slurmd", path))
    return [(name, path) for name, path in found if path.startswith("/")]


def find_lines(files: Sequence[tuple[str, str]], ids: Sequence[str]) -> tuple[str, ...]:
    """The last lines that name one of these jobs, each after the name of its daemon."""
    if not ids:
        return ()
    wanted = re.compile(
        rf"(?:JobId=|StepId=|\bjob[ _=#]|\[)(?:{'|'.join([re.escape(each) for each in ids])})(?![0-9_])",
        re.IGNORECASE,
    )
    found: list[str] = []
    for name, path in files:
        with suppress(OSError):
            text = _tail(path).decode("utf-8", "replace")
            about = [line for line in text.splitlines() if wanted.search(line)]
            found += [f"{name}: {_plain(line)}" for line in about[-LINES_MAX:]]
    return tuple(found)


def _tail(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.pread(fd, TAIL_BYTES, max(0, os.fstat(fd).st_size - TAIL_BYTES))
    finally:
        os.close(fd)


def _plain(line: str) -> str:
    """A line that changes nothing on a terminal: names of jobs and files are their users'."""
    shown = "".join([each if each.isprintable() else ascii(each)[1:-1] for each in line.strip()])
    return shown if len(shown) <= LINE_CHARS else f"{shown[:LINE_CHARS]}…"
