"""The `auth` part of a file: what it comes to, and what is refused where."""

from collections.abc import Callable

import pytest

from gpuyard.config.access import ROLE_WORDS
from gpuyard.config.reading import loads
from gpuyard.config.values import Access, Account, Limits, Oidc
from gpuyard.control.access.rights import ROLES
from gpuyard.model.units import DAY_MS, HOUR_MS

Refusals = Callable[[str], list[str]]

TENANTS = "tenants: {research: {}, product: {}}\n"
OIDC = "oidc: {issuer: https://id.example.org, client_id: yard"

HTTPS = "'issuer' of 'oidc' of 'auth' must be an https:// address, not"
ANA = "'ana' of 'users' of 'auth'"

REFUSED = [
    ("users: {ana: {tenant: reserch}}", "7:30: unknown tenant 'reserch'; did you mean 'research'?"),
    (
        "users: {ana: {role: amdin}}",
        f"7:28: 'role' of {ANA} names an unknown role 'amdin'; did you mean 'admin'?",
    ),
    (
        "users: {ana: {unix: a b}}",
        f"7:28: 'unix' of {ANA} must be a user of the machine, such as ana, not 'a b'",
    ),
    (
        "users: {ana: {tenant: /x}}",
        f"7:30: 'tenant' of {ANA} must be a tenant such as research or research/ana, not '/x'",
    ),
    ("users: {'../x': {}}", "7:16: user '../x' must be a name such as ana or ana@example.org"),
    ("users: {ana: {tennant: x}}", f"7:22: unknown key 'tennant' in {ANA}; did you mean 'tenant'?"),
    ("user: {}", "7:8: unknown key 'user' in 'auth'; did you mean 'users'?"),
    ("token_lifetime: 100d", "7:24: 'token_lifetime' (100d) is above 'token_lifetime_max' (90d)"),
    ("token_lifetime_max: 4000d", "7:28: 'token_lifetime_max' of 'auth' must be at most 3650d, not 4000d"),
    (
        "limits: {at_once: 0}",
        "7:26: 'at_once' of 'limits' of 'auth' must be a whole number of at least 1, not 0",
    ),
    (
        "oidc: {client_id: x}",
        "7:8: 'oidc' of 'auth' has no 'issuer'; add 'issuer: https://id.example.org'",
    ),
    ("oidc: {client_id: x, issuer: http://id.example.org}", f"7:37: {HTTPS} 'http://id.example.org'"),
    ("oidc: {client_id: x, issuer: 'https://[::1'}", f"7:37: {HTTPS} 'https://[::1'"),
    (f"{OIDC}, groups: {{ml: {{tenant: prod}}}}}}", "7:86: unknown tenant 'prod'; did you mean 'product'?"),
]


@pytest.mark.parametrize(("added", "said"), REFUSED)
def test_what_is_refused(added: str, said: str, fleet: str, refusals: Refusals) -> None:
    assert [f"yard.yaml:{said}"] == refusals(f"{fleet}{TENANTS}auth: {{{added}}}")


def test_what_it_comes_to(fleet: str) -> None:
    text = f"""
auth:
  users:
    ana: {{unix: root, tenant: research/vision, role: tenant-admin}}
    bob@example.org:
  token_lifetime_max: 7d
  {OIDC}, groups: {{ml: {{tenant: product, role: viewer}}}}, session: 1h}}
  limits: {{at_once: 5}}
"""
    assert (
        Access(
            users={"ana": Account("root", "tenant-admin", "research/vision"), "bob@example.org": Account()},
            token_ms=7 * DAY_MS,
            token_ms_max=7 * DAY_MS,
            oidc=Oidc(
                "https://id.example.org",
                "yard",
                groups={"ml": Account("", "viewer", "product")},
                session_ms=HOUR_MS,
            ),
            limits=Limits(at_once=5),
        )
        == loads(fleet + TENANTS + text).access
    )


def test_a_file_without_it_says_nothing_of_people(fleet: str) -> None:
    assert loads(fleet).access is None
    assert Access() == loads(fleet + "auth:").access


def test_a_provider_on_this_machine_needs_no_tls(fleet: str) -> None:
    access = loads(f"{fleet}auth: {{oidc: {{client_id: x, issuer: 'http://127.0.0.1:9/'}}}}").access
    assert access is not None
    assert access.oidc is not None
    assert "http://127.0.0.1:9" == access.oidc.issuer


def test_the_file_knows_the_roles_that_there_are() -> None:
    # A collector is a program: it has a token of its own, and nobody gets the role from the file.
    assert ["collector", *ROLE_WORDS] == list(ROLES)
