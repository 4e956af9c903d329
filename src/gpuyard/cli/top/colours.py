"""A colour for each tenant, the same in every pane, and one for each state."""

from rich.style import Style

_PALETTE = (
    "#4fa3e0", "#e8a33d", "#6cc070", "#d9698f", "#a886e0", "#3fbfb2", "#d4c04a", "#e0785a", "#8fa8c8", "#b5c95a",
)  # fmt: skip
FREE = Style.parse("#5a6472")
FOREIGN = Style.parse("#8a8a8a")
UNNAMED = Style.parse("#a0a8b4")
"""Tenants that this user may not see."""
HEAD = Style.parse("bold")
DIM = Style.parse("dim")
BAD = Style.parse("bold #e05a5a")
WARN = Style.parse("#e8a33d")
STATES = {
    "RUNNING": Style.parse("#6cc070"),
    "PENDING": Style.parse("#e8a33d"),
    "SUSPENDED": Style.parse("#3fbfb2"),
}


class TenantColours:
    """Hands out colours by the first part of a tenant's path, in the order in which they are first seen."""

    def __init__(self) -> None:
        self._styles: dict[str, Style] = {}

    def of(self, tenant: str) -> Style:
        """The colour of a tenant, that of its team."""
        team = tenant.partition("/")[0]
        if not team:
            return UNNAMED
        found = self._styles.get(team)
        if found is None:
            found = Style(color=_PALETTE[len(self._styles) % len(_PALETTE)])
            self._styles[team] = found
        return found
