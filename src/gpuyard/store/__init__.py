"""The truth on disk: the event log, and what is derived from it.

`open_store` gives a `Store` over SQLite (a path) or PostgreSQL (a URL). Nothing above knows which it is.
"""

from gpuyard.store.backend.base import Counters
from gpuyard.store.backend.leader import Lease, LeaseHolder
from gpuyard.store.backend.sqlite import allocate, measure_part
from gpuyard.store.codec import CODEC, Codec
from gpuyard.store.errors import (
    Conflict,
    Fenced,
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnreachable,
)
from gpuyard.store.log import Commit, Numbered
from gpuyard.store.removals import Ended, Mark, OldRecipe, Removal
from gpuyard.store.snapshots import Snapshot, pack_state
from gpuyard.store.store import Store, open_store
from gpuyard.store.submissions import Accepted, Idempotency, NamedBlobs, Submission
from gpuyard.store.tables.bound import BoundTable
from gpuyard.store.tables.configs import CONFIG_ROWS, ConfigVersion, VersionCause, hash_text
from gpuyard.store.tables.following import Cursor
from gpuyard.store.tables.history import HISTORY_ROWS, HistoryQuery, HistoryRow
from gpuyard.store.tables.tokens import TokenRow
from gpuyard.store.tables.tries import TRY_ROWS, TryRow

__all__ = [
    "CODEC",
    "CONFIG_ROWS",
    "HISTORY_ROWS",
    "TRY_ROWS",
    "Accepted",
    "BoundTable",
    "Codec",
    "Commit",
    "ConfigVersion",
    "Conflict",
    "Counters",
    "Cursor",
    "Ended",
    "Fenced",
    "HistoryQuery",
    "HistoryRow",
    "Idempotency",
    "Lease",
    "LeaseHolder",
    "Mark",
    "NamedBlobs",
    "Numbered",
    "OldRecipe",
    "Removal",
    "Snapshot",
    "Store",
    "StoreBusy",
    "StoreDamaged",
    "StoreError",
    "StoreFull",
    "StoreReadOnly",
    "StoreUnreachable",
    "Submission",
    "TokenRow",
    "TryRow",
    "VersionCause",
    "allocate",
    "hash_text",
    "measure_part",
    "open_store",
    "pack_state",
]
