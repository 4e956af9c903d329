"""Tries that did not end their job."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

LONG = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """A table of them. Tries from before it exists are in the log alone."""
    op.create_table(
        "tries",
        sa.Column("job_id", LONG, primary_key=True, autoincrement=False),
        sa.Column("attempt", LONG, primary_key=True, autoincrement=False),
        sa.Column("started_ms", LONG, nullable=False),
        sa.Column("ended_ms", LONG, nullable=False),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("exit_code", LONG, nullable=False),
        sa.Column("why", sa.Text, nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
    )
