"""`yard up --auth` as people use it: TLS, tokens, login, and two servers that agree at once on who is out."""

import http.client
import json
import os
import pwd
import socket
import ssl
import stat
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import pytest

from gpuyard.control.access.tokens import LOOK_S
from harness.patience import patient, until
from rigs.certificates import make_certificate
from rigs.kills import Server
from rigs.teams import CONFIG

from .conftest import Box, Done


class Secured(Box):
    """A yard with `--auth` and TLS."""

    def __init__(self, data: Path) -> None:
        super().__init__(data, CONFIG)
        self.cert, self.key = make_certificate(data.parent)
        self.home = data.parent / "home"

    def up(self, port: int = 0) -> Done:
        done = self(
            "up", "-d", "--port", port, "--config", self.config, "--auth", "--host", "0.0.0.0", "--tls-cert", self.cert,
            "--tls-key", self.key,
        )  # fmt: skip
        assert 0 == done.code, done.err
        return done

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.note()['port']}"

    def away(self, *words: object, stdin: str = "", **env: str) -> Done:
        """A command on another machine: it knows neither the data folder nor the socket."""
        more = {
            "YARD_DATA": "",
            "XDG_CONFIG_HOME": str(self.home),
            "XDG_DATA_HOME": str(self.home / "none"),
            **env,
        }
        return self(*words, stdin=stdin, **more)

    def token(self, user: str, *words: object) -> str:
        done = self("token", "create", "--user", user, *words)
        assert 0 == done.code, done.err
        return done.out.strip()


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    made = Secured(tmp_path_factory.mktemp("auth") / "yard")
    made.up()
    yield made
    assert 0 == made("down", "--jobs").code


UNSAFE = (
    # The first in the foreground: both ways check the same.
    (["--host", "0.0.0.0"], "without --auth they all could submit jobs"),
    (["-d", "--host", "::"], "without --auth they all could submit jobs"),
    (["-d", "--host", "0.0.0.0", "--auth"], "without TLS tokens can be read on the way"),
    (["-d", "--host", "yard.invalid", "--auth", "--insecure-http"], "is not an address of this machine"),
    (["-d", "--host", "203.0.113.7", "--auth", "--insecure-http"], "is not an address of this machine"),
    (["-d", "--tls-cert", "x.pem"], "--tls-cert and --tls-key belong together"),
    (["-d", "--auth", "--tls-cert", "no.pem", "--tls-key", "no.pem"], "are no certificate and its key"),
)


def test_what_is_not_safe_is_refused_with_what_to_do(bare: Box) -> None:
    lines = [["up", "--port", 0, "--emulate", "1 x H100", *words] for words, _says in UNSAFE]
    done = bare.together(*[line for each in lines for line in (each, ["down"])])

    for (words, says), refused, down in zip(UNSAFE, done[::2], done[1::2], strict=True):
        assert (2, "") == (refused.code, refused.out), words
        assert says in refused.err
        assert "Traceback" not in refused.err
        assert "no yard is running" in down.err, words


def test_the_port_speaks_tls_and_nothing_else(yard: Secured) -> None:
    port = yard.note()["port"]
    trusted = ssl.create_default_context(cafile=str(yard.cert))
    with (
        socket.create_connection(("127.0.0.1", port), 10) as raw,
        trusted.wrap_socket(raw, server_hostname="localhost") as tls,
    ):
        assert tls.version() in ("TLSv1.2", "TLSv1.3")
        tls.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert tls.recv(4096).startswith(b"HTTP/1.1 200")
    with socket.create_connection(("127.0.0.1", port), 10) as raw:
        raw.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert not raw.recv(4096).startswith(b"HTTP")


def test_a_certificate_that_nobody_knows_is_said_to_be_so(yard: Secured) -> None:
    done = yard.away("queue", YARD_URL=yard.url, YARD_TOKEN="x")

    assert 4 == done.code
    assert "the certificate of 127.0.0.1" in done.err
    assert "--ca FILE" in done.err


def test_log_in_work_and_be_thrown_out(yard: Secured) -> None:
    token = yard.token("ulla", "--days", 1, "--note", "laptop")
    done = yard.away("login", yard.url, "--ca", yard.cert, "--token-file", "-", stdin=token)
    assert 0 == done.code, done.err
    assert f"logged in at {yard.url} as ulla, user of research" in done.out
    kept = yard.home / "gpuyard" / "login.json"
    assert 0o600 == stat.S_IMODE(kept.stat().st_mode)

    assert "tenant   research/ulla, for jobs that name none" in yard.away("whoami").out
    done = yard.away("run", "--", "sh", "-c", "echo from afar")
    assert (0, "from afar\n") == (done.code, done.out), done.err
    job = yard.away("submit", "--hold", "--", "true")
    assert 0 == job.code, job.err
    assert "research/ulla" in yard.away("queue").out
    refused = yard.away("submit", "--tenant", "product", "--", "true")
    assert 2 == refused.code
    assert "ulla may not submit for product: user of research" in refused.err
    assert 2 == yard.away("drain", "x").code

    listed = yard("token", "list").out
    assert "laptop" in listed
    assert token not in listed
    assert 0 == yard("token", "revoke", token).code
    done = yard.away("queue")
    assert 2 == done.code
    assert "the token was revoked" in done.err
    assert 0 == yard.away("logout").code
    assert not kept.exists()


@pytest.mark.parametrize("away", [True, False])
def test_a_token_is_shown_to_no_other_server(yard: Secured, away: bool) -> None:
    token = yard.token("ulla")
    assert 0 == yard.away("login", yard.url, "--ca", yard.cert, YARD_TOKEN=token).code
    with socket.create_server(("127.0.0.1", 0)) as other:
        other.settimeout(120)
        url = f"http://127.0.0.1:{other.getsockname()[1]}"
        heard: list[bytes] = []

        def listen() -> None:
            connection, _ = other.accept()
            with connection:
                heard.append(connection.recv(65536))
                connection.sendall(b"HTTP/1.1 404 X\r\nContent-Length: 0\r\n\r\n")

        thread = threading.Thread(target=listen)
        thread.start()
        # Neither the one of the login, nor the owner's, which a command on this machine could read.
        (yard.away if away else yard)("nodes", YARD_URL=url)
        thread.join()
    assert heard[0].startswith(b"GET /api/v1/nodes")
    assert b"uthorization" not in heard[0]
    done = yard.away("nodes", YARD_URL="http://192.0.2.1:7447", YARD_TOKEN=token)
    assert 2 == done.code
    assert "is not https: your token could be read on the way" in done.err
    assert 0 == yard.away("logout", "--revoke").code
    assert "REVOKED" in yard("token", "list").out


def test_a_login_that_others_can_read_is_not_used(yard: Secured) -> None:
    token = yard.token("ulla")
    assert 0 == yard.away("login", yard.url, "--ca", yard.cert, YARD_TOKEN=token).code
    kept = yard.home / "gpuyard" / "login.json"
    os.chmod(kept, 0o644)
    done = yard.away("queue")
    assert 1 == done.code
    assert "can be read by others" in done.err
    kept.unlink()


def test_what_is_asked_wrongly_is_said(yard: Secured) -> None:
    asked = (
        (["token", "create", "--user", "ulla", "--role", "amdin"], "did you mean 'admin'?"),
        (["token", "create", "--user", "ulla", "--days", "400"], "a token may last at most 90 d"),
        (["token", "revoke", "nothing"], "there is no token 'nothing'"),
        (["login", "ftp://x"], "is not an address of a yard"),
        (["login", "--oidc", yard.url, "--ca", str(yard.cert)], "has no identity provider"),
    )
    for (_words, says), done in zip(asked, yard.together(*[words for words, _says in asked]), strict=True):
        assert 2 == done.code, done.err
        assert says in done.err


def test_the_one_who_started_the_yard_opens_the_console(yard: Secured) -> None:
    opened = yard("open", "--no-browser")
    assert (0, "") == (opened.code, opened.err)
    code = opened.out.strip().rpartition("/")[2]
    context = ssl.create_default_context(cafile=str(yard.cert))
    headers = {"Content-Type": "application/json"}
    asked = urllib.request.Request(
        f"{yard.url}/api/v1/login/browser", json.dumps({"code": code}).encode(), headers
    )
    with urllib.request.urlopen(asked, timeout=patient(10), context=context) as answer:
        cookie, key = answer.headers["Set-Cookie"].partition(";")[0], json.load(answer)["key"]
    asked = urllib.request.Request(f"{yard.url}/api/v1/me", headers={"Cookie": cookie, "Yard-Page": key})
    with urllib.request.urlopen(asked, timeout=patient(10), context=context) as answer:
        me = json.load(answer)

    assert pwd.getpwuid(os.geteuid()).pw_name == me["user"]
    assert ["admin"] == [right["role"] for right in me["rights"]], me


def test_a_program_with_an_account_of_the_system_gets_a_token_into_a_file(
    yard: Secured, tmp_path: Path
) -> None:
    file = tmp_path / "yard.token"
    file.write_text("old")
    words = ("token", "create", "--user", "daemon", "--tenant", "/", "--to", file)
    refused = yard(*words, "--role", "user")
    assert (2, "old") == (refused.code, file.read_text())
    assert "daemon is a system account" in refused.err
    made = yard(*words, "--role", "viewer")

    assert (0, "") == (made.code, made.out), made.err
    assert 0o600 == stat.S_IMODE(file.stat().st_mode)
    assert [file] == list(tmp_path.iterdir())
    done = yard.away("login", yard.url, "--ca", yard.cert, "--token-file", file)
    assert (0, True) == (done.code, "as daemon, viewer of the whole yard" in done.out), done.err
    nowhere = yard(*words[:-1], tmp_path / "none" / "x", "--role", "viewer")
    assert (2, True) == (nowhere.code, "No token was made" in nowhere.err)


def test_who_did_what(yard: Secured) -> None:
    secret = yard.token("carl", "--days", "2")
    done = yard("audit", "--limit", "3")
    assert 0 == done.code
    assert f"token {secret.split('_')[1]} for carl as user" in done.out
    assert secret not in done.out


@pytest.mark.rig
def test_without_auth_there_are_no_tokens(bare: Box) -> None:
    bare.up()
    done = bare("token", "create", "--user", "ulla")
    assert 2 == done.code
    assert "Start it with `yard up --auth`" in done.err
    assert "without --auth" in bare("whoami").out


@pytest.fixture
def pair(tmp_path: Path, postgres_url: str) -> Iterator[list[Server]]:
    servers = [Server(tmp_path / "yard", postgres_url, config=CONFIG, words=("--auth",)) for _ in range(2)]
    for server in servers:
        server.start()
    yield servers
    for server in servers:
        if server.process is not None and server.process.poll() is None:
            server.kill()


def test_two_servers_agree_at_once_that_a_token_is_revoked(pair: list[Server], tmp_path: Path) -> None:
    """At once where it is revoked; on the other, within the time for which it believes what it has read."""
    box = Box(tmp_path / "yard")
    token = box("token", "create", "--user", "ulla").out.strip()
    head = {"Authorization": f"Bearer {token}"}
    for server in pair:
        assert 200 == server.call("GET", "/api/v1/me", headers=head)[0]

    admin = {"Authorization": f"Bearer {box('token', 'create', '--user', 'adam').out.strip()}"}
    assert 200 == pair[0].call("GET", "/api/v1/me", headers=admin)[0]
    for _ in range(3):
        victim = box("token", "create", "--user", "ulla").out.strip()
        used = {"Authorization": f"Bearer {victim}"}
        assert [200, 200] == [server.call("GET", "/api/v1/me", headers=used)[0] for server in pair]
        assert 200 == pair[0].call("DELETE", f"/api/v1/tokens/{victim.split('_')[1]}", headers=admin)[0]
        began = time.monotonic()
        assert 401 == pair[0].call("GET", "/api/v1/me", headers=used)[0]
        while pair[1].call("GET", "/api/v1/me", headers=used)[0] != 401:
            assert time.monotonic() - began < LOOK_S + 30


def test_two_servers_have_the_same_people_soon_after_an_apply(pair: list[Server], tmp_path: Path) -> None:
    box = Box(tmp_path / "yard")
    admin = {"Authorization": f"Bearer {box('token', 'create', '--user', 'adam').out.strip()}"}
    file = tmp_path / "more.yaml"
    file.write_text(
        CONFIG.replace("  limits:", "    lucy: {tenant: product, role: viewer}\n  limits:"), encoding="utf-8"
    )
    assert 0 == box("apply", "-f", file, "--yes", "--no-preview").code
    # Each of them would make a token for her, and knows her at most as what the file says.
    for server in pair:
        until(
            lambda server=server: server.call("POST", "/api/v1/tokens", {"user": "lucy"}, admin)[0] == 201, 10
        )
        status, refusal = server.call("POST", "/api/v1/tokens", {"user": "lucy", "role": "user"}, admin)
        assert (422, True) == (status, "lucy is viewer of product" in refusal["detail"])
    status, hers = pair[0].call("POST", "/api/v1/tokens", {"user": "lucy"}, admin)
    lucy = {"Authorization": f"Bearer {hers['secret']}"}
    assert [200, 200] == [server.call("GET", "/api/v1/queue", None, lucy)[0] for server in pair]
    file.write_text(CONFIG, encoding="utf-8")
    assert 0 == box("apply", "-f", file, "--yes", "--no-preview").code
    # She has left: her tokens end with her line of the file, on every server, and nobody else's do.
    for server in pair:
        until(lambda server=server: server.call("GET", "/api/v1/queue", None, lucy)[0] == 401, 10)
    assert [200, 200] == [server.call("GET", "/api/v1/queue", None, admin)[0] for server in pair]


def followed(server: Server, path: str, token: str) -> "Future[tuple[float, bytes]]":
    """An open stream of a server, once it has begun: when it ended, and the last that it said."""
    link = http.client.HTTPConnection("127.0.0.1", server.port, timeout=patient(60))
    link.request("GET", path, headers={"Authorization": f"Bearer {token}"})
    answer = link.getresponse()
    assert 200 == answer.status, answer.read()

    def read() -> tuple[float, bytes]:
        with closing(link), suppress(http.client.IncompleteRead):
            shown = b""
            while piece := answer.read1():
                shown += piece
        return time.monotonic(), shown

    return ThreadPoolExecutor(1).submit(read)


def test_what_an_apply_takes_away_ends_open_streams_of_the_other_server_too(
    pair: list[Server], tmp_path: Path
) -> None:
    box, less = Box(tmp_path / "yard"), tmp_path / "less.yaml"
    token = box("token", "create", "--user", "adam").out.strip()
    stays = box("token", "create", "--user", "ulla").out.strip()
    head = {"Authorization": f"Bearer {token}"}
    wanted = {"command": ["sleep", "600"], "tenant": "research", "gpus": 1}
    job = pair[0].call("POST", "/api/v1/jobs", wanted, head)[1]["id"]
    paths = ("/api/v1/events", "/api/v1/changes", f"/api/v1/jobs/{job}/logs?follow=true&standing=true")
    for server in pair:
        until(lambda server=server: server.call("GET", f"/api/v1/jobs/{job}", None, head)[0] == 200, 10)
    hers = [[followed(server, path, token) for path in paths] for server in pair]
    others = [followed(server, "/api/v1/changes", stays) for server in pair]
    less.write_text(CONFIG.replace("role: admin}", "role: viewer, tenant: product}"), encoding="utf-8")

    assert 0 == box("apply", "-f", less, "--yes", "--no-preview").code
    began_s = time.monotonic()

    for streams in hers:
        ends = [stream.result(patient(30)) for stream in streams]
        assert all([b"event: closed" in said for _s, said in ends]), ends
        # The command itself takes a moment to end after the change.
        assert max([end_s for end_s, _said in ends]) - began_s < patient(1.5)
    assert [False, False] == [each.done() for each in others]
