"""Why jobs wait, as the leader last wrote it for the other processes: one text, which the next one replaces."""

from sqlalchemy import delete, insert, select

from gpuyard.store.backend.access import Locks
from gpuyard.store.schema import META

_REASONS = "reasons"


class Reasons:
    """What the leader of one store wrote last."""

    def __init__(self, backend: Locks) -> None:
        self._backend = backend

    def read(self) -> str:
        """What the leader wrote last; empty: nothing yet."""
        with self._backend.reading() as conn:
            return str(conn.scalar(select(META.c.value).where(META.c.name == _REASONS)) or "")

    def put(self, epoch: int, text: str) -> bool:
        """Write the reasons for the other processes, unless the epoch is over."""
        with self._backend.writing() as conn:
            if self._backend.lock_counters(conn).epoch != epoch:
                return False
            conn.execute(delete(META).where(META.c.name == _REASONS))
            conn.execute(insert(META).values(name=_REASONS, value=text))
        return True
