"""Versions of the configuration."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0001"

LONG = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """A table of them; the first start writes the first."""
    op.create_table(
        "configs",
        sa.Column("version", LONG, primary_key=True, autoincrement=False),
        sa.Column("at_ms", LONG, nullable=False),
        sa.Column("by", sa.Text, nullable=False),
        sa.Column("how", sa.Text, nullable=False),
        sa.Column("hash", sa.Text, nullable=False),
        sa.Column("restores", LONG, nullable=False),
    )
