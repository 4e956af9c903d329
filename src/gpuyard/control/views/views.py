"""What the yard looks like: one job, pages of jobs, the queue in order, the nodes.

Live jobs come from the replica, ended ones from the history. Nothing here changes anything. The queue is built for ten
thousand waiting jobs: rows, not mappings, and the reason of each from the last plan, not from an explanation.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any

from gpuyard.control.access.rights import ALL, Sight
from gpuyard.control.duties.retention import ENVIRONMENTS, SCRIPTS, removed_text
from gpuyard.control.reading.model import Said, no_reason
from gpuyard.control.reading.overview import make_overview
from gpuyard.control.reading.plain_views import (
    array_limit,
    ended_job_view,
    live_job_view,
    live_task_view,
    read_files,
    read_recipe,
    read_tries,
)
from gpuyard.control.reading.publisher import NodesReading, Publisher
from gpuyard.control.refusals import Impossible, NotFound, Refusal, Removed
from gpuyard.control.replica.labels import Label, find_foreign, find_live, match_ended, parse_label, row_label
from gpuyard.control.replica.questions import QuestionContext, QuestionRunner, Think
from gpuyard.control.replica.replica import Replica
from gpuyard.control.views.explanations import unknown_job, why_view
from gpuyard.control.views.queue_list import EVERYTHING, OWN_MAX, PIECE, Filter, QueueList
from gpuyard.control.views.request_again import rebuild_request
from gpuyard.core.estimate.estimate import estimate
from gpuyard.errors import quote, suggest
from gpuyard.model import Ask, JobSpec, JobState, Node, Settings, Whole
from gpuyard.model.jobs import FIRST_EXTERNAL_ID, newest_first
from gpuyard.model.serialise import from_plain
from gpuyard.model.units import NO_LIMIT_MS
from gpuyard.store import HistoryQuery, HistoryRow, Removal
from gpuyard.wire.endpoints import PAGE_MAX
from gpuyard.wire.job_fields import ARRAY_TASKS_MAX
from gpuyard.wire.replies.fleet import NodesReply, OverviewReply, ScriptNamesReply
from gpuyard.wire.replies.jobs import (
    ArrayReply,
    ExplainedReply,
    JobView,
    ListedJob,
    OneJob,
    RecipeReply,
    RemovedReply,
    RequestReply,
    Standing,
    TaskReply,
)

JUDGED_MAX = 2000
"""With more live jobs than these a job is shown with what is true of one pass; `yard why` takes time to judge it."""

NEAR_MAX = 20
"""A job at most this far back in line is shown with its expected start."""

LIVE_STATES = frozenset(state.value for state in JobState if not state.ended)
ENDED_STATES = frozenset(state.value for state in JobState if state.ended)


class Views:
    """Readings of the replica and the history."""

    def __init__(
        self,
        replica: Replica,
        now_ms: Callable[[], int],
        said: Said = no_reason,
        late: Said = no_reason,
        think: Think | None = None,
    ) -> None:
        self._replica = replica
        self._think = think or QuestionRunner(replica)
        self._now_ms = now_ms
        self.reading = Publisher(replica, late, said)
        """What is published of the replica: lists take it from there, without a lock."""
        self.fleet = NodesReading(replica)
        """The same of the nodes."""
        self.queue_piece = PIECE
        """Rows of a list that are made at one go."""

    def drop_unread(self) -> None:
        """Forget what was published if nobody has read it for long."""
        self.reading.drop_unread()
        self.fleet.drop_unread()

    # -- one job -------------------------------------------------------------------------------------------------

    def job(
        self, label: Label, *, explained: bool = False, brief: bool = False, sight: Sight = ALL
    ) -> JobView:
        """A job, live or ended; an array as the sum of its tasks.

        Brief: without its reasons and earlier tries, for callers that poll.

        One that is out of sight is not found, in the same words as one that never was.
        """
        view = self._job(label, explained, brief, sight)
        if view is None or not sight.sees(view["tenant"]):
            raise unknown_job(label)
        if not brief and "array" not in view:
            view["tries"] = read_tries(self._replica.store, view, self._ended)
        return view

    def _job(self, label: Label, explained: bool, brief: bool, sight: Sight) -> JobView | None:
        model, store = self.reading.latest(), self._replica.store
        nodes = model.nodes
        found = [row for row in find_live(model, label) if sight.sees(row.job.spec.tenant)]
        if len(found) == 1 and (found[0].job.label == str(label) or found[0].id == label.id):
            (row,) = found
            reason = "" if brief else model.reason(row)
            view = live_job_view(nodes, row.record, reason, row.waits_for)
            if not explained:
                return view
            view["files"] = read_files(store, row.job.spec.recipe)
            # Beside the replica, for it takes longer than the replica should be locked.
            now_ms = max(self._now_ms(), model.now_ms)
            outlook = self._think(_outlook, view["id"], now_ms, sight)
            if outlook is not None:
                view["ahead"] = outlook["ahead"]
                view["why"] = outlook["blockers"]
                view["expected_start_ms"] = outlook["start"]["at_ms"]
                view["how"] = outlook["start"]["how"]
                view["helps"] = [f"{each['text']} ({each['flags']})" for each in outlook["helps"]]
            return view
        # An array's common fields are shown once, and each task has those that differ.
        found.sort(key=lambda row: row.job.array_index)
        whole = [live_job_view(nodes, row.record, "", row.waits_for) for row in found[:1]]
        tasks = [(row.job.array_index, live_task_view(nodes, row.record)) for row in found[1:]]
        if label.index is not None:
            rows = self._replica.store.history.of_array(label.id, label.index - 1, 1)
            if rows and rows[0].array_index == label.index:
                return self._ended(find_foreign(self._replica.store, label) or rows[0], explained)
            return None
        ended = match_ended(label, store.history.find(label.id)) or find_foreign(store, label)
        if ended is not None:
            return self._ended(ended, explained)
        whole += [ended_job_view(self._nodes, row) for row in self._array_rows(label.id)]
        return _array(label.id, whole, tasks) if whole else None

    def _ended(self, row: HistoryRow, explained: bool = False) -> OneJob:
        view = ended_job_view(self._nodes, row)
        recipe = row.detail.get("spec", {}).get("recipe", "") if explained else ""
        if recipe:
            view["files"] = read_files(self._replica.store, recipe)
        removed: dict[str, RemovedReply] = dict(row.detail.get("removed", {}))
        if recipe:
            removed |= self._recipe_removed(recipe, read_recipe(self._replica.store, recipe))
        if removed:
            view["removed"] = removed
        return view

    @property
    def _nodes(self) -> Sequence[Node]:
        """Needs no lock: there are only ever more of them, and their names stay."""
        return self._replica.state.nodes.node

    def ends(self, labels: Sequence[Label], sight: Sight = ALL) -> dict[Label, Refusal]:
        """Why nothing can be asked of jobs that are not live any more: they have ended, or never were.

        However many there are, the history is asked three times.
        """
        store = self._replica.store
        whole = [label.id for label in labels if label.index is None]
        rows = store.history.find_all(whole)
        tasks = store.history.at_places(
            [(label.id, label.index or 0) for label in labels if label.id not in rows]
        )
        arrays = store.history.states_of_arrays([array_id for array_id in whole if array_id not in rows])
        found: dict[Label, Refusal] = {}
        for label in labels:
            ended = _end_of(label, rows, tasks, arrays)
            found[label] = unknown_job(label)
            if ended is not None and sight.sees(ended[0]):
                _tenant, name, state = ended
                found[label] = Impossible(
                    f"job {name} has ended already: {state}", f"`yard show {name}` tells how."
                )
        return found

    def _recipe_removed(self, name: str, found: Mapping[str, Any]) -> dict[str, RemovedReply]:
        """What is no longer kept of how a job was run."""
        if "env_removed" in found:
            return {ENVIRONMENTS: found["env_removed"]}
        gone = self._replica.store.removals.recipe_removal(name) if name and not found else None
        return {} if gone is None else {SCRIPTS: {"at_ms": gone.at_ms, "by": gone.by}}

    def check_kept(self, label: str, removed: Mapping[str, RemovedReply], what: str) -> None:
        """Refuse to show what was removed of a job, and say when it was."""
        gone = removed.get(what)
        if gone is not None:
            raise Removed(
                f"the {what.removesuffix('s')} of job {label} "
                + removed_text(what, Removal(**gone), self._replica.state.settings.retention),
                "Files that a job names itself (--stdout) are never removed." if what != SCRIPTS else "",
            )

    def _array_rows(self, array_id: int) -> Iterator[HistoryRow]:
        after = -1
        for _page in range(ARRAY_TASKS_MAX // PAGE_MAX + 1):
            rows = self._replica.store.history.of_array(array_id, after, PAGE_MAX)
            yield from rows
            if len(rows) < PAGE_MAX:
                return
            after = rows[-1].array_index

    def brief(self, label: Label, sight: Sight = ALL) -> OneJob:
        """One job without its reasons and earlier tries; raises for an array."""
        view = self.job(label, brief=True, sight=sight)
        if "array" in view:
            raise NotFound(f"{label} is an array", f"Name one of its tasks, for example {label}_0.")
        return view

    def attempt(self, label: Label, sight: Sight = ALL) -> tuple[int, int, str, str]:
        """Id and number of the current attempt of one job, its owner and its tenant."""
        view = self.brief(label, sight)
        return view["id"], view["attempts"], view["user"], view["tenant"]

    def recipe(self, label: Label, sight: Sight = ALL) -> tuple[OneJob, RecipeReply]:
        """One job, briefly, and how it is run: its command or script, its folder and its environment."""
        view = self.brief(label, sight)
        name = self._submitted(view["id"])[0].recipe
        found = read_recipe(self._replica.store, name)
        removed = self._recipe_removed(name, found)
        self.check_kept(view["label"], removed, SCRIPTS)
        told: RecipeReply = {
            "command": list(found.get("argv") or ()),
            "script": str(found.get("script") or ""),
            "cwd": str(found.get("cwd") or ""),
            "stdout": str(found.get("stdout") or ""),
            "stderr": str(found.get("stderr") or ""),
            "env": found.get("env") or {},
        }
        return view, {**told, "removed": removed} if removed else told

    def request(self, label: Label, sight: Sight = ALL) -> tuple[JobView, RequestReply]:
        """One job or array, briefly, and the request that would submit it again."""
        view = self.job(label, brief=True, sight=sight)
        tasks = view["jobs"] if "array" in view else []
        # The last task of an array tells how many may run at a time.
        job_id = max([task["id"] for task in tasks], default=view["id"])
        spec, limit_ms = self._submitted(job_id)
        found = read_recipe(self._replica.store, spec.recipe)
        removed = self._recipe_removed(spec.recipe, found)
        self.check_kept(view["label"], removed, SCRIPTS)
        if not found:
            raise NotFound(
                f"job {label} was not submitted here", "The scheduler that runs it knows what it runs."
            )
        indices = sorted([parse_label(task["label"]).index or 0 for task in tasks])
        at_a_time = array_limit(job_id, label.id, spec.after) if tasks else 0
        told: RequestReply = {"request": rebuild_request(spec, limit_ms, found, indices, at_a_time)}
        return view, {**told, "removed": removed} if removed else told

    def _submitted(self, job_id: int) -> tuple[JobSpec, int]:
        """What a job asked for, live or ended, and its time limit; 0: that of its class."""
        row = self.reading.latest().jobs.get(job_id)
        if row is not None:
            return row.job.spec, row.job.limit_ms
        ended = self._replica.store.history.find(job_id)
        plain = ended.detail.get("spec") if ended is not None else None
        if ended is None or not plain:
            return JobSpec("", Ask(Whole(0))), 0
        limit_ms = ended.detail.get("limit_ms", NO_LIMIT_MS)
        return from_plain(JobSpec, plain), 0 if limit_ms >= NO_LIMIT_MS else limit_ms

    def standing(self, job_id: int) -> Standing:
        """How a job stands, for `yard run` and others that wait for it: why, its place in line, its start if near.

        From the plan that the queue is shown with, for it is asked again and again.
        """
        replica, model = self._replica, self.reading.latest()
        row = model.jobs.get(job_id)
        if row is None:
            return {}
        record, now_ms = row.record, max(self._now_ms(), model.now_ms)
        place = model.order.places.get(job_id) if record.phase is None and not row.aside else None
        by_ms = None
        if place is not None and place < NEAR_MAX:
            with replica.lock:
                # A few bookings, and the state is only read: those further back are not told a time.
                waits = replica.state.jobs.get(job_id)
                if waits is not None and waits.phase is None:
                    by_ms = estimate(replica.state, replica.policy, now_ms, waits).at_ms
        return {
            "state": record.state.value,
            "label": record.job.label,
            "reason": model.reason(row, place),
            "place": None if place is None else place + 1,
            "starts_by_ms": by_ms if by_ms is None or by_ms >= now_ms else None,
            "nodes": [model.nodes[grant.node].name for grant in record.grants],
            "submitted_ms": record.job.submitted_ms,
            "now_ms": now_ms,
        }

    # -- many jobs -----------------------------------------------------------------------------------------------

    def jobs(self, wanted: Filter, before_id: int | None, limit: int) -> tuple[list[ListedJob], int | None]:
        """A page of jobs, live and ended, newest id first, and where the next page begins (None: there is none)."""
        found: dict[int, ListedJob] = {}
        if not wanted.states or wanted.states & LIVE_STATES:
            found = {view["id"]: view for view in self._live_page(wanted, before_id, limit + 1)}
        # Read after the replica: a job that ends in between is found twice, never not at all.
        if not wanted.states or wanted.states & ENDED_STATES:
            for view in self._ended_page(wanted, before_id, limit + 1):
                found[view["id"]] = view
        ids = sorted(found, key=newest_first)
        page = [found[job_id] for job_id in ids[:limit]]
        return page, ids[limit - 1] if len(ids) > limit else None

    def _live_page(self, wanted: Filter, before_id: int | None, limit: int) -> list[ListedJob]:
        model = self.reading.latest(listing=True)
        page: list[ListedJob] = []
        for row in model.jobs.newest_first(before_id):
            if wanted.live(row.record):
                page.append(live_job_view(model.nodes, row.record, model.reason(row), row.waits_for))
                if len(page) == limit:
                    break
        return page

    def _ended_page(self, wanted: Filter, before_id: int | None, limit: int) -> list[ListedJob]:
        rows = self._replica.store.history.search(_query(wanted, before_id, limit))
        return [ended_job_view(self._nodes, row) for row in rows]

    def history(
        self, wanted: Filter, since_ms: int | None, before_id: int | None, limit: int
    ) -> tuple[list[ListedJob], int | None]:
        """A page of ended jobs, newest id first."""
        rows = self._replica.store.history.search(
            _query(wanted, before_id, min(limit + 1, PAGE_MAX), since_ms=since_ms)
        )
        page: list[ListedJob] = [ended_job_view(self._nodes, row) for row in rows[:limit]]
        more = len(rows) > limit or (limit >= PAGE_MAX and len(rows) == PAGE_MAX)
        return page, page[-1]["id"] if more and page else None

    def queue(
        self, wanted: Filter = EVERYTHING, limit: int | None = None, *, wide: bool = False
    ) -> QueueList:
        """Live jobs: those that run, then those that wait in the order of the scheduler, then those set aside.

        Wide: with the columns that only Slurm's commands show.
        """
        model = self.reading.latest(listing=True, user=wanted.user)
        if wanted.cluster:
            check_cluster(wanted.cluster, {node.cluster for node in model.nodes})
        own = self.reading.own(wanted.user, OWN_MAX) if wanted.user else None
        return QueueList(model, own, wanted, limit, wide, self._now_ms(), self.queue_piece)

    # -- nodes ---------------------------------------------------------------------------------------------------

    def nodes(self, sight: Sight = ALL, cluster: str = "") -> NodesReply:
        """The fleet, or the nodes of one cluster, and what scripts call pools, tenants and classes; of tenants only
        what is in sight.
        """
        found = self.fleet.latest()
        rows = list(found.views)
        if cluster:
            check_cluster(cluster, {node["cluster"] for node in rows})
            rows = [node for node in rows if node["cluster"] == cluster]
        return {"nodes": rows, "script_names": _script_names(found.settings, sight)}

    def overview(self, sight: Sight = ALL) -> OverviewReply:
        """GPUs and tenants, for a screen."""
        return make_overview(self.reading.fleet(), self._now_ms(), sight)


def check_cluster(name: str, known: Set[str]) -> None:
    """Raise where there is no such cluster."""
    if name not in known:
        raise NotFound(f"there is no cluster {quote(name)}; {suggest(name, sorted(known), 'clusters')}")


def _script_names(settings: Settings, sight: Sight) -> ScriptNamesReply:
    return {
        "partitions": {name: list(pools) for name, pools in settings.partitions.items()},
        "accounts": {name: path for name, path in settings.accounts.items() if sight.knows(path)},
        "qos": dict(settings.qos),
    }


def _outlook(own: QuestionContext, job_id: int, now_ms: int, sight: Sight) -> ExplainedReply | None:
    """Why it waits, for the view of a job; None: it is gone by now."""
    state, record = own.state, own.state.jobs.get(job_id)
    if record is None:
        return None
    judged = len(state.jobs) <= JUDGED_MAX
    now_ms = max(now_ms, state.now_ms)
    return why_view(state, own.policy, record, now_ms, judged=judged, sight=sight, apart=own.apart)


def _array(array_id: int, whole: Sequence[ListedJob], others: Sequence[tuple[int, TaskReply]]) -> ArrayReply:
    """An array as the sum of its tasks: those that are known with all that a job has, and others with their places."""
    rows = [(each["array_index"] or 0, _task(each)) for each in whole]
    tasks = [task for _index, task in sorted([*rows, *others], key=lambda row: row[0])]
    counts: dict[str, int] = {}
    for task in tasks:
        counts[task["state"]] = counts.get(task["state"], 0) + 1
    first = min(whole, key=lambda each: each["array_index"] or 0)
    alive = [task["state"] for task in tasks if task["state"] in LIVE_STATES]
    bad = [task["state"] for task in tasks if task["state"] != JobState.COMPLETED.value]
    order = (JobState.RUNNING.value, JobState.SUSPENDED.value, JobState.PENDING.value)
    return {
        "id": array_id,
        "label": str(array_id),
        "name": first["name"],
        "tenant": first["tenant"],
        "user": first["user"],
        "class": first["class"],
        "labels": first["labels"],
        "gpus": first["gpus"],
        "submitted": first["submitted"],
        "submitted_ms": first["submitted_ms"],
        "time_limit_s": first["time_limit_s"],
        "array": True,
        "state": next((s for s in order if s in alive), bad[0] if bad else JobState.COMPLETED.value),
        "tasks": len(tasks),
        "states": counts,
        "jobs": tasks,
    }


def _task(job: ListedJob) -> TaskReply:
    return {
        "id": job["id"],
        "label": job["label"],
        "state": job["state"],
        "exit_code": job["exit_code"],
        "nodes": job["nodes"],
        "reason": job["reason"],
    }


def _end_of(
    label: Label,
    rows: Mapping[int, HistoryRow],
    tasks: Mapping[tuple[int, int], Sequence[HistoryRow]],
    arrays: Mapping[int, Sequence[tuple[str, str]]],
) -> tuple[str, str, str] | None:
    """Tenant, name and state of what a label stands for, in the history; None: nothing there has it."""
    row = match_ended(label, rows.get(label.id)) if label.index is None else None
    if row is None:
        there = tasks.get((label.id, label.index or 0), ())
        elsewhere = [each for each in there if each.id >= FIRST_EXTERNAL_ID and row_label(each) == str(label)]
        tries = elsewhere or (there if label.index is not None else ())
        row = max(tries, key=lambda each: each.id, default=None)
    if row is not None:
        return row.tenant, row_label(row), row.state
    states = arrays.get(label.id, ()) if label.index is None else ()
    if not states:
        return None
    first = next((each for each in states if each[1] != JobState.COMPLETED.value), states[0])
    return first[0], str(label), first[1]


def _query(wanted: Filter, before_id: int | None, limit: int, since_ms: int | None = None) -> HistoryQuery:
    """The ended jobs that a filter lets through, newest id first."""
    return HistoryQuery(
        states=sorted(wanted.states & ENDED_STATES),
        tenant=wanted.tenant,
        user=wanted.user,
        name=wanted.name,
        ran=wanted.ran,
        within=wanted.sight.tenants,
        ended_from_ms=since_ms,
        before_id=before_id,
        limit=limit,
    )
