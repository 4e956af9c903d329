"""What attempts wrote, while they run and after they were forgotten."""

import os
from contextlib import suppress

from gpuyard.engines.local import files, translate
from gpuyard.engines.local.client import Data, read_own
from gpuyard.engines.local.longlogs import cut_of
from gpuyard.engines.local.readers import Readers


def read(data: Data, readers: Readers, key: str, stream: str, offset: int, limit: int) -> bytes:
    """Part of a stream; empty at the end, and for an attempt that is not known."""
    if translate.flaw_of_key(key) or stream not in files.STREAMS or offset < 0 or limit <= 0:
        return b""
    folder, plan = data.plan(key)
    if plan is None:
        return b""
    if named := plan[stream]:
        return readers.read(plan["uid"], plan["gid"], os.path.join(plan["cwd"], named), offset, limit)
    if (cut := cut_of(folder)) is not None and offset < cut.tail:
        limit = max(0, min(limit, cut.head - offset))
    return read_own(os.path.join(folder, stream), offset, limit)


def read_from(data: Data, key: str, stream: str, offset: int) -> int:
    """Where reading on from an offset makes sense: behind what is left out of a log that was too long."""
    folder, plan = ("", None) if translate.flaw_of_key(key) else data.plan(key)
    cut = cut_of(folder) if plan is not None and not plan[stream] else None
    return cut.tail if cut is not None and cut.head <= offset < cut.tail else offset


def seal(folder: str) -> None:
    """Take the log of an attempt that ended from its user, who may have a link to it elsewhere: it stays as it is."""
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
    """Take the environment, which may hold secrets, out of what is kept; where the output went stays."""
    plan = files.read(os.path.join(folder, files.LAUNCH)) or {}
    kept: dict[str, object] = {
        name: plan[name] for name in ("stdout", "stderr", "cwd", "uid", "gid") if name in plan
    }
    files.replace(os.path.join(folder, files.LAUNCH), kept)
