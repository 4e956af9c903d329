"""Forgets how jobs that ended a while ago were run. The log and the history stay.

Many jobs may share a recipe, and only the history knows which; to search it for each recipe would take too long. So
each removal first notes the last end per recipe (not when a job ends), and removes a recipe when the last of its jobs
ended long enough ago and no live job has it. The log is locked meanwhile: a submission of the same recipe comes either
before, and the recipe stays, or after, and brings it along.
"""

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, case, delete, exists, insert, or_, select, true, update
from sqlalchemy.dialects import postgresql, sqlite

from gpuyard.store.backend.access import Locks
from gpuyard.store.log import EventLog
from gpuyard.store.schema import BLOBS, HISTORY, META, RECIPES

_CURSORS = "removals"
"""The row of `meta` that says how far the ends of jobs have been processed."""

Mark = tuple[int, int]
"""When a job ended, and its id: the order in which jobs ended."""


class Ended(NamedTuple):
    """A job that ended, as far as removals need it."""

    id: int
    submitted_ms: int
    ended_ms: int
    attempts: int
    detail: dict[str, Any]

    @property
    def mark(self) -> Mark:
        """Its place among ended jobs."""
        return self.ended_ms, self.id

    @property
    def recipe(self) -> str:
        """The hash of how it was run; empty: it had none."""
        return str(self.detail.get("spec", {}).get("recipe", ""))


class Removal(NamedTuple):
    """When something was removed, and by whom."""

    at_ms: int
    by: str


class OldRecipe(NamedTuple):
    """A recipe of jobs that all ended a while ago."""

    hash: str
    ended_ms: int
    size: int
    """In bytes."""
    needed: bool
    """Whether a live job still has it."""


def _noted(statement: Any) -> Any:
    """Insert, or note a later end: then the recipe was submitted again, and is there."""
    new, old = statement.excluded, RECIPES.c
    later = new.ended_ms > old.ended_ms
    return statement.on_conflict_do_update(
        index_elements=["hash"],
        set_={
            "ended_ms": case((later, new.ended_ms), else_=old.ended_ms),
            "removed_ms": case((later, 0), else_=old.removed_ms),
            "removed_by": case((later, ""), else_=old.removed_by),
        },
    )


_NOTED = {"sqlite": _noted(sqlite.insert(RECIPES)), "postgresql": _noted(postgresql.insert(RECIPES))}


class Removals:
    """What one store has forgotten of its jobs, and how it forgets."""

    def __init__(self, backend: Locks, log: EventLog) -> None:
        self._backend = backend
        self._log = log

    def ended_until(self, until_ms: int, after: Mark, limit: int) -> list[Ended]:
        """Jobs that ended before a time, in that order, after a mark."""
        table = HISTORY.c
        query = (
            select(table.id, table.submitted_ms, table.ended_ms, table.attempts, table.detail)
            .where(table.ended_ms >= after[0], table.ended_ms < until_ms)
            .where(or_(table.ended_ms > after[0], table.id > after[1]))
            .order_by(table.ended_ms, table.id)
            .limit(limit)
        )
        with self._backend.reading() as conn:
            return [Ended(*row[:4], json.loads(row[4])) for row in conn.execute(query)]

    def note_removed(self, jobs: Sequence[Ended], what: str, removal: Removal) -> None:
        """Note in the history that something of these jobs is gone. Before it goes, as a crash may come between."""
        rows = []
        for job in jobs:
            job.detail.setdefault("removed", {})[what] = removal._asdict()
            rows.append({"job_id": job.id, "told": json.dumps(job.detail, separators=(",", ":"))})
        if rows:
            query = (
                update(HISTORY).where(HISTORY.c.id == bindparam("job_id")).values(detail=bindparam("told"))
            )
            with self._backend.writing() as conn:
                conn.execute(query, rows)

    def note_ends(self, ends: Mapping[str, int]) -> None:
        """Note when the last job with each of these recipes ended."""
        rows = [
            {"hash": name, "ended_ms": ended_ms, "removed_ms": 0, "removed_by": "", "bare": ""}
            for name, ended_ms in ends.items()
        ]
        if rows:
            with self._backend.writing() as conn:
                conn.execute(_NOTED[conn.dialect.name], rows)

    def remove_recipes(
        self,
        before_ms: int,
        after: tuple[int, str],
        limit: int,
        needed: Collection[str],
        seq: int,
        removal: Removal | None,
    ) -> list[OldRecipe]:
        """Remove recipes of jobs that ended before a time, but none that a live job has.

        `needed` holds the recipes of jobs that were live at event `seq`; later submissions are looked up with the log
        locked. Without a `removal` nothing is removed.
        """
        with self._backend.writing() as conn:
            needed = self._needed(conn, needed, seq)
            rows = conn.execute(_old(before_ms, after, limit)).all()
            found = [OldRecipe(row.hash, row.ended_ms, len(row.body), row.hash in needed) for row in rows]
            gone = [recipe.hash for recipe in found if not recipe.needed]
            if gone and removal is not None:
                bodies = [name for row in rows if row.hash not in needed for name in (row.hash, row.bare)]
                with _overwritten(conn):
                    conn.execute(delete(BLOBS).where(BLOBS.c.hash.in_(bodies)))
                told = {"removed_ms": removal.at_ms, "removed_by": removal.by, "bare": ""}
                conn.execute(update(RECIPES).where(RECIPES.c.hash.in_(gone)).values(**told))
        return found

    def strip_recipes(
        self,
        before_ms: int,
        after: tuple[int, str],
        limit: int,
        needed: Collection[str],
        seq: int,
        removal: Removal | None,
    ) -> list[OldRecipe]:
        """As `remove_recipes`, but removes the environment alone and keeps the rest under a hash of its own.

        So a later submission of the same recipe brings it along whole. A recipe without an environment has size 0.
        """
        with self._backend.writing() as conn:
            needed = self._needed(conn, needed, seq)
            found = []
            for row in conn.execute(_old(before_ms, after, limit, whole=True)).all():
                recipe = json.loads(row.body)
                env = recipe.get("env") or {}
                size = len(json.dumps(env)) if env else 0
                found.append(OldRecipe(row.hash, row.ended_ms, size, row.hash in needed))
                if row.hash not in needed and removal is not None:
                    if env:
                        with _overwritten(conn):
                            conn.execute(delete(BLOBS).where(BLOBS.c.hash.in_([row.hash, row.bare])))
                    bare = _put_bare(conn, row.hash, recipe, removal) if env else row.hash
                    conn.execute(update(RECIPES).where(RECIPES.c.hash == row.hash).values(bare=bare))
        return found

    def _needed(self, conn: Connection, needed: Collection[str], seq: int) -> Collection[str]:
        """`needed` and the recipes of jobs submitted after `seq`. The log is locked from here on."""
        self._backend.lock_counters(conn)
        return {*needed, *self._log.recipes_after(conn, seq)}

    def bare_recipe(self, name: str) -> bytes | None:
        """What is left of a recipe after its environment was removed."""
        query = select(BLOBS.c.body).join(RECIPES, RECIPES.c.bare == BLOBS.c.hash)
        with self._backend.reading() as conn:
            return conn.scalar(query.where(RECIPES.c.hash == name))

    def recipe_removal(self, name: str) -> Removal | None:
        """When a recipe was removed; None: it was not, or it was submitted again."""
        there = exists().where(BLOBS.c.hash == name)
        query = select(RECIPES.c.removed_ms, RECIPES.c.removed_by).where(
            RECIPES.c.hash == name, RECIPES.c.removed_ms > 0, ~there
        )
        with self._backend.reading() as conn:
            row = conn.execute(query).first()
        return None if row is None else Removal(*row)

    def marks(self) -> dict[str, Mark]:
        """How far the ends of jobs were looked at, by what for."""
        with self._backend.reading() as conn:
            text = conn.scalar(select(META.c.value).where(META.c.name == _CURSORS))
        return {what: (mark[0], mark[1]) for what, mark in json.loads(text or "{}").items()}

    def put_marks(self, marks: Mapping[str, Mark]) -> None:
        """Remember how far."""
        with self._backend.writing() as conn:
            conn.execute(delete(META).where(META.c.name == _CURSORS))
            conn.execute(insert(META).values(name=_CURSORS, value=json.dumps(marks)))


@contextmanager
def _overwritten(conn: Connection) -> Iterator[None]:
    """Overwrite what is deleted, for it may be secret: SQLite would leave it in its file until it needs the space."""
    ours = conn.dialect.name == "sqlite"
    if ours:
        conn.exec_driver_sql("PRAGMA secure_delete = ON")
    yield
    if ours:
        conn.exec_driver_sql("PRAGMA secure_delete = OFF")


def _put_bare(conn: Connection, name: str, recipe: dict[str, Any], removal: Removal) -> str:
    """Keep a recipe without its environment; gives the hash, which no other recipe shares."""
    left = {**recipe, "env": {}, "env_removed": removal._asdict(), "of": name}
    body = json.dumps(left, separators=(",", ":")).encode()
    bare = hashlib.sha256(body).hexdigest()
    conn.execute(insert(BLOBS).values(hash=bare, body=body, created_ms=removal.at_ms))
    return bare


def _old(before_ms: int, after: tuple[int, str], limit: int, *, whole: bool = False) -> Any:
    """Recipes by the last end of a job with them; `whole`: only recipes that may still have an environment."""
    table = RECIPES.c
    kept = table.hash if whole else case((table.bare == "", table.hash), else_=table.bare)
    return (
        select(table.hash, table.ended_ms, table.bare, BLOBS.c.body)
        .join(BLOBS, BLOBS.c.hash == kept)
        .where(table.bare != table.hash if whole else true())
        .where(table.removed_ms == 0, table.ended_ms >= after[0], table.ended_ms < before_ms)
        .where(or_(table.ended_ms > after[0], table.hash > after[1]))
        .order_by(table.ended_ms, table.hash)
        .limit(limit)
    )
