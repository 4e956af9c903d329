"""Standard Workload Format."""

import pytest

from gpuyard.model import Ask, JobSpec, Whole
from gpuyard.sim.trace import Skipped
from gpuyard.sim.traces import detect, load

COMMENTS = "; Version: 2.2\n; UnixStartTime: 1500000000\n;\n"


def line(
    *, submit="0", run="60", allocated="4", requested="4", limit="120", status="1", user="7", group="2"
) -> str:
    return (
        f"1 {submit} 3 {run} {allocated} -1 -1 {requested} {limit} -1 {status} {user} {group} -1 1 1 -1 -1\n"
    )


def test_a_job(write) -> None:
    path = write(COMMENTS + line(submit="30") + line(submit="10", run="5.5", limit="-1"), "log.swf")

    trace = load(path)

    assert "swf" == detect(path)
    assert [JobSpec("g2/u7", Ask(Whole(4)))] == trace.specs
    assert [0, 20_000] == list(trace.submit_ms)
    assert [5500, 60_000] == list(trace.run_ms)
    assert [0, 120_000] == list(trace.limit_ms)
    assert (1_500_000_010_000, 2, 0) == (trace.origin_ms, trace.rows, trace.skipped)


def test_a_log_without_comments_is_recognised(write) -> None:
    path = write(line())

    assert ("swf", 0) == (detect(path), load(path).origin_ms)


@pytest.mark.parametrize(
    ("fields", "options", "spec"),
    [
        ({"requested": "16"}, {}, JobSpec("g2/u7", Ask(Whole(8), 2))),
        ({"requested": "16"}, {"gpus_per_node": 4}, JobSpec("g2/u7", Ask(Whole(4), 4))),
        ({"requested": "-1", "allocated": "2"}, {}, JobSpec("g2/u7", Ask(Whole(2)))),
        ({"requested": "0", "allocated": "2"}, {}, JobSpec("g2/u7", Ask(Whole(2)))),
        ({"requested": "20"}, {"processors_per_gpu": 8}, JobSpec("g2/u7", Ask(Whole(3), cpu_milli=20_000))),
        ({"user": "-1"}, {}, JobSpec("g2", Ask(Whole(4)))),
        ({"group": "-1"}, {}, JobSpec("u7", Ask(Whole(4)))),
        ({"user": "-1", "group": "-1"}, {}, JobSpec("swf", Ask(Whole(4)))),
    ],
)
def test_specs(write, fields: dict[str, str], options: dict[str, int], spec: JobSpec) -> None:
    assert [spec] == load(write(line(**fields)), **options).specs


def test_what_is_left_out_and_what_is_broken(write) -> None:
    rows = (
        line()
        + line(run="-1", status="5")
        + line(run="-1", status="0")
        + line(status="2")
        + line(submit="-1")
        + line(requested="-1", allocated="-1")
        + line(run="-7")
        + line(limit="soon")
        + "1 2 3\n"
    )

    trace = load(write(COMMENTS + rows))

    assert (9, 8) == (trace.rows, trace.skipped)
    assert [
        Skipped(5, "was cancelled before it started"),
        Skipped(6, "has no run time"),
        Skipped(7, "is a part of a job that stands on a line of its own"),
        Skipped(8, "has no submit time"),
        Skipped(9, "has neither requested nor allocated processors"),
        Skipped(10, "run time is '-7', out of range"),
        Skipped(11, "requested time is 'soon', not a number"),
        Skipped(12, "has 3 fields instead of 18"),
    ] == trace.skipped_named


def test_strict_does_not_mind_what_is_merely_left_out(write) -> None:
    path = write(line() + line(run="-1", status="5"))

    assert 1 == load(path, strict=True).skipped


ODD = (
    line(run="5.5"),
    line(limit="-1"),
    line(run="-1", status="5"),
    line(status="3"),
    line(submit="007"),
    line(submit="9" * 14),
    line(requested="-1", allocated="-1"),
    line(user="-1", group="-1"),
    line(user="x"),
    "; a comment in the middle\n",
    "  \n",
    "1 2 3\n",
    ";" + line(),
)


def test_a_block_is_read_as_its_rows_would_be(write, monkeypatch) -> None:
    for odd in ("", *ODD):
        rows = [
            line(submit=str(10 * n), run=str(n), user=str(n % 7), requested=str(1 + n % 3))
            for n in range(600)
        ]
        rows.insert(300, odd)
        path = write(COMMENTS + "".join(rows), "log.swf")
        together = load(path)
        with monkeypatch.context() as one_by_one:
            one_by_one.setattr("gpuyard.sim.traces.swf._plain_rows", lambda *_arguments: False)
            assert load(path) == together, odd
