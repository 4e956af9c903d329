"""What a trace file may be apart from its format: compressed, cut off, absent, no text, or something else."""

import gzip
import os
import threading
from pathlib import Path

import pytest

from gpuyard.errors import BadInput
from gpuyard.sim.trace import Skipped
from gpuyard.sim.traces import FORMATS, detect, load
from gpuyard.sim.traces.source import BLOCK_BYTES, HEAD_BYTES

GOOD = "submit_s,run_s\n0,1\n"


def refusal(path: str | Path, **options) -> BadInput:
    with pytest.raises(BadInput) as error:
        load(path, **options)
    assert error.value.hint
    return error.value


def test_the_formats() -> None:
    assert ["swf", "sacct", "philly", "openb", "history", "yard"] == list(FORMATS)
    assert all(format.summary for format in FORMATS.values())


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "is empty"),
        ("\n \n", "is of no known format"),
        ("a,b\n1,2\n", "is of no known format"),
        (b"\x89PNG\r\n\x1a\n", "is of no known format"),
        (GOOD.encode("utf-16"), "is UTF-16 text"),
        (b"\x1f\x8b\x08garbage", "the compressed data is damaged or cut off"),
        (gzip.compress(GOOD.encode(), mtime=0)[:-9], "the compressed data is damaged or cut off"),
        (gzip.compress(b"", mtime=0), "is empty"),
        ("submit_s,run_s\n", "has a header and no jobs"),
        ("submit_s,run_s\nx,1\ny,1\n", "none of its 2 rows can be used; the first, line 2: submit is 'x'"),
    ],
)
def test_a_file_that_is_no_trace(write, content: str | bytes, why: str) -> None:
    path = write(content)

    assert refusal(path).message.startswith(f"{path}: {why}")


def test_a_path_that_is_no_file(tmp_path: Path) -> None:
    assert "there is no such file" in refusal(tmp_path / "none.csv").message
    assert "is a directory" in refusal(tmp_path).message
    assert "is not a path" in refusal("a\0b").message


def test_a_format_that_is_not_known(write) -> None:
    error = refusal(write(GOOD), format="excel")

    assert ("there is no trace format 'excel'", "Choose one of swf, sacct, philly, openb, history, yard.") == (
        error.message, error.hint,
    )  # fmt: skip


@pytest.mark.parametrize("option", ["gpus_per_node", "processors_per_gpu"])
def test_a_senseless_option(write, option: str) -> None:
    assert f"{option} is 0" == refusal(write(GOOD), **{option: 0}).message


def test_the_named_format_wins_over_the_recognised_one(write) -> None:
    assert "there is no column timestamp" in refusal(write(GOOD), format="philly").message


@pytest.mark.parametrize("name", ["a.csv.gz", "a.csv"])
def test_gzip_is_seen_whatever_the_name(write, name: str) -> None:
    path = write(gzip.compress(GOOD.encode(), mtime=0), name)

    assert ("yard", "a", 1) == (detect(path), load(path).name, len(load(path)))


def test_a_byte_order_mark_and_windows_line_ends(write) -> None:
    assert 1 == len(load(write(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())))


def test_lines_that_are_no_text_are_named_and_the_count_goes_on(write) -> None:
    trace = load(write(b"submit_s,run_s,tenant\n0,1,a\n0,1,\xe9\n\n0,1,\0\r\nx,1,a\r\n0,1,\xc3\xa9\r\n"))

    assert ["a", "é"] == [spec.tenant for spec in trace.specs]
    assert [
        Skipped(3, "is not UTF-8 text: byte 0xe9"),
        Skipped(5, "holds a NUL byte"),
        Skipped(6, "submit is 'x', not a number"),
    ] == trace.skipped_named


def test_a_line_without_end_is_refused_and_the_next_one_read(write) -> None:
    endless = b"9" * (3 * BLOCK_BYTES)

    trace = load(write(GOOD.encode() + endless + b"\n5,1\n" + endless))

    assert [0, 5000] == list(trace.submit_ms)
    assert [Skipped(line, f"is longer than {BLOCK_BYTES} bytes") for line in (3, 5)] == trace.skipped_named


def test_rows_across_blocks_are_whole(write) -> None:
    """A row may lie across the end of a block, and may hold characters of several bytes."""
    rows = [f"{n},{n % 1000},tenänt{n % 7}\n" for n in range(150_000)]
    content = ("submit_s,run_s,tenant\n" + "".join(rows)).encode()
    assert len(content) > 2 * BLOCK_BYTES + HEAD_BYTES

    trace = load(write(content), strict=True)

    assert (150_000, 7) == (len(trace), len(trace.specs))
    assert [n % 1000 * 1000 for n in range(150_000)] == list(trace.run_ms)


def test_a_pipe_serves_as_well(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(GOOD,))
    writer.start()

    trace = load(pipe)

    writer.join()
    assert 1 == len(trace)
