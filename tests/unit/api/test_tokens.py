"""Tokens: what they give, and how they end."""

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gpuyard.control.access.browsers import CODE_MS
from gpuyard.control.access.people import UserDirectory
from gpuyard.control.access.tokens import LOOK_S, TokenService, Unknown
from gpuyard.control.clock import clock_ms
from gpuyard.model.units import DAY_MS
from gpuyard.store import StoreUnreachable
from harness.patience import until
from rigs.teams import CONFIG, ME, Team, team


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    with team(tmp_path_factory.mktemp("tokens")) as made:
        yield made


def me(yard: Team, token: str) -> int:
    return yard.call("GET", "/api/v1/me", token).status


def make(yard: Team, by: str, **asked: object) -> tuple[int, dict[str, object]]:
    answer = yard.call("POST", "/api/v1/tokens", yard.tokens.get(by, by), asked)
    return answer.status, answer.json


def name_of(secret: object) -> str:
    return str(secret).split("_")[1]


def test_a_revoked_token_is_refused_by_the_very_next_request(yard: Team) -> None:
    stolen = yard.token("ulla")
    assert [200] * 5 == [me(yard, stolen) for _ in range(5)]

    assert 200 == yard.call("DELETE", f"/api/v1/tokens/{name_of(stolen)}", yard.tokens["tara"]).status

    answer = yard.call("GET", "/api/v1/me", stolen)
    assert (401, "the token was revoked") == (answer.status, answer.json["detail"])
    assert 'Bearer error="invalid_token"' == answer.headers["www-authenticate"]


def test_a_token_ends_at_its_time_though_it_was_used_a_moment_before(
    yard: Team,
) -> None:
    token, real, later_ms = yard.token("ulla", days=1), yard.yard, 0
    service = TokenService(
        real.replica,
        real.committer,
        real.now_ms,
        real.people.access,
        real.people.directory,
        lambda: real.valid_ms() + later_ms,
    )
    ulla = service.bearer(token)
    assert ("ulla", ulla) == (ulla.name, service.remembered(token))
    later_ms = DAY_MS - 1000
    assert ulla == service.remembered(token)
    later_ms = DAY_MS
    assert None is service.remembered(token)
    with pytest.raises(Unknown, match="the token ended at"):
        service.bearer(token)


def test_what_is_made_with_a_token_ends_with_it(yard: Team) -> None:
    """So a thief cannot outlast what was stolen, nor hide in a second token, nor in a third."""
    first = yard.token("tara", days=2)
    _, second = make(yard, first, user="carl", days=30)
    _, own = make(yard, first, user="tara", days=30)
    status, third = make(yard, str(own["secret"]), user="dora", days=30)
    assert 201 == status
    ends = [each["expires_ms"] for each in (second, own, third)]
    parent = yard.yard.store.tokens.find(name_of(first))
    assert parent is not None
    assert [parent.expires_ms] * 3 == ends

    done = yard.call("DELETE", f"/api/v1/tokens/{name_of(first)}", yard.tokens["adam"]).json
    assert {name_of(first), second["id"], own["id"], third["id"]} == set(done["revoked"])
    assert [401] * 4 == [
        me(yard, str(each)) for each in (first, *(t["secret"] for t in (second, own, third)))
    ]


def test_a_tenants_admin_learns_nothing_of_people_elsewhere(yard: Team) -> None:
    """Neither that there are such people nor which role they have, and where."""
    asked = [
        {"user": "erik"},
        {"user": "erik", "tenant": "research"},
        {"user": "nobody-here"},
        {"user": "adam"},
    ]
    for each in asked:
        status, problem = make(yard, "tara", **each)
        assert (403, f"tara may not make a token for {each['user']}") == (status, problem["detail"])


@pytest.mark.parametrize(
    ("asked", "status", "says"),
    [
        ({"user": "carl", "role": "tenant-admin"}, 422, "carl is user of research in yard.yaml"),
        ({"user": "carl", "tenant": "product"}, 422, "carl is user of research"),
        ({"user": "carl", "tenant": ""}, 422, "carl is user of research"),
        ({"user": "erik"}, 403, "tara may not make a token for erik"),
        ({"user": ME, "tenant": "research"}, 403, "tara may not make a token for"),
        ({"user": "tara", "role": "admin"}, 422, "tara is tenant-admin of research"),
        ({"user": "carl", "days": 91}, 422, "a token may last at most 90 d, not 91 d"),
        ({"user": "carl", "days": 0}, 422, "days"),
        ({"user": "carl", "role": "amdin"}, 422, "did you mean 'admin'?"),
        ({"user": "carl", "tenant": "reserch"}, 422, "did you mean 'research'?"),
        ({"user": "../carl"}, 422, "user"),
        ({"user": "carl", "note": "a\0b"}, 422, "note: holds a NUL character"),
    ],
)
def test_nobody_gives_more_than_they_have_and_nobody_gets_more_than_they_may(
    yard: Team, asked: dict[str, object], status: int, says: str
) -> None:
    found, problem = make(yard, "tara", **asked)

    assert status == found, problem
    assert says in str(problem["detail"])


def test_a_user_of_the_machine_needs_no_entry_but_a_place(
    yard: Team,
) -> None:
    # Whoever runs the tests counts as an ordinary user, also root.
    people, service = yard.yard.people, yard.token_service
    service.renew(people.access, UserDirectory(people.access.users, uid_min=0))
    try:
        assert 422 == make(yard, "adam", user=ME)[0]
        status, made = make(yard, "adam", user=ME, tenant="product")
        assert (201, "user", "product") == (status, made["role"], made["tenant"])
        status, problem = make(yard, "adam", user="nobody-of-that-name", tenant="product")
    finally:
        service.renew(people.access, people.directory)
    assert (422, "nobody-of-that-name is not a user of this machine") == (status, problem["detail"])


def test_a_token_narrows_and_never_widens_what_its_user_has(yard: Team) -> None:
    narrow = yard.token("tara", role="viewer", tenant="research/vision")
    found = yard.call("GET", "/api/v1/me", narrow).json
    assert [{"role": "viewer", "tenant": "research/vision"}] == found["rights"]

    # As if yard.yaml had been changed since the token was made.
    accounts = yard.token_service.directory._accounts
    before = accounts["tara"]
    try:
        accounts["tara"] = type(before)(before.unix, "viewer", "research")
        time.sleep(LOOK_S + 0.05)
        found = yard.call("GET", "/api/v1/me", yard.tokens["tara"]).json
        assert [{"role": "viewer", "tenant": "research"}] == found["rights"]
        accounts["tara"] = type(before)(before.unix, "user", "product")
        time.sleep(LOOK_S + 0.05)
        assert 403 == me(yard, yard.tokens["tara"])
    finally:
        accounts["tara"] = before
        time.sleep(LOOK_S + 0.05)


def test_secrets_are_in_no_listing_and_not_in_the_store(yard: Team) -> None:
    secret = yard.token("ulla").rpartition("_")[2]
    said = b"".join(
        yard.call("GET", path, yard.tokens["adam"], most_s=0.3 if "events" in path else None).body
        for path in ("/api/v1/tokens", "/api/v1/audit", "/api/v1/events?after=0", "/api/v1/debug/snapshot")
    )
    row = yard.yard.store.tokens.all()[0]
    assert row.id.encode() in said
    assert row.hash.encode() not in said
    assert secret.encode() not in said

    with closing(sqlite3.connect(yard.yard.store.place)) as store, store:
        everything = "".join(store.iterdump())
    assert row.hash in everything
    assert secret not in everything


def test_the_log_says_who_did_what_and_with_which_token(yard: Team) -> None:
    token = yard.tokens["tara"]
    job = yard.submit("carl")
    yard.call("POST", f"/api/v1/jobs/{job}/cancel", token)
    node = yard.yard.replica.state.nodes.node[0].name
    yard.call("POST", f"/api/v1/nodes/{node}/drain", yard.tokens["adam"], {"why": "dust"})
    yard.call("POST", f"/api/v1/nodes/{node}/resume", yard.tokens["adam"])
    made = make(yard, "tara", user="carl")[1]
    yard.call("DELETE", f"/api/v1/tokens/{made['id']}", token)

    lines = yard.call("GET", "/api/v1/audit?limit=6", yard.tokens["adam"]).json["lines"]
    tara = f"tara (token {name_of(token)})"
    adam = f"adam (token {name_of(yard.tokens['adam'])})"
    assert [
        (tara, "revoke token", f"token {made['id']} of carl"),
        (tara, "make token", f"token {made['id']} for carl as user"),
        (adam, "resume", f"node {node}"),
        (adam, "drain", f"node {node}: dust"),
        (tara, "cancel", f"job {job}"),
        ("carl", "submit", f"job {job}"),
    ] == [(line["who"], line["what"], line["about"]) for line in lines]
    by_tara = yard.call("GET", "/api/v1/audit?user=tara&limit=2", yard.tokens["adam"]).json
    assert {tara} == {line["who"] for line in by_tara["lines"]}
    more = yard.call("GET", f"/api/v1/audit?user=tara&cursor={by_tara['next_cursor']}", yard.tokens["adam"])
    assert max(line["seq"] for line in more.json["lines"]) < by_tara["lines"][-1]["seq"]


def test_a_log_that_is_followed_ends_when_the_token_is_revoked(yard: Team) -> None:
    job = yard.submit("ulla", hold=False, command=["sleep", "600"])
    token = yard.token("ulla")
    yard.until(lambda: yard.call("GET", f"/api/v1/jobs/{job}", token).json["state"] == "RUNNING")

    asked = yard.later(f"/api/v1/jobs/{job}/logs?follow=true", token)
    yard.until(lambda: asked.answer.status)
    assert not asked.done()
    yard.call("DELETE", f"/api/v1/tokens/{name_of(token)}", yard.tokens["tara"])
    assert 200 == asked.result().status


def test_users_of_the_machine_are_known_by_the_socket(yard: Team) -> None:
    mine = yard.call("GET", "/api/v1/me", peer=(os.geteuid(), os.getegid())).json
    assert [{"role": "admin", "tenant": ""}] == mine["rights"]

    stranger = yard.call("GET", "/api/v1/me", peer=(54_321, 54_321))
    assert (403, "uid-54321 is not a user of this yard") == (stranger.status, stranger.json["detail"])
    assert "auth.users" in stranger.json["hint"]


def test_the_use_of_a_token_is_noted_but_not_every_time(yard: Team) -> None:
    token = yard.token("ulla")
    row = yard.yard.store.tokens.find(name_of(token))
    assert row is not None
    assert 0 == row.used_ms
    for _ in range(3):
        me(yard, token)
    used = yard.yard.store.tokens.find(name_of(token))
    assert used is not None
    assert 0 < used.used_ms <= yard.token_service._now_ms()


def test_the_socket_asks_the_store_for_no_token(yard: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    """Submissions come that way by the thousand."""

    def never(*_args: object) -> None:
        raise AssertionError("a token was looked up")

    monkeypatch.setattr(yard.yard.store.tokens, "find", never)
    job = {"command": ["true"], "hold": True, "tenant": "research"}
    assert 201 == yard.call("POST", "/api/v1/jobs", body=job, peer=(os.geteuid(), os.getegid())).status


def test_a_store_that_cannot_be_asked_lets_nobody_in(yard: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    token = yard.token("ulla")
    assert 200 == me(yard, token)

    def away(*_args: object) -> None:
        raise StoreUnreachable("the database is away")

    monkeypatch.setattr(yard.yard.store.tokens, "find", away)
    time.sleep(LOOK_S + 0.05)
    assert 503 == me(yard, token)


def test_who_changed_the_configuration_is_in_the_trail_with_the_token(yard: Team) -> None:
    token = yard.tokens["adam"]
    done = yard.call(
        "PUT", "/api/v1/config", token, {"yaml": CONFIG.replace("product: {}", "product: {weight: 2}")}
    )
    assert (200, 1) == (done.status, done.json["changed"])

    (line,) = yard.call("GET", "/api/v1/audit?limit=1", token).json["lines"]

    said = f"version {done.json['version']} of the configuration"
    assert ("configure", said) == (line["what"], line["about"])
    assert line["who"].startswith("adam (token ")


def test_tokens_end_by_the_clock_of_the_machine_and_one_set_back_brings_none_to_life(tmp_path: Path) -> None:
    """The time of the log follows a clock that is set ahead and stays there, whatever is set back."""
    ahead_ms, text = 0, CONFIG.replace("auth:\n", "auth:\n  token_lifetime_max: 3650d\n")
    with team(tmp_path, text, now_ms=lambda: clock_ms() + ahead_ms) as yard:
        replica, token, ended = yard.yard.replica, yard.tokens["carl"], yard.expired("carl")
        lasts = yard.token("carl", days=3000)
        ahead_ms = 1000 * DAY_MS
        assert [401, 401, 200] == [me(yard, each) for each in (token, ended, lasts)]
        until(lambda: replica.state.skipped_ms)
        meanwhile = yard.token("carl")
        assert [401, 401, 200] == [me(yard, each) for each in (token, ended, meanwhile)]

        ahead_ms = 0
        made = yard.token("carl")
        code = yard.call("POST", "/api/v1/login/codes", lasts).json["code"]
        assert replica.state.now_ms > clock_ms() + 999 * DAY_MS, "the log has stayed ahead"
        assert [200, 401, 200] == [me(yard, each) for each in (token, ended, made)]
        # What is made now ends as it would have without all that.
        ends = [yard.yard.store.tokens.find(name_of(each)) for each in (made, code)]
        lives = [each.expires_ms - clock_ms() for each in ends if each is not None]
        assert [True, True] == [
            left <= most for left, most in zip(lives, (30 * DAY_MS, CODE_MS), strict=True)
        ]

        ahead_ms = -365 * DAY_MS
        assert [200, 401] == [me(yard, each) for each in (token, ended)]
