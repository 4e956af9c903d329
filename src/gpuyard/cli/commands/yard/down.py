"""`yard down`: stop the yard of this machine."""

import time
from typing import TYPE_CHECKING, Annotated

from gpuyard.cli.connection.places import DataOption
from gpuyard.cli.line.options import Option
from gpuyard.errors import BadInput, YardError, count_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuyard.control.places import Instance
    from gpuyard.wire.replies.jobs import OneOfMany

STOP_S = 30.0
JOBS_S = 600.0
"""How long jobs may take to end with nothing happening."""
FAULT_S = 5.0
"""How long a yard that cannot write a cancel, as on a full disk, is asked again."""
JOBS_AT_ONCE = 1_000
"""Jobs that one request cancels, or one array: it is told how many are done."""


def down(
    data: DataOption = None,
    jobs: Annotated[bool, Option("--jobs", help="Cancel all jobs first, running and waiting.")] = False,
    port: Annotated[
        int | None,
        Option(
            "--port",
            metavar="N",
            min=1,
            max=65535,
            help="Stop only the server at this port, of several on one store. Default: all.",
        ),
    ] = None,
) -> None:
    """Stop the yard. Jobs keep running, and the next `yard up` finds them; --jobs cancels all of them first.

    With several servers on one PostgreSQL store, --port stops one of them and the others keep running.
    """
    from gpuyard.cli.terminal.streams import print_notice
    from gpuyard.control.places import DataDir, default_data

    folder = DataDir(data or default_data())
    running = [each for each in folder.instances() if each.running() is not None]
    if not running:
        print_notice(f"no yard is running on {folder.root}")
        return
    others = []
    if port is not None:
        if jobs:
            raise BadInput("--jobs concerns the whole yard, and --port one server", "Leave one of them out.")
        others = [each for each in running if each.note().get("port") != port]
        running = [each for each in running if each not in others]
        if not running:
            raise BadInput(
                f"no server of the yard on {folder.root} listens at port {port}",
                f"There is: {_ports(others)}.",
            )
    stopped = _stop_jobs(str(running[0].socket)) if jobs else 0
    for instance in running:
        pid = instance.running()
        if pid == 0:
            raise YardError(
                f"{instance.pid_file} is locked, but no running yard has written it",
                f"Find the process with `fuser {instance.pid_file}` and stop it with `kill PID`.",
            )
        if pid:
            _stop(pid, instance)
    was = f", {stopped} {'job was' if stopped == 1 else 'jobs were'} cancelled" if jobs else ""
    if others:
        print(f"the server at port {port} is down; the yard goes on at {_ports(others)}")
        return
    print(f"the yard is down{was}")


def _ports(instances: "list[Instance]") -> str:
    return ", ".join(f"port {each.note().get('port', '?')}" for each in instances)


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
    """Cancel until no job of the yard's own is left: users may still submit meanwhile."""
    from gpuyard.api.client import Client
    from gpuyard.cli.terminal.progress import Bar

    still_s = well_s = time.monotonic()
    asked: set[int] = set()
    before = 0
    with Client(f"unix:{socket}") as client:
        while True:
            # Jobs of a cluster that schedules itself are none of ours: `CLUSTER:ID`.
            live = {row[0]: row[1] for row in client.queue()["rows"] if ":" not in row[1]}
            if not live:
                return len(asked)
            new = {job_id: label for job_id, label in live.items() if job_id not in asked}
            fault: OneOfMany | None = None
            with Bar(len(new)) as bar:
                tell, done = bar.begin("cancelling"), 0
                for names, jobs in lots(new.values()):
                    fault = next(
                        (each for each in client.ask_many("cancel", names) if each["status"] >= 500), None
                    )
                    if fault is not None:
                        break
                    done, well_s = done + jobs, time.monotonic()
                    if tell is not None:
                        tell(done, len(new))
            if fault is None:
                asked.update(new)
                well_s = time.monotonic()
            elif time.monotonic() > well_s + FAULT_S:
                raise YardError(
                    f"{fault['detail']}: {count_text(len(live), 'job')} not stopped, and the yard is still up",
                    fault.get("hint", ""),
                )
            if (new and fault is None) or len(live) != before:
                # Many jobs take a while: it has failed when nothing more happens.
                still_s, before = time.monotonic(), len(live)
            if time.monotonic() > still_s + JOBS_S:
                raise YardError(
                    f"{len(live)} jobs did not stop within {JOBS_S:.0f} s", "The yard is still up."
                )
            time.sleep(0.1)


def lots(labels: "Iterable[str]") -> "Iterator[tuple[list[str], int]]":
    """What to name in each request, and how many jobs that is: an array for all of its tasks.

    The last in line come first, so that none starts in the place of one that was cancelled.
    """
    counts: dict[str, int] = {}
    for label in reversed([*labels]):
        name = label.partition("_")[0]
        counts[name] = counts.get(name, 0) + 1
    names: list[str] = []
    jobs = 0
    for name, count in counts.items():
        names.append(name)
        jobs += count
        if jobs >= JOBS_AT_ONCE:
            yield names, jobs
            names, jobs = [], 0
    if names:
        yield names, jobs
