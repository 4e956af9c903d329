"""Brings the tables of a store to what this release expects, when it is opened.

All steps run in one transaction that also takes a lock, so two processes that open a new store at once do not make
its tables twice, and a step that fails leaves everything as it was. A store with tables newer than this release is
left alone.
"""

import base64
import secrets
import threading
from functools import cache
from importlib.resources import files

from sqlalchemy import Column, Connection, MetaData, String, Table, func, insert, select

from gpuyard import __version__
from gpuyard.errors import BadInput
from gpuyard.store.errors import StoreError
from gpuyard.store.schema import COUNTERS, META, METADATA

_one_at_a_time = threading.Lock()
"""Alembic keeps what it is working on in a global variable."""

_STEPS = files("gpuyard.store") / "migrations"
_LOCK_KEY = 0x67707579_61726421
"""A number of our own among the advisory locks of a PostgreSQL database."""
_VERSION = Table("alembic_version", MetaData(), Column("version_num", String(32), primary_key=True))
"""Where Alembic keeps which step was the last."""


@cache
def steps() -> tuple[str, ...]:
    """The versions of the tables, oldest first: the numbers in the names of the steps."""
    names = sorted(each.name for each in (_STEPS / "versions").iterdir())
    return tuple(name[1:5] for name in names if name.startswith("m0"))


def read_yard_name(conn: Connection, place: str) -> str:
    """The name of the yard that a store holds; raises unless its tables are those of this release. Changes nothing."""
    present = _present(conn)
    if present is None:
        raise BadInput(f"{place} holds no yard", "Name the store of a yard: a file, or a URL.")
    if present != steps()[-1]:
        writer = conn.scalar(select(META.c.value).where(META.c.name == "code_version"))
        raise StoreError(
            f"{place} has tables of version {present}, made by gpuyard {writer}; "
            f"gpuyard {__version__} has {steps()[-1]}",
            "Copy it with the release that made it, or start a yard of this release on it once.",
        )
    return str(conn.scalar(select(META.c.value).where(META.c.name == "yard")))


def migrate(conn: Connection, place: str) -> str:
    """Make or update the tables; gives the yard's own name. Runs in the caller's transaction."""
    if conn.dialect.name == "postgresql":
        conn.execute(select(func.pg_advisory_xact_lock(_LOCK_KEY)))
    present = _present(conn)
    if present is not None and present not in steps():
        writer = conn.scalar(select(META.c.value).where(META.c.name == "code_version"))
        raise StoreError(
            f"{place} has tables of version {present}, made by gpuyard {writer}; "
            f"gpuyard {__version__} knows them up to {steps()[-1]}",
            "Start the newer release, or restore the backup that was made before the update.",
        )
    if present != steps()[-1]:
        if present is None:
            _make(conn)
        else:
            update(conn)
        _put(conn, "code_version", __version__)
        _put(conn, "schema_version", steps()[-1])
    yard = conn.scalar(select(META.c.value).where(META.c.name == "yard"))
    if yard is None:
        yard = base64.b32encode(secrets.token_bytes(5)).decode("ascii").lower()
        _put(conn, "yard", yard)
    return str(yard)


def _present(conn: Connection) -> str | None:
    if not conn.dialect.has_table(conn, _VERSION.name):
        return None
    return conn.scalar(select(_VERSION.c.version_num))


def _make(conn: Connection) -> None:
    """The tables of a new store, at once: the result of all steps."""
    METADATA.create_all(conn, checkfirst=False)
    conn.execute(insert(COUNTERS).values(id=1, next_seq=1, next_job_id=1, epoch=0))
    _VERSION.create(conn)
    conn.execute(insert(_VERSION).values(version_num=steps()[-1]))


def update(conn: Connection) -> None:
    """Run the steps that a store lacks."""
    # Alembic takes longer to import than the rest of a server, and hardly any start needs it.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415

    config = Config(attributes={"connection": conn})
    config.set_main_option("script_location", str(_STEPS).replace("%", "%%"))
    with _one_at_a_time:
        command.upgrade(config, "head")


def _put(conn: Connection, name: str, value: str) -> None:
    conn.execute(META.delete().where(META.c.name == name))
    conn.execute(insert(META).values(name=name, value=value))
