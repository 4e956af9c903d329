"""Brings the tables of a store to what this release expects, when it is opened.

All steps run in one transaction that also takes a lock, so two processes that open a new store at once do not make
its tables twice, and a step that fails leaves everything as it was. A store whose tables are newer than this
release is left alone.
"""

import base64
import secrets
import threading
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, func, insert, select

from gpuyard import __version__
from gpuyard.errors import BadInput
from gpuyard.store.errors import StoreError
from gpuyard.store.schema import META

_one_at_a_time = threading.Lock()
"""Alembic keeps what it is working on in a global variable."""

_FOLDER = Path(__file__).parent / "migrations"
_LOCK_KEY = 0x67707579_61726421
"""A number of our own among the advisory locks of a PostgreSQL database."""


def yard_there(conn: Connection, place: str) -> str:
    """The name of the yard that a store holds; raises unless its tables are those of this release. Changes nothing."""
    head = ScriptDirectory.from_config(_config(conn)).get_current_head()
    present = MigrationContext.configure(conn).get_current_revision()
    if present is None:
        raise BadInput(f"{place} holds no yard", "Name the store of a yard: a file, or a URL.")
    if present != head:
        writer = conn.scalar(select(META.c.value).where(META.c.name == "code_version"))
        raise StoreError(
            f"{place} has tables of version {present}, made by gpuyard {writer}; gpuyard {__version__} has {head}",
            "Copy it with the release that made it, or start a yard of this release on it once.",
        )
    return str(conn.scalar(select(META.c.value).where(META.c.name == "yard")))


def _config(conn: Connection) -> Config:
    config = Config(attributes={"connection": conn})
    config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    return config


def migrate(conn: Connection, place: str) -> str:
    """Make or update the tables; gives the yard's own name. Runs in the caller's transaction."""
    if conn.dialect.name == "postgresql":
        conn.execute(select(func.pg_advisory_xact_lock(_LOCK_KEY)))
    config = _config(conn)
    # Only the newest step is asked for, and Alembic reads every file for that; a store has few.
    scripts = ScriptDirectory.from_config(config)
    known = {script.revision for script in scripts.walk_revisions()}
    present = MigrationContext.configure(conn).get_current_revision()
    if present is not None and present not in known:
        writer = conn.scalar(select(META.c.value).where(META.c.name == "code_version"))
        raise StoreError(
            f"{place} has tables of version {present}, made by gpuyard {writer}; "
            f"gpuyard {__version__} knows them up to {scripts.get_current_head()}",
            "Start the newer release, or restore the backup that was made before the update.",
        )
    if present != scripts.get_current_head():
        with _one_at_a_time:
            command.upgrade(config, "head")
        _put(conn, "code_version", __version__)
        _put(conn, "schema_version", str(scripts.get_current_head()))
    yard = conn.scalar(select(META.c.value).where(META.c.name == "yard"))
    if yard is None:
        yard = base64.b32encode(secrets.token_bytes(5)).decode("ascii").lower()
        _put(conn, "yard", yard)
    return str(yard)


def _put(conn: Connection, name: str, value: str) -> None:
    conn.execute(META.delete().where(META.c.name == name))
    conn.execute(insert(META).values(name=name, value=value))
