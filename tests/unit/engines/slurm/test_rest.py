"""slurmrestd of later releases, played by a small server: written by hand after the documentation of v0.0.40."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from gpuyard.engines.contract import Permanent
from gpuyard.engines.slurm.calls.client import CommandClient
from gpuyard.engines.slurm.calls.commands import Commands, OutOfReach
from gpuyard.engines.slurm.calls.rest import RestClient, RestRefusal
from gpuyard.engines.slurm.calls.submission import NodeGroup, Submission

DESCRIPTION = {
    "paths": {f"/slurm/v0.0.{number}/jobs/": {} for number in (39, 40)},
    "components": {"schemas": {"v0.0.40_job_desc_msg": {"properties": {"required_nodes": {}}}}},
}
JOB = Submission(
    "y-1-1",
    "y-1-1@ab",
    "train",
    0,
    0,
    (NodeGroup(("n1",), 1, "a100", 2, 100, 1, "gpu"),),
    5,
    "/o",
    "#!/bin/sh\n",
)


class Server:
    """Answers as it is told, and remembers what it was asked."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, Any]] = {"/openapi/v3": (200, DESCRIPTION)}
        self.asked: list[tuple[str, str, Any, str]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def _serve(self) -> None:
                text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                user = self.headers["X-SLURM-USER-NAME"]
                outer.asked.append((self.command, self.path, json.loads(text or b"null"), user))
                status, body = outer.answers.get(self.path, (404, {}))
                said = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)

            do_GET = do_POST = do_DELETE = _serve  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


@pytest.fixture
def client(server: Server, tmp_path: Path) -> RestClient:
    token = tmp_path / "token"
    token.write_text("SLURM_JWT=abc\n")
    commands = CommandClient(Commands(folder=str(tmp_path)), as_user=True)
    return RestClient(f"http://127.0.0.1:{server.http.server_port}", str(token), "slurm", commands)


def test_the_newest_version_is_taken_and_nodes_are_named(server: Server, client: RestClient) -> None:
    server.answers["/slurm/v0.0.40/job/submit"] = (200, {"job_id": {"set": True, "number": 17}, "errors": []})

    assert ("v0.0.40", 17) == (client.version(), client.submit(JOB))
    method, _path, body, user = server.asked[-1]
    assert ("POST", ["n1"], "root") == (method, body["job"]["required_nodes"], user)


def test_where_nodes_cannot_be_named_the_commands_are_used(server: Server, client: RestClient) -> None:
    server.answers["/openapi/v3"] = (200, {"paths": {"/slurm/v0.0.38/jobs": {}}})

    with pytest.raises(Permanent, match="there is no program sbatch in"):
        client.submit(JOB)


def test_without_a_description_versions_are_tried(server: Server, client: RestClient) -> None:
    del server.answers["/openapi/v3"]
    server.answers["/slurm/v0.0.41/ping"] = (200, {})

    assert "v0.0.41" == client.version()


def test_something_else_listens_there(server: Server, client: RestClient) -> None:
    server.answers.clear()

    with pytest.raises(Permanent, match="is the url right"):
        client.queue()


def test_a_refusal_is_told_in_slurms_words(server: Server, client: RestClient) -> None:
    said = {"errors": [{"description": "Invalid partition name specified", "error_number": 2000}]}
    server.answers["/slurm/v0.0.40/job/submit"] = (200, said)

    with pytest.raises(RestRefusal, match="Invalid partition name specified"):
        client.submit(JOB)


def test_a_job_that_is_gone_is_cancelled_in_silence(server: Server, client: RestClient) -> None:
    gone = {"errors": [{"error": "Invalid job id specified", "error_number": 2017}]}
    server.answers["/slurm/v0.0.40/job/5"] = (200, gone)
    client.cancel([5])
    server.answers["/slurm/v0.0.40/job/6"] = (
        200,
        {"errors": [{"error": "Access denied", "error_number": 2002}]},
    )

    with pytest.raises(RestRefusal, match="Access denied"):
        client.cancel([6])


@pytest.mark.parametrize(
    ("status", "body", "text"),
    [
        (401, {}, "refuses the token"),
        (500, {"errors": [{"error": "Unspecified error"}]}, "refuses the token"),
        (500, {"errors": [{"error": "Unable to contact slurm controller"}]}, "Unable to contact"),
        (502, b"<html>", "502"),
    ],
)
def test_bad_weather_is_no_answer(
    server: Server, client: RestClient, status: int, body: Any, text: str
) -> None:
    server.answers["/slurm/v0.0.40/jobs"] = (status, body)

    with pytest.raises(OutOfReach, match=text):
        client.queue()
