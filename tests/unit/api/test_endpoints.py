"""The one table of endpoints: what the client and the server make of it agrees."""

import ast
import asyncio
import inspect
import subprocess
import sys
from typing import Any, get_type_hints

import pytest
from fastapi import Request
from pydantic import BaseModel

from gpuyard.api import client
from gpuyard.api.edge import routes
from gpuyard.api.edge.routes import find_body
from gpuyard.api.messages.problems import Problem
from gpuyard.reports.cost import COST
from gpuyard.wire import endpoints, reply_schemas
from gpuyard.wire.endpoints import ENDPOINTS, Endpoint


def asked(method: ast.FunctionDef) -> list[tuple[Endpoint, str]]:
    """The endpoints that a method of the client returns the answer of, with the key that it picks."""
    found = []
    for each in ast.walk(method):
        value = each.value if isinstance(each, ast.Return) else None
        key = ""
        if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Constant):
            value, key = value.value, str(value.slice.value)
        if isinstance(value, ast.Call) and ast.unparse(value.func) == "self.ask_for":
            found.append((getattr(endpoints, ast.unparse(value.args[0]).removeprefix("endpoints.")), key))
    return found


def test_a_method_of_the_client_has_the_type_of_the_reply_in_the_table() -> None:
    (made,) = [each for each in ast.parse(inspect.getsource(client)).body if isinstance(each, ast.ClassDef)
               and each.name == "Client"]  # fmt: skip
    methods = [each for each in made.body if isinstance(each, ast.FunctionDef)]
    said = [
        (each.name, ast.unparse(each.returns), found)
        for each in methods
        if each.returns
        for found in asked(each)
    ]
    assert len(said) > 30

    def expected(endpoint: Endpoint, key: str) -> str:
        form = reply_schemas.find_form(endpoint.reply)
        return endpoint.reply if not key else f"list[{get_type_hints(form)[key].__args__[0].__name__}]"

    assert [] == [name for name, returned, (endpoint, key) in said if returned != expected(endpoint, key)]


def test_the_client_gives_only_what_an_endpoint_takes() -> None:
    calls = [
        (
            getattr(endpoints, name.removeprefix("endpoints.")),
            [word.arg for word in call.keywords if word.arg],
        )
        for call in ast.walk(ast.parse(inspect.getsource(client)))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "ask_for"
        for name in [ast.unparse(call.args[0])]
        if name.startswith("endpoints.")
    ]
    assert len(calls) > 30
    for endpoint, names in calls:
        takes = {each["name"] for each in endpoint.parameters}
        assert [] == [name for name in names if name not in takes and f"{{{name}}}" not in endpoint.path]


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda each: f"{each.method} {each.path}")
def test_an_endpoint_names_forms_that_there_are(endpoint: Endpoint) -> None:
    for name in (endpoint.reply, *endpoint.others.values()):
        made = reply_schemas.make_schemas([reply_schemas.find_form(name)])[name] if name else {}
        assert not name or made.get("properties") or made["anyOf"]
    assert not endpoint.body or issubclass(find_body(endpoint.body), BaseModel)


def test_values_go_into_the_path_and_the_query() -> None:
    made = Endpoint("GET", "/a/{id}/b", endpoints.Action.SELF, "", "", tag="x")
    cases: list[tuple[dict[str, Any], str]] = [
        ({"id": "1/ü"}, "/api/v1/a/1%2F%C3%BC/b"),
        ({"id": 1, "user": "", "limit": None, "after": 0}, "/api/v1/a/%3A1/b?after=0"),
        ({"id": "1", "tenant": "a/b c", "state": "X,Y"}, "/api/v1/a/1/b?tenant=a/b%20c&state=X,Y"),
    ]

    assert [each for _, each in cases] == [made.address(**values) for values, _ in cases]


def test_the_client_waits_for_no_library_of_the_server() -> None:
    code = "import sys, gpuyard.api.client; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()

    slow = {
        "pydantic",
        "fastapi",
        "gpuyard.model",
        "gpuyard.wire.reply_schemas",
        "gpuyard.wire.replies.jobs",
    }
    assert "gpuyard.wire.endpoints" in done
    assert set() == slow & set(done)


@pytest.mark.parametrize(
    ("endpoint", "query", "said", "hint"),
    [
        (COST, "by=tenant&to=2026-11-30", "", ""),
        (endpoints.QUEUE, "state=PENDING&state=RUNNING", "", ""),
        (COST, "tenant=", "GET /api/v1/cost has no parameter 'tenant'", "There are: by, from, to."),
        (COST, "by=tenant&by=user", "the parameter 'by' is given more than once", "Give it once."),
        (endpoints.RECIPE, "a=1", "GET /api/v1/jobs/{id}/recipe has no parameter 'a'", "It takes none."),
    ],
)
def test_a_query_that_would_not_count_is_refused(
    endpoint: Endpoint, query: str, said: str, hint: str
) -> None:
    request = Request({"type": "http", "query_string": query.encode(), "headers": []})
    found = Problem(0, "")
    try:
        asyncio.run(routes._takes(endpoint)(request))
    except Problem as problem:
        found = problem

    assert (said, hint) == (found.detail, found.hint)
