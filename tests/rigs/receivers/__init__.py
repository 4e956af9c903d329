"""Stand-ins for receivers of logs that check every request as strictly as the real ones, and keep what they took.

Each can be away (nothing listens), busy (429, 503) or picky (it refuses lines that hold a word).
"""

import base64
import json
import re
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Fields = dict[str, str]
"""Every field of a line, and its text under `message`."""


class Wrong(Exception):
    """What is wrong with a request."""


class Receiver:
    """An HTTP server that reads batches in one form."""

    def __init__(self, read: Callable[["Receiver", str, Any, bytes], tuple[list[Fields], bytes]]) -> None:
        self._read = read
        self.lines: list[Fields] = []
        self.wrong: list[str] = []
        """What was wrong with requests: it stays empty."""
        self.authorization = ""
        """What has to be sent, if anything."""
        self.answer: tuple[int, dict[str, str]] | None = None
        """What is answered instead of taking anything."""
        self.unwanted = ""
        self.asked = 0
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.port = found.getsockname()[1]
        self._server: ThreadingHTTPServer | None = None
        self.connections: list[socket.socket] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Listen."""
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                receiver.connections.append(self.connection)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status, headers, content = receiver.taken(self.path, self.headers, body)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_words: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            allow_reuse_address = True
            daemon_threads = True

        self._server = Server(("127.0.0.1", self.port), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def taken(self, path: str, headers: Any, body: bytes) -> tuple[int, dict[str, str], bytes]:
        """The answer to a request."""
        self.asked += 1
        if self.answer is not None:
            return (*self.answer, b"later")
        if self.authorization and headers.get("Authorization") != self.authorization:
            return 401, {}, b"who are you?"
        try:
            found, content = self._read(self, path, headers, body)
        except (Wrong, ValueError, LookupError, TypeError) as error:
            self.wrong.append(f"{type(error).__name__}: {error}: {body[:500]!r}")
            return 400, {}, str(error).encode()
        if self.unwanted and content == b"" and any([self.unwanted in line["message"] for line in found]):
            return 400, {}, b"a line is not wanted"
        self.lines += found
        return (204 if content == b"" else 200), {}, content

    def stop(self) -> None:
        """Be away."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
        for each in self.connections:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self.connections = []


def _check(holds: object, what: str) -> None:
    if not holds:
        raise Wrong(what)


def loki() -> Receiver:
    """Loki's push API: labels of the right form and few, times that rise, structured metadata of texts."""
    last: dict[str, int] = {}

    def read(_self: Receiver, path: str, headers: Any, body: bytes) -> tuple[list[Fields], bytes]:
        _check(path == "/loki/api/v1/push", path)
        _check(headers["Content-Type"] == "application/json", "content type")
        document = json.loads(body)
        _check(document.keys() == {"streams"} and document["streams"], "streams")
        found = []
        for stream in document["streams"]:
            _check(stream.keys() == {"stream", "values"}, "a stream has labels and values")
            labels = stream["stream"]
            _check(0 < len(labels) <= 15, "a stream has 15 labels at most")
            _check(
                not labels.keys() & {"job", "attempt", "task", "id", "user"},
                "a label for each job is too much",
            )
            for name, value in labels.items():
                _check(re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", name), f"label {name}")
                _check(isinstance(value, str) and value and len(value) <= 2048, f"label {name} is {value!r}")
            for at, text, more in stream["values"]:
                _check(isinstance(at, str) and at.isdecimal() and len(at) == 19, f"time {at!r}")
                _check(isinstance(text, str) and len(text.encode()) < 256 * 1024, "line")
                _check(all([isinstance(each, str) for each in more.values()]), "metadata are texts")
                _check(int(at) > last.get(str(labels), 0), "times rise")
                last[str(labels)] = int(at)
                found.append({**labels, **more, "message": text})
        return found, b""

    return Receiver(read)


def elasticsearch() -> Receiver:
    """`_bulk`: pairs of lines, ids that are used once, one result for each."""
    ids: set[str] = set()

    def read(self: Receiver, path: str, headers: Any, body: bytes) -> tuple[list[Fields], bytes]:
        _check(path == "/gpu-logs/_bulk", path)
        _check(headers["Content-Type"] == "application/x-ndjson", "content type")
        _check(body.endswith(b"\n"), "the body ends with a line break")
        rows = [json.loads(row) for row in body.decode().split("\n")[:-1]]
        _check(rows and len(rows) % 2 == 0, "an action and a document each")
        found, items = [], []
        for action, document in zip(rows[::2], rows[1::2], strict=True):
            _check(action.keys() == {"create"} and action["create"].keys() == {"_id"}, f"action {action}")
            name = action["create"]["_id"]
            _check(isinstance(name, str) and 0 < len(name.encode()) <= 512, f"id {name!r}")
            _check(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z", document["@timestamp"]), "time")
            status = (
                409 if name in ids else 400 if self.unwanted and self.unwanted in document["message"] else 201
            )
            items.append({"create": {"_id": name, "status": status}})
            if status == 201:
                ids.add(name)
                found.append({**document["gpuyard"], "message": document["message"]})
        errors = any([item["create"]["status"] != 201 for item in items])
        return found, json.dumps({"took": 1, "errors": errors, "items": items}).encode()

    return Receiver(read)


def otlp() -> Receiver:
    """OTLP, read with OpenTelemetry's own messages. Nothing may be in a request that they do not know."""
    from google.protobuf.unknown_fields import UnknownFieldSet  # noqa: PLC0415
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (  # noqa: PLC0415
        ExportLogsServiceRequest,
        ExportLogsServiceResponse,
    )

    def text_of(attributes: Any) -> Fields:
        _check(all([each.value.WhichOneof("value") == "string_value" for each in attributes]), "texts")
        found = {each.key: each.value.string_value for each in attributes}
        _check(len(found) == len(attributes), "an attribute is there once")
        return found

    def known(message: Any) -> None:
        _check(not len(UnknownFieldSet(message)), f"a field that {type(message).__name__} does not have")

    def read(_self: Receiver, path: str, headers: Any, body: bytes) -> tuple[list[Fields], bytes]:
        _check(path == "/v1/logs", path)
        _check(headers["Content-Type"] == "application/x-protobuf", "content type")
        request = ExportLogsServiceRequest.FromString(body)
        _check(request.SerializeToString() == body, "the same bytes as OpenTelemetry's own")
        known(request)
        found = []
        for logs in request.resource_logs:
            about = text_of(logs.resource.attributes)
            _check(about["service.name"] == "gpuyard", "service.name")
            known(logs.resource)
            for scope in logs.scope_logs:
                _check(scope.scope.name and scope.scope.version, "scope")
                for record in scope.log_records:
                    known(record)
                    _check(record.observed_time_unix_nano > 10**18, "observed time")
                    _check(record.severity_number == 9, "severity")
                    fields = about | text_of(record.attributes)
                    plain = {name.removeprefix("gpuyard."): value for name, value in fields.items()}
                    plain["id"], plain["stream"] = plain.pop("log.record.uid"), plain.pop("log.iostream")
                    found.append(plain | {"message": record.body.string_value})
        return found, ExportLogsServiceResponse().SerializeToString()

    return Receiver(read)


def basic(user: str, password: str) -> str:
    """What HTTP sends for a name and a password."""
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


SYSLOG = re.compile(
    r"<(\d{1,3})>1 (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z) ([!-~]{1,255}) "
    r"gpuyard ([!-~]{1,128}) (stdout|stderr) - (.*)"
)
"""RFC 5424, as far as it is used."""
