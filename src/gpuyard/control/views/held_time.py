"""What attempts held between two moments, and what clusters had meanwhile, as Slurm's accounting adds it up.

Times are those at which an attempt really began and ended, cut to whole seconds as Slurm keeps them; the time book goes
by the clock of the log instead. Cores and GPUs are those that a job asked for, one core at least. An hour of a cluster
is divided up as slurmdbd does: what was allocated, then what was down, then what jobs waited for; the rest was idle.
"""

import json
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from gpuyard.control.projections.fleet import DOWN, DRAINED, UP, Fleet
from gpuyard.control.reading.model import LiveRow, Model
from gpuyard.model.units import MILLI, SECOND_MS
from gpuyard.store import Store

HOUR_S = 3600
GPUS, CORES = 0, 1
"""Where the two resources stand in a pair."""
Pair = tuple[int, int]
_BEHIND_SPEC = ',"limit_ms":'
"""What follows the spec in a row of the history: no text of a user has it, since quotes are escaped there."""


_GRANTS = re.compile(r'"grants": ?.*')
_NODE, _BEGIN = re.compile(r'"node": ?(\d+)'), re.compile(r'"begin_ms": ?(\d+)')
"""No text of a user has these either."""


class Run(NamedTuple):
    """One attempt, in seconds since 1970."""

    cluster: str
    tenant: str
    user: str
    milli: Pair
    """Thousandths of GPUs and of cores."""
    from_s: int
    until_s: int
    nodes: tuple[int, ...] = ()


class Wait(NamedTuple):
    """A job, or some that are alike, that waited and could have started."""

    cluster: str
    cpu_milli: int
    """Of all of them together."""
    from_s: int
    until_s: int


class Hour:
    """One hour of a cluster, in thousandths of GPUs and cores times seconds."""

    __slots__ = ("allocated", "down", "had", "waited")

    def __init__(self) -> None:
        self.had, self.allocated, self.down = [0, 0], [0, 0], [0, 0]
        self.waited = 0

    def divided(self, of: int) -> tuple[int, int, int, int, int]:
        """Allocated, down, idle, planned, and waited for beyond what there was."""
        had = self.had[of]
        allocated = min(self.allocated[of], had)
        down = min(self.down[of], had - allocated)
        wanted = self.waited if of == CORES else 0
        planned = min(wanted, had - allocated - down)
        return allocated, down, had - allocated - down - planned, planned, wanted - planned


class Held(NamedTuple):
    """What happened between two moments."""

    runs: list[Run]
    hours: dict[str, list[Hour]]
    """By cluster, one after the other."""


def read_held(store: Store, model: Model, from_s: int, until_s: int, now_s: int) -> Held:
    """The attempts of these seconds and the hours of all clusters; what runs counts up to now."""
    runs, waits = _attempts(store, model, from_s, until_s, now_s)
    count = -(-(until_s - from_s) // HOUR_S)
    clusters = sorted({node.cluster for node in model.nodes})
    hours = {cluster: [Hour() for _ in range(count)] for cluster in clusters}

    def parts(cluster: str, start_s: int, end_s: int) -> list[tuple[Hour, int]]:
        """The hours of a stretch, each with the seconds of it."""
        if cluster not in hours:
            # It had nodes once, and has none now.
            hours[cluster] = [Hour() for _ in range(count)]
        at = (start_s - from_s) // HOUR_S
        if start_s >= from_s and end_s <= until_s and end_s <= from_s + (at + 1) * HOUR_S:
            # Most of them: within an hour.
            return [(hours[cluster][at], end_s - start_s)] if start_s < end_s else []
        start_s, end_s = max(start_s, from_s), min(end_s, until_s)
        found = []
        while start_s < end_s:
            at = (start_s - from_s) // HOUR_S
            last_s = min(end_s, from_s + (at + 1) * HOUR_S)
            found.append((hours[cluster][at], last_s - start_s))
            start_s = last_s
        return found

    for run in runs:
        gpus, cores = run.milli
        for hour, seconds in parts(run.cluster, run.from_s, run.until_s):
            hour.allocated[GPUS] += gpus * seconds
            hour.allocated[CORES] += cores * seconds
    for wait in waits:
        for hour, seconds in parts(wait.cluster, wait.from_s, wait.until_s):
            hour.waited += wait.cpu_milli * seconds
    for cluster, milli, how, start_s, end_s, number in _stretches(store, model, from_s, min(until_s, now_s)):
        for hour, seconds in parts(cluster, start_s, end_s):
            for of in (GPUS, CORES):
                hour.had[of] += milli[of] * seconds
        if how == UP:
            continue
        # A drained node is down to Slurm once nothing runs there any more.
        busy = [] if how == DOWN else [(run.from_s, run.until_s) for run in runs if number in run.nodes]
        for low, high in _outside(start_s, end_s, busy):
            for hour, seconds in parts(cluster, low, high):
                for of in (GPUS, CORES):
                    hour.down[of] += milli[of] * seconds
    return Held(
        [
            run
            if from_s <= run.from_s and run.until_s <= until_s
            else run._replace(from_s=max(run.from_s, from_s), until_s=min(run.until_s, until_s))
            for run in runs
            if run.until_s > from_s and run.from_s < until_s
        ],
        hours,
    )


def _outside(start: int, end: int, taken: Iterable[Pair]) -> list[Pair]:
    """What is left of a stretch."""
    found = []
    for low, high in sorted(taken):
        if low > start:
            found.append((start, min(low, end)))
        start = max(start, high)
    found.append((start, end))
    return [(low, high) for low, high in found if low < high]


def _stretches(
    store: Store, model: Model, from_s: int, until_s: int
) -> Iterator[tuple[str, Pair, int, int, int, int]]:
    """How nodes were: cluster, thousandths of GPUs and cores, how, from, until, number.

    A node that the projection does not know came before the log that there is, or a moment ago: it counts as it is.
    """
    ended = store.projections.between(Fleet.name, f"t/{from_s * SECOND_MS:015}", "t/~")
    for key, text in ended:
        cluster, gpus, cpu_milli, how, since_ms = json.loads(text)
        until_ms, name = key[2:].split("/")
        until = min(until_s, int(until_ms) // SECOND_MS)
        yield cluster, (gpus * MILLI, cpu_milli), how, since_ms // SECOND_MS, until, int(name)
    known = set[int]()
    for key, text in store.projections.between(Fleet.name, "n/", "n/~"):
        cluster, gpus, cpu_milli, down, drained, since_ms = json.loads(text)
        known.add(int(key[2:]))
        how = DOWN if down else DRAINED if drained else UP
        yield cluster, (gpus * MILLI, cpu_milli), how, since_ms // SECOND_MS, until_s, int(key[2:])
    for number, node in enumerate(model.nodes):
        if number not in known:
            yield node.cluster, (node.gpus * MILLI, node.cpu_milli), UP, 0, until_s, number


class _Asker(NamedTuple):
    """A job of these seconds."""

    cluster: str
    tenant: str
    user: str
    milli: Pair
    may_start_s: int
    """Since when it could have started, as far as the log tells it briefly: its submission, or its --begin."""
    waits_until_s: int

    def run(self, from_s: int, until_s: int, nodes: tuple[int, ...], cluster: str = "") -> Run:
        return Run(cluster or self.cluster, self.tenant, self.user, self.milli, from_s, until_s, nodes)


def _attempts(
    store: Store, model: Model, from_s: int, until_s: int, now_s: int
) -> tuple[list[Run], list[Wait]]:
    """Attempts that ended since, that run, and those after which a job waited again; and what waited."""
    between = (from_s * SECOND_MS, until_s * SECOND_MS)
    askers: dict[int, _Asker] = {}
    runs: dict[int, list[Run]] = {}
    for row in store.history.ran_between(*between):
        job_id, asker, run = _ended(model, row)
        askers[job_id], runs[job_id] = asker, [run] if run else []
    tried = list(store.tries.between(*between))
    again = {row[0] for row in tried}
    waiting: dict[tuple[int, int, int], tuple[_Asker, int]] = {}
    for live in model.jobs.values():
        job, job_id = live.job, live.id
        if job.submitted_ms >= between[1] or job_id in askers:
            # One that ended between the two looks is in both; it has ended.
            continue
        if live.phase is not None or job_id in again:
            askers[job_id], run = _live(model, live, now_s)
            runs[job_id] = [run] if run else []
        elif not live.aside:
            # Nothing has run of it: with all that are like it, such as the tasks of its array, it is one long wait.
            kind = (id(job.spec), job.submitted_ms, job.begin_ms)
            known = waiting.get(kind)
            asker, count = known or (_live(model, live, now_s)[0], 0)
            waiting[kind] = (asker, count + 1)
    numbers = {node.name: number for number, node in enumerate(model.nodes)}
    for job_id, start_ms, end_ms, detail in tried:
        if job_id in askers:
            nodes = tuple([numbers[name] for name in json.loads(detail)["nodes"] if name in numbers])
            times = (start_ms // SECOND_MS, end_ms // SECOND_MS)
            runs[job_id].append(askers[job_id].run(*times, nodes, _cluster(model, nodes)))
    waits = []
    for job_id, asker in askers.items():
        taken = [(run.from_s, run.until_s) for run in runs[job_id]]
        for low, high in _outside(asker.may_start_s, asker.waits_until_s, taken):
            waits.append(Wait(asker.cluster, asker.milli[CORES], low, high))
    for asker, count in waiting.values():
        for low, high in _outside(asker.may_start_s, asker.waits_until_s, ()):
            waits.append(Wait(asker.cluster, asker.milli[CORES] * count, low, high))
    return [run for each in runs.values() for run in each], waits


def _cluster(model: Model, nodes: tuple[int, ...]) -> str:
    """Of some nodes; without any, the first that there is."""
    if nodes and nodes[0] < len(model.nodes):
        return model.nodes[nodes[0]].cluster
    return next((node.cluster for node in model.nodes), "")


def _ended(model: Model, row: tuple[Any, ...]) -> tuple[int, _Asker, Run | None]:
    job_id, tenant, user, gpus_milli, submitted_ms, started_ms, ended_ms, text = row
    # What was asked for is the longer part, and alike for most jobs of a user.
    asked, cut, rest = text.rpartition(_BEHIND_SPEC)
    cpu_milli = _cpu_milli(f"{asked}}}" if cut else text)
    nodes, begin_ms = _held_nodes(rest if cut else text)
    milli = (gpus_milli, cpu_milli)
    may_start_s = max(submitted_ms, begin_ms) // SECOND_MS
    start_s, end_s = started_ms // SECOND_MS, ended_ms // SECOND_MS
    cluster = _cluster(model, nodes)
    asker = _Asker(cluster, tenant, user, milli, may_start_s, start_s if started_ms else end_s)
    return job_id, asker, asker.run(start_s, end_s, nodes) if started_ms else None


def _held_nodes(text: str) -> tuple[tuple[int, ...], int]:
    """The nodes of a job that ended, and its --begin, by the end of its detail."""
    # A job of many fields has few that are asked for here, and reading all of them would be most of the work.
    grants = _GRANTS.search(text)
    begin = _BEGIN.search(text)
    nodes = tuple([int(number) for number in _NODE.findall(grants[0])]) if grants else ()
    return nodes, int(begin[1]) if begin else 0


@lru_cache(maxsize=4096)
def _cpu_milli(text: str) -> int:
    """Thousandths of cores that a job asked for, by its detail or the beginning of it; one core at least."""
    ask = json.loads(text).get("spec", {}).get("ask") or {}
    return max(MILLI, int(ask.get("cpu_milli", 0)) * int(ask.get("tasks", 1)))


def _live(model: Model, row: LiveRow, now_s: int) -> tuple[_Asker, Run | None]:
    record, spec = row.record, row.job.spec
    runs = row.phase is not None
    nodes = tuple([grant.node for grant in record.grants]) if runs else ()
    milli = (record.shape.gpu_milli, max(MILLI, record.shape.cpu_milli * record.shape.tasks))
    cluster = _cluster(model, nodes) if nodes or not spec.ask.clusters else spec.ask.clusters[0]
    start_s = record.started_ms // SECOND_MS if runs else 0
    # A job that is on hold, or waits for another one, could not have started.
    until_s = start_s if runs else 0 if row.aside else now_s
    may_start_s = max(row.job.submitted_ms, row.job.begin_ms) // SECOND_MS
    asker = _Asker(cluster, spec.tenant, spec.user, milli, may_start_s, until_s)
    return asker, asker.run(start_s, now_s, nodes) if runs else None
