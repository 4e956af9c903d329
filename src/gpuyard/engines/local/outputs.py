"""What attempts wrote, while they run and after they were forgotten."""

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from gpuyard.engines.local.client import Data
from gpuyard.engines.local.longlogs import cut_of
from gpuyard.engines.machine import files
from gpuyard.engines.machine.files import read_own
from gpuyard.engines.machine.launches import flaw_of_key
from gpuyard.engines.machine.readers import Readers


def read(data: Data, readers: Readers, key: str, stream: str, offset: int, limit: int) -> bytes:
    """Part of a stream; empty at the end, and for an attempt that is not known."""
    if flaw_of_key(key) or stream not in files.STREAMS or offset < 0 or limit <= 0:
        return b""
    for folder, plan in _places(data, key):
        if named := plan[stream]:
            return readers.read(plan["uid"], plan["gid"], os.path.join(plan["cwd"], named), offset, limit)
        cut = cut_of(folder)
        most = limit if cut is None or offset >= cut.tail else max(0, min(limit, cut.head - offset))
        if (piece := read_own(os.path.join(folder, stream), offset, most)) or os.path.isdir(folder):
            return piece
    return b""


def read_from(data: Data, key: str, stream: str, offset: int) -> int:
    """Where to read on from an offset: behind what is left out of a log that was too long."""
    for folder, plan in _places(data, key) if not flaw_of_key(key) else ():
        if (cut := cut_of(folder) if not plan[stream] else None) is not None:
            return cut.tail if cut.head <= offset < cut.tail else offset
        if plan[stream] or os.path.isdir(folder):
            break
    return offset


def _places(data: Data, key: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Where an attempt's files may be, with its plan: in its folder, and then where that is kept.

    The folder may be moved between two looks. It moves once, so a file that is missing in the first is in the second.
    """
    for folder in (data.attempt(key), data.kept(key)):
        if (plan := files.read(os.path.join(folder, files.LAUNCH))) is not None:
            yield folder, plan


def seal(folder: str) -> None:
    """Take the log of an ended attempt away from its user, who may have a link to it: it stays as it is."""
    path = os.path.join(folder, files.STDOUT)
    with suppress(FileNotFoundError):
        if os.lstat(path).st_uid == os.geteuid():
            return
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if os.fstat(fd).st_uid != os.geteuid():
                os.fchown(fd, os.geteuid(), os.getegid())
        finally:
            os.close(fd)


def strip(folder: str) -> None:
    """Remove the environment, which may hold secrets, from an earlier release's launch; keep the output paths."""
    plan = files.read(os.path.join(folder, files.LAUNCH)) or {}
    kept: dict[str, object] = {
        name: plan[name] for name in ("stdout", "stderr", "cwd", "uid", "gid") if name in plan
    }
    files.replace(os.path.join(folder, files.LAUNCH), kept)
