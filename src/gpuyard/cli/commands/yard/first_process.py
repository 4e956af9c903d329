"""A server that is the first process of a container: somebody has to bury the dead there.

A process whose parent has gone becomes a child of the first one: what `podman exec` left behind, or the supervisor of
a job. The server does not wait for children that it does not know, so it runs beside a process that does nothing else.
"""

import os
import signal

_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def make_way() -> None:
    """Return in a child, if this is the first process; the first process stays behind and ends as that child does."""
    if os.getpid() != 1:
        return
    server = os.fork()
    if not server:
        return
    for number in _PASSED_ON:
        signal.signal(number, lambda said, _: os.kill(server, said))
    while True:
        pid, status = os.wait()
        if pid == server:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)
