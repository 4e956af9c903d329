"""The client by itself: how it finds a yard, how it reads HTTP, what it does when it is cut off."""

import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.datastructures import QueryParams

from gpuyard.api.client import Client, NoServer, Refused
from gpuyard.api.connecting.calling import OlderServer, _nobody, telling_older_servers
from gpuyard.api.connecting.finding import parse_address as address_of
from gpuyard.api.handlers.reports import read_values
from gpuyard.api.messages.fields import parse_indices
from gpuyard.api.messages.problems import Problem
from gpuyard.cli import run
from gpuyard.cli.listings.tables import write_document
from gpuyard.errors import BadInput, YardError
from gpuyard.reports.money.statement import STATEMENT
from gpuyard.wire import endpoints
from gpuyard.wire.endpoints import DESCRIPTION, ME, WHY


def serve(path: Path, answers: list[bytes | None]) -> threading.Thread:
    """A server that says these things, one for each connection or request; None hangs up."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def run() -> None:
        left = list(answers)
        with listener:
            while left:
                connection, _ = listener.accept()
                with connection:
                    while left and connection.recv(65536):
                        answer = left.pop(0)
                        if answer is None:
                            break
                        connection.sendall(answer)
                        if left and left[0] is None:
                            left.pop(0)
                            break

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def http(status: int, body: object, extra: str = "") -> bytes:
    content = json.dumps(body).encode()
    return f"HTTP/1.1 {status} X\r\nContent-Length: {len(content)}\r\n{extra}\r\n".encode() + content


@pytest.fixture
def yard(tmp_path: Path) -> Callable[[list[bytes | None]], Client]:
    def made(answers: list[bytes | None]) -> Client:
        serve(tmp_path / "s", answers)
        return Client(f"unix:{tmp_path / 's'}", patience_s=5)

    return made


def test_a_submission_that_is_cut_off_is_sent_again(yard: Callable[[list[bytes | None]], Client]) -> None:
    with yard([None, b"HTTP/1.1 201 Created\r\nContent-Le", None, http(201, {"id": 7})]) as client:
        assert 7 == client.submit(command=["true"])["id"]


def test_chunks_and_lengths_are_read(yard: Callable[[list[bytes | None]], Client]) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunked = head + b'4\r\n{"no\r\n9\r\ndes": [] \r\n1;x=y\r\n}\r\n0\r\n\r\n'
    with yard([chunked, http(200, {"nodes": [1]})]) as client:
        assert [[], [1]] == [client.nodes(), client.nodes()]


def test_a_refusal_carries_what_is_wrong_and_what_to_do(yard: Callable[[list[bytes | None]], Client]) -> None:
    with yard(
        [http(422, {"detail": "too many", "hint": "Ask for less."}), http(503, {"title": "Busy"})]
    ) as client:
        with pytest.raises(Refused, match="too many") as bad:
            client.nodes()
        assert (422, "Ask for less.", 2) == (bad.value.status, bad.value.hint, bad.value.exit_code)
        with pytest.raises(Refused, match="Busy") as ours:
            client.nodes()
        assert 1 == ours.value.exit_code


def test_a_reply_or_a_path_of_an_older_server_is_told_as_such(
    yard: Callable[[list[bytes | None]], Client],
) -> None:
    none = {"detail": "there is nothing at /api/v1/me", "hint": f"{DESCRIPTION} lists all paths."}
    with yard(
        [http(200, {"jobs": [{"id": 7}]}), http(404, none), http(404, none), http(404, none)]
    ) as client:
        with telling_older_servers():
            found = client.ask_for(ME)
        with pytest.raises(OlderServer, match="older release than this command: its reply has no 'tenant'"):
            _ = found["jobs"][0]["tenant"]
        assert (None, False) == (found.get("tenant"), "tenant" in found)
        with pytest.raises(Refused, match="older release than this command: there is nothing at") as refused:
            client.ask_for(ME)
        assert "Upgrade the yard" in refused.value.hint
        for odd in ("", "1/2"):
            with pytest.raises(Refused, match="an id or a name is empty or has a / in it"):
                client.ask_for(WHY, id=odd)


def test_an_answer_that_is_no_yards_is_told_as_such(yard: Callable[[list[bytes | None]], Client]) -> None:
    with (
        yard([b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>"]) as client,
        pytest.raises(YardError, match="does not come from a yard"),
    ):
        client.ask_for(ME)


def test_nobody_there_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(NoServer, match="no yard is running here: start one with `yard up -d`"):
        Client(data=tmp_path).nodes()


def test_the_machines_yard_is_named_where_ones_own_was_killed(tmp_path: Path) -> None:
    """Nobody asks it in silence: what a command does may be meant for the own yard alone."""
    own, machine = tmp_path / "own", tmp_path / "machine"
    machine.mkdir()
    (machine / "yard.pid").touch()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{machine}/yard.sock")
        killed = _nobody(f"{own}/yard.sock", ConnectionRefusedError(), [machine])
        assert ("no yard is running here: start one with `yard up -d`", "") == (killed.message, killed.hint)
        server.listen()
        killed = _nobody(f"{own}/yard.sock", ConnectionRefusedError(), [machine])
    assert "no yard is running here: start one with `yard up -d`" == killed.message
    assert f"The machine's yard answers: YARD_DATA={machine} before the command asks that one." == killed.hint
    assert 4 == killed.exit_code


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("http://127.0.0.1:7447", ("127.0.0.1", 7447)),
        ("localhost:80/", ("localhost", 80)),
        ("https://yard.example.org", ("yard.example.org", 443)),
        ("https://[::1]:7448", ("::1", 7448)),
        ("unix:/run/y.sock", "/run/y.sock"),
        ("unix:///run/y.sock", "/run/y.sock"),
        ("/run/y.sock", "/run/y.sock"),
    ],
)
def test_addresses(text: str, address: object) -> None:
    assert address == address_of(text)


@pytest.mark.parametrize(
    "text", ["nowhere", "host:port", "host:0", "host:99999", "https://x:y", "http://a/b:1"]
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(BadInput, match="is not an address"):
        address_of(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [("0-3", (0, 1, 2, 3)), ("5", (5,)), ("3,1,2,1", (1, 2, 3)), ("0-10:5,7", (0, 5, 7, 10))],
)
def test_indices_of_an_array(text: str, found: tuple[int, ...]) -> None:
    assert found == parse_indices(text)


@pytest.mark.parametrize("token", ["a\nb", "a b", "日本"])
def test_what_cannot_be_a_token_is_not_sent(token: str) -> None:
    with pytest.raises(BadInput, match="no token has"):
        Client("http://127.0.0.1:1", token)


def test_names_of_people_are_quoted_whatever_is_in_them(answering_yard: Any) -> None:
    yard = answering_yard({endpoints.AUDIT: {}, endpoints.UNBIND: {}})
    with Client(server=yard.url) as client:
        client.audit(user="rené&x=1")
        client.unbind_name("a/é")
    assert ["/api/v1/audit?user=ren%C3%A9%26x%3D1&limit=100", "/api/v1/logins/a%2F%C3%A9"] == yard.paths


def test_a_server_that_is_there_and_does_not_answer_is_told_from_none(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "s"))
        silent.listen()
        with (
            Client(f"unix:{tmp_path / 's'}", timeout_s=0.2, patience_s=0) as client,
            pytest.raises(NoServer, match="is there and does not answer"),
        ):
            client.nodes()


def test_whoever_follows_a_job_is_told_that_it_goes_on(tmp_path: Path) -> None:
    with (
        Client(f"unix:{tmp_path / 's'}", follow_patience_s=0.1) as client,
        pytest.raises(NoServer, match="job 7 goes on without it") as told,
    ):
        list(client.follow(7))
    assert "yard logs -f 7" in told.value.hint


@pytest.mark.parametrize(
    "words", [["why", "7"], ["show", "7", "-o", "json"], ["whoami"], ["slurm", "squeue"]]
)
def test_a_command_at_an_older_server_says_so(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(tmp_path / "s", [http(200, {})] * 4)
    monkeypatch.setenv("YARD_URL", f"unix:{tmp_path / 's'}")
    assert 1 == run(words)
    assert "the server is of an older release than this command: its reply has no " in capsys.readouterr().err


def test_yaml_is_written_of_what_a_server_said(
    yard: Callable[[list[bytes | None]], Client], capsys: pytest.CaptureFixture[str]
) -> None:
    with yard([http(200, {"a": {"b": 1}})]) as client, telling_older_servers():
        write_document(client.ask_for(ME), "yaml")
    assert "a:\n  b: 1\n" == capsys.readouterr().out


@pytest.mark.parametrize("month", ["november", "2026-11-01"])
def test_a_text_that_is_too_long_comes_back_with_what_to_write(month: str) -> None:
    with pytest.raises(Problem, match="may have at most 7") as refused:
        read_values(STATEMENT, QueryParams({"month": month}))
    assert "The month: 2026-11." in refused.value.hint
