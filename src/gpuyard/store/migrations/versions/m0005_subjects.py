"""Who logged in, by the identity provider's own name for them."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """A column of the tokens. Logins from before there was one bind no name."""
    op.add_column("tokens", sa.Column("subject", sa.Text, nullable=False, server_default=""))
