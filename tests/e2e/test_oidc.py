"""Login through a real identity provider, with the browser played by a program."""

import re
import sys
import threading
import time
import webbrowser
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest

from gpuyard.api.client import Client, Refused
from gpuyard.cli.commands.people import oidc as flow
from gpuyard.config.values import Account, Oidc
from gpuyard.control.access import oidc as server
from gpuyard.control.access.oidc import Provider
from gpuyard.control.access.people import UserDirectory
from gpuyard.control.access.rights import Right, Role
from gpuyard.control.access.tokens import Unknown
from gpuyard.control.refusals import Forbidden, Overloaded
from gpuyard.wire import endpoints
from harness.patience import patient, until
from rigs.console.browser import browser, page_of
from rigs.oidc.browser import browse
from rigs.teams import CONFIG, ME

from .conftest import Box, Done

BROWSER = Path(__file__).resolve().parents[1] / "rigs" / "oidc" / "browser.py"
NONCE = "n" * 40
ROSTER = UserDirectory({"ulla": Account(ME, "user", "research")})


class Federated(Box):
    """A yard that asks the provider."""

    def __init__(self, data: Path, issuer: str) -> None:
        more = f"""\
  oidc:
    issuer: {issuer}
    client_id: gpuyard
    session: 2h
    groups:
      ml: {{tenant: product, role: viewer}}
"""
        super().__init__(data, CONFIG + more)
        self.home = data.parent / "home"

    def up(self) -> Done:
        done = self("up", "-d", "--port", 0, "--config", self.config, "--auth")
        assert 0 == done.code, done.err
        return done

    def away(self, *words: object, **env: str) -> Done:
        return self(
            *words, YARD_DATA="", XDG_CONFIG_HOME=str(self.home), XDG_DATA_HOME=str(self.home / "no"), **env
        )

    def login(self, name: str) -> Done:
        url = f"http://127.0.0.1:{self.note()['port']}"
        program = f"{sys.executable} {BROWSER} {name} %s &"
        return self.away("login", "--oidc", url, BROWSER=program)


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory, issuer: str) -> Iterator[Federated]:
    made = Federated(tmp_path_factory.mktemp("oidc") / "yard", issuer)
    made.up()
    yield made
    assert 0 == made("down", "--jobs").code


def test_log_in_and_work(yard: Federated) -> None:
    done = yard.login("ulla")
    assert 0 == done.code, done.err
    assert "as ulla, user of research, until" in done.out

    done = yard.away("run", "--", "sh", "-c", "echo hello")
    assert (0, "hello\n") == (done.code, done.out), done.err
    assert "ulla (login)" in yard("audit").out
    assert "login" in yard("token", "list").out

    assert 0 == yard.away("logout", "--revoke").code


def test_a_group_gives_a_role_and_who_is_in_none_is_refused(yard: Federated) -> None:
    done = yard.login("wanda")
    assert 0 == done.code, done.err
    assert "as wanda, viewer of product" in done.out, "who only looks needs no account"
    refused = yard.away("submit", "--", "true")
    assert 2 == refused.code
    assert "viewer of product" in refused.err

    done = yard.login("daemon")
    assert (2, True) == (done.code, "daemon is a system account (uid 1)" in done.err)
    for name in ("bin", "nobody-at-all"):
        done = yard.login(name)
        assert 2 == done.code
        assert "is known to the identity provider, and not to this yard" in done.err


@pytest.mark.rig
def test_a_browser_signs_in_at_the_provider_and_comes_back(yard: Federated, issuer: str) -> None:
    own = f"http://127.0.0.1:{yard.note()['port']}/"

    def enter(page: Any, name: str) -> None:
        page.get_by_role("button", name=re.compile("Sign in with")).click()
        page.locator("input[name=login]").fill(name)
        page.locator("input[name=password]").fill("any")
        page.get_by_role("button", name="Sign-in").click()
        page.get_by_role("button", name="Continue").click()

    # The provider's own page asks for letters.
    also = (issuer, "https://fonts.googleapis.com/")
    with browser() as chrome, page_of(chrome, own, also) as page:
        page.goto(own)
        enter(page, "ulla")
        page.get_by_role("heading", name="Queue").wait_for()
        assert f"{own}#/queue" == page.url, "the code is not in the address"
        page.goto(f"{own}?state=another&code=stolen")
        page.get_by_role("heading", name="Queue").wait_for()
    with browser() as chrome, page_of(chrome, own, also) as page:
        page.goto(f"{own}?state=another&code=stolen")
        page.get_by_role("alert").get_by_text("another login").wait_for()
        enter(page, "bin")
        page.get_by_role("alert").get_by_text("not to this yard").wait_for()


def test_a_code_that_the_provider_does_not_know_opens_nothing(yard: Federated) -> None:
    own = f"http://127.0.0.1:{yard.note()['port']}"
    body = {"code": "made-up", "verifier": "v" * 43, "nonce": NONCE, "redirect_uri": f"{own}/"}
    with Client(own, "none") as asked, pytest.raises(Refused, match="does not take the code") as refused:
        asked.ask_for(endpoints.LOGIN_OIDC_CODE, body)
    assert 401 == refused.value.status


@pytest.fixture
def id_token(issuer: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """An ID token of the provider, as the command line gets it."""

    def made(name: str = "ulla", client: str = "gpuyard", nonce: str = NONCE) -> str:
        def opened(address: str) -> bool:
            threading.Thread(target=browse, args=(name, address), daemon=True).start()
            return True

        monkeypatch.setattr(webbrowser, "open", opened)
        return flow._id_token(
            {"issuer": issuer, "client_id": client, "scopes": "openid profile email"}, nonce, True
        )

    return made


def provider(issuer: str, **more: str) -> Provider:
    return Provider(Oidc(issuer, "gpuyard", **more), ROSTER)  # type: ignore[arg-type]


def test_only_what_the_provider_signed_for_this_login_is_believed(
    issuer: str, id_token: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    good = id_token()
    claims = jwt.decode(good, options={"verify_signature": False})
    head = jwt.get_unverified_header(good)
    assert ("ulla", Right(Role.USER, "research"), f"{issuer} {claims['sub']}") == provider(issuer).vouched(
        good, NONCE
    )

    unsigned = jwt.encode(claims, None, algorithm="none", headers={"kid": head["kid"]})
    public = str(server.fetched(f"{issuer}/jwks")["keys"][0]["n"])
    shared = jwt.encode(claims, public, algorithm="HS256", headers={"kid": head["kid"]})
    first, body, signature = good.split(".")
    other_body = jwt.encode({**claims, "preferred_username": "adam"}, None, algorithm="none").split(".")[1]
    for token, nonce, says in (
        (good, "m" * 40, "answers another login"),
        (id_token(client="another"), NONCE, "Audience doesn't match"),
        (unsigned, NONCE, "not accepted"),
        (shared, NONCE, "not accepted"),
        (f"{first}.{other_body}.{signature}", NONCE, "Signature verification failed"),
        (f"{first}.{body}.", NONCE, "Signature verification failed"),
        ("nonsense", NONCE, "not accepted"),
    ):
        with pytest.raises(Unknown, match=says):
            provider(issuer).vouched(token, nonce)

    short = id_token(client="short")
    ends_s = jwt.decode(short, options={"verify_signature": False})["exp"]
    until(lambda: time.time() > ends_s + 1)
    with pytest.raises(Unknown, match="Signature has expired"):
        Provider(Oidc(issuer, "short"), ROSTER, clocks_s=0).vouched(short, NONCE)


def test_what_the_claims_do_not_say(issuer: str, id_token: Callable[..., str]) -> None:
    good = id_token()
    with pytest.raises(Forbidden, match="does not say 'department'"):
        provider(issuer, user_claim="department").vouched(good, NONCE)
    with pytest.raises(Forbidden, match=r"'ulla@example\.org' is known to the identity provider"):
        provider(issuer, user_claim="email").vouched(good, NONCE)


def test_a_provider_that_is_away_lets_nobody_in_and_is_said_to_be_so() -> None:
    began = time.monotonic()
    with pytest.raises(Overloaded, match="the identity provider cannot be asked"):
        provider("http://127.0.0.1:1").vouched("x.y.z", NONCE)
    assert time.monotonic() - began < patient(10)


def test_one_login_is_good_once(yard: Federated, id_token: Callable[..., str]) -> None:
    good = id_token()
    with yard.client() as client:
        made = client.log_in(good, NONCE)
        assert made["secret"].startswith("yard_")
        assert 2 * 3600_000 >= made["expires_ms"] - made["created_ms"] > 2 * 3600_000 - 5000
        with pytest.raises(Exception, match="this login was used already"):
            client.log_in(good, NONCE)
