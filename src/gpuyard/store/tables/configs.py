"""Versions of the configuration: the text of every yard.yaml that was put in force, by whom, when and how.

The settings themselves are in the log (`ConfigSet`). A version is written in the transaction of its event, so there is
never one without the other; the text is a blob, and equal texts are kept once.
"""

import hashlib
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from sqlalchemy import Select, select

from gpuyard.store.backend.access import Reads
from gpuyard.store.schema import CONFIGS
from gpuyard.store.tables.bound import BoundTable

VERSIONS_MAX = 1000
"""Versions on one page at most."""


class VersionCause(Enum):
    """How a version came in force."""

    START = "start"
    """A server was started with it."""
    APPLY = "apply"
    """Someone applied it to the running yard."""
    ROLLBACK = "rollback"
    """Someone went back to an earlier version."""


@dataclass(frozen=True, slots=True)
class ConfigVersion:
    """One configuration that was put in force. The one with the highest number is in force."""

    version: int
    at_ms: int
    by: str
    how: VersionCause
    hash: str
    """Of the text, under which its blob is kept."""
    restores: int = 0
    """After a rollback: the version that it goes back to."""


def hash_text(text: str) -> str:
    """The name under which a text is kept."""
    return hashlib.sha256(text.encode()).hexdigest()


class Configs:
    """The versions of one store."""

    def __init__(self, backend: Reads) -> None:
        self._backend = backend

    def version(self, version: int | None = None) -> ConfigVersion | None:
        """One version; the one in force if none is named. Nothing if there is no such version."""
        query = _SELECT.where(CONFIGS.c.version == version) if version is not None else _SELECT
        found = self._versions(query.limit(1))
        return found[0] if found else None

    def versions(self, limit: int = VERSIONS_MAX) -> list[ConfigVersion]:
        """The last versions, newest first."""
        return self._versions(_SELECT.limit(max(1, min(limit, VERSIONS_MAX))))

    def _versions(self, query: Select[Any]) -> list[ConfigVersion]:
        with self._backend.reading() as conn:
            rows = conn.execute(query).mappings().all()
        return [ConfigVersion(**{**row, "how": VersionCause(row["how"])}) for row in rows]


_SELECT = select(CONFIGS).order_by(CONFIGS.c.version.desc())


def _values(kept: tuple[ConfigVersion, str]) -> dict[str, Any]:
    return {**asdict(kept[0]), "how": kept[0].how.value}


def _blob(kept: tuple[ConfigVersion, str]) -> dict[str, Any]:
    version, text = kept
    return {"hash": version.hash, "body": text.encode(), "created_ms": version.at_ms}


CONFIG_ROWS = BoundTable(CONFIGS, _values, key=lambda kept: kept[0].version, replaces=False, blob=_blob)
"""Where a version of the configuration is kept, with its text."""
