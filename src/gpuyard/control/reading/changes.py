"""What has changed of late: the ids of rows by model, as many as fit, and the changes as text for followers.

A follower is a number: the version that it has. What it lacks is looked up here when it can take more, so a slow one
costs nothing and gets each row once, as it is by then. One that has fallen behind further than is kept here starts
again from a list. Followers with the same sight that stand at the same version share one text.
"""

import json
import os
from collections import deque
from collections.abc import Iterable, Sequence
from threading import Lock
from typing import Any, NamedTuple

from gpuyard.control.access.rights import Sight
from gpuyard.control.reading.model import Model, Order, encode
from gpuyard.control.reading.plain_views import masked_row

IDS_MAX = 50_000
"""Ids that are kept, of all models together."""
MODELS_MAX = 5_000
AT_ONCE_MAX = 5_000
"""Rows that are told in one go: of more a list is cheaper."""
TEXTS_MAX = 64
ORDER_S = 1.0
"""Between two orders that a follower is told, and between two looks for another one: orders are long."""


class Told(NamedTuple):
    """What a follower is told next."""

    version: int
    """What it has then."""
    seq: int
    text: bytes
    """Empty: nothing."""


class ChangeWindow:
    """The last changes of one process. Any thread may ask."""

    def __init__(self, ids_max: int = IDS_MAX) -> None:
        self.ids_max = ids_max
        self.run = os.urandom(3).hex()
        """Of this process: versions, and reasons that change between two events, mean nothing to another."""
        self._lock = Lock()
        self._entries: deque[tuple[int, int, Sequence[int]]] = deque()
        """Version, event and ids."""
        self._ids = 0
        self._floor, self._floor_seq = 0, 0
        """A follower that has this version, or has seen this event, can go on."""
        self._model: Model | None = None
        self._texts: dict[tuple[int, tuple[str, ...]], Told] = {}
        self._ordered: tuple[Order, int] = (Order(), 0)
        """The order that followers were last told, and since which version it is another."""
        self._compared: Model | None = None
        self._compared_s = float("-inf")
        """The model whose order was last compared with it."""
        self._order_text = Told(0, 0, b"")

    # -- filling -------------------------------------------------------------------------------------------------

    def put(self, model: Model, told: Iterable[int] | None) -> None:
        """The next model, and the rows that differ in it; None: nobody knows which."""
        with self._lock:
            if told is None:
                self._entries.clear()
                self._ids, self._floor, self._floor_seq = 0, model.version, model.seq
            elif ids := tuple(told):
                self._entries.append((model.version, model.seq, ids))
                self._ids += len(ids)
                while self._ids > self.ids_max or len(self._entries) > MODELS_MAX:
                    self._floor, seq, gone = self._entries.popleft()
                    self._floor_seq, self._ids = seq + 1, self._ids - len(gone)
            self._texts.clear()
            self._model = model
            if told is None:
                self._ordered = (model.order, model.version)

    def drop(self) -> None:
        """Forget everything: a follower that comes back has to read the list again."""
        with self._lock:
            self._entries.clear()
            self._texts.clear()
            self._ids, self._model = 0, None
            self._ordered, self._order_text = (Order(), 0), Told(0, 0, b"")

    # -- following -----------------------------------------------------------------------------------------------

    def start(self, after: str) -> tuple[int, Model, bool]:
        """Where a follower stands that has seen so much (`SEQ`, or `SEQ-RUN` as it was told), and whether it can go on.

        An empty text: it wants what comes from now on.
        """
        with self._lock:
            model = self._model
            assert model is not None
            if not after:
                return model.version, model, True
            number, _, run = after.partition("-")
            seq = int(number)
            if (run and run != self.run) or not self._floor_seq <= seq <= model.seq:
                return model.version, model, False
            # Those of the same event once more: reasons may have changed after the list was made.
            first = next((version for version, of, _ids in self._entries if of >= seq), model.version + 1)
            return max(self._floor, first - 1), model, True

    def since(self, version: int, sight: Sight) -> Told | None:
        """What a follower lacks; None: more than is kept, or than is told at once."""
        key = (version, sight.tenants)
        with self._lock:
            model, found = self._model, self._texts.get(key)
            assert model is not None
            if found is not None or version >= model.version:
                return found or Told(version, model.seq, b"")
            if version < self._floor:
                return None
            ids: set[int] = set()
            for of, _seq, some in reversed(self._entries):
                if of <= version:
                    break
                ids.update(some)
        if len(ids) > AT_ONCE_MAX:
            return None
        text = changes_text(model, sorted(ids), sight) if ids else b""
        told = Told(model.version, model.seq, text)
        with self._lock:
            if self._model is model and len(self._texts) < TEXTS_MAX:
                self._texts[key] = told
        return told

    def ready(self, version: int, sight: Sight) -> Told | None:
        """The same where that costs nothing: another follower has had it made, or nothing is new; None: it costs."""
        with self._lock:
            if self._model is not None and version >= self._model.version:
                return Told(version, self._model.seq, b"")
            return self._texts.get((version, sight.tenants))

    def order(self, version: int, now_s: float) -> Told:
        """The order for a follower that was told that of a version; empty: it can tell by itself."""
        with self._lock:
            order, since = self._ordered
            model = self._model
            if model is not None and model is not self._compared and now_s - self._compared_s >= ORDER_S:
                # Only now that a follower asks, and once for all of them: it takes a look at all that wait.
                self._compared, self._compared_s = model, now_s
                if model.order is not order and not follows(order, model):
                    order, since = self._ordered = (model.order, model.version)
            if version >= since:
                return Told(version, order.seq, b"")
            if self._order_text[0] != since:
                head = {"seq": order.seq, "waiting": runs(order.waiting), "set_aside": runs(order.aside)}
                self._order_text = Told(since, order.seq, encode(head).encode())
            return self._order_text


def changes_text(model: Model, ids: Sequence[int], sight: Sight) -> bytes:
    """Rows as somebody may see them, and the ids of jobs that have ended."""
    rows, gone = [], []
    for job_id in ids:
        row = model.jobs.get(job_id)
        if row is None:
            gone.append(job_id)
        elif sight.whole or sight.sees(row.job.spec.tenant):
            rows.append(row.text(model.nodes, model.reason(row), model.alike))
        else:
            rows.append(encode(masked_row(row.record, False)))
    counts = f'"running":{model.running},"waiting":{model.waiting},"set_aside":{model.set_aside}'
    text = f'{{"seq":{model.seq},{counts},"rows":[{",".join(rows)}],"gone":{json.dumps(gone)}}}'
    return text.encode("utf-8", "replace")


def follows(order: Order, model: Model) -> bool:
    """Whether a follower that was told one order knows the next by itself.

    It leaves out those that wait no longer, and takes those that it was not told of to wait behind the others.
    """
    known, aside = order.places, frozenset(order.aside)
    get, new = model.jobs.get, model.order

    def kept(ids: Iterable[int], now: frozenset[int]) -> list[int]:
        # Of ten thousand a few are no longer there, and only about these the rows are asked.
        return [i for i in ids if i in now or ((row := get(i)) is not None and row.phase is None)]

    come = sorted([i for i in (*new.waiting, *new.aside) if i not in known and i not in aside])
    waiting = (*kept(order.waiting, frozenset(new.waiting)), *come)
    return waiting == new.waiting and tuple(kept(order.aside, frozenset(new.aside))) == new.aside


def runs(ids: Iterable[int]) -> list[Any]:
    """Ids in order, those that follow one another as the first and the last of them."""
    found: list[Any] = []
    first = last = 0
    for job_id in (*ids, 0):
        if first and job_id == last + 1:
            last = job_id
            continue
        if first:
            found.append([first, last] if last > first else first)
        first = last = job_id
    return found
