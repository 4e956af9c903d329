"""Recipes that lost their environment before the rest."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """The hash under which the rest of a recipe is kept; its own where it had no environment."""
    op.add_column("recipes", sa.Column("bare", sa.Text, nullable=False, server_default=""))
