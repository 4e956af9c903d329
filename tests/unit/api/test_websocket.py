"""WebSocket frames: what one side makes the other reads, in any pieces, and what is none is refused."""

import pytest

from gpuyard.api.connecting.websocket import (
    BINARY,
    CLOSE,
    MESSAGE_BYTES_MAX,
    PARTS_MAX,
    PING,
    TEXT,
    TOO_LONG,
    BadFrame,
    Unframer,
    answer_key,
    make_frame,
)


def test_the_answer_to_a_key_is_that_of_the_standard() -> None:
    assert "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" == answer_key("dGhlIHNhbXBsZSBub25jZQ==")


@pytest.mark.parametrize("mask", [b"", b"\x01\x80\xff\x00"])
def test_messages_of_all_sizes_arrive_in_any_pieces(mask: bytes) -> None:
    messages = [
        (BINARY, bytes(range(256)) * 300),
        (TEXT, b""),
        (PING, b"!"),
        (BINARY, b"x" * 126),
        (CLOSE, b""),
    ]
    sent = b"".join([make_frame(kind, content, mask=mask) for kind, content in messages])
    for size in (1, 7, len(sent)):
        unframer = Unframer(masked=bool(mask))
        found = [each for at in range(0, len(sent), size) for each in unframer.take(sent[at : at + size])]
        assert messages == found


def test_a_message_in_parts_is_one_with_a_control_frame_in_between() -> None:
    parts = bytes((TEXT, 2)) + b"ab" + make_frame(PING, b"") + bytes((0x80, 1)) + b"c"
    assert [(PING, b""), (TEXT, b"abc")] == list(Unframer(masked=False).take(parts))


@pytest.mark.parametrize(
    ("masked", "sent"),
    [
        (True, make_frame(BINARY, b"x")),
        (False, make_frame(BINARY, b"x", mask=b"1234")),
        (False, bytes((0xC2, 0))),
        (False, bytes((0x83, 0))),
        (False, bytes((0x82, 127)) + (MESSAGE_BYTES_MAX + 1).to_bytes(8, "big")),
        (False, bytes((0x80, 0))),
        (False, bytes((BINARY, 0)) + make_frame(BINARY, b"")),
        (False, bytes((PING, 0))),
    ],
    ids=["no mask", "a server's mask", "extension", "unknown", "too long", "no beginning", "two at once", "ping parts"],
)  # fmt: skip
def test_what_is_no_frame_is_refused(masked: bool, sent: bytes) -> None:
    with pytest.raises(BadFrame):
        list(Unframer(masked=masked).take(sent))


def test_a_message_that_never_ends_is_refused() -> None:
    unframer = Unframer(masked=False)
    part = bytes((0, 127)) + (MESSAGE_BYTES_MAX // 2).to_bytes(8, "big") + bytes(MESSAGE_BYTES_MAX // 2)
    list(unframer.take(bytes((BINARY, 0))))
    list(unframer.take(part))
    list(unframer.take(part))
    with pytest.raises(BadFrame):
        list(unframer.take(part))


def test_a_message_of_empty_frames_without_end_is_refused() -> None:
    empty = bytes((0, 0))
    unframer = Unframer(masked=False)
    # Of each message so many, and not of all messages together.
    for _ in range(2):
        whole = bytes((TEXT, 0)) + empty * (PARTS_MAX - 2) + bytes((0x80, 0))
        assert [(TEXT, b"")] == list(unframer.take(whole))
    with pytest.raises(BadFrame) as refused:
        list(unframer.take(bytes((TEXT, 0)) + empty * PARTS_MAX))
    assert TOO_LONG == refused.value.code
