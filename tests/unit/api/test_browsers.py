"""Browsers: a code works once and for a minute; neither half of a session opens anything; no other page gets in."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuyard.api.edge import rates
from gpuyard.api.edge.peers import cookie_name
from gpuyard.api.handlers import front
from gpuyard.control.access.browsers import CODE_MS, CODES_MAX, BrowserService
from gpuyard.control.access.tokens import CODE_NOTE, Unknown
from harness.steered import steered
from rigs.teams import Answer, Team, team

HOST = "yard.example.org"
HERE = {"Host": HOST, "Origin": f"http://{HOST}"}


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    with pytest.MonkeyPatch.context() as patch, team(tmp_path_factory.mktemp("browsers")) as made:
        patch.setattr(rates.Rates, "login", lambda _self, _address: None)  # Quick tests log in too often.
        yield made


def code_for(yard: Team, token: str) -> str:
    answer = yard.call("POST", "/api/v1/login/codes", token)
    assert (201, "no-store") == (answer.status, answer.headers["cache-control"])
    return str(answer.json["code"])


def redeem(yard: Team, code: str, path: str = "/", **more: str) -> Answer:
    return yard.call(
        "POST", "/api/v1/login/browser", body={"code": code, "path": path}, headers={**HERE, **more}
    )


def signed_in(yard: Team, token: str) -> dict[str, str]:
    """The headers that the page of a signed-in browser sends."""
    answer = redeem(yard, code_for(yard, token))
    assert 201 == answer.status, answer.body
    cookie = answer.headers["set-cookie"].partition(";")[0]
    return {**HERE, "Cookie": cookie, "Yard-Page": answer.json["key"]}


def me(yard: Team, headers: dict[str, str]) -> Any:
    answer = yard.call("GET", "/api/v1/me", headers=headers)
    return answer.json["user"] if answer.status == 200 else answer.status


def test_a_code_signs_in_the_person_that_asked_with_their_rights(yard: Team) -> None:
    headers = signed_in(yard, yard.tokens["ulla"])

    found = yard.call("GET", "/api/v1/me", headers=headers).json

    assert ("ulla", [{"role": "user", "tenant": "research"}]) == (found["user"], found["rights"])
    (allowed,) = found["allowed"]
    assert "research" == allowed["tenant"]
    assert {"enter-job", "read-job", "act-on-job"} == set(allowed["own_actions"]) - set(allowed["actions"])
    assert "submit" in allowed["actions"]
    assert "manage-nodes" not in allowed["own_actions"]
    assert 403 == yard.call("POST", "/api/v1/prune", headers=headers).status


def test_the_cookie_is_for_this_yard_alone_and_out_of_reach_of_scripts(yard: Team) -> None:
    plain = redeem(yard, code_for(yard, yard.tokens["ulla"]), "/yard/").headers["set-cookie"]
    secure = redeem(yard, code_for(yard, yard.tokens["ulla"]), **{"X-Forwarded-Proto": "https"})

    assert plain.startswith(f"{cookie_name(yard.yard.store.yard)}=")
    assert {"Path=/yard/", "HttpOnly", "SameSite=Strict"} < set(plain.split("; "))
    assert "Secure" not in plain
    assert secure.headers["set-cookie"].endswith("; Secure")
    for path in ("yard", "/a;Domain=evil.example/", "/\r\nX: y/"):
        assert 422 == redeem(yard, code_for(yard, yard.tokens["ulla"]), path).status, path


def test_a_code_works_once(yard: Team) -> None:
    code = code_for(yard, yard.tokens["ulla"])
    assert 201 == redeem(yard, code).status

    again = redeem(yard, code)

    assert (401, "the code was used already") == (again.status, again.json["detail"])


def test_a_code_ends_after_a_minute(yard: Team) -> None:
    code, real = code_for(yard, yard.tokens["ulla"]), yard.yard
    late = steered(real.people, valid_ms=lambda: real.valid_ms() + CODE_MS + 1000)

    with pytest.raises(Unknown, match="works for 60 s"):
        BrowserService(real.replica, real.committer, real.now_ms, late).redeem(code).result(120)

    assert 201 == redeem(yard, code).status


def test_a_person_makes_a_few_codes_in_a_minute_and_those_that_ended_are_not_listed(
    yard: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is a row of tokens and audit: thousands of one user would hide what others did."""
    token = yard.tokens["vera"]

    def listed() -> list[str]:
        found = yard.call("GET", "/api/v1/tokens", token).json["tokens"]
        return [row["id"] for row in found if row["note"] == CODE_NOTE]

    statuses = [yard.call("POST", "/api/v1/login/codes", token).status for _ in range(CODES_MAX + 1)]

    assert [201] * CODES_MAX + [409] == statuses
    assert CODES_MAX == len(listed())
    browsers = yard.yard.browsers
    now_ms = browsers._now_ms
    monkeypatch.setattr(browsers, "_now_ms", lambda: now_ms() + CODE_MS)
    monkeypatch.setattr(yard.token_service, "_valid_ms", lambda: yard.yard.valid_ms() + CODE_MS)
    assert [] == listed()
    assert 201 == yard.call("POST", "/api/v1/login/codes", token).status


def test_a_code_is_no_token_and_a_token_is_no_code(yard: Team) -> None:
    code = code_for(yard, yard.tokens["ulla"])

    assert 401 == yard.call("GET", "/api/v1/me", code).status
    assert 401 == yard.call("GET", "/api/v1/me", code.replace("yardcode_", "yard_")).status
    for wrong in (yard.tokens["ulla"], code[:-1] + ("0" if code[-1] != "0" else "1"), "x", "\u00e9" * 20):
        assert 401 == redeem(yard, wrong).status
    assert 201 == redeem(yard, code).status


def test_neither_half_of_a_session_opens_anything(yard: Team) -> None:
    both = signed_in(yard, yard.tokens["ulla"])
    other = signed_in(yard, yard.tokens["carl"])
    assert ("ulla", "carl") == (me(yard, both), me(yard, other))

    without = {name: value for name, value in both.items() if name != "Yard-Page"}
    assert 401 == me(yard, without)
    assert 401 == me(yard, {**both, "Yard-Page": other["Yard-Page"]})
    assert 401 == me(yard, {**HERE, "Yard-Page": both["Yard-Page"]})
    assert 401 == me(yard, {**both, "Cookie": f"{cookie_name(yard.yard.store.yard)}=x"})


def test_a_page_of_another_site_is_refused(yard: Team) -> None:
    both = signed_in(yard, yard.tokens["ulla"])
    job = yard.submit("ulla", "research")
    path = f"/api/v1/jobs/{job}/cancel"

    for origin in ("http://evil.example", "null", f"http://{HOST}:9999", f"http://{HOST}.evil.example"):
        assert 403 == yard.call("POST", path, headers={**both, "Origin": origin}).status, origin
    without = {name: value for name, value in both.items() if name != "Origin"}
    refused = yard.call("POST", path, headers=without)
    assert (403, "the request does not say which page sent it") == (refused.status, refused.json["detail"])
    # A name of another site that was made to point here: the browser sends it no cookie of ours.
    assert 401 == me(yard, {"Host": "evil.example", "Origin": "http://evil.example"})
    assert 202 == yard.call("POST", path, headers=both).status


def test_a_websocket_of_a_page_has_the_key_among_its_protocols(yard: Team) -> None:
    both = signed_in(yard, yard.tokens["ulla"])
    path = f"/api/v1/jobs/{yard.submit('ulla', 'research')}/terminal"
    key = both.pop("Yard-Page")
    offered = {"Upgrade": "websocket", "Sec-WebSocket-Protocol": f"yard, yard-page.{key}"}

    # There is no connection to take over in this process: 426 is said to a person who may enter the job.
    assert 426 == yard.call("GET", path, headers={**both, **offered}).status
    assert 401 == yard.call("GET", path, headers={**both, "Upgrade": "websocket"}).status
    for origin in ("http://evil.example", "null"):
        assert 403 == yard.call("GET", path, headers={**both, **offered, "Origin": origin}).status, origin
    without = {name: value for name, value in both.items() if name != "Origin"}
    assert 403 == yard.call("GET", path, headers={**without, **offered}).status
    assert 401 == yard.call("GET", path, headers={**HERE, **offered}).status


def test_a_revoked_token_signs_the_browser_out_and_ends_its_streams(yard: Team) -> None:
    token = yard.token("ulla")
    both, unused = signed_in(yard, token), code_for(yard, token)
    stream = yard.later("/api/v1/changes", headers=both)
    yard.until(lambda: me(yard, both) == "ulla")

    assert 200 == yard.call("DELETE", f"/api/v1/tokens/{token.split('_')[1]}", yard.tokens["adam"]).status

    assert 401 == me(yard, both)
    assert 401 == redeem(yard, unused).status
    assert 200 == stream.result().status


def test_a_session_ends_with_its_token_and_at_a_sign_out(yard: Team) -> None:
    both = signed_in(yard, yard.tokens["ulla"])
    parent = yard.yard.store.tokens.find(yard.tokens["ulla"].split("_")[1])
    ends_ms = yard.call("GET", "/api/v1/me", headers=both).json["expires_ms"]
    assert parent is not None
    assert ends_ms <= parent.expires_ms

    assert 200 == yard.call("POST", "/api/v1/logout", headers=both).status

    assert 401 == me(yard, both)
    assert 200 == yard.call("POST", "/api/v1/logout", yard.tokens["ulla"]).status
    assert 200 == yard.call("GET", "/api/v1/me", yard.tokens["ulla"]).status


def test_a_session_without_auth_is_none_with_it(yard: Team) -> None:
    """The same row under the other kind: the text that was hashed begins otherwise."""
    both, real = signed_in(yard, yard.tokens["ulla"]), yard.yard
    session = both["Cookie"].partition("=")[2], both["Yard-Page"]
    assert "ulla" == real.browsers.person(*session).name
    without = BrowserService(
        real.replica, real.committer, real.now_ms, steered(real.people, token_service=None)
    )

    with pytest.raises(Unknown, match="this browser is not signed in"):
        without.person(*session)


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A console of two files in the place of the real one."""
    (tmp_path / "console" / "assets").mkdir(parents=True)
    (tmp_path / "console" / "index.html").write_text("<!doctype html><title>x</title>")
    (tmp_path / "console" / "assets" / "main-1a2b.js").write_text("let a;")
    (tmp_path / "console" / "assets" / "main-1a2b.js.gz").write_bytes(b"packed")
    front.built_console.cache_clear()
    monkeypatch.setattr(front.gpuyard, "__file__", str(tmp_path / "__init__.py"))
    yield
    front.built_console.cache_clear()


def test_the_console_is_served_with_a_strict_policy(yard: Team, built: None) -> None:
    page = yard.call("GET", "/", headers={"Accept": "text/html"})

    assert (200, "text/html; charset=utf-8") == (page.status, page.headers["content-type"])
    policy = page.headers["content-security-policy"]
    assert "unsafe" not in policy
    assert {"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"} <= set(policy.split("; "))
    assert ("DENY", "nosniff", "no-cache") == tuple(
        page.headers[name] for name in ("x-frame-options", "x-content-type-options", "cache-control")
    )
    assert (
        "application/json"
        == yard.call("GET", "/", headers={"Accept": "application/json"}).headers["content-type"]
    )


def test_files_of_the_console_are_kept_for_good_and_nothing_else_is_served(yard: Team, built: None) -> None:
    packed = yard.call("GET", "/assets/main-1a2b.js", headers={"Accept-Encoding": "gzip, br"})
    plain = yard.call("GET", "/assets/main-1a2b.js")

    assert (b"packed", "gzip") == (packed.body, packed.headers["content-encoding"])
    assert (b"let a;", "text/javascript; charset=utf-8") == (plain.body, plain.headers["content-type"])
    assert "immutable" in plain.headers["cache-control"]
    for path in ("other.js", "index.html", "..%2Fpeople.py", "main-1a2b.js.gz"):
        assert 404 == yard.call("GET", f"/assets/{path}").status, path


def test_the_address_of_a_server_is_one_for_a_browser(yard: Team) -> None:
    options = replace(yard.yard.options, host="::1", port=7447, tls_cert=Path("x"))

    assert "https://[::1]:7447" == options.url
