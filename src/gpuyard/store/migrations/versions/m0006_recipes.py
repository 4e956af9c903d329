"""For each kept recipe, when its last job ended, and when it was removed."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

LONG = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """A table of them. Removing old recipes fills it from the history."""
    op.create_table(
        "recipes",
        sa.Column("hash", sa.Text, primary_key=True),
        sa.Column("ended_ms", LONG, nullable=False),
        sa.Column("removed_ms", LONG, nullable=False),
        sa.Column("removed_by", sa.Text, nullable=False),
    )
    op.create_index("recipes_ended_ms", "recipes", ["ended_ms", "hash"])
