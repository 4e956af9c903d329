"""Results that look like a real week, made by a small simulation of GPUs without nodes.

The report is developed and tested against these. Jobs arrive by day and rest by night, most are small and
short, some are large and long, and the policies differ in the order in which they start what waits. Nothing
here imports the simulator: the report must not depend on it.
"""

import heapq
import math
import random
from array import array
from dataclasses import dataclass

from gpuyard.sim.result import Result, Samples

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
SAMPLE_MS = 10 * 60_000


@dataclass(frozen=True, slots=True)
class Task:
    """One job of the made-up week."""

    id: int
    submit_ms: int
    run_ms: int
    gpu_milli: int
    tenant: int


TENANTS = ["acme/vision", "acme/language", "acme/speech", "acme/robotics", "lab/alice", "lab/bob"]
WEIGHTS = [4, 4, 2, 2, 1, 1]


def week(jobs: int = 2500, days: int = 7, tenants: int = 6, seed: int = 7, capacity: int = 128) -> list[Task]:
    """Jobs with day and night: the rate in the afternoon is some eight times that before dawn."""
    rng = random.Random(seed)
    crowd = [1 / (1 + i) ** 0.8 for i in range(tenants)]
    times = []
    while len(times) < jobs:
        at = rng.random() * days * DAY_MS
        weekend = int(at // DAY_MS) % 7 >= 5
        rate = (1 + 0.8 * math.sin((at / HOUR_MS - 10) / 24 * 2 * math.pi)) / 1.8 * (0.45 if weekend else 1)
        if rng.random() < rate:
            times.append(round(at))
    times.sort()
    first = times[0] if times else 0
    tasks = []
    for index, at in enumerate(times):
        gpus = rng.choices([500, 1000, 2000, 4000, 8000, 16000, 32000], [8, 44, 12, 12, 16, 6, 2])[0]
        run = min(rng.lognormvariate(math.log(14 * 60_000), 1.7) * (1 + gpus / 16000), 1.5 * DAY_MS)
        gpus = min(gpus, capacity * 1000)
        who = rng.choices(range(tenants), crowd)[0]
        tasks.append(Task(index + 1, at - first, max(1000, round(run)), gpus, who))
    return tasks


def simulate(
    policy: str,
    tasks: list[Task],
    *,
    capacity: int = 128,
    tenants: list[str] | None = None,
    stop_ms: int | None = None,
    failures: bool = False,
) -> Result:
    """`fifo` never overtakes, `backfill` starts what fits, `fair` helps the worst-off, `srpt` the short."""
    assert all(task.gpu_milli <= capacity * 1000 for task in tasks), (
        "a job that never fits would wait forever"
    )
    tenants = tenants or TENANTS
    weights = [WEIGHTS[i] if i < len(WEIGHTS) else 1 for i in range(len(tenants))]
    result = Result(policy, capacity * 1000, list(tenants), jobs=len(tasks))
    result.samples = Samples(
        tenant_used_milli=[array("q") for _ in tenants], tenant_entitled_milli=[array("q") for _ in tenants]
    )
    free, used = capacity * 1000, [0] * len(tenants)
    waiting: list[Task] = []
    running: list[tuple[int, int, Task, int]] = []
    coming, now, next_sample = 0, 0, 0

    def key(task: Task) -> tuple[float, ...]:
        if policy == "fair":
            return (used[task.tenant] / weights[task.tenant], task.submit_ms, task.id)
        return (task.run_ms * task.gpu_milli if policy == "srpt" else task.submit_ms, task.id)

    while coming < len(tasks) or waiting or running:
        now = min(
            tasks[coming].submit_ms if coming < len(tasks) else 1 << 60, running[0][0] if running else 1 << 60
        )
        while next_sample <= now and (stop_ms is None or next_sample <= stop_ms):
            _sample(
                result,
                next_sample,
                used,
                waiting,
                down=16_000 if failures and (next_sample // (9 * HOUR_MS)) % 6 == 3 else 0,
                weights=weights,
            )
            next_sample += SAMPLE_MS
        if stop_ms is not None and now > stop_ms:
            break
        while running and running[0][0] == now:
            _, _, task, started = heapq.heappop(running)
            free += task.gpu_milli
            used[task.tenant] -= task.gpu_milli
            _end(result, task, started, now)
        while coming < len(tasks) and tasks[coming].submit_ms == now:
            waiting.append(tasks[coming])
            coming += 1
        while waiting:
            fitting = [task for task in waiting if task.gpu_milli <= free]
            best = min(fitting, key=key, default=None)
            if best is None or (policy == "fifo" and best is not waiting[0]):
                break
            waiting.remove(best)
            free -= best.gpu_milli
            used[best.tenant] += best.gpu_milli
            heapq.heappush(running, (now + best.run_ms, best.id, best, now))
    for end, _, task, started in running:
        result.used_gpu_ms += task.gpu_milli * (min(end, stop_ms or end) - started) // 1000
    result.unfinished = len(tasks) - len(result.job_id)
    result.interrupted = stop_ms is not None
    if policy == "fair":
        result.preemptions, result.destroyed_gpu_ms = 212, result.used_gpu_ms // 60
    result.cost_micro_usd = capacity * result.last_end_ms // HOUR_MS * 2_100_000
    return result


def _end(result: Result, task: Task, started: int, now: int) -> None:
    result.finished += 1
    result.job_id.append(task.id)
    result.wait_ms.append(started - task.submit_ms)
    result.jct_ms.append(now - task.submit_ms)
    result.gpu_milli.append(task.gpu_milli)
    result.tenant.append(task.tenant)
    result.used_gpu_ms += task.gpu_milli * (now - started) // 1000
    result.last_end_ms = now


def _sample(
    result: Result, at: int, used: list[int], waiting: list[Task], *, down: int, weights: list[int]
) -> None:
    samples = result.samples
    total = sum(used)
    samples.at_ms.append(at)
    samples.used_milli.append(total)
    samples.up_milli.append(max(result.capacity_milli - down, total))
    samples.waiting.append(len(waiting))
    idle = result.capacity_milli - total
    samples.stranded_milli.append(idle * 3 // 5 if waiting else idle // 50)
    due = entitled(used, waiting, weights, result.capacity_milli)
    for index, share in enumerate(due):
        samples.tenant_used_milli[index].append(used[index])
        samples.tenant_entitled_milli[index].append(share)


def entitled(used: list[int], waiting: list[Task], weights: list[int], capacity: int) -> list[int]:
    """Max-min by weight: nobody is due more than it asks for, and what it leaves goes to the others."""
    asks = list(used)
    for task in waiting:
        asks[task.tenant] += task.gpu_milli
    due, left, open_ = [0] * len(asks), capacity, {i for i, ask in enumerate(asks) if ask}
    while open_:
        unit = left / sum(weights[i] for i in open_)
        content = {i for i in open_ if asks[i] <= unit * weights[i]}
        for i in content or open_:
            due[i] = asks[i] if content else round(unit * weights[i])
        if not content:
            break
        left -= sum(asks[i] for i in content)
        open_ -= content
    return due


def four_policies(jobs: int = 2500) -> list[Result]:
    """The comparison most tests and all pictures use."""
    tasks = week(jobs)
    return [simulate(policy, tasks, failures=True) for policy in ("fifo", "backfill", "fair", "srpt")]
