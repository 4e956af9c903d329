"""The `auth` part of `yard.yaml`: people and what they may do, tokens, login through an identity provider, limits."""

import re
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator
from pydantic import PlainValidator as Plain
from pydantic import WithJsonSchema as Shown

from gpuyard.config.values import Access, Account, Limits, Oidc
from gpuyard.errors import quote, suggest
from gpuyard.keys.fields import Count, OrNothing, PositiveMs, Word, YamlMapping, choice, key, required, text
from gpuyard.keys.findings import Findings
from gpuyard.keys.problems import Path
from gpuyard.quantities import duration_text

ROLE_WORDS = ["viewer", "user", "tenant-admin", "admin"]
_ACCESS, _LIMITS, _OIDC = Access(), Limits(), Oidc("", "")
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_LOGIN = r"[A-Za-z_][A-Za-z0-9_.-]{0,31}"
USER = r"[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,63}"
_PLACE = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}(/[A-Za-z0-9][A-Za-z0-9._-]{0,62})*"


def _login(value: str) -> str:
    if not re.fullmatch(_LOGIN, value):
        raise ValueError(f"must be a user of the machine, such as ana, not {quote(value)}")
    return value


def _place(value: str) -> str:
    if not re.fullmatch(_PLACE, value):
        raise ValueError(f"must be a tenant such as research or research/ana, not {quote(value)}")
    return value


def _issuer(value: str) -> str:
    """Keys fetched over a connection that others can change prove nothing."""
    try:
        parts = urlsplit(value)
        host, _port = parts.hostname, parts.port
    except ValueError:
        host, parts = None, urlsplit("")
    if not host or (parts.scheme != "https" and not (parts.scheme == "http" and host in _LOOPBACK)):
        raise ValueError(f"must be an https:// address, not {quote(value)}")
    return value.rstrip("/")


def _user(value: str) -> str:
    if not re.fullmatch(USER, value):
        raise ValueError(f"user {quote(value)} must be a name such as ana or ana@example.org")
    return value


RoleWord = Annotated[str, *choice(ROLE_WORDS, "role", "roles")]
TenantPath = Annotated[str, Plain(text(_place)), Shown({"type": "string", "pattern": f"^{_PLACE}$"})]
Login = Annotated[str, Plain(text(_login)), Shown({"type": "string", "pattern": f"^{_LOGIN}$"})]
UserName = Annotated[str, AfterValidator(_user), Shown({"type": "string", "pattern": f"^{USER}$"})]
Person = Annotated[str, Plain(text(_user)), Shown({"type": "string", "pattern": f"^{USER}$"})]
"""The same, as a value."""
Issuer = Annotated[str, Plain(text(_issuer)), Shown({"type": "string", "format": "uri"})]


class UserEntry(YamlMapping):
    """A user of the yard."""

    unix: Login | None = key(
        "The Unix account that their jobs run as. Default: the one of the same name.", example="ana"
    )
    tenant: TenantPath | None = key(
        "The tenant where the role holds, with all tenants below it. Default: the whole yard.",
        example="research",
    )
    role: RoleWord | None = key(
        "The highest role they have there, whatever their token says.", default="user"
    )
    default_tenant: TenantPath | None = key(
        "The tenant of their jobs that name none, with or without --auth. Default: their own name below "
        "tenant.",
        example="research/vision",
    )


class GroupEntry(YamlMapping):
    """What members of a group of the identity provider may do."""

    tenant: TenantPath | None = key(
        "The tenant where the role holds. Default: the whole yard.", example="research"
    )
    role: RoleWord | None = key("The role that they have there.", default="user")


class OidcEntry(YamlMapping):
    """Login through an OpenID Connect provider."""

    issuer: Issuer = required(
        "The provider's address, as its tokens name it.", example="https://id.example.org"
    )
    client_id: Word = required("The public client, with PKCE, that is registered there.", example="gpuyard")
    user_claim: Word | None = key("The claim that holds the user's name.", default=_OIDC.user_claim)
    groups_claim: Word | None = key("The claim that lists the user's groups.", default=_OIDC.groups_claim)
    groups: Annotated[dict[str, Annotated[GroupEntry, OrNothing()]], OrNothing()] | None = key(
        "Groups and their rights. A person in several groups has the rights of the first one listed; a "
        "person in none of them and not in users is refused. Default: none.",
        example={"ml": {"tenant": "research"}},
    )
    session: PositiveMs | None = key("How long a login lasts.", default=duration_text(_OIDC.session_ms))
    scopes: Word | None = key("The scopes that the yard asks for at login.", default=_OIDC.scopes)


class LimitsEntry(YamlMapping):
    """How many requests one user may send to one server process."""

    submits_per_s: Count | None = key(
        "Submissions and requests about jobs per second.", default=_LIMITS.submits_per_s
    )
    reads_per_s: Count | None = key("Reading requests per second.", default=_LIMITS.reads_per_s)
    burst_s: Count | None = key(
        "How many seconds' worth of requests may arrive at once.", default=_LIMITS.burst_s
    )
    at_once: Count | None = key("Requests open at a time; a followed log is one.", default=_LIMITS.at_once)


class AuthEntry(YamlMapping):
    """People and their rights."""

    users: Annotated[dict[UserName, Annotated[UserEntry, OrNothing()]], OrNothing()] | None = key(
        "People by name. Default: everybody with a token.",
        example={"ana": {"tenant": "research", "role": "tenant-admin"}},
    )
    token_lifetime: PositiveMs | None = key(
        "How long a token lasts if its maker names no time.", default=duration_text(_ACCESS.token_ms)
    )
    token_lifetime_max: PositiveMs | None = key(
        "The longest time that a token may last.", default=duration_text(_ACCESS.token_ms_max)
    )
    uid_min: Count | None = key(
        "People who are not in users never run jobs as a Unix account with a uid below this.",
        default=_ACCESS.uid_min,
    )
    oidc: OidcEntry | None = key("Login through an identity provider. Default: none.")
    limits: Annotated[LimitsEntry, OrNothing()] | None = key(
        "How many requests one user may send. Default: the defaults of its keys."
    )


def check_access(entry: AuthEntry | None, tenants: list[str], findings: Findings) -> None:
    """Places that exist in the tree, and a lifetime within the limits."""
    if entry is None:
        return
    named: list[tuple[Path, str | None]] = [
        (("auth", "users", name, key_), place)
        for name, user in (entry.users or {}).items()
        for key_, place in (("tenant", user.tenant), ("default_tenant", user.default_tenant))
    ]
    if entry.oidc is not None:
        named += [
            (("auth", "oidc", "groups", name, "tenant"), group.tenant)
            for name, group in (entry.oidc.groups or {}).items()
        ]
    tops = sorted({path.split("/")[0] for path in tenants})
    for path, tenant in named:
        if tenant is not None and tenants and tenant.split("/")[0] not in tops:
            known = suggest(tenant, dict.fromkeys([*tenants, *tops]), "tenants")
            findings.at(path, f"unknown tenant {quote(tenant)}; {known}")
    for name, user in (entry.users or {}).items():
        place, home = user.tenant, user.default_tenant
        if place and home and home != place and not home.startswith(f"{place}/"):
            text_ = f"'default_tenant' {quote(home)} is not at or below {quote(place)}, where the role holds"
            findings.at(("auth", "users", name, "default_tenant"), text_)
    most_ms, usual_ms = entry.token_lifetime_max or _ACCESS.token_ms_max, entry.token_lifetime
    if usual_ms is not None and usual_ms > most_ms:
        text_ = f"'token_lifetime' ({duration_text(usual_ms)}) is above 'token_lifetime_max'"
        findings.at(("auth", "token_lifetime"), f"{text_} ({duration_text(most_ms)})")


def build_access(entry: AuthEntry | None) -> Access | None:
    """The values, with the defaults of `Access` where the file says nothing."""
    if entry is None:
        return None
    given: dict[str, object] = {
        "users": {
            name: Account(user.unix or "", user.role or "user", user.tenant or "", user.default_tenant or "")
            for name, user in (entry.users or {}).items()
        },
        "limits": Limits(**(entry.limits.given() if entry.limits else {})),
    }
    if entry.token_lifetime_max is not None:
        given["token_ms_max"] = entry.token_lifetime_max
        given["token_ms"] = min(_ACCESS.token_ms, entry.token_lifetime_max)
    if entry.uid_min is not None:
        given["uid_min"] = entry.uid_min
    if entry.token_lifetime is not None:
        given["token_ms"] = entry.token_lifetime
    if entry.oidc is not None:
        oidc = entry.oidc.given()
        if "session" in oidc:
            oidc["session_ms"] = oidc.pop("session")
        oidc["groups"] = {
            name: Account("", group.role or "user", group.tenant or "")
            for name, group in (entry.oidc.groups or {}).items()
        }
        given["oidc"] = Oidc(**oidc)
    return Access(**given)  # type: ignore[arg-type]
