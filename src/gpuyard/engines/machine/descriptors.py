"""How many files a process may have open: more for a server with many connections than for the jobs that it starts."""

import resource

_SERVER = 4096
_first: list[tuple[int, int]] = []


def raise_limit() -> int:
    """Let this process have more files open, as far as it may; gives how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if not _first:
        _first.append((soft, hard))
    most = _SERVER if hard == resource.RLIM_INFINITY else min(_SERVER, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        soft = most
    return soft if soft != resource.RLIM_INFINITY else 1 << 20


def give_back(pid: int) -> None:
    """Give a child, and all that it starts, the limit that this process was started with."""
    if _first:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, _first[0])
