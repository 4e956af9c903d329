"""One row for each job that ended, for listings: the log would have to be folded to answer them.

Rows are written in the transaction that ends the job, and can be made again from the log at any time.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

from sqlalchemy import BindParameter, ColumnElement, Select, bindparam, false, func, or_, select, tuple_

from gpuyard.model.jobs import FIRST_EXTERNAL_ID
from gpuyard.model.serialise import Plain
from gpuyard.store.backend.access import Reads
from gpuyard.store.schema import HISTORY
from gpuyard.store.tables.bound import BoundTable, fit_number, kept_text

LIMIT_MAX = 1000
"""Rows on one page at most."""

_COLUMNS = tuple([column.name for column in HISTORY.columns])
_TEXTS = ("name", "tenant", "user", "klass", "state", "why")
_NUMBERS = tuple([name for name in _COLUMNS if name not in (*_TEXTS, "detail")])
_of_row = attrgetter(*_COLUMNS)


ENDED_COLUMNS = ("id", "tenant", "submitted_ms", "started_ms", "ended_ms", "attempts", "detail")
"""What `History.ended_since` gives of a job; the detail is JSON."""
RAN_COLUMNS = ("id", "tenant", "user", "gpus_milli", "submitted_ms", "started_ms", "ended_ms", "detail")
"""What `History.ran_between` gives."""


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """A job that ended."""

    id: int
    name: str
    tenant: str
    user: str
    klass: str
    state: str
    gpus_milli: int
    submitted_ms: int
    started_ms: int
    """Of the last attempt; 0: it never ran."""
    ended_ms: int
    array_id: int = 0
    array_index: int = 0
    attempts: int = 0
    preemptions: int = 0
    exit_code: int = 0
    why: str = ""
    detail: Mapping[str, Plain] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HistoryQuery:
    """Which ended jobs, in the order of `newest_first`. An empty field filters nothing."""

    states: Sequence[str] = ()
    tenant: str = ""
    """With all tenants below it."""
    user: str = ""
    name: str = ""
    array_id: int = 0
    ran: bool = False
    """Without jobs that ended before they ever ran."""
    submitted_from_ms: int | None = None
    submitted_until_ms: int | None = None
    """Not included, like every `until`."""
    ended_from_ms: int | None = None
    ended_until_ms: int | None = None
    before_id: int | None = None
    """The id of the last row of the page before."""
    limit: int = 100
    within: Sequence[str] = ("",)
    """Only jobs at or below one of these tenants; an empty one: all."""


_IDS: BindParameter[Any] = bindparam("ids", expanding=True)
_PLACES: BindParameter[Any] = bindparam("places", expanding=True)
_BY_IDS = select(HISTORY).where(HISTORY.c.id.in_(_IDS))
_BY_PLACES = select(HISTORY).where(tuple_(HISTORY.c.array_id, HISTORY.c.array_index).in_(_PLACES))
_STATES_OF_ARRAYS = (
    select(HISTORY.c.array_id, HISTORY.c.tenant, HISTORY.c.state)
    .where(HISTORY.c.array_id.in_(_IDS))
    .group_by(HISTORY.c.array_id, HISTORY.c.tenant, HISTORY.c.state)
    .order_by(HISTORY.c.array_id, func.min(HISTORY.c.array_index), HISTORY.c.state, HISTORY.c.tenant)
)
"""Made once: they are asked for many ids, piece by piece."""


class History:
    """The ended jobs of one store."""

    def __init__(self, backend: Reads) -> None:
        self._backend = backend

    def find(self, job_id: int) -> HistoryRow | None:
        """One job, if it has ended."""
        rows = self._found(select(HISTORY).where(HISTORY.c.id == job_id))
        return rows[0] if rows else None

    def find_all(self, job_ids: Sequence[int]) -> dict[int, HistoryRow]:
        """The rows of those of these jobs that have ended, by id."""
        return {row.id: row for row in self._found(_BY_IDS, ids=job_ids)}

    def search(self, query: HistoryQuery) -> list[HistoryRow]:
        """A page of ended jobs: the yard's own, then those that other schedulers ran."""
        before_id = query.before_id
        if before_id is not None and before_id > FIRST_EXTERNAL_ID:
            return self._found(_select(query).where(HISTORY.c.id >= FIRST_EXTERNAL_ID))
        own = min(before_id or FIRST_EXTERNAL_ID, FIRST_EXTERNAL_ID)
        found = self._found(_select(replace(query, before_id=own)))
        left = _limited(query.limit) - len(found)
        if left:
            rest = _select(replace(query, before_id=None, limit=left))
            found += self._found(rest.where(HISTORY.c.id >= FIRST_EXTERNAL_ID))
        return found

    def ended_since(
        self,
        from_ms: int,
        before: tuple[int, int] | None = None,
        limit: int = LIMIT_MAX,
        *,
        first_id: int = 0,
    ) -> list[tuple[Any, ...]]:
        """Raw rows (`ENDED_COLUMNS`) of jobs that ended from then on, the last to end first; for large numbers.

        `before` is when the last row of the page before ended, and its id. Jobs below `first_id` are left out.
        """
        table = HISTORY.c
        query = (
            select(*[table[name] for name in ENDED_COLUMNS])
            .where(table.ended_ms >= from_ms, table.id >= first_id)
            .order_by(table.ended_ms.desc(), table.id.desc())
            .limit(limit)
        )
        if before is not None:
            ended_ms, job_id = before
            query = query.where(table.ended_ms <= ended_ms, or_(table.ended_ms < ended_ms, table.id < job_id))
        with self._backend.reading() as conn:
            return [tuple(row) for row in conn.execute(query)]

    def ran_between(self, from_ms: int, until_ms: int) -> list[tuple[Any, ...]]:
        """Raw rows (`RAN_COLUMNS`) of jobs that ended after the first moment and were there before the second."""
        table = HISTORY.c
        query = (
            select(*[table[name] for name in RAN_COLUMNS])
            .where(table.ended_ms > from_ms, table.submitted_ms < until_ms)
            .order_by(table.ended_ms, table.id)
        )
        with self._backend.reading() as conn:
            result = conn.execute(query)
            # As the driver gives them: a value of SQLAlchemy's own for each would take as long as reading them.
            rows = list(result.cursor.fetchall())
            result.close()
            return rows

    def of_array(self, array_id: int, after_index: int = -1, limit: int = LIMIT_MAX) -> list[HistoryRow]:
        """Ended tasks of an array, by index."""
        table = HISTORY.c
        return self._found(
            select(HISTORY)
            .where(table.array_id == array_id, table.array_index > after_index)
            .order_by(table.array_index, table.id)
            .limit(_limited(limit))
        )

    def ends_of_array(self, array_id: int) -> list[tuple[int, int, str, str]]:
        """Id, index, tenant and state of all ended tasks of an array, by index; for large numbers of them."""
        table = HISTORY.c
        query = (
            select(table.id, table.array_index, table.tenant, table.state)
            .where(table.array_id == array_id)
            .order_by(table.array_index, table.id)
        )
        with self._backend.reading() as conn:
            return [(row[0], row[1], row[2], row[3]) for row in conn.execute(query)]

    def at_places(self, places: Sequence[tuple[int, int]]) -> dict[tuple[int, int], list[HistoryRow]]:
        """The ended jobs at these places, each an array and an index in it; of another scheduler's there may be several
        tries.
        """
        found: dict[tuple[int, int], list[HistoryRow]] = {}
        for row in self._found(_BY_PLACES, places=places):
            found.setdefault((row.array_id, row.array_index), []).append(row)
        return found

    def states_of_arrays(self, array_ids: Sequence[int]) -> dict[int, list[tuple[str, str]]]:
        """Tenants and states of the ended tasks of these arrays; each state once, by the first task that has it."""
        found: dict[int, list[tuple[str, str]]] = {}
        with self._backend.reading() as conn:
            for array_id, tenant, state in conn.execute(_STATES_OF_ARRAYS, {"ids": array_ids}):
                found.setdefault(array_id, []).append((tenant, state))
        return found

    def _found(self, query: Select[Any], **values: Sequence[Any]) -> list[HistoryRow]:
        with self._backend.reading() as conn:
            rows = conn.execute(query, values).mappings().all()
        return [HistoryRow(**{**row, "detail": json.loads(row["detail"])}) for row in rows]


class _Details:
    """The JSON of details. Tasks of an array that are cancelled have the same one, thousands of times in a row."""

    def __init__(self) -> None:
        self._last: tuple[dict[str, Plain], str] = ({}, "{}")

    def text(self, detail: Mapping[str, Plain]) -> str:
        """As JSON."""
        same, text = self._last
        if detail != same:
            text = json.dumps(detail, separators=(",", ":"))
            self._last = (dict(detail), text)
        return text


_details = _Details()


def _values(row: HistoryRow) -> dict[str, Any]:
    values = dict(zip(_COLUMNS, _of_row(row), strict=True))
    for name in _TEXTS:
        values[name] = kept_text(values[name])
    for name in _NUMBERS:
        values[name] = fit_number(values[name])
    values["detail"] = _details.text(row.detail)
    return values


HISTORY_ROWS = BoundTable(HISTORY, _values, key=lambda row: row.id)
"""Where a job that ends leaves its row."""


def _select(query: HistoryQuery) -> Select[Any]:
    table = HISTORY.c
    wanted = select(HISTORY).order_by(table.id.desc()).limit(_limited(query.limit))
    if query.states:
        wanted = wanted.where(table.state.in_(query.states))
    if query.tenant:
        wanted = wanted.where(_below(query.tenant))
    if "" not in query.within:
        wanted = wanted.where(or_(false(), *[_below(tenant) for tenant in query.within]))
    for column, value in ((table.user, query.user), (table.name, query.name)):
        if value:
            wanted = wanted.where(column == value)
    if query.array_id:
        wanted = wanted.where(table.array_id == query.array_id)
    if query.ran:
        wanted = wanted.where(table.started_ms > 0)
    for column, start_ms, end_ms in (
        (table.submitted_ms, query.submitted_from_ms, query.submitted_until_ms),
        (table.ended_ms, query.ended_from_ms, query.ended_until_ms),
    ):
        if start_ms is not None:
            wanted = wanted.where(column >= start_ms)
        if end_ms is not None:
            wanted = wanted.where(column < end_ms)
    if query.before_id is not None:
        wanted = wanted.where(table.id < query.before_id)
    return wanted


def _below(tenant: str) -> ColumnElement[bool]:
    """At or below a tenant, by exact letters: SQLite's LIKE would take `Research` for `research`."""
    column = HISTORY.c.tenant
    return or_(column == tenant, func.substr(column, 1, len(tenant) + 1) == tenant + "/")


def _limited(limit: int) -> int:
    return max(1, min(limit, LIMIT_MAX))
