"""A yard that answers what a test says, over the wire: for commands and clients, which then need no stand-in."""

import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from gpuyard.errors import BadInput
from gpuyard.wire.endpoints import Endpoint


class Problem(NamedTuple):
    """An answer that refuses."""

    status: int
    detail: str
    hint: str = ""


class Reply(NamedTuple):
    """An answer of another status than 200 that refuses nothing."""

    status: int
    document: Any


class Stream(NamedTuple):
    """An answer that goes on: these events, and then the end."""

    events: Iterator[tuple[str, Any]]


CUT = object()
"""An answer that does not come: the connection ends instead."""

Answers = Mapping[Endpoint, Any]
"""For an endpoint what it replies, or a function of what was asked."""


class AnsweringYard:
    """It listens on this machine. `answers` may be changed meanwhile."""

    def __init__(self, answers: Answers) -> None:
        self.answers: dict[Endpoint, Any] = dict(answers)
        self.asked: list[tuple[Endpoint, dict[str, Any]]] = []
        """What each request said: in its path, its query and its body."""
        self.paths: list[str] = []
        """The paths that were asked, as they came."""
        self.ended = threading.Event()
        """Set at the end: for streams that wait."""
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """For `YARD_URL`, and for a client."""
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def asked_of(self, endpoint: Endpoint) -> list[dict[str, Any]]:
        """What was asked of one endpoint."""
        return [said for each, said in self.asked if each is endpoint]

    def close(self) -> None:
        """Stop."""
        self.ended.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def answer(self, method: str, path: str, body: bytes) -> Any:
        """The answer to one request."""
        self.paths.append(path)
        parts = urlsplit(path)
        for endpoint, answer in self.answers.items():
            match = re.fullmatch(re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", endpoint.path), parts.path)
            if match is None or endpoint.method != method:
                continue
            said = {name: unquote(value) for name, value in match.groupdict().items()}
            said |= dict(parse_qsl(parts.query)) | (json.loads(body) if body else {})
            self.asked.append((endpoint, said))
            try:
                return answer(said) if callable(answer) else answer
            except BadInput as error:
                return Problem(422, error.message, error.hint)
        return Problem(404, f"nobody said what to answer to {method} {path}")

    def _handler(yard) -> type[BaseHTTPRequestHandler]:  # noqa: N805 (the handler has a self of its own)
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _reply(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
                found = yard.answer(self.command, self.path, body)
                if found is CUT:
                    self.close_connection = True
                elif isinstance(found, Stream):
                    self._tell(found.events)
                elif isinstance(found, Reply):
                    self._send(*found)
                elif isinstance(found, Problem):
                    self._send(found.status, {"detail": found.detail, "hint": found.hint})
                else:
                    self._send(200, found)

            # http.server looks for these names.
            do_GET = do_POST = do_PUT = do_DELETE = _reply  # noqa: N815

            def _send(self, status: int, document: Any) -> None:
                content = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def _tell(self, events: Iterator[tuple[str, Any]]) -> None:
                self.close_connection = True
                with suppress(OSError):
                    self.send_response(200)
                    self.send_header("Content-Type", "text/event-stream")
                    self.send_header("Transfer-Encoding", "chunked")
                    self.end_headers()
                    for name, data in events:
                        block = f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()
                        self.wfile.write(b"%x\r\n%s\r\n" % (len(block), block))
                        self.wfile.flush()
                    self.wfile.write(b"0\r\n\r\n")

            def log_message(self, *_: Any) -> None:
                pass

        return Handler


@contextmanager
def answering(answers: Answers) -> Iterator[AnsweringYard]:
    """Such a yard, for a while."""
    yard = AnsweringYard(answers)
    try:
        yield yard
    finally:
        yard.close()
