"""Tokens: who may come in over the network."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

LONG = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "tokens",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("hash", sa.Text, nullable=False),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("note", sa.Text, nullable=False),
        sa.Column("made_by", sa.Text, nullable=False),
        sa.Column("made_with", sa.Text, nullable=False),
        sa.Column("created_ms", LONG, nullable=False),
        sa.Column("expires_ms", LONG, nullable=False),
        sa.Column("used_ms", LONG, nullable=False),
        sa.Column("revoked_ms", LONG, nullable=False),
    )
    op.create_index("tokens_made_with", "tokens", ["made_with"])
    op.create_index("tokens_user", "tokens", ["user"])
