"""Jobs that wait for other jobs.

A job with dependencies is set aside until they are met. A dependency that can never be met dooms the job: it stays set
aside, with the reason, until it is cancelled (the control loop does that). The ends of the last few thousand jobs are
remembered, because a job may be submitted just when the job that it waits for ends.

A dependency is one edge, whatever it stands for: a job, all tasks of an array, or all earlier jobs of the same name and
user. What is left of an array is counted once for all jobs that wait for it (`Tally`), and so is what is left of a name
(`Namesakes`): the cost of an end grows with the dependencies that it settles, not with the number of waiting jobs.
"""

from collections import deque
from collections.abc import Iterable, Sequence

from gpuyard.core.jobs.records import JobExtras, JobRecord
from gpuyard.core.jobs.waiters import Namesakes, Tally
from gpuyard.core.state.state import State
from gpuyard.model import After, AfterKind, JobState

REMEMBERED_MAX = 10_000
"""At least this many ends are remembered: those of the jobs with the highest ids."""

_STARTED, _ENDED, _ALONE = AfterKind.STARTED, AfterKind.ENDED, AfterKind.ALONE
_COMPLETED, _FAILED = AfterKind.COMPLETED, AfterKind.FAILED


def enter(state: State, record: JobRecord) -> None:
    """Take in a new job that waits for others."""
    spec = record.job.spec
    pending: dict[After, None] = {}
    done, broken = 0, ""
    for asked in spec.after:
        after = _known_failed(state, asked) if asked.tasks else asked
        answer = _answer(state, record, after)
        if answer and after.delay_ms:
            record.begin_ms = max(record.begin_ms, _last_start_ms(state, after) + after.delay_ms)
        if answer is None:
            pending[after] = None
        elif answer:
            done += 1
        else:
            broken = broken or _broken_by(state, after)
    if spec.after_one and done:
        pending, broken = {}, ""
    record.pending = pending
    if broken and not (spec.after_one and pending):
        doom(state, record, broken)
    index(state, record)
    if state.namesakes:
        key = (spec.user, spec.name)
        if key in state.namesakes and not state.namesakes[key].waiting:
            del state.namesakes[key]


def all_wait(state: State, beside: Sequence[After], tasks: int) -> bool:
    """Whether each of so many tasks has one job to wait for, the first the one named and every other the next, and all
    of those have yet to end.
    """
    if len(beside) != 1 or beside[0].kind is _STARTED or beside[0].kind is _ALONE or beside[0].tasks:
        return False
    first_id, jobs = beside[0].job_id, state.jobs
    return all([job_id in jobs for job_id in range(first_id, first_id + tasks)])


def enter_alike(state: State, records: Iterable[JobRecord]) -> None:
    """Take in new jobs of which `all_wait` holds."""
    dependents = state.dependents
    for record in records:
        (after,) = record.job.spec.after
        record.extras = extras = JobExtras()
        extras.pending = {after: None}
        waiting = dependents.get(after.job_id)
        if waiting is None:
            dependents[after.job_id] = {record.id: [after]}
        else:
            waiting[record.id] = [after]


def reindex(state: State) -> None:
    """Rebuild the index once all jobs are loaded."""
    waiting = [state.jobs[job_id] for job_id in sorted(state.jobs) if state.jobs[job_id].pending]
    alone = [r.job.spec for r in waiting if any([after.kind is _ALONE for after in r.pending])]
    names = {(spec.user, spec.name): Namesakes(deque()) for spec in alone}
    state.namesakes = names
    if names:
        for job_id in sorted(state.jobs):
            note_submission(state, state.jobs[job_id])
    for record in waiting:
        index(state, record)


def index(state: State, record: JobRecord) -> None:
    """Enter the job under each job, array or name that it waits for."""
    dependents = state.dependents
    for after in record.pending:
        alone = after.kind is _ALONE
        waiting = dependents.setdefault(0 if alone else after.job_id, {})
        if record.id in waiting:
            waiting[record.id].append(after)
        else:
            waiting[record.id] = [after]
        if alone:
            same = _namesakes(state, record)
            later = bool(same.waiting) and same.waiting[-1] > record.id
            same.waiting.append(record.id)
            if later:
                # A job that was changed stands where its id has it.
                same.waiting = deque(sorted(same.waiting))
            continue
        if after.tasks:
            tally = _tally(state, after)
            if after.kind is _STARTED:
                tally.at_start.append(record.id)
            elif after.kind is not _ENDED:
                tally.at_failure.append(record.id)


def leave(state: State, record: JobRecord) -> None:
    """Take a job out of all that it waits for, before it is changed."""
    dependents = state.dependents
    for after in record.pending:
        alone = after.kind is _ALONE
        key = 0 if alone else after.job_id
        waiting = dependents.get(key, {})
        waiting.pop(record.id, None)
        if alone:
            same = _namesakes(state, record)
            same.waiting.remove(record.id)
            if not same.waiting:
                del state.namesakes[record.job.spec.user, record.job.spec.name]
        if not waiting and key not in state.arrays:
            dependents.pop(key, None)
    record.pending = {}
    record.doomed = ""
    state.doomed.pop(record.id, None)


def rename(state: State, record: JobRecord, before: str) -> list[JobRecord]:
    """A job has another name than before; return the jobs that have nothing left to wait for."""
    ready: list[JobRecord] = []
    spec = record.job.spec
    if (same := state.namesakes.get((spec.user, before))) is not None and record.id in same.ids:
        same.ids.remove(record.id)
    _heed_name(state, (spec.user, before), ready)
    if (same := state.namesakes.get((spec.user, spec.name))) is not None:
        same.ids = deque(sorted({*same.ids, record.id}))
    return ready


def note_submission(state: State, record: JobRecord) -> None:
    """Note a new job while jobs wait for earlier ones of the same name."""
    spec = record.job.spec
    same = state.namesakes.get((spec.user, spec.name))
    if same is not None and (not same.ids or same.ids[-1] < record.id):
        same.ids.append(record.id)


def doom(state: State, record: JobRecord, why: str) -> None:
    """The job can never start."""
    record.doomed = why
    state.doomed[record.id] = record


def find_awaited(state: State, record: JobRecord, after: After) -> Iterable[JobRecord]:
    """The live jobs that a dependency stands for, the first submitted first."""
    jobs = state.jobs
    if after.kind is _ALONE:
        first, same = _first(record), _namesakes(state, record)
        return [jobs[job_id] for job_id in same.ids if job_id < first and job_id in jobs]
    if after.tasks:
        return [jobs[job_id] for job_id in task_ids(after) if job_id in jobs]
    return [jobs[after.job_id]] if after.job_id in jobs else []


def task_ids(after: After) -> range:
    """The ids of an array's tasks, which follow the array's own id."""
    return range(after.job_id + 1, after.job_id + after.tasks + 1)


# -- the answer of a dependency ----------------------------------------------------------------------------------------


def _answer(state: State, record: JobRecord, after: After) -> bool | None:
    """Whether a dependency is met; None: not yet known."""
    if after.kind is _ALONE:
        return True if _namesakes(state, record).first_live(state.jobs) >= _first(record) else None
    if after.tasks:
        tally = _tally(state, after)
        if tally.failed in state.ends and after.kind is _COMPLETED:
            return False
        if not tally.live or (after.kind is _STARTED and not tally.unstarted):
            return after.kind is not _FAILED
        return None
    other = state.jobs.get(after.job_id)
    if other is not None:
        return True if after.kind is _STARTED and other.attempt > 0 else None
    ended = state.ends.get(after.job_id)
    if ended is None:
        # The submission checked it: that job ended too long ago to be remembered, and in the way that was wanted.
        return True
    return is_met(after.kind, ended)


def _known_failed(state: State, after: After) -> After:
    """`afternotok` wants one failed task of an array: once one failed, only the ends of the others matter."""
    if after.kind is _FAILED and _tally(state, after).failed in state.ends:
        return After(_ENDED, after.job_id, after.delay_ms, after.tasks)
    return after


def is_met(kind: AfterKind, ended: JobState) -> bool:
    """Whether a job that ended this way meets the dependency."""
    if kind is _COMPLETED:
        return ended is JobState.COMPLETED
    if kind is _FAILED:
        return ended is not JobState.COMPLETED
    return True


def _broken_by(state: State, after: After) -> str:
    job_id = _tally(state, after).failed if after.tasks else after.job_id
    return _broken(after, state.ended_tasks.get(job_id, str(job_id)), state.ends.get(job_id))


def _broken(after: After, label: str, ended: JobState | None) -> str:
    if after.tasks and after.kind is _FAILED:
        return f"all tasks of job {after.job_id} completed, and one was to fail"
    job = f"a task of job {after.job_id}" if after.tasks else f"job {label}"
    how = ended.value if ended is not None else "gone"
    return f"{job} is {how} and was to {'complete' if after.kind is _COMPLETED else 'fail'}"


def _last_start_ms(state: State, after: After) -> int:
    ids = task_ids(after) if after.tasks else (after.job_id,)
    return max([state.jobs[job_id].started_ms for job_id in ids if job_id in state.jobs], default=0)


def _first(record: JobRecord) -> int:
    """The id below which namesakes count: a job waits for those before it, or before the array that it is a task of."""
    return record.job.array_id or record.id


def _tally(state: State, after: After) -> Tally:
    """What is left of an array; counted on first use and kept up to date from then on."""
    tally = state.arrays.get(after.job_id)
    if tally is None:
        tally = state.arrays[after.job_id] = Tally()
        jobs, ends = state.jobs, state.ends
        for job_id in task_ids(after):
            record = jobs.get(job_id)
            if record is not None:
                tally.live += 1
                tally.unstarted += record.attempt == 0
            elif ends.get(job_id, JobState.COMPLETED) is not JobState.COMPLETED:
                tally.failed = job_id
        if tally.live:
            # This entry makes the starts and ends of its tasks update the tally.
            state.dependents.setdefault(after.job_id, {})
        else:
            del state.arrays[after.job_id]
    return tally


def _namesakes(state: State, record: JobRecord) -> Namesakes:
    spec = record.job.spec
    key = (spec.user, spec.name)
    same = state.namesakes.get(key)
    if same is None:
        alike = [r.id for r in state.jobs.values() if r.job.spec.name == spec.name]
        user = spec.user
        same = Namesakes(deque(sorted([i for i in alike if state.jobs[i].job.spec.user == user])))
        state.namesakes[key] = same
    return same


# -- starts and ends --------------------------------------------------------------------------------------------------


def note_start(state: State, record: JobRecord) -> list[JobRecord]:
    """A job has started; return the jobs that have nothing left to wait for."""
    job_id, array_id = record.id, record.job.array_id
    ready: list[JobRecord] = []
    edges = state.dependents.get(job_id)
    if edges is not None:
        for waiting_id in sorted(edges):
            kept = [after for after in edges[waiting_id] if after.kind is not _STARTED]
            if len(kept) < len(edges[waiting_id]):
                _settle(state, waiting_id, [a for a in edges[waiting_id] if a.kind is _STARTED], "", ready)
                edges[waiting_id] = kept
    tally = state.arrays.get(array_id) if array_id and record.attempt == 1 else None
    if tally is not None:
        tally.unstarted -= 1
        if not tally.unstarted:
            _all_started(state, array_id, tally, ready)
    return sorted(ready, key=lambda found: found.id)


def note_end(state: State, record: JobRecord) -> list[JobRecord]:
    """A job has ended; return the jobs that have nothing left to wait for."""
    ends = state.ends
    ends[record.id] = record.state
    if record.job.array_id:
        state.ended_tasks[record.id] = record.job.label
    if len(ends) > 2 * REMEMBERED_MAX:
        for job_id in sorted(ends)[:REMEMBERED_MAX]:
            del ends[job_id]
            state.ended_tasks.pop(job_id, None)
    if not state.dependents:
        return []
    ready: list[JobRecord] = []
    edges = state.dependents.pop(record.id, None)
    for waiting_id in sorted(edges or ()):
        assert edges is not None
        good, broken = [], ""
        for after in edges[waiting_id]:
            if is_met(after.kind, record.state):
                good.append(after)
            elif _drop(state, waiting_id, after):
                broken = broken or _broken(after, record.job.label, record.state)
        _settle(state, waiting_id, good, broken, ready)
    tally = state.arrays.get(record.job.array_id) if record.job.array_id else None
    if tally is not None:
        _task_ended(state, record, tally, ready)
    if state.namesakes:
        _heed_name(state, (record.job.spec.user, record.job.spec.name), ready)
    return sorted(ready, key=lambda found: found.id)


def _settle(state: State, waiting_id: int, good: list[After], broken: str, ready: list[JobRecord]) -> None:
    """Some dependencies of a job are met (`good`), or one that was just dropped can no longer be (`broken`)."""
    record = state.jobs.get(waiting_id)
    if record is None or not (good or broken):
        return
    state.touch(record)
    pending, done = record.pending, False
    for after in good:
        if after in pending:
            del pending[after]
            done = True
            if after.kind is _STARTED and after.delay_ms:
                record.begin_ms = max(record.begin_ms, _delayed_ms(state, after))
    one = record.job.spec.after_one
    if one and done:
        pending.clear()
    if broken and not (one and (done or pending)):
        doom(state, record, broken)
    elif done and not pending and not record.doomed:
        ready.append(record)


def _delayed_ms(state: State, after: After) -> int:
    """A delay counts from a start; a job that ended without a start delays nothing."""
    other = state.jobs.get(after.job_id)
    return state.now_ms + after.delay_ms if after.tasks or other is not None else 0


def _drop(state: State, waiting_id: int, after: After) -> bool:
    """Drop a dependency that can no longer be met; False if the job no longer had it."""
    record = state.jobs.get(waiting_id)
    if record is None or after not in record.pending:
        return False
    del record.pending[after]
    state.touch(record)
    return True


def _all_started(state: State, array_id: int, tally: Tally, ready: list[JobRecord]) -> None:
    edges = state.dependents.get(array_id, {})
    for waiting_id in tally.at_start:
        good = [after for after in edges.get(waiting_id, ()) if after.kind is _STARTED]
        if good:
            edges[waiting_id] = [after for after in edges[waiting_id] if after.kind is not _STARTED]
            _settle(state, waiting_id, good, "", ready)
    tally.at_start.clear()


def _task_ended(state: State, record: JobRecord, tally: Tally, ready: list[JobRecord]) -> None:
    array_id = record.job.array_id
    edges = state.dependents.get(array_id, {})
    tally.live -= 1
    if record.state is not JobState.COMPLETED:
        tally.failed = max(tally.failed, record.id)
        for waiting_id in tally.at_failure:
            _heed_failure(state, waiting_id, edges, record, ready)
        tally.at_failure.clear()
    if record.attempt == 0:
        tally.unstarted -= 1
        if not tally.unstarted:
            _all_started(state, array_id, tally, ready)
    if tally.live:
        return
    state.arrays.pop(array_id, None)
    state.dependents.pop(array_id, None)
    for waiting_id in sorted(edges):
        lost = [
            after for after in edges[waiting_id] if after.kind is _FAILED and _drop(state, waiting_id, after)
        ]
        broken = _broken(lost[0], record.job.label, record.state) if lost else ""
        good = [after for after in edges[waiting_id] if after.kind is not _FAILED]
        _settle(state, waiting_id, good, broken, ready)


def _heed_failure(
    state: State, waiting_id: int, edges: dict[int, list[After]], record: JobRecord, ready: list[JobRecord]
) -> None:
    """The first task of an array has failed: `afterok` is broken, and `afternotok` waits for the others to end."""
    waiting = state.jobs.get(waiting_id)
    if waiting is None or waiting_id not in edges:
        return
    kept, broken = [], ""
    for after in edges[waiting_id]:
        if after.kind is _COMPLETED:
            if _drop(state, waiting_id, after):
                broken = broken or _broken(after, record.job.label, record.state)
        elif after.kind is _FAILED and after in waiting.pending:
            del waiting.pending[after]
            state.touch(waiting)
            settled = After(_ENDED, after.job_id, after.delay_ms, after.tasks)
            if settled not in waiting.pending:
                waiting.pending[settled] = None
                kept.append(settled)
        else:
            kept.append(after)
    edges[waiting_id] = kept
    _settle(state, waiting_id, [], broken, ready)


def _heed_name(state: State, key: tuple[str, str], ready: list[JobRecord]) -> None:
    """A job has left a user's name: those that waited for it may have nothing left to wait for."""
    same = state.namesakes.get(key)
    if same is None:
        return
    first_live = same.first_live(state.jobs)
    edges = state.dependents.get(0, {})
    while same.waiting:
        waiting = state.jobs.get(same.waiting[0])
        if waiting is not None and first_live < _first(waiting):
            break
        waiting_id = same.waiting.popleft()
        _settle(state, waiting_id, edges.pop(waiting_id, []), "", ready)
    if not same.waiting:
        del state.namesakes[key]
    if not edges:
        state.dependents.pop(0, None)
