"""Projections that follow the log: their rows, how far each has come, and what it was at some events."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0008"
down_revision = "0007"

LONG = sa.BigInteger().with_variant(sa.Integer, "sqlite")
BYTEWISE = sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")


def upgrade() -> None:
    """Tables for all of them. They are filled from the log by the server that leads."""
    op.create_table(
        "projections",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("version", LONG, nullable=False),
        sa.Column("began_seq", LONG, nullable=False),
        sa.Column("seq", LONG, nullable=False),
        sa.Column("moved_ms", LONG, nullable=False),
    )
    op.create_table(
        "projected",
        sa.Column("projection", sa.Text, primary_key=True),
        sa.Column("key", BYTEWISE, primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )
    op.create_table(
        "checkpoints",
        sa.Column("projection", sa.Text, primary_key=True),
        sa.Column("seq", LONG, primary_key=True, autoincrement=False),
        sa.Column("version", LONG, primary_key=True, autoincrement=False),
        sa.Column("began_seq", LONG, nullable=False),
        sa.Column("made_ms", LONG, nullable=False),
        sa.Column("checksum", sa.Text, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
