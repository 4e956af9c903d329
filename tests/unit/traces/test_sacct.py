"""Slurm's accounting."""

import pytest

from gpuyard.engines.slurm.words.forms import (
    Unreadable,
    limit_ms,
    parse_duration_ms,
    parse_memory_mib,
    parse_tres,
)
from gpuyard.errors import BadInput
from gpuyard.model import Ask, JobSpec, Mig, Whole
from gpuyard.sim.trace import Skipped
from gpuyard.sim.traces import detect, load

HEADER = "JobID|Account|User|QOS|State|Submit|Start|End|ElapsedRaw|Timelimit|ReqTRES|AllocTRES\n"
TIMES = "2026-03-02T09:30:00|2026-03-02T09:31:00|2026-03-02T09:41:00|600|01:00:00"
HELD = "billing=16,cpu=16,gres/gpu:a100=8,gres/gpu=8,mem=128G,node=2"


def row(job="1", *, who="ml|ana|urgent", state="COMPLETED", times=TIMES, requested="", allocated=HELD) -> str:
    return f"{job}|{who}|{state}|{times}|{requested}|{allocated}\n"


def test_a_job_and_its_steps(write) -> None:
    path = write(
        HEADER + row() + row("1.batch", who="ml||") + row("1.0", who="ml||") + row("12_3"), "sacct.txt"
    )

    trace = load(path)

    assert "sacct" == detect(path)
    assert [JobSpec("ml/ana", Ask(Whole(4), 2, cpu_milli=8000, memory_mib=65536), "urgent")] == trace.specs
    assert (2, 2, 0) == (len(trace), trace.rows, trace.skipped)
    assert (0, 600_000, 3_600_000) == (trace.submit_ms[0], trace.run_ms[0], trace.limit_ms[0])
    assert 1_772_443_800_000 == trace.origin_ms


@pytest.mark.parametrize(
    ("held", "ask"),
    [
        ("gres/gpu=8,node=1", Ask(Whole(8))),
        ("gres/gpu:a100=4", Ask(Whole(4))),
        ("gres/gpu:a100=2,gres/gpu:h100=2,node=1", Ask(Whole(4))),
        ("cpu=3,gres/gpu=3,mem=3G,node=2", Ask(Whole(1), 3, cpu_milli=1000, memory_mib=1024)),
        ("cpu=4,gres/gpu=1,node=2", Ask(Whole(1), 1, cpu_milli=4000)),
        ("gres/gpu:a100_1g.5gb=2,gres/gpu=2,node=1", Ask(Mig(2, "1g.5gb"))),
    ],
)
def test_what_a_job_held(write, held: str, ask: Ask) -> None:
    assert ask == load(write(HEADER + row(allocated=held))).specs[0].ask


@pytest.mark.parametrize(
    ("requested", "allocated", "models"),
    [
        ("gres/gpu:h100=8", HELD, ("H100",)),
        ("gres/gpu=8", HELD, ()),
        ("", HELD, ("A100-40GB", "A100-80GB")),
        ("", "gres/gpu:nvidia_a100-sxm4-80gb=1", ("A100-80GB",)),
        ("", "gres/gpu:Quadro_9=1", ("Quadro_9",)),
    ],
)
def test_models_are_kept_on_request_and_are_those_asked_for(
    write, requested: str, allocated: str, models: tuple[str, ...]
) -> None:
    path = write(HEADER + row(requested=requested, allocated=allocated))

    assert models == load(path, models=True).specs[0].ask.models
    assert () == load(path).specs[0].ask.models


def test_what_is_left_out_and_what_is_broken(write) -> None:
    cancelled = "2026-03-02T09:30:00|{0}|2026-03-02T09:35:00|0|01:00:00"
    rows = (
        row()
        + row(state="CANCELLED by 100", times=cancelled.format("None"), allocated="")
        + row(state="CANCELLED by 100", times=cancelled.format("2026-03-02T09:35:00"), allocated="")
        + row("7_[4-9]", state="PENDING", times="2026-03-02T09:30:00|Unknown|Unknown|0|UNLIMITED")
        + row(allocated="cpu=4,mem=1G,node=1")
        + row(allocated="cpu=4,gres/shard=2,node=1")
        + row(times="never|2026-03-02T09:31:00|2026-03-02T09:41:00|600|01:00:00")
        + row(times="2026-03-02T09:30:00|2026-03-02T09:31:00|Unknown|600|a while")
        + row(allocated="gres/gpu=lots")
        + row(who="ml|ana|x|y")
    )

    trace = load(write(HEADER + rows))

    assert (10, 9) == (trace.rows, trace.skipped)
    assert [
        Skipped(3, "never started"),
        Skipped(4, "never started"),
        Skipped(5, "never started"),
        Skipped(6, "asks for no GPU"),
        Skipped(7, "shares GPUs (gres/shard, gres/mps), and how much of one is not told"),
        Skipped(8, "Submit is 'never', not a time such as 2026-03-02T09:30:00"),
        Skipped(9, "Timelimit is 'a while', not a number"),
        Skipped(10, "gres/gpu is 'lots', not a number"),
        Skipped(11, "has 13 columns where the header has 12"),
    ] == trace.skipped_named


def test_strict_takes_a_normal_history(write) -> None:
    path = write(HEADER + row() + row(times="2026-03-02T09:30:00|Unknown|Unknown|0|UNLIMITED", allocated=""))

    assert 1 == load(path, strict=True).skipped


def test_a_running_job_counts_for_as_long_as_it_has_run(write) -> None:
    running = row(state="RUNNING", times="2026-03-02T09:30:00|2026-03-02T09:31:00|Unknown|7200|UNLIMITED")

    trace = load(write(HEADER + running))

    assert [7_200_000] == list(trace.run_ms)
    assert [0] == list(trace.limit_ms)


def test_jobs_without_gpus_on_request(write) -> None:
    path = write(HEADER + row(allocated="cpu=4,mem=1G,node=2"))

    assert [Ask(Whole(0), 2, cpu_milli=2000, memory_mib=512)] == [
        spec.ask for spec in load(path, cpu_jobs=True).specs
    ]
    with pytest.raises(BadInput, match="none of its 1 rows can be used; the first, line 2: asks for no GPU"):
        load(path)


@pytest.mark.parametrize(
    ("header", "cells"),
    [
        ("ElapsedRaw", "600"),
        ("Elapsed", "00:10:00"),
        ("End", "1772444460"),
        ("End|Elapsed", "Unknown|10:00"),
    ],
)
def test_other_exports(write, header: str, cells: str) -> None:
    """Fields in another order, epoch times, no account, and --parsable with a bar at the end of the line."""
    text = f"ReqTRES|Start|{header}|Submit|JobIDRaw|\ngres/gpu=2|1772443860|{cells}|1772443800|5|\n"

    trace = load(write(text))

    assert [JobSpec("slurm", Ask(Whole(2)))] == trace.specs
    assert (600_000, 1_772_443_800_000) == (trace.run_ms[0], trace.origin_ms)


@pytest.mark.parametrize("missing", ["JobID", "Submit", "Start"])
def test_a_missing_field_is_named(write, missing: str) -> None:
    path = write(HEADER.replace(missing, "Other") + row())

    with pytest.raises(BadInput, match=f"{missing.lower()}"):
        load(path, "sacct")


def test_quotes_mean_nothing_to_sacct(write) -> None:
    path = write("JobName|" + HEADER + '"x|' + row())

    assert 1 == len(load(path, "sacct"))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 1800),
        ("05:30", 330),
        ("01:02:03", 3723),
        ("2-00", 172_800),
        ("1-12:30", 131_400),
        ("1-00:00:01", 86_401),
        ("00:00:01.250", 1),
    ],
)
def test_durations(text: str, seconds: int) -> None:
    assert seconds * 1000 == parse_duration_ms(text, "Elapsed")


@pytest.mark.parametrize("text", ["", "1:2:3:4", "-1", "1-", "a", "1-x", "INVALID", "99999999-00:00:00"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(Unreadable):
        parse_duration_ms(text, "Elapsed")


@pytest.mark.parametrize("text", ["UNLIMITED", "Partition_Limit", "", " unlimited "])
def test_no_limit(text: str) -> None:
    assert 0 == limit_ms(text, "Timelimit")


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("128G", 131_072),
        ("1.5T", 1_572_864),
        ("4000M", 4000),
        ("512000K", 500),
        ("1K", 1),
        ("7", 7),
        ("4Gn", 4096),
    ],
)
def test_memory(text: str, mib: int) -> None:
    assert mib == parse_memory_mib(text, "mem")


@pytest.mark.parametrize(
    "text", ["mem=lots", "mem=-1G", "gres/gpu", "gres/gpu:1g.5gb=1,gres/gpu:2g.10gb=1", "mem=999999P"]
)
def test_what_is_no_resource_list(text: str) -> None:
    with pytest.raises(Unreadable):
        parse_tres(text)
