"""What receivers are sent, and what their answers mean; each request is checked by a strict stand-in."""

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gpuyard.shipping.contract import Away, Refused, SinkSpec
from gpuyard.shipping.http import retry_after_s
from gpuyard.shipping.lines import LogLine
from gpuyard.shipping.sinks import make_sink
from gpuyard.shipping.syslog import Syslog
from rigs import receivers
from rigs.components import skip_or_fail
from rigs.receivers import SYSLOG, Receiver

LABELS = {
    "yard": "y1",
    "cluster": "main",
    "tenant": "research/vision",
    "user": "ana",
    "job": "12_3",
    "attempt": "2",
    "task": "3",
    "node": "gpu-0001",
}
STRANGE = 'a "quoted" \\ line\twith é, 😀 and \x07'


def _lines(*texts: str) -> list[LogLine]:
    at = 1_794_000_000_000_000_000
    return [LogLine("k", "stdout", 10 * n, text, LABELS, at_ns=at + n) for n, text in enumerate(texts)]


def _otlp() -> Receiver:
    try:
        return receivers.otlp()
    except ImportError:
        skip_or_fail("opentelemetry-proto is not installed: `make setup` installs it")
        raise


MADE: dict[str, Callable[[], Receiver]] = {
    "loki": receivers.loki,
    "elasticsearch": receivers.elasticsearch,
    "otlp": _otlp,
}


@pytest.fixture(params=list(MADE))
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[SinkSpec, Receiver]]:
    """A receiver that listens, and how it is named."""
    receiver = MADE[request.param]()
    receiver.start()
    yield SinkSpec(request.param, request.param, receiver.url, index="gpu-logs"), receiver
    receiver.stop()


def test_every_receiver_gets_the_same_fields(pair: tuple[SinkSpec, Receiver]):
    spec, receiver = pair
    sink = make_sink(spec)
    parts = [replace(_lines("begin of")[0], part=1, last=False, offset=70)]
    assert 0 == sink.send(
        [*_lines("first", "", STRANGE), *[replace(each, at_ns=each.at_ns + 9) for each in parts]]
    )
    sink.close()
    assert [] == receiver.wrong
    assert ["first", "", STRANGE, "begin of"] == [line["message"] for line in receiver.lines]
    for name, value in {**LABELS, "stream": "stdout", "id": "k-stdout-0"}.items():
        assert value == receiver.lines[0][name], name
    assert ("1", "false") == (receiver.lines[3]["part"], receiver.lines[3]["part_last"])


def test_a_receiver_that_is_busy_or_away_is_asked_again(pair: tuple[SinkSpec, Receiver]):
    spec, receiver = pair
    sink = make_sink(spec)
    for status in (429, 500, 503):
        receiver.answer = (status, {"Retry-After": "7"})
        with pytest.raises(Away, match=str(status)) as busy:
            sink.send(_lines("a"))
        assert 7 == busy.value.retry_s
    receiver.answer = None
    receiver.stop()
    sink.close()
    with pytest.raises(Away, match="does not answer"):
        sink.send(_lines("a"))
    receiver.start()
    assert 0 == sink.send(_lines("a"))
    sink.close()
    assert (["a"], []) == ([line["message"] for line in receiver.lines], receiver.wrong)


def test_a_line_that_is_not_wanted_is_told_apart_from_a_receiver_that_is_away(
    pair: tuple[SinkSpec, Receiver],
):
    spec, receiver = pair
    sink = make_sink(spec)
    if spec.kind == "elasticsearch":
        receiver.unwanted = "poison"
        assert 1 == sink.send(_lines("a", "poison", "b"))
        assert ["a", "b"] == [line["message"] for line in receiver.lines]
        # Lines that are there already are no failure.
        assert 1 == sink.send(_lines("a", "poison", "b"))
        assert ["a", "b"] == [line["message"] for line in receiver.lines]
    else:
        receiver.answer = (400, {})
        with pytest.raises(Refused, match="400"):
            sink.send(_lines("poison"))
    sink.close()


def test_credentials_come_from_files_that_others_cannot_read(pair: tuple[SinkSpec, Receiver], tmp_path: Path):
    spec, receiver = pair
    secret = tmp_path / "secret"
    secret.write_text("t0ken\n")
    secret.chmod(0o600)
    word = "ApiKey" if spec.kind == "elasticsearch" else "Bearer"
    receiver.authorization = f"{word} t0ken"
    sink = make_sink(replace(spec, token_file=str(secret)))
    assert 0 == sink.send(_lines("a"))
    # A token that was renewed counts at once.
    secret.write_text("wrong")
    with pytest.raises(Away, match="401"):
        sink.send(_lines("b"))
    secret.chmod(0o644)
    with pytest.raises(Away, match="can be read by every user: `chmod o="):
        sink.send(_lines("b"))
    sink.close()
    os.chmod(secret, 0o600)
    secret.write_text("pass")
    receiver.authorization = receivers.basic("yard", "pass")
    sink = make_sink(replace(spec, user="yard", password_file=str(secret)))
    # Loki's times have to rise.
    assert 0 == sink.send([replace(_lines("c")[0], at_ns=1_794_000_000_000_000_099)])
    sink.close()
    assert [] == receiver.wrong


def test_what_otlp_says_of_lines_that_it_did_not_take_is_read():
    _otlp()
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (  # noqa: PLC0415
        ExportLogsPartialSuccess,
        ExportLogsServiceResponse,
    )

    from gpuyard.shipping.otlp import rejected  # noqa: PLC0415

    partial = ExportLogsPartialSuccess(rejected_log_records=300, error_message="too old")
    assert 300 == rejected(ExportLogsServiceResponse(partial_success=partial).SerializeToString())
    assert 0 == rejected(b"")
    with pytest.raises((ValueError, IndexError)):
        rejected(b"<html>an error page</html>")


def test_loki_before_3_gets_lines_of_json():
    from gpuyard.shipping.loki import body  # noqa: PLC0415

    (stream,) = json.loads(body(_lines(STRANGE), json_lines=True))["streams"]
    ((_at, text),) = stream["values"]
    assert {**LABELS, "stream": "stdout", "id": "k-stdout-0", "message": STRANGE} == json.loads(text)


def test_when_to_ask_again():
    assert (7.0, 0.0, 0.0, 600.0) == tuple(map(retry_after_s, ("7", None, "soon", "99999")))
    assert 0.0 == retry_after_s("Wed, 21 Oct 2015 07:28:00 GMT")


# -- syslog ----------------------------------------------------------------------------------------------------------


def _read_counted(content: bytes) -> list[str]:
    found = []
    while content:
        size, _, content = content.partition(b" ")
        found.append(content[: int(size)].decode("ascii"))
        content = content[int(size) :]
    return found


def test_syslog_messages_are_those_of_rfc_5424_over_tcp():
    with socket.create_server(("127.0.0.1", 0)) as server:
        sink = Syslog(SinkSpec("syslog", "s", f"tcp://127.0.0.1:{server.getsockname()[1]}"))
        thread = threading.Thread(target=sink.send, args=(_lines("one", STRANGE),))
        thread.start()
        there, _address = server.accept()
        content = there.recv(65_536)
        thread.join()
        sink.close()
        there.close()
    messages = _read_counted(content)
    found = [SYSLOG.fullmatch(each) for each in messages]
    assert all(found), messages
    assert ["134", "134"] == [each[1] for each in found if each]
    told = [json.loads(each[6]) for each in found if each]
    assert {**LABELS, "stream": "stdout", "id": "k-stdout-0", "message": "one"} == told[0]
    assert STRANGE == told[1]["message"]


def test_lines_that_a_syslog_server_never_read_are_sent_again():
    with socket.create_server(("127.0.0.1", 0)) as server:
        sink = Syslog(SinkSpec("syslog", "s", f"tcp://127.0.0.1:{server.getsockname()[1]}"))

        def die() -> None:
            there, _address = server.accept()
            there.recv(1)
            there.close()

        thread = threading.Thread(target=die)
        thread.start()
        with pytest.raises(Away, match="does not take lines"):
            sink.send(_lines("one" * 1000, "two"))
        thread.join()
        sink.close()


@pytest.mark.parametrize("kind", [socket.SOCK_DGRAM, socket.SOCK_STREAM])
def test_syslog_by_a_path(kind: int, tmp_path: Path):
    path = str(tmp_path / "log")
    with socket.socket(socket.AF_UNIX, kind) as server:
        server.bind(path)
        if kind == socket.SOCK_STREAM:
            server.listen()
        sink = Syslog(SinkSpec("syslog", "s", f"unix://{path}"))
        thread = threading.Thread(target=sink.send, args=(_lines("one"),))
        thread.start()
        if kind == socket.SOCK_STREAM:
            there, _address = server.accept()
            (text,) = _read_counted(there.recv(65_536))
            thread.join()
            there.close()
        else:
            text = server.recv(65_536).decode()
            thread.join()
        assert SYSLOG.fullmatch(text)
        sink.close()
    os.unlink(path)
    with pytest.raises(Away):
        sink.send(_lines("two"))


def test_syslog_by_udp():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        sink = Syslog(SinkSpec("syslog", "s", f"udp://127.0.0.1:{server.getsockname()[1]}"))
        assert 0 == sink.send(_lines("one", "two"))
        texts = [server.recv(65_536).decode() for _ in range(2)]
        sink.close()
    assert all([SYSLOG.fullmatch(text) for text in texts])
