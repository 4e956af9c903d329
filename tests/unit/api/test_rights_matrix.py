"""Every route × role × relation: who gets what, from a table written by hand and held against the real routes.

A route that is not in the table fails here, and so does one that does not say what it is.
"""

import inspect
import json
import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute

from gpuyard.api.client import Client
from gpuyard.api.edge.peers import OPEN_PATHS
from gpuyard.api.edge.routes import ACTION
from gpuyard.control.access.people import Person
from gpuyard.control.access.rights import EVERYTHING
from gpuyard.control.admission.wanted import make_job
from gpuyard.wire.endpoints import DESCRIPTION, Action
from rigs.teams import ADMIN, CONFIG, ROLES, Answer, Team, team

RELATIONS = ("own", "same", "sub", "other")
"""Whose it is: one's own, another's of the same tenant, of a tenant below it, of another tenant."""
OWNERS = {"same": ("carl", "research"), "sub": ("dora", "research/vision"), "other": ("erik", "product")}

# Route                              viewer           user             tenant-admin     admin
#                                    own same sub other, as in RELATIONS
TABLE = """
POST   /api/v1/jobs                  403 403 403 403  201 201 201 403  201 201 201 403  201 201 201 201
GET    /api/v1/jobs                  200 200 200 200  200 200 200 200  200 200 200 200  200 200 200 200
GET    /api/v1/jobs/{id}             200 200 200 404  200 200 200 404  200 200 200 404  200 200 200 200
GET    /api/v1/jobs/{id}/recipe      403 403 403 403  200 403 403 404  200 200 200 404  200 200 200 200
GET    /api/v1/jobs/{id}/request     403 403 403 403  200 403 403 404  200 200 200 404  200 200 200 200
GET    /api/v1/jobs/{id}/curves      200 200 200 404  200 200 200 404  200 200 200 404  200 200 200 200
DELETE /api/v1/jobs/{id}             403 403 403 403  202 403 403 404  202 202 202 404  202 202 202 202
GET    /api/v1/jobs/{id}/logs        403 403 403 403  200 403 403 404  200 200 200 404  200 200 200 200
GET    /api/v1/jobs/{id}/terminal    403 403 403 403  426 403 403 404  426 403 403 404  426 426 426 426
POST   /api/v1/jobs/{id}/cancel      403 403 403 403  202 403 403 404  202 202 202 404  202 202 202 202
POST   /api/v1/jobs/{id}/hold        403 403 403 403  202 403 403 404  202 202 202 404  202 202 202 202
POST   /api/v1/jobs/{id}/release     403 403 403 403  202 403 403 404  202 202 202 404  202 202 202 202
POST   /api/v1/jobs/{id}/suspend     403 403 403 403  409 403 403 404  409 409 409 404  409 409 409 409
POST   /api/v1/jobs/{id}/continue    403 403 403 403  409 403 403 404  409 409 409 404  409 409 409 409
POST   /api/v1/jobs/{id}/requeue     403 403 403 403  409 403 403 404  409 409 409 404  409 409 409 409
POST   /api/v1/jobs/{id}/top         403 403 403 403  403 403 403 403  403 403 403 403  202 202 202 202
POST   /api/v1/jobs/{id}/back        403 403 403 403  403 403 403 403  403 403 403 403  202 202 202 202
POST   /api/v1/jobs/{id}/checkpoint  403 403 403 403  409 403 403 404  409 409 409 404  409 409 409 409
POST   /api/v1/jobs/cancel           403 403 403 403  202 403 403 404  202 202 202 404  202 202 202 202
POST   /api/v1/jobs/hold             403 403 403 403  202 403 403 404  202 202 202 404  202 202 202 202
POST   /api/v1/jobs/release          403 403 403 403  202 403 403 404  202 202 202 404  202 202 202 202
POST   /api/v1/jobs/suspend          403 403 403 403  409 403 403 404  409 409 409 404  409 409 409 409
POST   /api/v1/jobs/continue         403 403 403 403  409 403 403 404  409 409 409 404  409 409 409 409
POST   /api/v1/jobs/requeue          403 403 403 403  409 403 403 404  409 409 409 404  409 409 409 409
POST   /api/v1/jobs/top              403 403 403 403  403 403 403 403  403 403 403 403  202 202 202 202
POST   /api/v1/jobs/back             403 403 403 403  403 403 403 403  403 403 403 403  202 202 202 202
POST   /api/v1/jobs/update           403 403 403 403  202 403 403 404  202 202 202 404  202 202 202 202
POST   /api/v1/jobs/{id}/update/dry-run 403 403 403 403  200 403 403 404  200 200 200 404  200 200 200 200
GET    /api/v1/jobs/{id}/why         200 200 200 404  200 200 200 404  200 200 200 404  200 200 200 200
GET    /api/v1/jobs/{id}/eta         200 200 200 404  200 200 200 404  200 200 200 404  200 200 200 200
POST   /api/v1/jobs/dry-run          403 403 403 403  200 200 200 403  200 200 200 403  200 200 200 200
POST   /api/v1/jobs/read             403 403 403 403  200 200 200 200  200 200 200 200  200 200 200 200
GET    /api/v1/queue                 200 200 200 200  200 200 200 200  200 200 200 200  200 200 200 200
GET    /api/v1/changes               200 200 200 200  200 200 200 200  200 200 200 200  200 200 200 200
GET    /api/v1/history               200 200 200 200  200 200 200 200  200 200 200 200  200 200 200 200
GET    /api/v1/nodes                 200 200 200 200  200 200 200 200  200 200 200 200  200 200 200 200
GET    /api/v1/overview              200 200 200 200  200 200 200 200  200 200 200 200  200 200 200 200
GET    /api/v1/tenants               200 200 200 200  200 200 200 200  200 200 200 200  200 200 200 200
GET    /api/v1/share                 200 200 200 404  200 200 200 404  200 200 200 404  200 200 200 200
POST   /api/v1/nodes/{name}/drain    403 403 403 403  403 403 403 403  403 403 403 403  200 200 200 200
POST   /api/v1/nodes/{name}/resume   403 403 403 403  403 403 403 403  403 403 403 403  200 200 200 200
POST   /api/v1/nodes/marks           403 403 403 403  403 403 403 403  403 403 403 403  200 200 200 200
GET    /api/v1/nodes/marks           200 200 200 200  200 200 200 200  200 200 200 200  200 200 200 200
GET    /api/v1/nodes/{name}/marks    200 200 200 200  200 200 200 200  200 200 200 200  200 200 200 200
POST   /api/v1/nodes/{name}/samples  403 403 403 403  403 403 403 403  403 403 403 403  200 200 200 200
GET    /api/v1/gpus                  200 200 200 200  200 200 200 200  200 200 200 200  200 200 200 200
GET    /metrics                      200 200 200 200  200 200 200 200  200 200 200 200  200 200 200 200
GET    /api/v1/efficiency            200 200 200 404  200 200 200 404  200 200 200 404  200 200 200 200
GET    /api/v1/topology              200 200 200 200  200 200 200 200  200 200 200 200  200 200 200 200
GET    /api/v1/budgets               200 200 200 200  200 200 200 200  200 200 200 200  200 200 200 200
GET    /api/v1/cost                  200 200 200 200  200 200 200 200  200 200 200 200  200 200 200 200
GET    /api/v1/cost/statement        200 200 200 404  200 200 200 404  200 200 200 404  200 200 200 200
GET    /api/v1/cost/tco              422 422 422 422  422 422 422 422  422 422 422 422  422 422 422 422
GET    /api/v1/cost/savings          200 200 200 200  200 200 200 200  200 200 200 200  200 200 200 200
GET    /api/v1/cost/focus            200 200 200 200  200 200 200 200  200 200 200 200  200 200 200 200
GET    /api/v1/usage                 200 200 200 200  200 200 200 200  200 200 200 200  200 200 200 200
GET    /api/v1/waits                 200 200 200 200  200 200 200 200  200 200 200 200  200 200 200 200
GET    /api/v1/doctor                200 200 200 200  200 200 200 200  200 200 200 200  200 200 200 200
GET    /api/v1/duties                403 403 403 403  403 403 403 403  403 403 403 403  200 200 200 200
GET    /api/v1/mig                   200 200 200 200  200 200 200 200  200 200 200 200  200 200 200 200
POST   /api/v1/mig/plan              200 200 200 200  200 200 200 200  200 200 200 200  200 200 200 200
POST   /api/v1/nodes/{name}/mig      403 403 403 403  403 403 403 403  403 403 403 403  200 200 200 200
POST   /api/v1/nodes/{name}/mig/release 403 403 403 403  403 403 403 403  403 403 403 403  200 200 200 200
GET    /api/v1/defrag                403 403 403 403  403 403 403 403  403 403 403 403  200 200 200 200
GET    /api/v1/config                403 403 403 403  403 403 403 403  403 403 403 403  200 200 200 200
PUT    /api/v1/config                403 403 403 403  403 403 403 403  403 403 403 403  200 200 200 200
GET    /api/v1/config/versions       403 403 403 403  403 403 403 403  403 403 403 403  200 200 200 200
GET    /api/v1/config/versions/{version} 403 403 403 403  403 403 403 403  403 403 403 403  200 200 200 200
POST   /api/v1/config/diff           403 403 403 403  403 403 403 403  403 403 403 403  200 200 200 200
POST   /api/v1/config/preview        403 403 403 403  403 403 403 403  403 403 403 403  200 200 200 200
POST   /api/v1/config/rollback       403 403 403 403  403 403 403 403  403 403 403 403  200 200 200 200
POST   /api/v1/prune                 403 403 403 403  403 403 403 403  403 403 403 403  200 200 200 200
POST   /api/v1/cost/months/{month}/close 403 403 403 403  403 403 403 403  403 403 403 403  409 409 409 409
GET    /api/v1/projections           403 403 403 403  403 403 403 403  403 403 403 403  200 200 200 200
POST   /api/v1/projections/{name}/rebuild 403 403 403 403  403 403 403 403  403 403 403 403  202 202 202 202
GET    /api/v1/debug/snapshot        403 403 403 403  403 403 403 403  403 403 403 403  200 200 200 200
GET    /api/v1/events                403 403 403 403  403 403 403 403  403 403 403 403  200 200 200 200
GET    /api/v1/audit                 403 403 403 403  403 403 403 403  403 403 403 403  200 200 200 200
GET    /api/v1/me                    200 200 200 200  200 200 200 200  200 200 200 200  200 200 200 200
GET    /api/v1/tokens                200 200 200 200  200 200 200 200  200 200 200 200  200 200 200 200
POST   /api/v1/tokens                403 403 403 403  403 403 403 403  201 201 201 403  201 201 201 201
DELETE /api/v1/logins/{user}         403 403 403 403  403 403 403 403  403 403 403 403  200 200 200 200
DELETE /api/v1/tokens/{id}           200 404 404 404  200 404 404 404  200 200 200 404  200 200 200 200
POST   /api/v1/login/codes           201 201 201 201  201 201 201 201  201 201 201 201  201 201 201 201
POST   /api/v1/logout                200 200 200 200  200 200 200 200  200 200 200 200  200 200 200 200
"""
OPEN = {
    ("GET", "/"): 200,
    ("GET", "/healthz"): 200,
    ("GET", "/readyz"): 200,
    ("GET", "/version"): 200,
    ("GET", "/api/v1/login"): 200,
    ("POST", "/api/v1/login/oidc"): 409,
    ("POST", "/api/v1/login/oidc/code"): 409,
    ("GET", "/api/v1/login/provider"): 409,
    ("POST", "/api/v1/login/browser"): 422,
    ("GET", "/assets/{name}"): 404,
    ("GET", "/api/v1/openapi.json"): 200,
}
"""What anybody gets, known or not. There is no identity provider here."""


def rows() -> Iterator[tuple[str, str, dict[str, dict[str, int]]]]:
    for line in TABLE.strip().splitlines():
        method, path, *codes = line.split()
        assert 16 == len(codes), line
        cells = iter(map(int, codes))
        yield method, path, {role: {each: next(cells) for each in RELATIONS} for role in ROLES}


ROWS = list(rows())


def routes_of(routes: Any, prefix: str = "") -> Iterator[tuple[str, str, Any]]:
    """Every route that the application serves, also those that its description does not mention."""
    for route in routes:
        inner = getattr(route, "original_router", None)
        if inner is not None:
            yield from routes_of(inner.routes, prefix + route.include_context.prefix)
            continue
        for method in sorted(route.methods - {"HEAD"} if "GET" in route.methods else route.methods):
            yield method, prefix + route.path, route


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    with team(tmp_path_factory.mktemp("matrix")) as made:
        yield made


def test_the_table_has_every_route_and_no_other(yard: Team) -> None:
    served = {(method, path) for method, path, _ in routes_of(yard.app.routes)}

    assert served == {(method, path) for method, path, _ in ROWS} | set(OPEN)


def test_every_route_says_what_it_is(yard: Team) -> None:
    silent = [
        f"{method} {path}"
        for method, path, route in routes_of(yard.app.routes)
        if isinstance(route, APIRoute)
        and (route.openapi_extra or {}).get(ACTION) not in {a.value for a in Action}
    ]
    open_ = {
        path
        for _, path, route in routes_of(yard.app.routes)
        if isinstance(route, APIRoute) and (route.openapi_extra or {})[ACTION] == Action.ANYBODY.value
    }

    assert [] == silent
    assert open_ | {DESCRIPTION} == OPEN_PATHS
    assert {path for _, path in OPEN} == OPEN_PATHS


RECORDED = Path(__file__).parents[2] / "golden" / "api.json"


def test_the_api_is_as_recorded(yard: Team) -> None:
    """Its description, the rights its routes need, and the client's methods. `UPDATE_GOLDEN=1` records them anew.

    A difference is a change for programs that use the API: say it in CHANGELOG.md.
    """
    described = yard.app.openapi()
    found = {
        f"{part} {name}": text
        for part, entries in {
            "schema": described["components"]["schemas"],
            "path": described["paths"],
            "right": {
                f"{method} {path}": route.openapi_extra[ACTION]
                for method, path, route in routes_of(yard.app.routes)
                if isinstance(route, APIRoute) and route.openapi_extra
            },
            "client": {
                name: re.sub(r"'(?=\w)|(?<=[\w\]])'|(?:\w+\.)+(?=[A-Z])", "", str(inspect.signature(method)))
                for name, method in inspect.getmembers(Client, inspect.isfunction)
                if not name.startswith("_")
            },
        }.items()
        for name, text in entries.items()
    }
    if os.environ.get("UPDATE_GOLDEN"):
        lines = [f"{json.dumps(name)}: {json.dumps(found[name], sort_keys=True)}" for name in sorted(found)]
        RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n")

    assert json.loads(RECORDED.read_text()) == json.loads(json.dumps(found))


def job(yard: Team, role: str, relation: str) -> int:
    """A held job of that relation. A viewer's own is one from when they were more."""
    if relation == "own":
        name = ROLES[role]
        if role == "viewer":
            return job_as_viewer(yard, name)
        return yard.submit(name, "" if role != "admin" else "research/adam")
    owner, tenant = OWNERS[relation]
    return yard.submit(owner, tenant)


def job_as_viewer(yard: Team, name: str) -> int:
    once = Person(ADMIN.uid, ADMIN.gid, name, False, ADMIN.name, EVERYTHING)
    new = make_job(command=("true",), hold=True, name="old", tenant=f"research/{name}")
    return yard.yard.requests.submit(once, new, Future()).result(120).first_id


def tenant_of(role: str, relation: str) -> str:
    return f"research/{ROLES[role]}" if relation == "own" else OWNERS[relation][1]


def submitted(path: str) -> Callable[[Team, str, str, str], Answer]:
    def ask(yard: Team, token: str, role: str, relation: str) -> Answer:
        wanted = {"command": ["true"], "hold": True, "tenant": tenant_of(role, relation)}
        return yard.call("POST", path, token, wanted)

    return ask


def changed(yard: Team, token: str, role: str, relation: str) -> Answer:
    wanted = {"ids": [job(yard, role, relation)], "change": {"name": "other"}}
    answer = yard.call("POST", "/api/v1/jobs/update", token, wanted)
    if answer.status == 200:
        answer.status = answer.json["results"][0]["status"]
    return answer


def tried(yard: Team, token: str, role: str, relation: str) -> Answer:
    path = f"/api/v1/jobs/{job(yard, role, relation)}/update/dry-run"
    return yard.call("POST", path, token, {"name": "other"})


def shared(yard: Team, token: str, role: str, relation: str) -> Answer:
    job(yard, role, relation)
    return yard.call("GET", f"/api/v1/share?tenant={tenant_of(role, relation)}", token)


def stated(yard: Team, token: str, role: str, relation: str) -> Answer:
    job(yard, role, relation)
    return yard.call("GET", f"/api/v1/cost/statement?tenant={tenant_of(role, relation)}", token)


def configured(
    method: str, path: str, body: dict[str, Any] | None
) -> Callable[[Team, str, str, str], Answer]:
    def ask(yard: Team, token: str, _role: str, _relation: str) -> Answer:
        return yard.call(method, path, token, body)

    return ask


def new_token(yard: Team, token: str, role: str, relation: str) -> Answer:
    user = ROLES[role] if relation == "own" else OWNERS[relation][0]
    return yard.call("POST", "/api/v1/tokens", token, {"user": user, "days": 1})


def revoked(yard: Team, token: str, role: str, relation: str) -> Answer:
    user = ROLES[role] if relation == "own" else OWNERS[relation][0]
    secret = yard.token(user)
    return yard.call("DELETE", f"/api/v1/tokens/{secret.split('_')[1]}", token)


def unbound(yard: Team, token: str, role: str, relation: str) -> Answer:
    name = ROLES[role] if relation == "own" else OWNERS[relation][0]
    limit = yard.token_service.directory.limit(name)
    assert limit is not None
    proof = f"{role} {relation} {name}"
    yard.token_service.login(name, limit, f"https://id.example {name}", proof, 60_000).result(120)
    return yard.call("DELETE", f"/api/v1/logins/{name}", token)


def pinned(yard: Team, token: str, _role: str, _relation: str) -> Answer:
    name = yard.yard.replica.state.nodes.node[0].name
    wanted = {"layouts": [{"layout": "7x1g.10gb", "gpus": [7]}]}
    return yard.call("POST", f"/api/v1/nodes/{name}/mig", token, wanted)


def node(verb: str) -> Callable[[Team, str, str, str], Answer]:
    def ask(yard: Team, token: str, _role: str, _relation: str) -> Answer:
        name = yard.yard.replica.state.nodes.node[0].name
        return yard.call("POST", f"/api/v1/nodes/{name}/{verb}", token)

    return ask


def marked(yard: Team, token: str, _role: str, _relation: str) -> Answer:
    name = yard.yard.replica.state.nodes.node[0].name
    return yard.call("POST", "/api/v1/nodes/marks", token, {"nodes": [name], "labels": {"zone": "a"}})


def marks(yard: Team, token: str, _role: str, _relation: str) -> Answer:
    name = yard.yard.replica.state.nodes.node[0].name
    return yard.call("GET", f"/api/v1/nodes/{name}/marks", token)


def samples(yard: Team, token: str, _role: str, _relation: str) -> Answer:
    name = yard.yard.replica.state.nodes.node[0].name
    body = {"sent_ms": 1, "steady_ms": 1, "at_ms": [], "series": {}}
    return yard.call("POST", f"/api/v1/nodes/{name}/samples", token, body)


def efficient(yard: Team, token: str, role: str, relation: str) -> Answer:
    return yard.call("GET", f"/api/v1/efficiency?job={job(yard, role, relation)}", token)


SPECIAL: dict[tuple[str, str], Callable[[Team, str, str, str], Answer]] = {
    ("POST", "/api/v1/jobs"): submitted("/api/v1/jobs"),
    ("POST", "/api/v1/jobs/dry-run"): submitted("/api/v1/jobs/dry-run"),
    ("POST", "/api/v1/jobs/read"): configured("POST", "/api/v1/jobs/read", {"text": "command: ['true']"}),
    ("POST", "/api/v1/jobs/update"): changed,
    ("POST", "/api/v1/jobs/{id}/update/dry-run"): tried,
    ("GET", "/api/v1/share"): shared,
    ("GET", "/api/v1/cost/statement"): stated,
    ("GET", "/api/v1/efficiency"): efficient,
    ("GET", "/api/v1/usage"): configured("GET", "/api/v1/usage?from_ms=0&until_ms=3600000", None),
    ("PUT", "/api/v1/config"): configured("PUT", "/api/v1/config", {"yaml": CONFIG}),
    ("GET", "/api/v1/config/versions/{version}"): configured("GET", "/api/v1/config/versions/1", None),
    ("POST", "/api/v1/config/diff"): configured("POST", "/api/v1/config/diff", {"yaml": CONFIG}),
    ("POST", "/api/v1/config/preview"): configured("POST", "/api/v1/config/preview", {"yaml": CONFIG}),
    ("POST", "/api/v1/config/rollback"): configured("POST", "/api/v1/config/rollback", {"version": 1}),
    ("POST", "/api/v1/prune"): configured("POST", "/api/v1/prune", {"dry_run": True}),
    ("POST", "/api/v1/projections/{name}/rebuild"): configured(
        "POST", "/api/v1/projections/gpu-time/rebuild", None
    ),
    # A month that has not ended: refused for administrators too.
    ("POST", "/api/v1/cost/months/{month}/close"): configured(
        "POST", "/api/v1/cost/months/2099-01/close", None
    ),
    ("POST", "/api/v1/tokens"): new_token,
    ("DELETE", "/api/v1/tokens/{id}"): revoked,
    ("DELETE", "/api/v1/logins/{user}"): unbound,
    ("POST", "/api/v1/nodes/{name}/drain"): node("drain"),
    ("POST", "/api/v1/nodes/{name}/resume"): node("resume"),
    ("POST", "/api/v1/nodes/marks"): marked,
    ("GET", "/api/v1/nodes/{name}/marks"): marks,
    ("POST", "/api/v1/nodes/{name}/samples"): samples,
    ("POST", "/api/v1/mig/plan"): configured("POST", "/api/v1/mig/plan", {}),
    ("POST", "/api/v1/nodes/{name}/mig"): pinned,
    ("POST", "/api/v1/nodes/{name}/mig/release"): node("mig/release"),
}


def asked(yard: Team, method: str, path: str, role: str, relation: str) -> Answer:
    token = yard.tokens[ROLES[role]]
    if (method, path) in SPECIAL:
        return SPECIAL[method, path](yard, token, role, relation)
    if "{id}" in path:
        return yard.call(method, path.replace("{id}", str(job(yard, role, relation))), token)
    if method == "POST":
        answer = yard.call(method, path, token, {"ids": [job(yard, role, relation)]})
        if answer.status == 200 and "results" in answer.json:
            answer.status = answer.json["results"][0]["status"]
        return answer
    return yard.call(method, path, token, most_s=0.3 if path.endswith(("/events", "/changes")) else None)


@pytest.mark.parametrize(("method", "path", "expected"), ROWS, ids=[f"{m} {p}" for m, p, _ in ROWS])
def test_role_and_relation(yard: Team, method: str, path: str, expected: dict[str, dict[str, int]]) -> None:
    found = {
        role: {each: asked(yard, method, path, role, each).status for each in RELATIONS} for role in ROLES
    }

    assert expected == found


def test_a_collector_reaches_one_route_and_no_other(yard: Team) -> None:
    name = yard.yard.replica.state.nodes.node[0].name
    token = yard.token(name, role="collector")
    answered = {}
    for method, path, _cells in ROWS:
        address = path.replace("{id}", "1").replace("{name}", name).replace("{user}", "x")
        body = {"command": ["true"]} if method == "POST" else None
        answered[f"{method} {path}"] = yard.call(method, address, token, body).status

    assert 422 == answered.pop("POST /api/v1/nodes/{name}/samples")
    assert {403} == set(answered.values()), {each for each, status in answered.items() if status != 403}


def bad_tokens(yard: Team) -> dict[str, str]:
    revoked = yard.token("adam")
    assert 200 == yard.call("DELETE", f"/api/v1/tokens/{revoked.split('_')[1]}", yard.tokens["adam"]).status
    good = yard.tokens["adam"]
    return {
        "none": "",
        "nonsense": "nonsense",
        "another secret": good[:-1] + ("0" if good[-1] != "0" else "1"),
        "another id": "yard_aaaaaaaaaa_" + good.rpartition("_")[2],
        "expired": yard.expired("adam"),
        "revoked": revoked,
        "the loopback token": yard.yard.token,
    }


def test_who_has_no_good_token_gets_nothing(yard: Team) -> None:
    wrong = [
        (why, method, path)
        for why, token in bad_tokens(yard).items()
        for method, path, _ in ROWS
        if 401 != (got := yard.call(method, re.sub("{.*}", "1", path), token)).status
        or "WWW-Authenticate".lower() not in got.headers
    ]

    assert [] == wrong


@pytest.mark.parametrize(("method", "path"), list(OPEN))
def test_what_anybody_gets(yard: Team, method: str, path: str) -> None:
    body = {"id_token": "x", "nonce": "n" * 32} if method == "POST" else None
    answer = yard.call(method, path, body=body)

    assert OPEN[method, path] == answer.status
    assert b"postgresql" not in answer.body
    assert str(yard.yard.store.place).encode() not in answer.body


def test_what_jobs_cost_is_told_of_tenants_in_sight_alone(yard: Team) -> None:
    """In `/history` and of one job; reports: tests/unit/report/test_money_sight.py."""
    ids = {tenant: yard.submit(owner, tenant) for owner, tenant in OWNERS.values()}
    research = {"research", "research/vision"}
    seen = {"dora": {"research/vision"}, "erik": {"product"}, "adam": {*ids}}
    seen |= dict.fromkeys(("vera", "ulla", "tara", "carl"), research)
    for job_id in ids.values():
        assert 202 == yard.call("DELETE", f"/api/v1/jobs/{job_id}", yard.tokens["adam"]).status

    def told(user: str) -> dict[int, Any]:
        jobs = yard.call("GET", "/api/v1/history?limit=1000", yard.tokens[user]).json["jobs"]
        return {job["id"]: job["used"]["cost_usd"] for job in jobs if job["id"] in ids.values()}

    yard.until(lambda: len(told("adam")) == len(ids))
    for user, tenants in seen.items():
        assert {ids[tenant] for tenant in tenants} == set(told(user)), user
        for tenant, job_id in ids.items():
            answer = yard.call("GET", f"/api/v1/jobs/{job_id}", yard.tokens[user])
            assert (200 if tenant in tenants else 404) == answer.status, (user, tenant)
            assert (tenant in tenants) == (b"cost_usd" in answer.body)
