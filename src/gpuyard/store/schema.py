"""The tables, once, for both dialects. A new store gets them as they are here, an older one by the steps in
`migrations`; a test keeps the two equal.

Times are milliseconds since 1970 and every integer has 64 bits. Texts that come from people and are only kept, not
searched, are inside JSON, which has no trouble with any character.
"""

from sqlalchemy import (
    BigInteger,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
)
from sqlalchemy.dialects import postgresql

METADATA = MetaData()

# SQLite makes a column the row's own key, without a second index, only if its type is exactly INTEGER.
LONG = BigInteger().with_variant(Integer, "sqlite")

EVENTS = Table(
    "events",
    METADATA,
    Column("seq", LONG, primary_key=True, autoincrement=False),
    Column("at_ms", LONG, nullable=False),
    Column("epoch", LONG, nullable=False),
    Column("kind", Text, nullable=False),
    Column("version", SmallInteger, nullable=False),
    Column("body", Text, nullable=False),
    Index("events_at_ms", "at_ms", "seq"),
)

COUNTERS = Table(
    "counters",
    METADATA,
    Column("id", SmallInteger, primary_key=True, autoincrement=False),
    Column("next_seq", LONG, nullable=False),
    Column("next_job_id", LONG, nullable=False),
    Column("epoch", LONG, nullable=False),
)

SNAPSHOTS = Table(
    "snapshots",
    METADATA,
    Column("seq", LONG, primary_key=True, autoincrement=False),
    Column("made_ms", LONG, nullable=False),
    Column("code_version", Text, nullable=False),
    Column("checksum", Text, nullable=False),
    Column("body", LargeBinary, nullable=False),
)

BLOBS = Table(
    "blobs",
    METADATA,
    Column("hash", Text, primary_key=True),
    Column("body", LargeBinary, nullable=False),
    Column("created_ms", LONG, nullable=False),
)

RECIPES = Table(
    "recipes",
    METADATA,
    Column("hash", Text, primary_key=True),
    Column("ended_ms", LONG, nullable=False),
    Column("removed_ms", LONG, nullable=False),
    Column("removed_by", Text, nullable=False),
    Column("bare", Text, nullable=False, server_default=""),
    Index("recipes_ended_ms", "ended_ms", "hash"),
)

IDEMPOTENCY = Table(
    "idempotency",
    METADATA,
    Column("owner", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("request_hash", Text, nullable=False),
    Column("reply", Text, nullable=False),
    Column("at_ms", LONG, nullable=False),
    Index("idempotency_at_ms", "at_ms"),
)

HISTORY = Table(
    "history",
    METADATA,
    Column("id", LONG, primary_key=True, autoincrement=False),
    Column("array_id", LONG, nullable=False),
    Column("array_index", LONG, nullable=False),
    Column("name", Text, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("user", Text, nullable=False),
    Column("klass", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("gpus_milli", LONG, nullable=False),
    Column("submitted_ms", LONG, nullable=False),
    Column("started_ms", LONG, nullable=False),
    Column("ended_ms", LONG, nullable=False),
    Column("attempts", LONG, nullable=False),
    Column("preemptions", LONG, nullable=False),
    Column("exit_code", LONG, nullable=False),
    Column("why", Text, nullable=False),
    Column("detail", Text, nullable=False),
    Index("history_array", "array_id", "array_index"),
    Index("history_ended_ms", "ended_ms"),
    Index("history_state", "state", "id"),
    Index("history_tenant", "tenant", "id"),
    Index("history_user", "user", "id"),
)

TRIES = Table(
    "tries",
    METADATA,
    Column("job_id", LONG, primary_key=True, autoincrement=False),
    Column("attempt", LONG, primary_key=True, autoincrement=False),
    Column("started_ms", LONG, nullable=False),
    Column("ended_ms", LONG, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("exit_code", LONG, nullable=False),
    Column("why", Text, nullable=False),
    Column("detail", Text, nullable=False),
)

CONFIGS = Table(
    "configs",
    METADATA,
    Column("version", LONG, primary_key=True, autoincrement=False),
    Column("at_ms", LONG, nullable=False),
    Column("by", Text, nullable=False),
    Column("how", Text, nullable=False),
    Column("hash", Text, nullable=False),
    Column("restores", LONG, nullable=False),
)

TOKENS = Table(
    "tokens",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("hash", Text, nullable=False),
    Column("user", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("note", Text, nullable=False),
    Column("made_by", Text, nullable=False),
    Column("made_with", Text, nullable=False),
    Column("created_ms", LONG, nullable=False),
    Column("expires_ms", LONG, nullable=False),
    Column("used_ms", LONG, nullable=False),
    Column("revoked_ms", LONG, nullable=False),
    Column("subject", Text, nullable=False, server_default=""),
    Index("tokens_made_with", "made_with"),
    Index("tokens_user", "user"),
)

META = Table(
    "meta",
    METADATA,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
)

BYTEWISE = Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")
"""Sorted byte by byte in both databases, so that a page of keys with one prefix is a walk along the index."""

PROJECTIONS = Table(
    "projections",
    METADATA,
    Column("name", Text, primary_key=True),
    Column("version", LONG, nullable=False),
    Column("began_seq", LONG, nullable=False),
    Column("seq", LONG, nullable=False),
    Column("moved_ms", LONG, nullable=False),
)

PROJECTED = Table(
    "projected",
    METADATA,
    Column("projection", Text, primary_key=True),
    Column("key", BYTEWISE, primary_key=True),
    Column("value", Text, nullable=False),
)

CHECKPOINTS = Table(
    "checkpoints",
    METADATA,
    Column("projection", Text, primary_key=True),
    Column("seq", LONG, primary_key=True, autoincrement=False),
    Column("version", LONG, primary_key=True, autoincrement=False),
    Column("began_seq", LONG, nullable=False),
    Column("made_ms", LONG, nullable=False),
    Column("checksum", Text, nullable=False),
    Column("body", LargeBinary, nullable=False),
)
