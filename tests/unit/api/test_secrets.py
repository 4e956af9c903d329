"""No cross-tenant read: canaries in everything a job has never come out of any route for people of other tenants."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rigs.teams import CONFIG, ROLES, Team, team
from unit.api.test_rights_matrix import routes_of

NAME, ENV, SCRIPT, LOG, FILE = (
    "canaryname", "canary-env-5f1c", "canary-script-77aa", "canary-log-e0e0", "canary-file-1b1b"
)  # fmt: skip
INSIDE = (ENV, SCRIPT, LOG, FILE)
"""What is in a job; its name is for the people of its tenant."""


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    with team(tmp_path_factory.mktemp("secrets")) as made:
        made.tokens["mia"] = made.token("erik", role="viewer")
        plant(made)
        yield made


def plant(made: Team) -> None:
    """Jobs of ulla's, ended, running, waiting and an array, that carry canaries wherever there is room for one."""
    script = f"#!/bin/sh\n# {SCRIPT}\necho canary-log-e0e0; echo canary-log-e0e0 >&2; exec sleep ${{1:-0}}\n"
    log = str(made.yard.data.root.parent / FILE)
    job = {
        "name": NAME,
        "env": {"SECRET": ENV},
        "script": script,
        "hold": False,
        "stderr": log,
        "command": [],
    }
    ended = made.submit("ulla", **job)
    runs = made.submit("ulla", **{**job, "command": ["300"]}, gpus=1)
    made.submit("ulla", **{**job, "hold": True})
    made.submit("ulla", **{**job, "hold": True}, array="0-2")
    tara = made.tokens["tara"]
    for number, state in ((ended, "COMPLETED"), (runs, "RUNNING")):
        made.until(
            lambda n=number, s=state: (
                made.call("GET", f"/api/v1/jobs/{n}", tara).json["state"] == s
                and LOG.encode() in made.call("GET", f"/api/v1/jobs/{n}/logs", tara).body
            )
        )


def everything(made: Team, token: str) -> bytes:
    """All that all GET routes say, with every id and label that there is, and with every filter."""
    said = b""
    ids = [*range(1, 9), "4_0", "4_1", "4_2"]
    queries = ("", f"?name={NAME}", "?user=ulla", "?tenant=research", "?state=RUNNING,COMPLETED,PENDING")
    for method, form, _ in routes_of(made.app.routes):
        if method != "GET":
            continue
        path, stream = form.replace("{version}", "1"), form.endswith(("/events", "/changes"))
        paths = [path.replace("{id}", str(each)) for each in ids] if "{id}" in path else [path]
        for each in paths:
            more = (
                ("?after=0",)
                if stream
                else ("", "?follow=true", "?stream=stderr")
                if "logs" in each
                # A route about one job refuses the filters of lists, whichever job it is.
                else queries
                if each == paths[0]
                else queries[:1]
            )
            for query in more:
                said += made.call(
                    "GET", each + query, token, most_s=0.1 if "follow" in query or stream else None
                ).body
    return said


def outlines(made: Team, token: str) -> bytes:
    """What is said of the yard as a whole and of one's own jobs, to a question that names nobody."""
    own = made.submit("erik", name="own")
    wish = {"command": ["true"], "gpus": 1, "tenant": "reserch/x"}
    said = made.call("POST", "/api/v1/jobs", token, wish).body
    for path in ("queue", "queue?wide=1", "overview", "nodes", "tenants", "share", "jobs", "history", "me",
                 f"jobs/{own}/why", f"jobs/{own}/eta", f"jobs/{own}"):  # fmt: skip
        answer = made.call("GET", f"/api/v1/{path}", token)
        assert 200 == answer.status, (path, answer.body)
        said += answer.body
    assert 202 == made.call("DELETE", f"/api/v1/jobs/{own}", token).status
    made.until(lambda: "CANCELLED" == made.call("GET", f"/api/v1/jobs/{own}", token).json["state"])
    return said


def refusals(made: Team, token: str) -> bytes:
    """What is said to who asks for something about these jobs, or wants to wait for them."""
    said = b""
    for number in range(1, 9):
        for verb in ("cancel", "hold", "release", "suspend", "continue", "requeue"):
            said += made.call("POST", f"/api/v1/jobs/{number}/{verb}", token).body
            said += made.call("POST", f"/api/v1/jobs/{verb}", token, {"ids": [number]}).body
        for kind in ("afterok", "afternotok", "afterany"):
            wish: dict[str, Any] = {"command": ["true"], "dependencies": [{"kind": kind, "job": number}]}
            answer = made.call("POST", "/api/v1/jobs", token, wish)
            assert answer.status in (403, 422), answer.body
            said += answer.body
    return said


@pytest.mark.parametrize("who", ["mia", "erik"])
def test_another_tenant_reads_nothing(yard: Team, who: str) -> None:
    said = everything(yard, yard.tokens[who]) + refusals(yard, yard.tokens[who])

    assert [] == [canary for canary in (NAME, *INSIDE, "ulla") if canary.encode() in said]


def test_another_tenant_is_not_named(yard: Team) -> None:
    said = outlines(yard, yard.tokens["erik"])

    assert b"product/erik" in said
    assert [] == [name for name in ("research", "vision", "ulla") if name.encode() in said]


def test_who_holds_gpus_back_is_for_those_who_see_everybody(tmp_path: Path) -> None:
    """A reason that names tenants tells people of other tenants that there are some, and no more."""
    config = CONFIG.replace("research: {}", "research: {guarantee: 6, lend: 0}")
    with team(tmp_path / "held", config) as made:
        number = made.submit("erik", gpus=4, hold=False)

        def said(who: str) -> str:
            token = made.tokens[who]
            asked = [made.call("GET", f"/api/v1/jobs/{number}{end}", token) for end in ("", "/why", "/eta")]
            wish = {"command": ["true"], "gpus": 4, "tenant": "product/erik"}
            asked.append(made.call("POST", "/api/v1/jobs/dry-run", token, wish))
            assert [200] * 4 == [answer.status for answer in asked]
            return " ".join(answer.body.decode() for answer in asked)

        assert "held back by research (6, uses 0)" in said("adam")
        own = said("erik")
        assert "held back by other tenants" in own
        assert "research" not in own


@pytest.mark.parametrize("who", [ROLES["viewer"], "carl"])
def test_a_colleague_sees_the_job_and_nothing_in_it(yard: Team, who: str) -> None:
    said = everything(yard, yard.tokens[who])

    assert NAME.encode() in said
    assert [] == [canary for canary in INSIDE if canary.encode() in said]


def test_the_owner_and_administrators_read_all_of_it(yard: Team) -> None:
    """Shows that the canaries would be found."""
    for who in ("ulla", "tara", "adam"):
        said = everything(yard, yard.tokens[who])
        assert [] == [canary for canary in (NAME, LOG, ENV, SCRIPT) if canary.encode() not in said]


def test_the_same_words_for_what_is_hidden_and_what_never_was(yard: Team) -> None:
    token = yard.tokens["erik"]

    def words(number: int) -> list[str]:
        answers = [
            yard.call("GET", f"/api/v1/jobs/{number}", token),
            yard.call("GET", f"/api/v1/jobs/{number}/logs", token),
            yard.call("GET", f"/api/v1/jobs/{number}/why", token),
            yard.call("GET", f"/api/v1/jobs/{number}/why?at_ms=5", token),
            yard.call("GET", f"/api/v1/jobs/{number}/eta", token),
            yard.call("DELETE", f"/api/v1/jobs/{number}", token),
            yard.call("POST", f"/api/v1/jobs/{number}/hold", token),
            yard.call(
                "POST", "/api/v1/jobs", token,
                {"command": ["true"], "dependencies": [{"kind": "afterok", "job": number}]},
            ),
        ]  # fmt: skip
        return [
            f"{answer.status} {answer.body.decode().replace(f'job {number}', 'job N')}" for answer in answers
        ]

    never = words(987654)
    assert [never] * 4 == [words(number) for number in (1, 2, 3, 4)]


def test_others_stand_in_the_queue_without_names(yard: Team) -> None:
    own = yard.submit("erik", name="mine")
    token = yard.tokens["erik"]
    queue = yard.call("GET", "/api/v1/queue", token).json
    rows = {row[0]: dict(zip(queue["columns"], row, strict=True)) for row in queue["rows"]}

    empty = {
        "name": "",
        "tenant": "",
        "user": "",
        "class": "",
        "nodes": "",
        "reason": "",
        "attempt_state": "",
    }
    times = {"submitted_ms": 0, "started_ms": 0, "time_limit_s": 0}
    assert rows[2] == {"id": 2, "label": "2", "state": "RUNNING", "gpus": 1} | empty | times
    assert ("mine", "product/erik", "erik") == (rows[own]["name"], rows[own]["tenant"], rows[own]["user"])
    assert {2} < set(rows) - {own}

    def found(query: str) -> list[int]:
        return [row[0] for row in yard.call("GET", f"/api/v1/queue?{query}", token).json["rows"]]

    assert [2] == found("state=RUNNING")
    assert [[], [], [], [own]] == [found(f"user={n}") for n in ("ulla", "tara", "root")] + [
        found("user=erik")
    ]
    assert [] == found(f"name={NAME}")
    assert [] == found("tenant=research")


def test_others_are_on_the_screen_without_names(yard: Team) -> None:
    def on_gpus(who: str) -> list[list[Any]]:
        found = yard.call("GET", "/api/v1/overview", yard.tokens[who]).json
        return [cell for node in found["nodes"] for cell in node["gpus"] if cell[0]]

    assert [[1000, "", "2"]] == on_gpus("erik")
    assert [[1000, "research/ulla", "2"]] == on_gpus("ulla")


def test_tenants_whose_names_begin_alike_are_two(yard: Team) -> None:
    """`Product` and `productive` are not below `product`, also where the database is easy about letters."""
    for tenant in ("research/product", "research/Product/x"):
        yard.call(
            "POST",
            "/api/v1/jobs",
            yard.tokens["adam"],
            {"command": ["true"], "tenant": tenant, "name": "alike"},
        )
    own = yard.submit("erik", name="alike", hold=False)
    yard.until(
        lambda: 3 == len(yard.call("GET", "/api/v1/history?name=alike", yard.tokens["adam"]).json["jobs"])
    )

    found = yard.call("GET", "/api/v1/history?name=alike", yard.tokens["erik"]).json["jobs"]
    assert [own] == [job["id"] for job in found]


def test_a_user_learns_nothing_of_tenants_elsewhere_by_submitting_for_them(yard: Team) -> None:
    """Neither that there is such a tenant nor that there is none."""
    for tenant in ("product", "nothing-here", "product/erik", "nothing-here/x"):
        answer = yard.call(
            "POST", "/api/v1/jobs", yard.tokens["carl"], {"command": ["true"], "tenant": tenant}
        )
        assert (403, f"carl may not submit for {tenant}: user of research") == (
            answer.status,
            answer.json["detail"],
        )
