"""Batches by HTTP: one connection that is kept, credentials read from their files, and what an answer means."""

import base64
import http.client
import os
import ssl
from contextlib import suppress
from email.utils import parsedate_to_datetime
from time import time
from urllib.parse import urlsplit

from gpuyard.errors import error_text
from gpuyard.shipping.contract import Away, Refused, SinkSpec, failure_text

TIMEOUT_S = 10.0
RETRY_S_MAX = 600.0
_ANSWER_BYTES_MAX = 4 << 20
_SAID_MAX = 200
_UNFIT = (400, 413, 422)
"""Something in the batch is not wanted. Other refusals (a wrong token, a wrong path) are mended by a person."""


class Poster:
    """Sends bodies to one address."""

    def __init__(self, spec: SinkSpec, path: str, headers: dict[str, str]) -> None:
        parts = urlsplit(spec.url)
        self._spec = spec
        self._host, self._port = parts.hostname or "", parts.port
        self._tls = parts.scheme == "https"
        self._path = path
        self._headers = headers
        self._connection: http.client.HTTPConnection | None = None

    def post(self, body: bytes, most: int = _ANSWER_BYTES_MAX) -> bytes:
        """The answer to a body that was taken, as much of it as is wanted; raises `Away` or `Refused`."""
        try:
            connection = self._connected()
            connection.request("POST", self._path, body, {**self._headers, **credentials(self._spec)})
            answer = connection.getresponse()
            content = answer.read(most)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            raise Away(f"{self._spec.url} does not answer: {failure_text(error)}") from error
        if answer.will_close or not answer.isclosed():
            self.close()
        if answer.status < 300:
            return content
        words = content[:_SAID_MAX].decode("utf-8", "replace").strip()
        why = f"{self._spec.url} says {answer.status} {answer.reason}: {words}"
        if answer.status in _UNFIT:
            raise Refused(why)
        raise Away(why, retry_after_s(answer.headers.get("Retry-After")))

    def _connected(self) -> http.client.HTTPConnection:
        if self._connection is None:
            if self._tls:
                trust = ssl.create_default_context(cafile=self._spec.ca_file or None)
                self._connection = http.client.HTTPSConnection(
                    self._host, self._port, timeout=TIMEOUT_S, context=trust
                )
            else:
                self._connection = http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)
        return self._connection

    def close(self) -> None:
        """Let go of the connection."""
        if self._connection is not None:
            with suppress(OSError):
                self._connection.close()
            self._connection = None


def retry_after_s(told: str | None) -> float:
    """When to ask again, as a receiver says it: in seconds, or as a date."""
    if not told:
        return 0.0
    try:
        wait_s = float(told) if told.strip().isdecimal() else parsedate_to_datetime(told).timestamp() - time()
    except (ValueError, TypeError, OverflowError):
        return 0.0
    return min(RETRY_S_MAX, max(0.0, wait_s))


def credentials(spec: SinkSpec) -> dict[str, str]:
    """The header that says who sends. Files are read each time: what they hold may be renewed."""
    if spec.token_file:
        return {
            "Authorization": f"{'ApiKey' if spec.kind == 'elasticsearch' else 'Bearer'} {secret(spec.token_file)}"
        }
    if spec.user:
        pair = f"{spec.user}:{secret(spec.password_file)}"
        return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
    return {}


def secret(path: str) -> str:
    """What a file with a credential holds; raises `Away` where it is missing, or others can read it."""
    try:
        with open(path, encoding="utf-8") as file:
            mode, text = os.fstat(file.fileno()).st_mode, file.read(65_536).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Away(f"{path}, which holds a credential, cannot be read: {error_text(error, path)}") from error
    if mode & 0o007:
        raise Away(f"{path}, which holds a credential, can be read by every user: `chmod o= {path}`")
    if not text or not text.isprintable():
        raise Away(f"{path} holds no credential: it wants one line")
    return text
