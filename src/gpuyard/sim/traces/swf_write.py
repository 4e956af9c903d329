"""A trace as Standard Workload Format, so that other simulators can replay exactly the same jobs.

The format counts whole seconds and processors. Times are rounded up, so that no job takes no time or breaks its limit;
a processor stands for a GPU. What has no field in the format (GPU models, cores, memory, checkpoints, deadlines) is
left out; a job on a part of a GPU is refused.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from gpuyard.errors import BadInput
from gpuyard.model import JobSpec, Whole
from gpuyard.sim.trace import Trace

_SECOND_MS = 1000


def save_swf(trace: Trace, path: str | Path) -> None:
    """Write a trace as SWF. An old file stays until the new one is done."""
    target = Path(path)
    part = Path(f"{target}.part")
    try:
        with part.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(_lines(trace, str(path)))
        part.replace(target)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise BadInput(f"{path}: cannot be written: {why}", "Choose another place.") from None
    finally:
        with suppress(OSError, ValueError):
            part.unlink(missing_ok=True)


def _lines(trace: Trace, target: str) -> Iterator[str]:
    groups: dict[str, int] = {}
    users: dict[str, int] = {}
    queues: dict[str, int] = {}
    tails = []
    for spec in trace.specs:
        team, _, _user = spec.tenant.partition("/")
        group = groups.setdefault(team, len(groups) + 1)
        user = users.setdefault(spec.tenant, len(users) + 1)
        queue = queues.setdefault(spec.klass, len(queues) + 1) if spec.klass else -1
        tails.append((_gpus(spec, target), user, group, queue))
    yield from _head(trace, groups, users, queues)
    for row, at_ms in enumerate(trace.submit_ms):
        gpus, user, group, queue = tails[trace.spec[row]]
        run_s = max(1, _seconds_up(trace.run_ms[row]))
        limit_ms = trace.limit_ms[row]
        limit_s = max(run_s, _seconds_up(limit_ms)) if limit_ms else -1
        # Job, submit, wait, run, processors, CPU time, memory; requested processors, time, memory;
        # status, user, group, executable, queue, partition, preceding job, think time.
        yield (
            f"{row + 1} {at_ms // _SECOND_MS} -1 {run_s} {gpus} -1 -1 {gpus} {limit_s} -1 "
            f"1 {user} {group} -1 {queue} -1 -1 -1\n"
        )


def _head(
    trace: Trace, groups: dict[str, int], users: dict[str, int], queues: dict[str, int]
) -> Iterator[str]:
    yield "; Version: 2.2\n"
    yield f"; Computer: {_one_line(trace.name)}\n"
    yield f"; MaxJobs: {len(trace)}\n"
    yield f"; MaxRecords: {len(trace)}\n"
    if trace.origin_ms:
        yield f"; UnixStartTime: {trace.origin_ms // _SECOND_MS}\n"
    yield "; Note: one processor stands for one GPU\n"
    for name, numbers in (("Group", groups), ("User", users), ("Queue", queues)):
        for text, number in numbers.items():
            yield f"; {name}: {number} {_one_line(text)}\n"


def _gpus(spec: JobSpec, target: str) -> int:
    gpus = spec.ask.gpus
    if not isinstance(gpus, Whole) or not gpus.count:
        raise BadInput(
            f"{target}: a job of {spec.tenant} asks for {gpus}, and SWF only has whole processors",
            "Save it as CSV, under a name that does not end in .swf.",
        )
    return gpus.count * spec.ask.tasks


def _seconds_up(ms: int) -> int:
    return -(-ms // _SECOND_MS)


def _one_line(text: str) -> str:
    return " ".join(text.split())
