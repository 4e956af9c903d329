"""Batches of lines from many logs."""

import sqlite3
from collections.abc import Callable

from gpuyard.engines.contract import LogPiece, offset_of
from gpuyard.shipping.cursors import Cursors, Stream
from gpuyard.shipping.reading import BATCH_LINES, SETTLE_MS, Batch, Gatherer


class Logs:
    """Logs in memory; one may hang."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}
        self.tail: dict[str, int] = {}
        self.hangs: Callable[[], None] | None = None
        self.reads = 0

    def log(self, key: str, stream: str, cursor: str, limit: int) -> LogPiece:
        """Cursors are words of its own; the beginning and numbers of bytes are what everybody may say."""
        self.reads += 1
        if key == "hung" and self.hangs is not None:
            self.hangs()
        offset = offset_of(cursor.removeprefix("behind:"))
        if (tail := self.tail.get(key, 0)) > offset:
            return LogPiece(b"", f"behind:{tail}", tail - offset)
        content = self.content.get(key, b"")[offset : offset + limit] if stream == "stdout" else b""
        return LogPiece(content, f"behind:{offset + len(content)}")


class World:
    """A gatherer with a clock of its own."""

    def __init__(self) -> None:
        self.logs = Logs()
        self.now_s = 1000.0
        self.gatherer = Gatherer(
            lambda _stream: self.logs,
            100,
            lambda: int(1000 * self.now_s),
            (OSError,),
            lambda: 5,
            lambda: self.now_s,
        )

    def take(self, *streams: Stream, s: float = 10.0) -> Batch:
        """What is gathered and taken after a pause."""
        self.now_s += s
        batch = self.gatherer.gather(streams)
        for stream in streams:
            if place := batch.staged.get((stream.key, stream.stream)):
                stream.offset, stream.cursor = place.offset, place.cursor
                stream.part, stream.head = place.part, place.head
        return batch


def _stream(key: str, user: str = "ana") -> Stream:
    return Stream(key, "stdout", 1, 1, {"user": user, "job": "1"})


def test_a_partial_line_waits_for_its_end_and_then_for_that_of_the_job():
    world, stream = World(), _stream("a")
    world.logs.content["a"] = b"one\ntw"
    assert ["one"] == [line.text for line in world.take(stream).lines]
    world.logs.content["a"] += b"o\nthr"
    assert ["two"] == [line.text for line in world.take(stream).lines]
    assert [] == world.take(stream).lines
    stream.ended_ms = int(1000 * world.now_s)
    assert [] == world.take(stream, s=SETTLE_MS / 2000).lines
    stream.next_s = 0.0
    batch = world.take(stream, s=SETTLE_MS / 1000)
    assert ["thr"] == [line.text for line in batch.lines]
    assert batch.staged["a", "stdout"].finished


def test_what_was_not_taken_is_gathered_again_under_the_same_id():
    world, stream = World(), _stream("a")
    world.logs.content["a"] = b"one\ntwo\n"
    world.now_s += 10
    ids = [line.id for line in world.gatherer.gather([stream]).lines]
    assert ["a-stdout-0", "a-stdout-4"] == ids
    assert ids == [line.id for line in world.take(stream).lines]
    assert [] == world.take(stream).lines


def test_no_two_lines_have_one_time():
    world, stream = World(), _stream("a")
    world.logs.content["a"] = b"same\nsame\nsame\n"
    times = [line.at_ns for line in world.take(stream).lines]
    assert 3 == len(set(times))
    assert sorted(times) == times


def test_a_truncated_log_and_a_new_one_are_read_from_their_beginning():
    world, stream = World(), _stream("a")
    world.logs.content["a"] = b"first\nsecond\n"
    world.take(stream)
    world.logs.content["a"] = b"first\n"
    batch = world.take(stream)
    assert (["first"], 1) == ([line.text for line in batch.lines], batch.restarted)
    world.logs.content["a"] = b"another one that is longer\n"
    assert ["another one that is longer"] == [line.text for line in world.take(stream).lines]
    # One that cannot be read now may come back as it was.
    kept = world.logs.content.pop("a")
    assert [] == world.take(stream).lines
    world.logs.content["a"] = kept + b"more\n"
    assert ["more"] == [line.text for line in world.take(stream).lines]


def test_the_middle_of_a_long_log_that_is_gone_is_counted_and_told():
    world, stream = World(), _stream("a")
    world.logs.content["a"] = b"begin\n" + 2**20 * b"x" + b"\nend\n"
    world.logs.tail["a"] = 7 + 2**20
    batch = world.take(stream)
    assert 7 + 2**20 == batch.left_out_bytes
    assert ["[yard: 1.0 MiB are left out here: log_limit was reached]", "end"] == [
        line.text for line in batch.lines
    ]


def test_a_file_system_that_hangs_costs_other_users_one_wait_in_a_while():
    world = World()

    def wait() -> None:
        world.now_s += 10
        raise OSError("no answer")

    world.logs.hangs = wait
    world.logs.content["b"] = b"fine\n"
    streams = [_stream("hung", "eve"), _stream("hung", "eve"), _stream("b")]
    began_s = world.now_s
    batch = world.take(*streams, s=0.0)
    assert (["fine"], began_s + 10) == ([line.text for line in batch.lines], world.now_s)
    before_s = world.now_s
    for _ in range(10):
        world.take(*streams, s=1.0)
    assert before_s + 10 == world.now_s, "while it is put aside nobody waits for it"


def test_a_batch_has_a_size_and_every_log_its_turn():
    world = World()
    world.logs.content["a"] = b"\n" * (3 * BATCH_LINES)
    stream = _stream("a")
    sizes = [len(world.take(stream).lines) for _ in range(4)]
    assert [BATCH_LINES, BATCH_LINES, BATCH_LINES, 0] == sizes


def test_cursors_outlive_the_server_and_a_damaged_file_is_set_aside(tmp_path):
    path = tmp_path / "loki.db"
    cursors = Cursors(str(path))
    assert cursors.load("y") is None
    streams = [_stream("a"), _stream("b")]
    cursors.save("y", 17, streams, [])
    streams[0].offset, streams[0].cursor = 40, "behind:40"
    streams[0].part, streams[0].head = 2, b"begin"
    cursors.save("y", 18, streams[:1], streams[1:])
    again = Cursors(str(path))
    assert (18, streams[:1]) == again.load("y")
    assert again.load("another yard") is None
    assert 0o600 == path.stat().st_mode & 0o777
    for each in (cursors, again):
        each.close()
    path.write_bytes(b"no database at all, and long enough to be read as one" * 100)
    mended = Cursors(str(path))
    assert mended.load("y") is None
    mended.close()
    assert path.with_name("loki.db.damaged").exists()


_BEFORE_CURSORS = """
CREATE TABLE place (only INTEGER PRIMARY KEY CHECK (only = 1), yard TEXT NOT NULL, seq INTEGER NOT NULL);
CREATE TABLE streams (
    key TEXT NOT NULL, stream TEXT NOT NULL, job_id INTEGER NOT NULL, attempt INTEGER NOT NULL,
    offset INTEGER NOT NULL, part INTEGER NOT NULL, head BLOB NOT NULL, ended_ms INTEGER NOT NULL,
    labels TEXT NOT NULL, PRIMARY KEY (key, stream)
) WITHOUT ROWID;
INSERT INTO place VALUES (1, 'y', 17);
INSERT INTO streams VALUES ('a', 'stdout', 1, 1, 4, 0, X'6f6e650a74776f', 0, '{"user": "ana", "job": "1"}');
INSERT INTO streams VALUES ('b', 'stdout', 2, 1, 0, 0, X'', 0, '{"user": "ana", "job": "2"}');
"""


def test_a_file_that_has_offsets_alone_goes_on_and_an_earlier_release_reads_it_again(tmp_path):
    path = str(tmp_path / "loki.db")
    before = sqlite3.connect(path)
    before.executescript(_BEFORE_CURSORS)
    before.close()
    cursors = Cursors(path)
    found = cursors.load("y")
    assert found is not None
    seq, streams = found
    assert (17, ["4", ""]) == (seq, [each.cursor for each in streams])
    world = World()
    world.logs.content |= {"a": b"one\ntwo\n", "b": b"three\n"}
    assert ["two", "three"] == [line.text for line in world.take(*streams).lines]
    assert "behind:8" == streams[0].cursor
    cursors.save("y", 18, streams, [])
    cursors.close()
    after = sqlite3.connect(path)
    assert [(8,), (6,)] == after.execute("SELECT offset FROM streams ORDER BY key").fetchall()
    # What the earlier release writes has no cursor, and its offset counts.
    after.execute(
        "INSERT OR REPLACE INTO streams (key, stream, job_id, attempt, labels, offset, part, head, ended_ms) "
        "VALUES ('a', 'stdout', 1, 1, '{}', 4, 0, X'', 0)"
    )
    after.commit()
    after.close()
    cursors = Cursors(path)
    again = cursors.load("y")
    assert again is not None
    assert ["4", "behind:6"] == [each.cursor for each in again[1]]
    cursors.close()


def test_a_line_that_is_not_whole_is_read_again_from_a_cursor_of_the_engine():
    world, stream = World(), _stream("a")
    world.logs.content["a"] = b"one\ntw"
    world.take(stream)
    assert ("behind:4", 4) == (stream.cursor, stream.offset)
