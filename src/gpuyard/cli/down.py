"""`yard down`: stop the yard of this machine."""

import time
from typing import TYPE_CHECKING, Annotated

from gpuyard.cli.options import Option
from gpuyard.cli.places import DataOption
from gpuyard.errors import YardError

if TYPE_CHECKING:
    from gpuyard.control.places import Instance

STOP_S = 30.0
JOBS_S = 600.0


def down(
    data: DataOption = None,
    jobs: Annotated[bool, Option("--jobs", help="Cancel all jobs first, running and waiting.")] = False,
) -> None:
    """Stop the yard. Jobs go on, and are found again by the next `yard up`; with --jobs all are cancelled first."""
    from gpuyard.cli.streams import notice
    from gpuyard.control.places import DataDir, default_data

    folder = DataDir(data or default_data())
    running = [each for each in folder.instances() if each.running() is not None]
    if not running:
        notice(f"no yard is running on {folder.root}")
        return
    stopped = _stop_jobs(str(running[0].socket)) if jobs else 0
    for instance in running:
        pid = instance.running()
        if pid == 0:
            raise YardError(
                f"{instance.pid_file} is locked, and no yard that runs has written it",
                f"Find the process with `fuser {instance.pid_file}` and stop it with `kill PID`.",
            )
        if pid:
            _stop(pid, instance)
    was = f", {stopped} {'job was' if stopped == 1 else 'jobs were'} cancelled" if jobs else ""
    print(f"the yard is down{was}")


def _stop(pid: int, instance: "Instance") -> None:
    try:
        if not instance.stop():
            return
    except PermissionError as error:
        raise YardError(
            f"the yard with pid {pid} is another user's", "Ask its owner, or root, to stop it."
        ) from error
    until_s = time.monotonic() + STOP_S
    while instance.running() is not None:
        if time.monotonic() > until_s:
            raise YardError(f"the yard with pid {pid} did not stop within {STOP_S:.0f} s", "Look at its log.")
        time.sleep(0.05)


def _stop_jobs(socket: str) -> int:
    """Cancel until nothing is left: someone may still submit meanwhile."""
    from gpuyard.api.client import Client

    until_s = time.monotonic() + JOBS_S
    asked: set[int] = set()
    with Client(f"unix:{socket}") as client:
        while True:
            live = [row[0] for row in client.queue()["rows"]]
            if not live:
                return len(asked)
            new = [job_id for job_id in live if job_id not in asked]
            for first in range(0, len(new), 10_000):
                client.ask_many("cancel", new[first : first + 10_000])
            asked.update(new)
            if time.monotonic() > until_s:
                raise YardError(
                    f"{len(live)} jobs did not stop within {JOBS_S:.0f} s", "The yard is still up."
                )
            time.sleep(0.1)
