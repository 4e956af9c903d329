"""The part of the Python client that is about the configuration and the upkeep of the store."""

import json
from collections.abc import Iterator
from typing import Any

from gpuyard.api.calling import API, Caller
from gpuyard.api.quoting import part

_CONFIG = f"{API}/config"


class ConfigCalls(Caller):
    """Calls for administrators. `wanted` is `yaml` and `name`, or `version`; see `POST /config/diff`."""

    def config(self, version: int | None = None) -> dict[str, Any]:
        """A version with its text; the one in force if none is named."""
        found: dict[str, Any] = self._call(
            "GET", _CONFIG if version is None else f"{_CONFIG}/versions/{version}"
        )
        return found

    def config_versions(self, limit: int = 100) -> list[dict[str, Any]]:
        """The last versions, newest first."""
        found: list[dict[str, Any]] = self._call("GET", f"{_CONFIG}/versions?limit={limit}")["versions"]
        return found

    def prune(
        self, *, older_than_s: int | None = None, dry_run: bool = False, after: str = ""
    ) -> dict[str, Any]:
        """Remove what is kept of old jobs, as much as one request may: `after` is `next` of the reply before."""
        wanted = {"older_than_s": older_than_s, "dry_run": dry_run, "next": after or None}
        done: dict[str, Any] = self._call("POST", f"{API}/prune", json.dumps(wanted).encode())
        return done

    def projections(self) -> list[dict[str, Any]]:
        """How far the projections that follow the log have come."""
        found: list[dict[str, Any]] = self._call("GET", f"{API}/projections")["projections"]
        return found

    def rebuild(self, name: str) -> dict[str, Any]:
        """Have a projection filled anew; how it stands."""
        done: dict[str, Any] = self._call("POST", f"{API}/projections/{part(name)}/rebuild")
        return done

    def config_diff(self, **wanted: Any) -> dict[str, Any]:
        """What would change, and what stands against it."""
        found: dict[str, Any] = self._call("POST", f"{_CONFIG}/diff", json.dumps(wanted).encode())
        return found

    def config_preview(self, **wanted: Any) -> Iterator[tuple[str, Any]]:
        """What it would have done: `progress` any number of times, then `preview`, or `error`."""
        yield from self._events(f"{_CONFIG}/preview", json.dumps(wanted).encode())

    def apply(self, **wanted: Any) -> dict[str, Any]:
        """Put a configuration in force."""
        done: dict[str, Any] = self._call("PUT", _CONFIG, json.dumps(wanted).encode())
        return done

    def rollback(self, **wanted: Any) -> dict[str, Any]:
        """Put an earlier version in force again."""
        done: dict[str, Any] = self._call("POST", f"{_CONFIG}/rollback", json.dumps(wanted).encode())
        return done

    def tenants(self) -> list[dict[str, Any]]:
        """The tree of tenants."""
        found: list[dict[str, Any]] = self._call("GET", "/api/v1/tenants")["tenants"]
        return found
