"""Two hundred submissions that no one should send: each gets a clear 4xx and changes nothing."""

import base64
import json
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import pytest

from harness.patience import patient

from .conftest import Box

OK: dict[str, Any] = {"command": ["true"], "hold": True}
HUGE = 10**30
FAR = base64.urlsafe_b64encode(b"b99999999999999999999").decode().rstrip("=")
"""A cursor as the server makes them, with a number that no store can look for."""
SPICE = ["'", '"', "`id`", "$(id)", "; rm -rf /", "| cat", "&& true", "> /etc/passwd", "\\", "*", "?", "!", "#",
         "%s%n", "~root", "{a,b}", "<x>", "\n", "\r\n", "\t", "\x1b[31m", "\x00", "\u202e", "\u200b", "../x", "..",
         "../../etc", "a//b", "/abs", "-rf", ".hidden", " lead", "_x"]  # fmt: skip
"""Names that a shell, a path or a terminal would make something of."""


class Case(NamedTuple):
    """A submission and what is to be said about it."""

    name: str
    body: bytes
    says: str
    headers: tuple[str, ...] = ()


def job(**fields: Any) -> bytes:
    return json.dumps({**OK, **fields}).encode()


def numbers() -> Iterator[Case]:
    """Every number below, above, and of another kind than it may be."""
    whole = ("gpus", "tasks", "memory_mib", "time_limit_s", "begin_ms", "deadline_ms", "warn_signal", "warn_s",
             "checkpoint_s", "retries")  # fmt: skip
    for field in (*whole, "cpus"):
        for name, value in (
            ("negative", -1),
            ("huge", HUGE),
            ("text", "8"),
            ("true", True),
            ("list", [1]),
            ("null", None),
        ):
            if (field, name) not in {("time_limit_s", "null"), ("cpus", "null")}:
                yield Case(f"{field} {name}", job(**{field: value}), field)
    for field in whole:
        yield Case(f"{field} fraction", job(**{field: 1.5}), field)
    yield Case("a million GPUs", job(gpus=10**6), "gpus")
    yield Case("more GPUs than there are", job(gpus=9), "the largest node has 8")
    yield Case("more GPUs than fit together", job(gpus=8, tasks=2), "cannot hold it")
    yield Case("no tasks", job(tasks=0), "tasks")
    yield Case("no time", job(time_limit_s=0), "time_limit_s")
    yield Case("more cores than there are", job(cpus=99_999), "cores on one node")
    yield Case("a sliver of a core", job(cpus=0.00001), "finer than a thousandth")
    yield Case("more memory than there is", job(memory_mib=1 << 29), "GiB on one node")
    yield Case("half a GPU", job(gpus=0.5), "gpus")


def texts() -> Iterator[Case]:
    for spice in SPICE:
        yield Case(f"name {spice!r}", job(name=f"{spice}" if spice[:1] in "._- /" else f"x{spice}"), "name")
    for spice in SPICE:
        yield Case(f"tenant {spice!r}", job(tenant=spice), "tenant")
    for field in ("name", "tenant", "class"):
        yield Case(f"{field} too long", job(**{field: "x" * 5000}), field)
        yield Case(f"{field} of another kind", job(**{field: 7}), field)
    yield Case("half a surrogate", b'{"command": ["true"], "name": "\\ud800"}', "name")
    yield Case("half a surrogate to run", b'{"command": ["\\udfff"]}', "command")
    yield Case("unknown class", job(**{"class": "bacth"}), "did you mean 'batch'?")
    yield Case("unknown model", job(gpus=1, gpu_models=["A100-8GB"]), "did you mean 'A100-80GB'?")
    yield Case("a model that is not here", job(gpus=1, gpu_models=["H100"]), "the fleet has A100-80GB")
    yield Case("too many models", job(gpu_models=["H100"] * 50), "gpu_models")
    yield Case("an empty model", job(gpu_models=[""]), "gpu_models")
    yield Case("a script of 10 MB", job(script="#!/bin/sh\n" + "x" * 10_000_000), "larger than 2048 KiB")
    yield Case("a script of 1.5 MB", job(script="#!/bin/sh\n" + "x" * 1_500_000), "script")
    yield Case("a script with NUL", job(script="#!/bin/sh\necho \0"), "NUL")
    yield Case("a script without #!", job(script="echo hi"), "must begin with")
    yield Case("a script that is a list", job(script=["#!/bin/sh"]), "script")


def commands() -> Iterator[Case]:
    yield Case("nothing to run", b"{}", "there is nothing to run")
    yield Case("an empty command", job(command=[]), "there is nothing to run")
    yield Case("an empty program", job(command=[""]), "there is nothing to run")
    yield Case("a command line as text", job(command="rm -rf /"), "command")
    yield Case("a command with NUL", job(command=["echo", "a\0b"]), "NUL")
    yield Case("a word too long", job(command=["echo", "x" * 200_000]), "command")
    yield Case("too many words", job(command=["x"] * 20_000), "command")
    yield Case("a word that is a number", job(command=["sleep", 5]), "command")
    yield Case("a null command", job(command=None), "command")
    yield Case("variables as a list", job(env=["A=1"]), "env")
    yield Case("a variable without a name", job(env={"": "x"}), "env")
    yield Case("a variable with =", job(env={"A=B": "x"}), "env")
    yield Case("a variable with NUL", job(env={"A": "x\0y"}), "env")
    yield Case("a variable's name with NUL", job(env={"A\0": "x"}), "env")
    yield Case("a variable that is a number", job(env={"A": 1}), "env")
    yield Case("too large an environment", job(env={f"V{n}": "x" * 1000 for n in range(300)}), "env")
    yield Case("too many variables", job(env={f"V{n}": "" for n in range(11_000)}), "env")
    yield Case("a folder that is not absolute", job(cwd="../.."), "cwd")
    yield Case("a folder with NUL", job(cwd="/tmp/\0"), "cwd")
    yield Case("a folder too long", job(cwd="/" + "x" * 5000), "cwd")
    for field in ("stdout", "stderr"):
        yield Case(f"{field} with NUL", job(**{field: "x\0"}), field)
        yield Case(f"{field} too long", job(**{field: "x" * 5000}), field)
    for field in ("requeue", "hold"):
        for value in (1, "yes", None):
            yield Case(f"{field} {value!r}", job(**{field: value}), field)
    yield Case("a warning without a signal", job(warn_s=5), "warn_signal")


def arrays() -> Iterator[Case]:
    for text in ("", "x", "5-1", "0-", "-5", "1,,2", "0-9:0", "0-10000", "0-999999999", "1-2-3", "0x10", "1.5", "0-9%2",
                 "9" * 500, "٣", "1;2"):  # fmt: skip
        yield Case(f"array {text[:20]!r}", job(array=text), "array")
    yield Case("an array that is a number", job(array=10), "array")
    yield Case("an array that is a list", job(array=[1, 2]), "array")


def forms() -> Iterator[Case]:
    yield Case("unknown field", job(gpuss=1), "did you mean 'gpus'?")
    yield Case("many unknown fields", job(**{f"x{n}": n for n in range(1000)}), "and 990 more")
    for field in ("id", "user", "uid", "state", "recipe", "klass", "__class__", "epoch"):
        yield Case(f"field {field}", job(**{field: "root"}), "unknown field")
    yield Case("nothing at all", b"", "empty")
    yield Case("only blanks", b"  \n ", "empty")
    yield Case("not JSON", b"command=true", "not JSON")
    yield Case("half of it", b'{"command": ["true"]', "not JSON")
    yield Case("two of them", b'{"command": ["true"]} {}', "not JSON")
    yield Case("a comma too many", b'{"command": ["true"],}', "not JSON")
    yield Case("single quotes", b"{'command': ['true']}", "not JSON")
    for name, body in (
        ("list", b"[]"),
        ("text", b'"x"'),
        ("number", b"7"),
        ("null", b"null"),
        ("true", b"true"),
    ):
        yield Case(f"a {name}", body, "one JSON object")
    yield Case("NaN", b'{"command": ["true"], "cpus": NaN}', "NaN")
    yield Case("Infinity", b'{"command": ["true"], "cpus": Infinity}', "Infinity")
    yield Case("minus Infinity", b'{"command": ["true"], "cpus": -Infinity}', "Infinity")
    yield Case("out of all bounds", b'{"command": ["true"], "cpus": 1e999}', "cpus")
    yield Case("a key twice", b'{"command": ["true"], "gpus": 1, "gpus": 8}', "'gpus' occurs twice")
    yield Case("a key twice below", b'{"command": ["true"], "env": {"A": "1", "A": "2"}}', "'A' occurs twice")
    yield Case(
        "a number of 5000 digits", b'{"command": ["true"], "gpus": ' + b"9" * 5000 + b"}", "more digits"
    )
    yield Case("deep lists", b'{"command": ' + b"[" * 20_000 + b"]" * 20_000 + b"}", "nested too deeply")
    yield Case("deep objects", b'{"a":' * 11_000 + b"1" + b"}" * 11_000, "nested too deeply")
    yield Case("not UTF-8", b'{"command": ["\xff\xfe"]}', "byte 15 of the body is not UTF-8")
    yield Case("UTF-16", '{"command": ["true"]}'.encode("utf-16"), "not UTF-8")
    yield Case("a byte order mark", b"\xef\xbb\xbf" + job(), "not JSON")
    yield Case("a NUL between", b'{"command"\x00: ["true"]}', "not JSON")
    yield Case("another type", job(), "not application/json", ("Content-Type: text/yaml",))
    yield Case("a form", job(), "not application/json", ("Content-Type: application/x-www-form-urlencoded",))
    yield Case("an empty key", job(), "Idempotency-Key", ("Idempotency-Key:  ",))
    yield Case("a long key", job(), "Idempotency-Key", (f"Idempotency-Key: {'k' * 201}",))
    yield Case("a key that is not ASCII", job(), "Idempotency-Key", ("Idempotency-Key: k\xe9",))


CASES = [*numbers(), *texts(), *commands(), *arrays(), *forms()]


def post(box: Box, body: bytes, headers: tuple[str, ...], token: str) -> tuple[int, str, dict[str, Any]]:
    """One request, byte by byte as it is, on a connection of its own."""
    kinds = (
        ()
        if any(line.startswith("Content-Type") for line in headers)
        else ("Content-Type: application/json",)
    )
    lines = ["POST /api/v1/jobs HTTP/1.1", "Host: localhost", f"Authorization: Bearer {token}", "Connection: close",
             f"Content-Length: {len(body)}", *kinds, *headers, "", ""]  # fmt: skip
    with socket.create_connection(("127.0.0.1", box.note()["port"]), timeout=patient(20)) as connection:
        # The answer to what is too long comes before all of it was sent.
        with suppress(ConnectionError):
            connection.sendall("\r\n".join(lines).encode("latin-1") + body)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    head, _, content = answer.partition(b"\r\n\r\n")
    kind = next(
        line for line in head.decode("latin-1").lower().split("\r\n") if line.startswith("content-type:")
    )
    return int(head.split()[1]), kind, json.loads(content)


def state(box: Box) -> Any:
    """What there is, less what time alone changes."""
    with box.client() as client:
        queue = client.queue()
        return queue["rows"], [job["id"] for job in client.history(limit=1000).jobs]


def test_there_are_two_hundred_of_them() -> None:
    assert len(CASES) >= 200
    assert len(CASES) == len({case.name for case in CASES})


def test_each_gets_a_clear_refusal_and_changes_nothing(box: Box) -> None:
    token = (box.data / "token").read_text().strip()
    first = box.submit("--hold", "--", "true")
    before = state(box)
    wrong = []
    for case in CASES:
        status, kind, problem = post(box, case.body, case.headers, token)
        detail = problem.get("detail", "")
        fine = (
            400 <= status < 500
            and "application/problem+json" in kind
            and {"type", "title", "status", "detail"} <= problem.keys()
            and case.says in detail
            and len(detail) < 2000
        )
        if not fine:
            wrong.append(f"{case.name}: {status} {detail[:200]!r}, wanted {case.says!r}")

    assert [] == wrong, "\n".join(wrong)
    assert before == state(box)
    assert first + 1 == box.submit("--hold", "--", "true"), "no id was used up"
    assert [] == json.loads(box("queue", "-o", "json", "--state", "RUNNING").out)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/v1/jobs/0", 422),
        ("GET", "/api/v1/jobs/-1", 422),
        ("GET", "/api/v1/jobs/1e3", 422),
        ("GET", "/api/v1/jobs/%2e%2e", 422),
        ("GET", "/api/v1/jobs/..%2f..%2fetc", 404),
        ("GET", f"/api/v1/jobs/{'9' * 400}", 422),
        ("GET", "/api/v1/jobs/999999", 404),
        ("GET", "/api/v1/jobs/1_999999", 404),
        ("DELETE", "/api/v1/jobs/999999", 404),
        ("GET", "/api/v1/jobs?state=RUNING", 422),
        ("GET", "/api/v1/jobs?limit=0", 422),
        ("GET", "/api/v1/jobs?limit=99999", 422),
        ("GET", "/api/v1/jobs?cursor=x", 422),
        ("GET", "/api/v1/jobs?tenant=%00", 422),
        ("GET", f"/api/v1/jobs?cursor={FAR}", 422),
        ("GET", f"/api/v1/history?cursor={FAR}", 422),
        ("GET", f"/api/v1/audit?cursor={FAR}", 422),
        ("GET", f"/api/v1/jobs/1/why?at_ms={(1 << 52) - 1}", 422),
        ("GET", f"/api/v1/history?since_ms={(1 << 52) - 1}", 422),
        ("GET", "/api/v1/history?state=PENDING", 422),
        ("GET", "/api/v1/history?since_ms=-1", 422),
        ("GET", "/api/v1/jobs/999999/logs", 404),
        ("GET", "/api/v1/events?after=x", 422),
        ("POST", "/api/v1/jobs/999999/hold", 404),
        ("POST", "/api/v1/nodes/..%2f/drain", 404),
        ("POST", "/api/v1/nodes/nowhere/drain", 404),
        ("PUT", "/api/v1/jobs", 405),
        ("GET", "/nowhere", 404),
    ],
)
def test_other_requests_that_make_no_sense(box: Box, method: str, path: str, status: int) -> None:
    token = (box.data / "token").read_text().strip()
    lines = [
        f"{method} {path} HTTP/1.1",
        "Host: localhost",
        f"Authorization: Bearer {token}",
        "Connection: close",
        "",
        "",
    ]
    with socket.create_connection(("127.0.0.1", box.note()["port"]), timeout=patient(20)) as connection:
        connection.sendall("\r\n".join(lines).encode())
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    head, _, content = answer.partition(b"\r\n\r\n")
    assert status == int(head.split()[1]), content
    assert json.loads(content)["detail"]


STEERS = "\x1b]0;owned\x07\x1b[2J\u202e\u2066\nID  FORGED\r\x9b31m"
"""Renames a window, clears a screen, turns the direction of what follows, and forges a line."""


def test_what_a_job_controls_is_shown_and_never_sent(box: Box) -> None:
    folder = f"/nowhere/{STEERS}"
    command = ["true", STEERS]
    with box.client() as client:
        job = client.submit(command=command, cwd=folder, stdout=f"/nowhere/{STEERS}", name="steers")
    number = box.wait(job["id"], "FAILED")["id"]
    faces = [("show", number), ("history",), ("history", "-o", "wide"), ("why", number), ("queue", "-a")]
    faces += [("show", number, "-o", form) for form in ("csv", "yaml", "json")]
    faces += [("history", "-o", form) for form in ("csv", "yaml", "json")]
    faces += [
        ("slurm", "scontrol", "show", "job", number),
        ("slurm", "scontrol", "-o", "show", "job", number),
    ]
    faces += [("slurm", "sacct", "-j", number, "-P", "-o", "JobID,JobName,State,WorkDir,SubmitLine,Comment")]
    faces += [("slurm", "squeue", "-t", "all", "-o", "%i %j %R %Z %o"), ("logs", number)]
    sent = []
    for words in faces:
        done = box(*words)
        sent += [
            f"{' '.join(map(str, words))}: {line!r}"
            for line in (done.out + done.err).split("\n")
            if not line.isprintable() or line.startswith("ID  FORGED")
        ]
    assert [] == sent, "\n".join(sent)
    assert r"\x1b]0;owned" in box("show", number).out
    ran = box("run", "--chdir", folder, "--", "true")
    assert 0 != ran.code
    assert (r"\x1b[2J" in ran.err, ran.err.replace("\n", "").isprintable()) == (True, True), ran.err
