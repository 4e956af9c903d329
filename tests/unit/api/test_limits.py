"""One user who asks too much is told when to come back, and keeps nobody else from being served."""

import time
from pathlib import Path

from rigs.request_service import listed
from rigs.teams import CONFIG, Team, team

LIMITS = CONFIG.replace(
    "limits: {submits_per_s: 100000, reads_per_s: 100000, at_once: 100}",
    "limits: {submits_per_s: 2, reads_per_s: 3, burst_s: 1, at_once: 2}",
)


def statuses(yard: Team, method: str, path: str, user: str, times: int) -> list[int]:
    body = {"command": ["true"], "hold": True} if method == "POST" else None
    return [yard.call(method, path, yard.tokens[user], body).status for _ in range(times)]


def test_who_asks_too_much_waits_and_others_do_not(tmp_path: Path) -> None:
    assert LIMITS != CONFIG
    with team(tmp_path, LIMITS) as yard:
        flood = statuses(yard, "POST", "/api/v1/jobs", "ulla", 20)
        assert 201 == flood[0]
        assert {201, 429} == set(flood)
        refused = yard.call("GET", "/api/v1/me", yard.tokens["ulla"])
        assert 200 == refused.status, "reads are counted apart"
        assert [201] == statuses(yard, "POST", "/api/v1/jobs", "erik", 1)

        reads = [yard.call("GET", "/api/v1/queue", yard.tokens["tara"]) for _ in range(20)]
        late = [answer for answer in reads if answer.status == 429]
        assert late
        assert all(int(answer.headers["retry-after"]) >= 1 for answer in late)
        assert "tara asks too often" == late[0].json["detail"]

        # Two streams are all that one user may have; each ends and makes room.
        job = listed(yard.yard.views)["rows"][0][0]
        path = f"/api/v1/jobs/{job}/logs?follow=true"
        time.sleep(1.2)
        streams = [yard.later(path, yard.tokens["adam"]) for _ in range(2)]
        yard.until(lambda: 2 == yard.gate._rates._under_way.get("adam"))
        third = yard.call("GET", path, yard.tokens["adam"])
        assert (429, "adam has 2 requests under way already") == (third.status, third.json["detail"])
        assert [200, 200] == [stream.leave().status for stream in streams]
        assert {} == yard.gate._rates._under_way


def test_logins_from_one_address_are_counted(tmp_path: Path) -> None:
    with team(tmp_path) as yard:
        body = {"id_token": "x", "nonce": "n" * 32}
        found = [yard.call("POST", "/api/v1/login/oidc", body=body).status for _ in range(40)]
        assert {409, 429} == set(found)


def test_a_long_list_comes_in_pieces_and_whole(tmp_path: Path) -> None:
    with team(tmp_path) as yard:
        yard.yard.views.queue_piece = 7
        job = {"command": ["sleep", "60"], "gpus": 1}
        for fields in ({"array": "0-29"}, {"name": "one"}, {"array": "0-2", "name": "two"}):
            assert 201 == yard.call("POST", "/api/v1/jobs", yard.tokens["ulla"], body=job | fields).status
        found = yard.call("GET", "/api/v1/queue", yard.tokens["adam"])
        assert "content-length" not in found.headers
        rows = found.json["rows"]
        assert 34 == len({row[0] for row in rows}) == len(rows)
        assert found.json["running"] + found.json["waiting"] + found.json["set_aside"] == len(rows)
        for most in (1, 7, 8, 33):
            page = yard.call("GET", f"/api/v1/queue?limit={most}", yard.tokens["adam"])
            assert [row[0] for row in rows[:most]] == [row[0] for row in page.json["rows"]]
