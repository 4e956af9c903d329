"""Replies about people (rights, tokens, logins, the audit) and about the server: its health and its upkeep."""

from typing import Annotated, Any, NotRequired, TypedDict


class RightReply(TypedDict):
    """A role and where it holds; an empty tenant is the whole yard."""

    role: str
    tenant: str


class AllowedReply(TypedDict):
    """What one right allows at its tenant and below it, as actions of the endpoints."""

    tenant: str
    """Empty: the whole yard."""
    actions: list[str]
    """To anything there."""
    own_actions: list[str]
    """To jobs of their own there."""


class MeReply(TypedDict):
    """The person who asks: name, roles and tenants."""

    user: str
    runs_as: str | None
    """The user of the machine for their jobs; None: they run none."""
    rights: list[RightReply]
    allowed: list[AllowedReply]
    """What these rights allow, one by one."""
    home: str
    token: str | None
    expires_ms: int | None
    auth: bool


class TokenReply(TypedDict):
    """A token, without its secret."""

    id: str
    user: str
    role: str
    tenant: str
    note: str
    made_by: str
    made_with: str | None
    created_ms: int
    expires_ms: int
    used_ms: int | None
    revoked_ms: int | None


class NewTokenReply(TokenReply):
    """A token with its secret, which is shown once."""

    secret: str


class TokensReply(TypedDict):
    """Tokens, newest first."""

    tokens: list[TokenReply]


class RevokedReply(TypedDict):
    """The revoked tokens: the named one, and those that were made with it."""

    id: str
    revoked: list[str]


class UnboundReply(TypedDict):
    """A name that the next login binds, and the revoked tokens of its earlier owner."""

    user: str
    revoked: list[str]


class OidcReply(TypedDict):
    """The identity provider to log in with."""

    issuer: str
    client_id: str
    scopes: str


class ProviderReply(TypedDict):
    """The address to send a browser to for a login."""

    url: str
    client_id: str
    scopes: str


class LoginReply(TypedDict):
    """How to log in here."""

    auth: bool
    oidc: OidcReply | None


class BrowserCodeReply(TypedDict):
    """A code that signs a browser in once, as the person who asked."""

    code: str
    expires_ms: int
    url: str
    """Where this server listens, as seen on its own machine."""
    console: bool
    """Whether this server has the console."""


class BrowserReply(TypedDict):
    """A browser that is signed in: the second half of its cookie, which the page keeps and sends as `Yard-Page`."""

    user: str
    key: str
    expires_ms: int


class SignedOutReply(TypedDict):
    """The user that was signed out of this browser."""

    user: str


class AuditLine(TypedDict):
    """One thing that a person did."""

    seq: int
    at_ms: int
    who: str
    what: str
    about: str
    tenant: str


class AuditReply(TypedDict):
    """Entries of the log that name a person, newest first, and the cursor of the next page."""

    lines: list[AuditLine]
    next_cursor: str | None


class HealthReply(TypedDict):
    """The server process runs."""

    ok: bool


DUTY_FAILS = "duty "
"""How the reason of a server begins that is ready and has duties that fail; their names follow."""


class ReadyReply(TypedDict):
    """Whether the server can do its work; all but the first three fields need the right to see everything."""

    ready: bool
    role: str
    reason: Annotated[
        str | None,
        "Why it cannot work: starting, space, store, damaged, no leader, stands still, fault. For a server that is "
        "ready: clock, if the machine's clock was set; duty NAME, if that duty fails. Null: nothing.",
    ]
    leader: NotRequired[Annotated[str | None, "For a follower: the leader."]]
    epoch: NotRequired[int | None]
    error: NotRequired[str | None]
    troubles: NotRequired[Annotated[list[str], "Calls of the last step that had no answer."]]
    difference: NotRequired[Annotated[int, "Attempts about which the log and the engine disagree."]]
    steps: NotRequired[int]
    step_ms_p50: NotRequired[float | None]
    step_ms_p99: NotRequired[float | None]
    decide_ms_p50: NotRequired[float | None]
    decide_ms_p99: NotRequired[float | None]
    last_step_s_ago: NotRequired[float | None]
    events: NotRequired[int]
    duties: NotRequired[Annotated[list[str], "Duties that fail, each by name and with why."]]
    store: NotRequired[str]
    notes: NotRequired[list[str]]


class VersionReply(TypedDict):
    """The release of this server, and its yard."""

    version: str
    api: str
    yard: str


class FrontReply(TypedDict):
    """What this address serves."""

    what: str
    version: str
    yard: str
    auth: bool
    commands: list[str]
    description: str


class PrunedReply(TypedDict):
    """How much was removed, or would be."""

    count: int
    bytes: Annotated[int, "The space that it took on disk or in the store."]


class PruneReply(TypedDict):
    """What this request removed, or would remove, by kind: `environments`, `scripts`, `logs`, `folders`."""

    removed: dict[str, PrunedReply]
    dry_run: bool
    next: Annotated[str | None, "Send this to continue; null: that was all."]


class ClosedMonthReply(TypedDict):
    """A month whose books are closed, with all months before it."""

    month: str
    months: list[str]
    """All that are closed by this: the month, and those before it that have books and were open."""
    closed_ms: int
    by: str


class ProjectionReply(TypedDict):
    """How much of the log a projection holds."""

    name: str
    version: int
    began_seq: Annotated[int, "Its rows cover the events after this one; 0: all events."]
    seq: Annotated[int, "The last event that its rows cover; 0: filling has not begun."]
    head: Annotated[int, "The last event of the log."]
    filled: Annotated[bool, "Whether it has reached the end of the log."]
    error: Annotated[str, "The error that stops it; empty: none."]


class ProjectionsReply(TypedDict):
    """All projections that follow the log, by name."""

    projections: list[ProjectionReply]


class SnapshotReply(TypedDict):
    """The whole state."""

    version: str
    seq: int
    state: dict[str, Any]
