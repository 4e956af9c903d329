"""The first tables: the log, its counters, snapshots, blobs, idempotency keys, history."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

LONG = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Make all of them, with the one row of counters."""
    _log_tables()
    _side_tables()
    _history_table()
    op.execute("INSERT INTO counters (id, next_seq, next_job_id, epoch) VALUES (1, 1, 1, 0)")


def _log_tables() -> None:
    op.create_table(
        "events",
        sa.Column("seq", LONG, primary_key=True, autoincrement=False),
        sa.Column("at_ms", LONG, nullable=False),
        sa.Column("epoch", LONG, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("version", sa.SmallInteger, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
    )
    op.create_index("events_at_ms", "events", ["at_ms", "seq"])
    op.create_table(
        "counters",
        sa.Column("id", sa.SmallInteger, primary_key=True, autoincrement=False),
        sa.Column("next_seq", LONG, nullable=False),
        sa.Column("next_job_id", LONG, nullable=False),
        sa.Column("epoch", LONG, nullable=False),
    )


def _side_tables() -> None:
    op.create_table(
        "snapshots",
        sa.Column("seq", LONG, primary_key=True, autoincrement=False),
        sa.Column("made_ms", LONG, nullable=False),
        sa.Column("code_version", sa.Text, nullable=False),
        sa.Column("checksum", sa.Text, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "blobs",
        sa.Column("hash", sa.Text, primary_key=True),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("created_ms", LONG, nullable=False),
    )
    op.create_table(
        "idempotency",
        sa.Column("owner", sa.Text, primary_key=True),
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("request_hash", sa.Text, nullable=False),
        sa.Column("reply", sa.Text, nullable=False),
        sa.Column("at_ms", LONG, nullable=False),
    )
    op.create_index("idempotency_at_ms", "idempotency", ["at_ms"])
    op.create_table(
        "meta",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )


def _history_table() -> None:
    op.create_table(
        "history",
        sa.Column("id", LONG, primary_key=True, autoincrement=False),
        sa.Column("array_id", LONG, nullable=False),
        sa.Column("array_index", LONG, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("klass", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("gpus_milli", LONG, nullable=False),
        sa.Column("submitted_ms", LONG, nullable=False),
        sa.Column("started_ms", LONG, nullable=False),
        sa.Column("ended_ms", LONG, nullable=False),
        sa.Column("attempts", LONG, nullable=False),
        sa.Column("preemptions", LONG, nullable=False),
        sa.Column("exit_code", LONG, nullable=False),
        sa.Column("why", sa.Text, nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
    )
    op.create_index("history_array", "history", ["array_id", "array_index"])
    op.create_index("history_ended_ms", "history", ["ended_ms"])
    op.create_index("history_state", "history", ["state", "id"])
    op.create_index("history_tenant", "history", ["tenant", "id"])
    op.create_index("history_user", "history", ["user", "id"])
