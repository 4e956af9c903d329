"""Why a job waits, now or at a time that is past, and the tenants' shares: worked out beside the replica, not in it.

Lifts are tried out on a state apart from the replica, which takes longer than anyone should wait for it (see
`control/replica/questions.py`). The past is the log folded to that time; settings and policy are in the log too.
"""

import re
from collections.abc import Callable
from typing import Any

from gpuyard.control.access.rights import ALL, Sight
from gpuyard.control.clock import time_text
from gpuyard.control.reading.model import Said, no_reason
from gpuyard.control.reading.plain_views import caps_view, find_last_try, gpus_number
from gpuyard.control.refusals import NotFound, Unacceptable, unknown_tenant
from gpuyard.control.replica.labels import Label, find_foreign, find_live, match_ended, row_label
from gpuyard.control.replica.questions import QuestionContext, QuestionRunner, Think
from gpuyard.control.replica.replica import Replica
from gpuyard.control.wording import help_fields, help_flags, help_text, remedies_text
from gpuyard.core import Policy, State, apply, explain, explain_why, load
from gpuyard.core.explain.budget_use import behind_text
from gpuyard.core.explain.quota_reasons import mask_names
from gpuyard.core.explain.share import Amount, TenantShare, position_text, share
from gpuyard.core.explain.what_if import Sandbox
from gpuyard.core.jobs.records import JobRecord
from gpuyard.model import Lift, Reason, Ticked
from gpuyard.model.serialise import to_plain
from gpuyard.policies.registry import build
from gpuyard.quantities import span_words
from gpuyard.store import HistoryRow, Store, StoreDamaged
from gpuyard.wire.replies.jobs import BlockerReply, ExplainedHead, ExplainedReply
from gpuyard.wire.replies.tenants import AmountReply, ShareHead, ShareReply, TenantShareReply

_FUTURE_MS = 2000
"""Clocks are never quite alike: a time so little ahead is now."""


class Explained:
    """Answers that take thought."""

    def __init__(
        self,
        replica: Replica,
        now_ms: Callable[[], int],
        said: Said = no_reason,
        think: Think | None = None,
        said_by: Said = no_reason,
    ) -> None:
        """`said`: why a job waits, in the words of the scheduler that decides; `said_by`: what that is called."""
        self._replica = replica
        self._think = think or QuestionRunner(replica)
        self._now_ms = now_ms
        self._said = said
        self._said_by = said_by

    # -- why -----------------------------------------------------------------------------------------------------

    def why(self, label: Label, at_ms: int | None = None, sight: Sight = ALL) -> ExplainedReply:
        """Why a job waits; of an array, why the first task that waits does. One out of sight is not found."""
        if at_ms is not None:
            return self._past(label, at_ms, sight)
        replica = self._replica
        with replica.lock:
            replica.catch_up()
            now_ms = max(self._now_ms(), replica.state.now_ms)
            record = _one(replica.state, label, sight)
            if record is not None and record.phase is not None:
                return why_view(replica.state, replica.policy, record, now_ms, sight=sight)
            if record is not None and record.job.spec.elsewhere:
                return self._with_words(_elsewhere(record, now_ms), record)
        if record is not None:
            found = self._think(_why, record.id, now_ms, sight)
            if found is not None:
                return self._with_words(self._told(*found), record)
            # It has ended between the two looks.
        row = self._ended(label, sight)
        if row is None:
            raise unknown_job(label)
        return _ended_view(row, now_ms)

    def _with_words(self, found: ExplainedReply, record: JobRecord) -> ExplainedReply:
        """The same, with what the scheduler says that decides."""
        found["said"] = self._said(record)
        found["said_by"] = self._said_by(record) if found["said"] else ""
        return found

    def _told(self, found: ExplainedReply, attempt: int) -> ExplainedReply:
        """The same, with why the try before ended."""
        if attempt:
            found["last_try"] = find_last_try(self._replica.store, found["job"], attempt)
        return found

    def _past(self, label: Label, at_ms: int, sight: Sight) -> ExplainedReply:
        row = self._ended(label, sight)
        with self._replica.lock:
            self._replica.catch_up()
            known = _one(self._replica.state, label, sight)
            submitted_ms = known.job.submitted_ms if known is not None else row.submitted_ms if row else None
        if submitted_ms is None:
            # Checked first: a person must not learn from the answer when a job out of their sight existed.
            raise unknown_job(label)
        now_ms = self._now_ms()
        if at_ms > now_ms + _FUTURE_MS:
            raise Unacceptable(
                f"{time_text(at_ms)} is in the future: what will be is not in the log",
                f"`yard why {label}` tells when it is expected to start.",
            )
        found, at_ms = self._think(_why_then, label, at_ms, sight)
        if found is not None:
            return self._told(*found)
        if submitted_ms > at_ms:
            raise Unacceptable(
                f"job {label} was not there at {time_text(at_ms)}: it was submitted at {time_text(submitted_ms)}",
                "Ask for a later time.",
            )
        if row is None:
            # It has ended between the two looks.
            row = self._ended(label, sight)
        assert row is not None
        return _ended_view(row, at_ms)

    def _ended(self, label: Label, sight: Sight) -> HistoryRow | None:
        store = self._replica.store
        found = None
        if label.index is None:
            found = match_ended(label, store.history.find(label.id)) or find_foreign(store, label)
        if found is None:
            # A task; of an array that has ended, its first.
            rows = store.history.of_array(label.id, -1 if label.index is None else label.index - 1, 1)
            found = rows[0] if rows and label.index in (None, rows[0].array_index) else None
        return found if found is not None and sight.sees(found.tenant) else None

    # -- shares --------------------------------------------------------------------------------------------------

    def share(self, tenant: str = "", sight: Sight = ALL) -> ShareReply:
        """The tenant tree, or a tenant with all above and below it, as far as the person may see it."""
        now_ms = max(self._now_ms(), self._replica.state.now_ms)
        head, every = self._think(_share, now_ms)
        rows = [row for row in every if sight.knows(row.path)]
        if tenant:
            if tenant not in {row.path for row in rows}:
                raise unknown_tenant(tenant, [row.path for row in rows])
            rows = [
                row
                for row in rows
                if f"{row.path}/".startswith(f"{tenant}/")
                or not row.path
                or f"{tenant}/".startswith(f"{row.path}/")
            ]
        return {**head, "tenants": [_share_view(row) for row in rows]}


def unknown_job(label: Label) -> NotFound:
    """The same words for one that is out of sight and one that never was."""
    return NotFound(f"there is no job {label}", "`yard queue` and `yard history` list what there is.")


def _one(state: State, label: Label, sight: Sight) -> JobRecord | None:
    """The live job of a label; of an array the first task that waits, else the first."""
    records = [record for record in find_live(state, label) if sight.sees(record.job.spec.tenant)]
    waiting = [record for record in records if record.phase is None]
    return next(iter(waiting or records), None)


def _why(own: QuestionContext, job_id: int, now_ms: int, sight: Sight) -> tuple[ExplainedReply, int] | None:
    """Why a job waits, and its last try, which has ended (0: there is none); None: it is gone."""
    record = own.state.jobs.get(job_id)
    if record is None:
        return None
    now_ms = max(now_ms, own.state.now_ms)
    found = why_view(own.state, own.policy, record, now_ms, sight=sight, apart=own.apart, spoilt=True)
    return found, record.attempt if record.phase is None else 0


def _why_then(
    own: QuestionContext, label: Label, at_ms: int, sight: Sight
) -> tuple[tuple[ExplainedReply, int] | None, int]:
    """Why a job waited at a time that is past, and that time as the log has it; None: it was not there."""
    state = _folded(own.store(), at_ms)
    at_ms = max(at_ms, state.now_ms)
    record = _one(state, label, sight)
    if record is None:
        return None, at_ms
    return _why(
        QuestionContext(state, build(state.settings.policy), own.store), record.id, at_ms, sight
    ), at_ms


def _folded(store: Store, at_ms: int) -> State:
    """The log up to a time."""
    seq = store.seq_at(at_ms)
    if not seq:
        raise Unacceptable(
            f"the log does not reach back to {time_text(at_ms)}",
            "Either the yard was not there yet, or that part of its log was pruned.",
        )
    try:
        found = store.snapshots.latest(seq)
        state, done = (load(found.plain), found.seq) if found is not None else (State(), 0)
        while done < seq:
            for number, event in store.read(done, until_seq=seq):
                apply(state, event)
                done = number
    except StoreDamaged as damage:
        raise Unacceptable(
            f"what happened before {time_text(at_ms)} cannot be folded any more: {damage.message}",
            "That part of the log was pruned. Ask for a later time.",
        ) from damage
    return state


def _share(own: QuestionContext, now_ms: int) -> tuple[ShareHead, list[TenantShare]]:
    """The whole tenant tree, and what it goes by."""
    state, policy, now_ms = own.state, own.policy, max(now_ms, own.state.now_ms)
    if now_ms >= state.tenants.due_ms:
        # A period has closed that no event has told of yet.
        apply(state, Ticked(now_ms))
    head: ShareHead = {
        "at_ms": now_ms,
        "policy": policy.spec.name,
        "fair": policy.order.fair,
        "half_life_ms": state.settings.half_life_ms,
        "period_ms": state.settings.period_ms,
    }
    return head, share(state, policy, now_ms)


def why_view(
    state: State,
    policy: Policy,
    record: JobRecord,
    now_ms: int,
    *,
    judged: bool = True,
    sight: Sight = ALL,
    apart: Sandbox | None = None,
    spoilt: bool = False,
) -> ExplainedReply:
    """Everything that is known about why a live job waits. The state is the caller's own, and may be spoilt if told so.

    Not judged: what is true of one pass, without copies, for a quick answer. Of others' jobs it has ids alone, and
    only the tenants that the person may see.
    """
    where = _position(state, policy, record, now_ms) if record.phase is None else ""
    if judged:
        found = explain_why(state, policy, record.id, now_ms, apart, spoilt=spoilt)
    else:
        found = explain(state, policy, record.id, now_ms)
    assert found is not None
    return {
        **_head(record.id, record.job.label, record.job.spec.tenant, found.state.value, now_ms),
        "ahead": found.ahead,
        "waiting": found.waiting,
        "position": where,
        "blockers": [_reason(mask_reason(reason, sight)) for reason in found.reasons],
        "also": [_reason(mask_reason(reason, sight)) for reason in found.implied],
        "judged": found.judged,
        "left_out": found.left_out,
        "start": {"at_ms": found.start_ms, "how": found.how},
        "helps": [
            {"text": help_text(each), "flags": help_flags(each), "fields": help_fields(each)}
            for each in found.helps
        ],
    }


def _position(state: State, policy: Policy, record: JobRecord, now_ms: int) -> str:
    """Why it stands where it does, where that is not its age alone."""
    if policy.spec.quotas and (behind := behind_text(state, record, now_ms)):
        return behind
    if record.moved_by:
        return f"moved to the top of the queue by {record.moved_by}"
    if record.line_ms != record.job.submitted_ms:
        return f"in its line as if submitted at {time_text(record.line_ms)}{_changed_text(record)}"
    return position_text(state, record) if policy.order.fair else ""


def _changed_text(record: JobRecord) -> str:
    """Why it stands elsewhere in its line than its submission has it."""
    asked = ["it asked for more then"] if record.joined_ms else []
    later_ms = record.nice_ms
    asked += [f"put {span_words(abs(later_ms))} {'later' if later_ms > 0 else 'earlier'}"] if later_ms else []
    return f": {', and '.join(asked)}"


def mask_reason(reason: Reason, sight: Sight) -> Reason:
    """A reason as someone may read it."""
    return reason if sight.whole else mask_names(reason)


def _reason(reason: Reason) -> BlockerReply:
    return {
        "code": reason.code.name,
        "by": reason.by,
        "text": reason.text,
        "lifted_by": remedies_text(reason.lifted_by),
        "lift": _lift(reason.lift),
    }


def _lift(lift: Lift | None) -> dict[str, Any] | None:
    """A lift as its kind and its fields: `{"kind": "raise_limit", "tenant": ...}`."""
    if lift is None:
        return None
    kind = re.sub(r"(?<!^)(?=[A-Z])", "_", type(lift).__name__).lower()
    plain: Any = to_plain(lift)
    return {"kind": kind, **plain}


def _head(job_id: int, label: str, tenant: str, state: str, at_ms: int) -> ExplainedHead:
    return {
        "job": job_id,
        "label": label,
        "tenant": tenant,
        "state": state,
        "at_ms": at_ms,
        "said": "",
        "said_by": "",
        "last_try": None,
    }


def _elsewhere(record: JobRecord, at_ms: int) -> ExplainedReply:
    """A job that waits in a cluster which schedules itself: the yard neither starts it nor knows when that will be."""
    job = record.job
    head = _head(record.id, job.label, job.spec.tenant, record.state.value, at_ms)
    return _nothing(head, "it waits in a cluster that schedules itself")


def _ended_view(row: HistoryRow, at_ms: int) -> ExplainedReply:
    """A job that has nothing to wait for any more."""
    head = _head(row.id, row_label(row), row.tenant, row.state, at_ms)
    return _nothing(head, _ended_how(row, at_ms), row.started_ms)


def _nothing(head: ExplainedHead, how: str, started_ms: int = 0) -> ExplainedReply:
    """That nothing of the yard is in a job's way."""
    return {
        **head,
        "ahead": 0,
        "waiting": 0,
        "position": "",
        "blockers": [],
        "also": [],
        "judged": True,
        "left_out": 0,
        "start": {"at_ms": started_ms or None, "how": how},
        "helps": [],
    }


def _ended_how(row: HistoryRow, at_ms: int) -> str:
    """When it ended and why, as the history has it."""
    ran = (
        f" and had run for {span_words(row.ended_ms - row.started_ms)}"
        if row.started_ms
        else " and never ran"
    )
    ended = f"it ended {span_words(max(0, at_ms - row.ended_ms))} ago{ran}"
    return f"{ended}: {row.why}" if row.why else ended


def _share_view(row: TenantShare) -> TenantShareReply:
    return {
        "path": row.path,
        "depth": row.depth,
        "weight": row.weight,
        "weights": row.weights,
        "share_ppm": row.share_ppm,
        "yard_ppm": row.yard_ppm,
        "usage_milli_usd": row.usage_milli_usd,
        "current_milli_usd": row.current_milli_usd,
        "siblings_milli_usd": row.siblings_milli_usd,
        "used_ppm": row.used_ppm,
        "fair_key": row.fair_key,
        "place": row.place,
        "members": row.members,
        "running": row.running,
        "waiting": row.waiting,
        "amounts": {amount.model: _amount(amount) for amount in row.amounts},
        **caps_view(row.caps),
    }


def _amount(amount: Amount) -> AmountReply:
    """In GPUs, for people and programs alike."""
    limit, borrow = amount.limit, amount.borrow
    return {
        "used": gpus_number(amount.used),
        "guarantee": gpus_number(amount.guarantee),
        "limit": None if limit is None else gpus_number(limit),
        "borrow": None if borrow is None else gpus_number(borrow),
        "borrowed": gpus_number(amount.borrowed),
        "lendable": gpus_number(amount.lendable),
        "lent": gpus_number(amount.lent),
        "exposure": gpus_number(amount.exposure),
    }
