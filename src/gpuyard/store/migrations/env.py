"""Runs the steps on the connection that `migrate.py` hands over, inside its transaction."""

from alembic import context

from gpuyard.store.schema import METADATA

# Both databases roll back changes of tables; Alembic assumes it of PostgreSQL only.
context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
