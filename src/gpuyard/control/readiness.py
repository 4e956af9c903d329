"""Whether a server can do its work, what keeps it from that, and how it stands: the answer of `/readyz`."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from gpuyard.control.clock import Steady
from gpuyard.control.duties.duty import Duties
from gpuyard.control.duties.reserve import Reserve
from gpuyard.control.loop.leading import Leader, LeaderStatus
from gpuyard.control.replica.replica import Replica
from gpuyard.errors import YardError
from gpuyard.wire.replies.people import DUTY_FAILS, ReadyReply

READY_S = 60.0
"""How long the first look at the nodes of a server that starts is waited for."""
SPACE = "space"
"""The reason of a yard whose disk is full."""
CLOCK = "clock"
"""The reason of a yard that is ready: the machine's clock was set, as its notes say."""
STALE_S = 30.0
"""A leader whose last step ended longer ago is not ready."""
NONE_LEADS = (
    "no server leads: nothing starts until one is started on the same store without --no-lead; jobs wait"
)


class _Trouble(NamedTuple):
    """What keeps a server from its work: the kind of it, and a sentence; both empty: nothing."""

    reason: str = ""
    error: str = ""


class Readiness:
    """That of one server. Any thread may ask."""

    def __init__(
        self,
        replica: Replica,
        leader: Leader,
        holder: str,
        stands: bool,
        reserve: Reserve,
        duties: Duties,
        clock: Steady,
        notes: Callable[[], Sequence[str]],
    ) -> None:
        """`holder` is this process's name in the lease; `stands`: whether it may lead at all."""
        self._replica = replica
        self._leader = leader
        self._holder = holder
        self._stands = stands
        self._reserve = reserve
        self._duties = duties
        self._clock = clock
        self._notes = notes

    def __call__(self) -> tuple[bool, ReadyReply]:
        """Whether the server is ready, and the whole answer."""
        standing = self._leader.standing
        since_s = time.monotonic() - standing.step_at_s if standing.step_at_s else None
        leads, holder, trouble = self._who_leads(standing)
        trouble = self._of_disk(trouble)
        alone = not (self._stands or holder or trouble.error)
        if alone and not self._replica.state.nodes.node:
            # Jobs are judged by the nodes, and no server that leads has ever told of any.
            trouble = _Trouble("no leader", NONE_LEADS)
        stale = leads and since_s is not None and since_s > STALE_S
        failing = self._duties.failing()
        ready = not trouble.error and not stale and ((leads and standing.steps > 0) or bool(holder) or alone)
        if ready:
            reason = CLOCK if self._clock.note else failing_reason(failing)
        else:
            reason = trouble.reason or ("stands still" if stale else "starting")
        return ready, {
            "ready": ready,
            "role": "leader" if leads else "follower",
            "reason": reason,
            "leader": holder or None,
            "epoch": standing.epoch or None,
            "error": trouble.error or ("the loop stands still" if stale else None),
            "troubles": list(standing.troubles),
            "difference": standing.difference,
            "steps": standing.steps,
            "step_ms_p50": _percentile_ms(standing.step_s, 50),
            "step_ms_p99": _percentile_ms(standing.step_s, 99),
            "decide_ms_p50": _percentile_ms(standing.decide_s, 50),
            "decide_ms_p99": _percentile_ms(standing.decide_s, 99),
            "last_step_s_ago": round(since_s, 3) if since_s is not None else None,
            "events": self._replica.seq,
            "duties": [f"{name}: {why}" for name, why in failing.items()],
            "store": self._replica.store.place,
            "notes": [*self._notes(), *([NONE_LEADS] if alone else [])],
        }

    def _who_leads(self, standing: LeaderStatus) -> tuple[bool, str, _Trouble]:
        """Whether this process leads, which other one does, and what is wrong with the loop or the store."""
        store, holder, leads = self._replica.store, "", standing.leads
        trouble = _Trouble("fault" if standing.error else "", standing.error)
        try:
            if leads:
                # A process that was frozen finds out at its next step; the store knows already.
                leads = store.counters().epoch == standing.epoch
        except YardError as error:
            trouble = _or_store(trouble, error)
        try:
            if not leads:
                found = store.who_leads()
                # A process that was elected a moment ago has not looked at its nodes yet.
                holder = str(found) if found and found.pid and found.name != self._holder else ""
        except YardError as error:
            trouble = _or_store(trouble, error)
        return leads, holder, trouble

    def _of_disk(self, trouble: _Trouble) -> _Trouble:
        """A full disk, and a damaged store before all."""
        self._reserve.look()
        if self._reserve.low:
            # Perhaps nothing was written since it filled up: the next write would fail.
            trouble = _Trouble(SPACE, trouble.error or self._reserve.low)
        if (damage := self._replica.store.damage) is not None:
            text = f"{damage.message}: nothing is accepted or started. {damage.hint}"
            trouble = _Trouble("damaged", text)
        return trouble


def is_up(how: ReadyReply) -> bool:
    """Whether a server does what it can: it is ready, none decides yet, as its notes say, or its disk is full."""
    return how["ready"] or NONE_LEADS in how["notes"] or (how["reason"] == SPACE and how["steps"] > 0)


def failing_reason(duties: Mapping[str, str]) -> str | None:
    """The reason of a server that is ready and has duties that fail; None: it has none."""
    return f"{DUTY_FAILS}{', '.join(duties)}" if duties else None


def _or_store(trouble: _Trouble, error: YardError) -> _Trouble:
    return _Trouble(trouble.reason or "store", trouble.error or error.message)


def _percentile_ms(seconds: list[float], percent: int) -> float | None:
    if not seconds:
        return None
    return round(1000 * sorted(seconds)[len(seconds) * percent // 100], 3)
