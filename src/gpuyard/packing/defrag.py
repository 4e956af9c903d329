"""Which jobs to move so that whole nodes or whole GPUs become free, and what work that loses: a plan, not an act.

A job can be moved if it holds whole GPUs or shares (not slices) on one node, saves its work, may be preempted and
is past its minimum run time. It goes to a node that is already in use, with the same GPU model, so that no quota
changes. Nodes and GPUs are emptied wholly or not at all, those that lose the least work first. No job moves twice and
none moves into room that another leaves, so the moves can be made in any order. The state is not changed; the plan is
made on a copy.
"""

from collections.abc import Iterator
from typing import NamedTuple

from gpuyard.core.fleet.bits import each, positions
from gpuyard.core.fleet.nodes import Nodes, find_barred
from gpuyard.core.fleet.placing import Placer
from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.schedule.running_jobs import protected_until_ms
from gpuyard.core.state.dump import dump, load
from gpuyard.core.state.state import State
from gpuyard.model import AttemptState, Grant, JobState, Milli, Whole
from gpuyard.model.units import MILLI


class Move(NamedTuple):
    """One job, from where it is to where it would start again."""

    job_id: int
    attempt: int
    source: Grant
    target: Grant
    destroyed_milli_ms: int
    """Milli-GPU x ms of work since its last checkpoint, plus its restart."""


class Emptied(NamedTuple):
    """What a few moves make free."""

    node: int
    gpus: int
    """The GPUs, as a mask, that become wholly free."""
    moves: tuple[Move, ...]

    @property
    def destroyed_milli_ms(self) -> int:
        """What all of the moves lose."""
        return sum([move.destroyed_milli_ms for move in self.moves])


def empty_nodes(state: State, place: Placer, now_ms: int, moves_max: int) -> tuple[Emptied, ...]:
    """Moves that free whole nodes, at most `moves_max` in all."""
    copy = load(dump(state))
    nodes = copy.nodes
    used = sum(
        [
            1 << number
            for number in range(len(nodes.node))
            if nodes.attempts_on[number] and not nodes.closed[number]
        ]
    )
    found: list[Emptied] = []
    received: set[int] = set()
    for _cost, number, jobs in _nodes_by_cost(copy, used, now_ms):
        if number in received or len(jobs) > moves_max:
            continue
        moves = _move_all(copy, jobs, place, used & ~(1 << number), now_ms)
        if moves:
            found.append(Emptied(number, (1 << nodes.node[number].gpus) - 1, moves))
            used &= ~(1 << number)
            received.update([move.target.node for move in moves])
            moves_max -= len(moves)
    return tuple(found)


def empty_gpus(state: State, now_ms: int, moves_max: int) -> tuple[Emptied, ...]:
    """Moves of shares that free whole GPUs by filling up other shared ones, at most `moves_max` in all."""
    copy = load(dump(state))
    nodes = copy.nodes
    freed: set[tuple[int, int]] = set()
    received: set[tuple[int, int]] = set()
    found: list[Emptied] = []
    for _cost, number, gpu, jobs in _gpus_by_cost(copy, now_ms):
        if (number, gpu) in received or len(jobs) > moves_max:
            continue
        freed.add((number, gpu))
        moves = _move_shares(copy, jobs, freed, now_ms)
        if moves and nodes.free_mask[number] >> gpu & 1:
            found.append(Emptied(number, 1 << gpu, moves))
            received.update([(move.target.node, positions[move.target.gpus][0]) for move in moves])
            moves_max -= len(moves)
        else:
            # A job stays, or part of the GPU is kept for one.
            freed.discard((number, gpu))
            _undo(copy, moves)
    return tuple(found)


def movable(state: State, record: JobRecord, now_ms: int) -> bool:
    """Whether a job may be stopped here and continue elsewhere."""
    saves = bool(record.job.spec.checkpoint_ms or record.checkpoint_ms)
    return (
        saves
        and record.klass.preemptible
        and record.state is JobState.RUNNING
        and record.phase is AttemptState.RUNNING
        and record.id not in state.leaving
        and record.wanted is None
        and record.shape.tasks == 1
        and len(record.grants) == 1
        and isinstance(record.job.spec.ask.gpus, Whole | Milli)
        and protected_until_ms(record) <= now_ms
    )


def _nodes_by_cost(state: State, used: int, now_ms: int) -> list[tuple[int, int, list[JobRecord]]]:
    """Nodes in use that all jobs could leave, with these jobs: 1. least work lost, 2. lowest number."""
    nodes = state.nodes
    found = []
    for number in each(used):
        jobs = [state.jobs[job_id] for job_id in sorted(nodes.attempts_on[number])]
        if nodes.kind_of[number].gpus and all([movable(state, record, now_ms) for record in jobs]):
            held = sum([record.shape.gpu_milli for record in jobs])
            free = sum(nodes.gpu_free[number])
            # What is neither free nor held by a job is earmarked or used from outside the yard: it would stay.
            if free and free + held == nodes.kind_of[number].gpus * MILLI:
                found.append((_destroyed(jobs, now_ms), number, jobs))
    return sorted(found, key=lambda row: row[:2])


def _gpus_by_cost(state: State, now_ms: int) -> list[tuple[int, int, int, list[JobRecord]]]:
    """Shared GPUs that all jobs could leave, with these jobs: 1. least work lost, 2. lowest node, 3. lowest GPU."""
    nodes = state.nodes
    found = []
    for number in sorted(nodes.partly_free):
        for gpu, left in enumerate(nodes.gpu_free[number]):
            if not 0 < left < MILLI or nodes.closed[number]:
                continue
            on = sorted(nodes.attempts_on[number].items())
            jobs = [state.jobs[job_id] for job_id, (_end_ms, grant) in on if grant.gpus >> gpu & 1]
            alone = all(
                [movable(state, record, now_ms) and record.grants[0].gpus == 1 << gpu for record in jobs]
            )
            if jobs and alone:
                found.append((_destroyed(jobs, now_ms), number, gpu, jobs))
    return sorted(found, key=lambda row: row[:3])


def _destroyed(jobs: list[JobRecord], now_ms: int) -> int:
    return sum([record.destroyed_gpu_ms(now_ms) for record in jobs])


def _largest_first(jobs: list[JobRecord]) -> list[JobRecord]:
    return sorted(jobs, key=lambda record: (-record.shape.gpu_milli, -record.shape.cpu_milli, record.id))


def _move_all(
    state: State, jobs: list[JobRecord], place: Placer, among: int, now_ms: int
) -> tuple[Move, ...]:
    """Move every job to one of these nodes, on the copy; all or none."""
    nodes = state.nodes
    moves: list[Move] = []
    for record in _largest_first(jobs):
        source = record.grants[0]
        target = None
        for way in record.shape.ways:
            if way.model == record.model:
                found = place(nodes, record.shape, way, among & way.pools)
                if found is not None:
                    target = found[0]
                    break
        if target is None:
            _undo(state, tuple(moves))
            return ()
        moves.append(_moved(nodes, record, source, target, now_ms))
    return tuple(moves)


def _move_shares(
    state: State, jobs: list[JobRecord], freed: set[tuple[int, int]], now_ms: int
) -> tuple[Move, ...]:
    """Move every share to a GPU that is already shared: the one with the least left that suffices."""
    moves: list[Move] = []
    for record in _largest_first(jobs):
        source = record.grants[0]
        options = sorted(_shared_gpus(state.nodes, record, source, freed))
        if not options:
            _undo(state, tuple(moves))
            return ()
        _left, number, gpu = options[0]
        target = source._replace(node=number, gpus=1 << gpu)
        moves.append(_moved(state.nodes, record, source, target, now_ms))
    return tuple(moves)


def _shared_gpus(
    nodes: Nodes, record: JobRecord, source: Grant, freed: set[tuple[int, int]]
) -> Iterator[tuple[int, int, int]]:
    """The GPUs that a share could move to, as (what they have left, node, GPU)."""
    for way in record.shape.ways:
        if way.model != record.model:
            continue
        for number in each(nodes.kinds[way.kind].partial & way.pools):
            if number == source.node or (
                source.cpu_milli <= nodes.cpu_free[number] and source.memory_mib <= nodes.memory_free[number]
            ):
                out = find_barred(nodes, number, source.user)
                for gpu, left in enumerate(nodes.gpu_free[number]):
                    if source.milli <= left < MILLI and (number, gpu) not in freed and not out >> gpu & 1:
                        yield left, number, gpu


def _moved(nodes: Nodes, record: JobRecord, source: Grant, target: Grant, now_ms: int) -> Move:
    """Make a move on the copy."""
    nodes.give((_left_behind(source, target),))
    nodes.take((target,))
    _enter(nodes, record, source, target)
    return Move(record.id, record.attempt, source, target, record.destroyed_gpu_ms(now_ms))


def _undo(state: State, moves: tuple[Move, ...]) -> None:
    """Put jobs back, on the copy."""
    nodes = state.nodes
    for move in reversed(moves):
        nodes.give((move.target,))
        nodes.take((_left_behind(move.source, move.target),))
        _enter(nodes, state.jobs[move.job_id], move.target, move.source)


def _left_behind(source: Grant, target: Grant) -> Grant:
    """What others may use of the room that a job leaves: GPUs, and cores and memory only if it stays on the node."""
    return source if source.node == target.node else source._replace(cpu_milli=0, memory_mib=0)


def _enter(nodes: Nodes, record: JobRecord, source: Grant, target: Grant) -> None:
    record.grants = (target,)
    nodes.move_attempt(record.id, source, target)
