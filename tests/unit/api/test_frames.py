"""What a client sends into a job is checked first: a sentence names what is wrong, and a code says so."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from gpuyard.api.connecting.websocket import BINARY, CLOSE, TEXT, Unframer, make_frame
from gpuyard.api.messages.frames import Asked, ClientMessages, Frame, Refusal
from harness.patience import patient
from rigs.teams import Team, team

MASK = b"\1\2\3\4"
OF_PYTHON = ("Error", "codec", "embedded", "str", "sys.", "object at", "NoneType")


def asked(**fields: Any) -> str:
    return json.dumps(fields)


def head(**fields: Any) -> bytes:
    return b"f" + json.dumps({"path": "a", "mode": 0o644, "folder": False, "size": 1, **fields}).encode()


def refusal(*messages: bytes | str) -> tuple[int, str]:
    """Code and sentence for the last message; those before it are fine."""
    client = ClientMessages()
    for message in messages[:-1]:
        client.take(message)
    with pytest.raises(Refusal) as found:
        client.take(messages[-1])
    return found.value.code, found.value.detail


SHELL, RUN, WRITE = asked(do="shell"), asked(do="run", argv=["id"]), asked(do="write", path="x")
LONG = asked(do="forward", port=1)[:-2] + "1" * 5000 + "}"
UNFIT: list[tuple[tuple[bytes | str, ...], str]] = [
    ((asked(do="signal", number=1.5),), "number: it should be a valid integer"),
    ((asked(do="signal", number="KILL"),), "number: it should be a valid integer"),
    ((asked(do="signal", number=True),), "number: it should be a valid integer"),
    ((asked(do="signal", number=65),), "number: it should be less than 65"),
    ((asked(do="signal"),), "number: 'signal' needs it"),
    ((asked(do="signal", number=1, whom="them"),), "whom: it should be 'batch', 'steps' or 'all'"),
    ((asked(do="run", argv="id"),), "argv: it should be a valid list"),
    ((asked(do="run", argv=["a\0b"]),), "argv.0: it holds a NUL character"),
    ((asked(do="run", argv=["\ud800"]),), "argv.0: it holds half a character (a surrogate), which no text has"),
    ((asked(do="shell", argv=[7]),), "argv.0: it should be a text"),
    ((asked(do="shell", env={"A=B": ""}),), "env: 'A=B' cannot be a variable: empty, or with '=' in it"),
    ((asked(do="shell", env={"A": "x" * 131072}),), "env.A: it is longer than 131071 bytes"),
    ((asked(do="shell", rows=0, columns=80),), "rows: it should be greater than or equal to 1"),
    ((asked(do="read"),), "path: 'read' needs it"),
    ((asked(do="write", path=["x"]),), "path: it should be a text"),
    ((asked(do="forward"),), "port: 'forward' needs it"),
    ((asked(do="forward", port=65536),), "port: it should be less than or equal to 65535"),
    ((asked(do="attach", seen=-1),), "seen: it should be greater than or equal to 0"),
    ((asked(do="attach", wrong=1),), "wrong: unknown field"),
    ((asked(do="dance"),), "do: it should be 'attach', 'shell', 'forward', 'read', 'write', 'run', 'signal' or 'stay'"),
    ((asked(do="run", argv=["", "more"]),), "argv: the command is an empty word"),
    ((SHELL, b"w{}"), "frame 'w': rows: it is required; columns: it is required"),
    ((SHELL, b'w{"rows": 1}'), "frame 'w': columns: it is required"),
    ((SHELL, b'w{"rows": "24", "columns": 80}'), "frame 'w': rows: it should be a valid integer"),
    ((SHELL, b"sKILL"), "frame 's': number: it should be a valid integer"),
    ((RUN, b"s1.5"), "frame 's': number: it should be a valid integer"),
    ((RUN, b"s0"), "frame 's': number: it should be greater than or equal to 1"),
    ((RUN, b"zmore"), "frame 'z': it has no content"),
    ((WRITE, b'f{"path": "a", "mode": 7, "folder": false}'), "frame 'f': size: it is required"),
    ((WRITE, head(path="a\0")), "frame 'f': path: it holds a NUL character"),
    ((WRITE, head(size=-1)), "frame 'f': size: it should be greater than or equal to 0"),
]  # fmt: skip
NOT_OURS: list[tuple[tuple[bytes | str, ...], str]] = [
    (("",), "the first message is empty"),
    (("7",), "the first message must be one JSON object, as in {…}"),
    (("no",), "the first message is not JSON: look at line 1, column 1"),
    (("{\n{",), "the first message is not JSON: look at line 2, column 1"),
    (("\ufeff{}",), "the first message is not JSON: it begins with a byte order mark (BOM)"),
    ((SHELL, b"w[1,2"), "frame 'w': the size is not JSON: look at line 1, column 5"),
    (("[" * 100_000,), "the first message has more than 12000 keys, or more than 60000 parts"),
    ((LONG,), "the first message has a number with more digits than any field takes"),
    ((b"\xff\xfe",), "byte 1 of the first message is not UTF-8"),
    ((SHELL, "more"), "frame of text: after the first message only binary ones are read: a letter and its content"),
    ((SHELL, b""), "frame '': 'shell' reads no such frame"),
    ((SHELL, b"Q"), "frame 'Q': 'shell' reads no such frame"),
    ((SHELL, b"f{}"), "frame 'f': 'shell' reads no such frame"),
    ((asked(do="stay"), b"d"), "frame 'd': 'stay' reads no such frame"),
    ((SHELL, b"w80"), "frame 'w': the size must be one JSON object, as in {…}"),
    ((SHELL, b"w"), "frame 'w': the size is empty"),
    ((WRITE, b"f\xff"), "frame 'f': byte 1 of the head of a file is not UTF-8"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("messages", "code", "detail"),
    [*[(each, 1008, says) for each, says in UNFIT], *[(each, 1003, says) for each, says in NOT_OURS]],
    ids=lambda value: repr(value)[:60] if isinstance(value, tuple) else "",
)
def test_what_cannot_be_is_refused_by_the_name_of_its_field(
    messages: tuple[bytes | str, ...], code: int, detail: str
) -> None:
    assert (code, detail) == refusal(*messages)
    assert not [word for word in OF_PYTHON if word in detail]


def test_what_commands_send_is_taken_as_it_is() -> None:
    """Names that are not UTF-8 come through, and a shell that is found again says once more what it ran."""
    shell = {"do": "shell", "argv": ["sh"], "env": {"TERM": "x"}, "rows": 24, "columns": 80}
    signal = {"do": "signal", "number": 9, "whom": "steps"}
    for first in (
        shell, {**shell, "do": "attach", "seen": 7, "session": "shell-1"}, signal, {"do": "stay"},
        {"do": "read", "path": "\udcff"},
    ):  # fmt: skip
        wanted = ClientMessages().take(json.dumps(first))
        assert isinstance(wanted, Asked)
        assert first == wanted.said()
    for first, frames in (
        (SHELL, [b"d\0\xff", b"d", b's2', b'w{"rows": 1, "columns": 1}', b"z"]),
        (WRITE, [head(path="\udcff/b"), b"dx", b"z"]),
        (asked(do="forward", port=1), [b"d", b"z"]),
    ):  # fmt: skip
        client = ClientMessages()
        client.take(first)
        assert [Frame(each[:1], each[1:]) for each in frames] == [client.take(each) for each in frames]


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    with team(tmp_path_factory.mktemp("frames")) as made:
        yield made


@pytest.fixture(scope="module")
def job(yard: Team) -> int:
    made = yard.submit("ulla", "research", command=["sleep", "600"], hold=False)
    yard.until(
        lambda: "RUNNING" == yard.call("GET", f"/api/v1/jobs/{made}", yard.tokens["ulla"]).json["state"]
    )
    return made


def said(yard: Team, job: int, *frames: bytes) -> tuple[list[Any], int, str]:
    """Send frames of WebSocket into a job: the news that come back, and the code and the reason of the close."""
    link = yard.connect(
        f"/api/v1/jobs/{job}/terminal", {"Authorization": f"Bearer {yard.tokens['ulla']}"}, upgrade=True
    )
    with link, link.makefile("rb") as file:
        while file.readline().strip():
            pass
        link.sendall(b"".join(frames))
        unframer, news = Unframer(masked=False), []
        while True:
            for kind, content in unframer.take(file.read1()):
                if kind == TEXT:
                    news.append(json.loads(content))
                elif kind == CLOSE:
                    return news, int.from_bytes(content[:2], "big"), content[2:].decode()


def masked(kind: int, content: bytes) -> bytes:
    return make_frame(kind, content, mask=MASK)


@pytest.mark.parametrize(
    ("frames", "code", "detail"),
    [
        ([make_frame(TEXT, b"{}")], 1002, "a client's frames have a mask, and a server's have none"),
        ([bytes((0x83, 0x80)) + MASK], 1002, "there is no such frame"),
        ([bytes((0x82, 0xFF)) + (1 << 40).to_bytes(8, "big")], 1009, "the message is longer than 1048576 bytes"),
        ([masked(TEXT, b"\xff")], 1007, "a message of text is not UTF-8"),
        ([masked(TEXT, b"nonsense")], 1003, "the first message is not JSON"),
        ([masked(BINARY, b'{"do": "signal", "number": 1.5}')], 1008, "number: it should be a valid integer"),
        ([masked(TEXT, b'{"do": "shell"}'), masked(BINARY, b"w80")], 1003, "frame 'w': the size must be one JSON"),
        ([masked(TEXT, b'{"do": "run"}'), masked(BINARY, b"sKILL")], 1008, "frame 's': number: it should be a valid"),
        ([masked(TEXT, b"{}"), masked(BINARY, bytes(500_000))], 1008, "do: it is required"),
    ],
    ids=["no mask", "unknown", "too long", "no text", "no JSON", "binary", "size", "signal", "much behind it"],
)  # fmt: skip
def test_a_client_is_told_at_once_and_the_connection_ends_with_the_reason(
    yard: Team, job: int, frames: list[bytes], code: int, detail: str
) -> None:
    began_s = time.monotonic()
    news, found, reason = said(yard, job, *frames)

    assert (code, ["error"]) == (found, [each["event"] for each in news])
    assert news[0]["data"]["detail"].startswith(detail)
    assert news[0]["data"]["detail"] == reason
    assert time.monotonic() - began_s < patient(5.0)
    assert "RUNNING" == yard.call("GET", f"/api/v1/jobs/{job}", yard.tokens["ulla"]).json["state"]


def test_a_client_that_hangs_up_before_it_says_what_it_wants_is_not_waited_for(yard: Team, job: int) -> None:
    assert ([], 1000, "") == said(yard, job, masked(CLOSE, (1000).to_bytes(2, "big")))
