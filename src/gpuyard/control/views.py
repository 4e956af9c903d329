"""What the yard looks like, for whoever asks: one job, pages of jobs, the queue in order, the nodes.

Live jobs come from the books, ended ones from the history. Nothing here changes anything. The queue is built for ten
thousand waiting jobs: rows, not mappings, and the reason of each from the last plan, not from an explanation.
"""

from collections.abc import Callable, Iterator, Sequence

from gpuyard.control.books import Books
from gpuyard.control.explained import Said, no_job, unsaid, why_view
from gpuyard.control.foresight.thought import Beside, Own, Think
from gpuyard.control.labels import ARRAY_TASKS_MAX, Label, live, row_label, seen_elsewhere
from gpuyard.control.overview import overview
from gpuyard.control.plain_views import View, ended_job, live_job, live_task, node_view
from gpuyard.control.queue_list import EVERYTHING, Filter, Owners, QueueList, Reason
from gpuyard.control.queue_rows import NEW_TEXT, REASON_TEXTS, closed_text, running_text, waits_text
from gpuyard.control.refusals import Impossible, NotFound, Refusal, Removed
from gpuyard.control.retention import ENVIRONMENTS, SCRIPTS, removed_text
from gpuyard.control.rights import ALL, Sight
from gpuyard.control.slurm_views import files, recipe_of
from gpuyard.control.tries import tries_of
from gpuyard.core import State
from gpuyard.core.estimate.estimate import estimate
from gpuyard.core.jobs.queue_position import ahead
from gpuyard.core.jobs.records import JobRecord
from gpuyard.model import JobState, ReasonCode
from gpuyard.store import HistoryQuery, HistoryRow, Removal

PAGE_MAX = 1000
JUDGED_MAX = 2000
"""With more live jobs than these a job is shown with what is true of one pass; `yard why` takes time to judge it."""

NEAR_MAX = 20
"""How far back in line a job is told by when it starts, whoever watches it."""

LIVE_STATES = frozenset(state.value for state in JobState if not state.ended)
ENDED_STATES = frozenset(state.value for state in JobState if state.ended)


class Views:
    """Readings of the books and the history."""

    def __init__(
        self,
        books: Books,
        now_ms: Callable[[], int],
        said: Said = unsaid,
        late: Said = unsaid,
        think: Think | None = None,
    ) -> None:
        self._books = books
        self._think = think or Beside(books)
        self._now_ms = now_ms
        self._said = said
        self._late = late
        self._owners = Owners()

    # -- one job -------------------------------------------------------------------------------------------------

    def job(self, label: Label, *, explained: bool = False, brief: bool = False, sight: Sight = ALL) -> View:
        """A job, live or ended; an array as the sum of its tasks.

        Brief: without why it waits and why it ran before, for who asks often.

        One that is out of sight is not found, in the same words as one that never was.
        """
        view = self._job(label, explained, brief, sight)
        if view is None or not sight.sees(view["tenant"]):
            raise no_job(label)
        if not brief and not view.get("array"):
            view["tries"] = tries_of(self._books.store, view, self._ended)
        return view

    def _job(self, label: Label, explained: bool, brief: bool, sight: Sight) -> View | None:
        books = self._books
        told: tuple[View, int] | None = None
        with books.lock:
            books.catch_up()
            state = books.state
            records = [record for record in live(state, label) if sight.sees(record.job.spec.tenant)]
            if len(records) == 1 and (records[0].job.label == str(label) or records[0].id == label.id):
                reason = "" if brief else self._reasons(state)(records[0], None)
                view = live_job(state, records[0], reason)
                if not explained:
                    return view
                view["files"] = files(books.store, records[0].job.spec.recipe)
                told = (view, max(self._now_ms(), state.now_ms))
            # Of an array everything is told once, and of its tasks what differs.
            records.sort(key=lambda record: record.job.array_index)
            tasks = [live_job(state, record, "") for record in records[:1]]
            tasks += [live_task(state, record) for record in records[1:]]
        if told is not None:
            # Beside the books, for it takes longer than they should be locked.
            view, now_ms = told
            return {**view, **self._think(_told, view["id"], now_ms, sight)}
        if label.index is not None:
            rows = self._books.store.array_history(label.id, label.index - 1, 1)
            if rows and rows[0].array_index == label.index:
                return self._ended(seen_elsewhere(self._books.store, label) or rows[0], explained)
            return None
        row = self._books.store.history(label.id) or seen_elsewhere(self._books.store, label)
        if row is not None:
            return self._ended(row, explained)
        tasks += [self._ended(row) for row in self._array_rows(label.id)]
        return _array(label.id, tasks) if tasks else None

    def _ended(self, row: HistoryRow, explained: bool = False) -> View:
        recipe = row.detail.get("spec", {}).get("recipe", "") if explained else ""
        more: View = {"files": files(self._books.store, recipe)} if recipe else {}
        removed = dict(row.detail.get("removed", {}))
        if recipe:
            removed |= self._recipe_removed(recipe, recipe_of(self._books.store, recipe))
        if removed:
            more["removed"] = removed
        with self._books.lock:
            return ended_job(self._books.state, row) | more

    def ends(self, labels: Sequence[Label], sight: Sight = ALL) -> dict[Label, Refusal]:
        """Why nothing can be asked of jobs that are not live any more: they have ended, or never were."""
        rows = self._books.store.histories([label.id for label in labels if label.index is None])
        found: dict[Label, Refusal] = {}
        for label in labels:
            if label in found:
                continue
            row = rows.get(label.id) if label.index is None else None
            if row is not None:
                seen, name, state = sight.sees(row.tenant), row_label(row), row.state
            else:
                try:
                    view = self.job(label, brief=True, sight=sight)
                except NotFound as error:
                    found[label] = error
                    continue
                seen, name, state = True, view["label"], view["state"]
            found[label] = (
                Impossible(f"job {name} has ended already: {state}", f"`yard show {name}` tells how.")
                if seen
                else no_job(label)
            )
        return found

    def _recipe_removed(self, name: str, found: View) -> View:
        """What is no longer kept of how a job was run."""
        if "env_removed" in found:
            return {ENVIRONMENTS: found["env_removed"]}
        gone = self._books.store.recipe_removal(name) if name and not found else None
        return {} if gone is None else {SCRIPTS: gone._asdict()}

    def check_kept(self, view: View, what: str) -> None:
        """Refuse to show what was removed, and say when it was."""
        gone = view.get("removed", {}).get(what)
        if gone is not None:
            raise Removed(
                f"the {what.removesuffix('s')} of job {view['label']} "
                + removed_text(what, Removal(**gone), self._books.state.settings.retention),
                "Files that a job names itself (--stdout) are never removed." if what != SCRIPTS else "",
            )

    def _array_rows(self, array_id: int) -> Iterator[HistoryRow]:
        after = -1
        for _page in range(ARRAY_TASKS_MAX // PAGE_MAX + 1):
            rows = self._books.store.array_history(array_id, after, PAGE_MAX)
            yield from rows
            if len(rows) < PAGE_MAX:
                return
            after = rows[-1].array_index

    def attempt(self, label: Label, sight: Sight = ALL) -> tuple[int, int, str, str]:
        """Id and number of the current attempt of one job, its owner and its tenant."""
        view = self.job(label, brief=True, sight=sight)
        if view.get("array"):
            raise NotFound(f"{label} is an array", f"Name one of its tasks, for example {label}_0.")
        return view["id"], view["attempts"], view["user"], view["tenant"]

    def recipe(self, label: Label, sight: Sight = ALL) -> tuple[View, View]:
        """One job, briefly, and how it is run: its command or script, its folder and its environment."""
        view = self.job(label, brief=True, sight=sight)
        if view.get("array"):
            raise NotFound(f"{label} is an array", f"Name one of its tasks, for example {label}_0.")
        with self._books.lock:
            record = self._books.state.jobs.get(view["id"])
            name = record.job.spec.recipe if record is not None else ""
        if not name:
            row = self._books.store.history(view["id"])
            name = row.detail.get("spec", {}).get("recipe", "") if row is not None else ""
        found = recipe_of(self._books.store, name)
        removed = self._recipe_removed(name, found)
        self.check_kept({**view, "removed": removed}, SCRIPTS)
        told: View = {"removed": removed} if removed else {}
        told |= {key: str(found.get(key) or "") for key in ("script", "cwd", "stdout", "stderr")}
        return view, {"command": list(found.get("argv") or ()), **told, "env": found.get("env") or {}}

    def standing(self, job_id: int) -> View:
        """How a job stands that somebody waits for: why, its place in line, and by when it starts if it is near.

        From the plan that the queue is shown with, for it is asked again and again.
        """
        books = self._books
        with books.lock:
            books.catch_up()
            state = books.state
            record = state.jobs.get(job_id)
            if record is None:
                return {}
            in_line = record.phase is None and job_id not in state.deferred
            place = ahead(state.queue, record) if in_line else None
            reason = self._reasons(state)(record, place)
            now_ms = max(self._now_ms(), state.now_ms)
            # A few bookings, and the state is only read: those further back are not told a time.
            near = place is not None and place < NEAR_MAX
            by_ms = estimate(state, books.policy, now_ms, record).at_ms if near else None
            return {
                "state": record.state.value,
                "label": record.job.label,
                "reason": reason,
                "place": None if place is None else place + 1,
                "starts_by_ms": by_ms if by_ms is None or by_ms >= now_ms else None,
                "nodes": [state.nodes.node[grant.node].name for grant in record.grants],
                "submitted_ms": record.job.submitted_ms,
                "now_ms": now_ms,
            }

    # -- many jobs -----------------------------------------------------------------------------------------------

    def jobs(self, wanted: Filter, before_id: int | None, limit: int) -> tuple[list[View], int | None]:
        """A page of jobs, live and ended, newest id first, and where the next page begins (None: there is none)."""
        found: dict[int, View] = {}
        if not wanted.states or wanted.states & LIVE_STATES:
            found = {view["id"]: view for view in self._live_page(wanted, before_id, limit + 1)}
        # Read after the books: a job that ends in between is found twice, never not at all.
        if not wanted.states or wanted.states & ENDED_STATES:
            for view in self._ended_page(wanted, before_id, limit + 1):
                found[view["id"]] = view
        ids = sorted(found, reverse=True)
        page = [found[job_id] for job_id in ids[:limit]]
        return page, ids[limit - 1] if len(ids) > limit else None

    def _live_page(self, wanted: Filter, before_id: int | None, limit: int) -> list[View]:
        books = self._books
        with books.lock:
            books.catch_up()
            state = books.state
            reasons = self._reasons(state)
            page = []
            # Live jobs stand in the order in which they came.
            for job_id in reversed(state.jobs):
                if before_id is not None and job_id >= before_id:
                    continue
                record = state.jobs[job_id]
                if wanted.live(record):
                    page.append(live_job(state, record, reasons(record, None)))
                    if len(page) == limit:
                        break
            return page

    def _ended_page(self, wanted: Filter, before_id: int | None, limit: int) -> list[View]:
        states = sorted(wanted.states & ENDED_STATES)
        query = HistoryQuery(
            states=states,
            tenant=wanted.tenant,
            user=wanted.user,
            name=wanted.name,
            within=wanted.sight.tenants,
            before_id=before_id,
            limit=limit,
        )
        rows = self._books.store.find_history(query)
        with self._books.lock:
            return [ended_job(self._books.state, row) for row in rows]

    def history(
        self, wanted: Filter, since_ms: int | None, before_id: int | None, limit: int
    ) -> tuple[list[View], int | None]:
        """A page of ended jobs, newest id first."""
        query = HistoryQuery(
            states=sorted(wanted.states & ENDED_STATES),
            tenant=wanted.tenant,
            user=wanted.user,
            name=wanted.name,
            within=wanted.sight.tenants,
            ended_from_ms=since_ms,
            before_id=before_id,
            limit=min(limit + 1, PAGE_MAX),
        )
        rows = self._books.store.find_history(query)
        with self._books.lock:
            page = [ended_job(self._books.state, row) for row in rows[:limit]]
        more = len(rows) > limit or (limit >= PAGE_MAX and len(rows) == PAGE_MAX)
        return page, page[-1]["id"] if more and page else None

    def queue(
        self, wanted: Filter = EVERYTHING, limit: int | None = None, *, wide: bool = False
    ) -> QueueList:
        """Live jobs: those that run, then those that wait in the order of the scheduler, then those set aside.

        Wide: with the columns that only Slurm's commands show.
        """
        return QueueList(self._books, self._reasons, self._owners, wanted, limit, wide, self._now_ms)

    def _reasons(self, state: State) -> Reason:
        """Why each job waits, in a few words, as the last pass of the leader has it. Called with the books locked."""
        judged = self._books.judged
        codes, last_job_id = judged.by_id(), judged.last_job_id
        texts = {int(code): text for code, text in REASON_TEXTS.items()}
        texts[ReasonCode.ROOM] += closed_text(state)
        earmarks, deferred = state.earmarks, state.deferred
        observed = self._said is not unsaid

        def reason(record: JobRecord, place: int | None) -> str:
            if record.phase is not None:
                return self._late(record) or running_text(record)
            if observed and (said := self._said(record)):
                return f"Slurm: {said}"
            if record.id in deferred:
                if record.held:
                    return texts[ReasonCode.HELD]
                if record.pending or record.doomed:
                    return waits_text(record)
                retried = record.begin_ms > record.job.begin_ms
                return "waits to be tried again" if retried else texts[ReasonCode.BEGIN]
            code = codes.get(record.id)
            if code is not None and code != ReasonCode.NOT_EXAMINED:
                return texts[code]
            if record.id in earmarks:
                return texts[ReasonCode.EARMARK]
            if record.id > last_job_id and not observed:
                return NEW_TEXT
            return "in line" if place is None else f"in line, {place} ahead"

        return reason

    # -- nodes ---------------------------------------------------------------------------------------------------

    def nodes(self) -> list[View]:
        """The fleet."""
        with self._books.lock:
            self._books.catch_up()
            state = self._books.state
            return [node_view(state, number) for number in range(len(state.nodes.node))]

    def script_names(self, sight: Sight = ALL) -> View:
        """Names that scripts have for pools, tenants and classes; of tenants only for those that one may know of."""
        with self._books.lock:
            self._books.catch_up()
            settings = self._books.state.settings
        return {
            "partitions": {name: list(pools) for name, pools in settings.partitions.items()},
            "accounts": {name: path for name, path in settings.accounts.items() if sight.knows(path)},
            "qos": dict(settings.qos),
        }

    def overview(self, sight: Sight = ALL) -> View:
        """GPUs and tenants, for a screen."""
        with self._books.lock:
            self._books.catch_up()
            state = self._books.state
            return overview(state, max(self._now_ms(), state.now_ms), sight)


def _told(own: Own, job_id: int, now_ms: int, sight: Sight) -> View:
    """Why it waits, as it stands in the view of a job; nothing if it is gone by now."""
    state, record = own.state, own.state.jobs.get(job_id)
    if record is None:
        return {}
    judged = len(state.jobs) <= JUDGED_MAX
    now_ms = max(now_ms, state.now_ms)
    found = why_view(state, own.policy, record, now_ms, judged=judged, sight=sight, apart=own.apart)
    return {
        "ahead": found["ahead"],
        "why": found["blockers"],
        "expected_start_ms": found["start"]["at_ms"],
        "how": found["start"]["how"],
        "helps": [f"{each['text']} ({each['flags']})" for each in found["helps"]],
    }


def _array(array_id: int, tasks: list[View]) -> View:
    """An array as the sum of its tasks."""
    tasks.sort(key=lambda task: task["array_index"])
    counts: dict[str, int] = {}
    for task in tasks:
        counts[task["state"]] = counts.get(task["state"], 0) + 1
    first = tasks[0]
    alive = [task["state"] for task in tasks if task["state"] in LIVE_STATES]
    bad = [task["state"] for task in tasks if task["state"] != JobState.COMPLETED.value]
    order = (JobState.RUNNING.value, JobState.SUSPENDED.value, JobState.PENDING.value)
    state = next((s for s in order if s in alive), bad[0] if bad else JobState.COMPLETED.value)
    same = ("name", "tenant", "user", "class", "gpus", "submitted", "submitted_ms", "time_limit_s")
    return {
        "id": array_id,
        "label": str(array_id),
        **{name: first[name] for name in same},
        "array": True,
        "state": state,
        "tasks": len(tasks),
        "states": counts,
        "jobs": [
            {name: task[name] for name in ("id", "label", "state", "exit_code", "nodes", "reason")}
            for task in tasks
        ],
    }
