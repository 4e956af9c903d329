"""Points in time as text, for answers."""

from datetime import UTC, datetime


def time_text(at_ms: int) -> str | None:
    """A time as RFC 3339 in UTC; None for one that has not come."""
    if not at_ms:
        return None
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
