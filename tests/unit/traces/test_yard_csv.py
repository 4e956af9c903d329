"""gpuyard's own CSV: every column, every refusal, and back again."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.errors import BadInput
from gpuyard.model import Ask, GpuRequest, Image, Isolation, JobSpec, Memory, Mig, Milli, Whole
from gpuyard.sim.trace import Skipped, Trace
from gpuyard.sim.traces import load, save
from gpuyard.sim.traces.builder import Builder
from gpuyard.sim.traces.source import open_source

ONE = JobSpec("default", Ask(Whole(1)))


def test_the_two_required_columns_make_one_gpu_jobs_of_the_default_tenant(write) -> None:
    trace = load(write("submit_s,run_s\n10,60\n12.5,0.25\n"))

    assert [ONE] == trace.specs
    assert [0, 0] == list(trace.spec)
    assert [0, 2500] == list(trace.submit_ms)
    assert [60_000, 250] == list(trace.run_ms)
    assert [0, 0] == list(trace.limit_ms) == list(trace.deadline_ms)
    assert (2, 0, [], 0, "history") == (
        trace.rows, trace.skipped, trace.skipped_named, trace.origin_ms, trace.name,
    )  # fmt: skip


def test_every_column_in_another_order(write) -> None:
    header = (
        "run_s,id,tenant,class,name,gpus,tasks,gpu_model,cpus,memory_mib,limit_s,deadline_s,"
        "checkpoint_s,restart_s,submit"
    )
    row = '60,j1,ml/ana,urgent,"a, b",4,2,H100|A100-80GB,7.5,1024,90,600,30,5,2026-03-02T09:30:00Z'

    trace = load(write(f"{header}\n{row}\n"))

    ask = Ask(Whole(4), 2, cpu_milli=7500, memory_mib=1024, models=("H100", "A100-80GB"))
    assert [JobSpec("ml/ana", ask, "urgent", "a, b", None, 30_000, 5_000)] == trace.specs
    assert (0, 60_000, 90_000, 600_000) == (
        trace.submit_ms[0], trace.run_ms[0], trace.limit_ms[0], trace.deadline_ms[0],
    )  # fmt: skip
    assert 1_772_443_800_000 == trace.origin_ms


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("", Whole(1)),
        ("0", Whole(0)),
        ("4", Whole(4)),
        ("4.0", Whole(4)),
        ("0.25", Milli(1, 250)),
        ("2x0.5", Milli(2, 500)),
        ("1x1", Milli(1, 1000)),
        ("1g.18gb", Mig(1, "1g.18gb")),
        ("2x1G.18GB", Mig(2, "1g.18gb")),
        ("1g.10gb+me", Mig(1, "1g.10gb+me")),
    ],
)
def test_gpus(write, text: str, gpus: GpuRequest) -> None:
    assert gpus == load(write(f"submit_s,run_s,gpus\n0,1,{text}\n")).specs[0].ask.gpus


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ("x,1,,,,", "submit is 'x', not a number"),
        ("-1,1,,,,", "submit is '-1', which is negative"),
        ("0,nan,,,,", "run_s is 'nan', which is not a number"),
        ("0,inf,,,,", "run_s is 'inf', which is absurdly large"),
        ("0,1e16,,,,", "run_s is '1e16', which is absurdly large"),
        ("0,,,,,", "run_s is '', not a number"),
        ("0,1,two,,,", "gpus is 'two', not a number"),
        ("0,1,1.5,,,", "gpus is '1.5'; a part of a GPU is less than 1, and 2x0.5 is half of each of two"),
        ("0,1,0.0001,,,", "gpus is '0.0001', finer than a thousandth"),
        ("0,1,9999999,,,", "gpus is '9999999', which is absurdly large"),
        ("0,1,1,0,,", "tasks is 0"),
        ("0,1,1,1.5,,", "tasks is '1.5', not a whole number"),
        (f"0,1,1,{'9' * 400},,", f"tasks is '{'9' * 37}...', which is absurdly large"),
        ("0,1,1,1,a//b,", "tenant is 'a//b', not a path such as team/user"),
        ("0,1,1,1,a\x07b,", "tenant is 'a\\x07b', with characters that cannot be printed"),
        (f"0,1,1,1,{'a' * 257},", "tenant has 257 characters, more than 256"),
        ("0,1,1,1,a,-5", "limit_s is '-5', which is negative"),
        ("0,1,1,1,a", "has 5 columns where the header has 6"),
        ('0,1,1,1,"a,5', "has 0 columns where the header has 6"),
        ("0,1\0,1,1,a,", "holds a NUL byte"),
    ],
)
def test_a_broken_row_is_named_and_passed_over(write, row: str, why: str) -> None:
    path = write(f"submit_s,run_s,gpus,tasks,tenant,limit_s\n5,1,,,,\n\n{row}\n6,2,,,,\n")

    trace = load(path)

    assert (3, 1, [Skipped(4, why)]) == (trace.rows, trace.skipped, trace.skipped_named)
    assert [0, 1000] == list(trace.submit_ms)
    with pytest.raises(BadInput) as error:
        load(path, strict=True)
    assert f"{path}:4: {why}" == error.value.message


def test_twenty_broken_rows_are_named_and_all_are_counted(write) -> None:
    trace = load(write("submit_s,run_s\n" + "x,1\n" * 30 + "0,1\n"))

    assert (31, 30, 20) == (trace.rows, trace.skipped, len(trace.skipped_named))
    assert [2, 21] == [trace.skipped_named[0].line, trace.skipped_named[-1].line]


def test_jobs_are_sorted_by_submission_and_then_by_row(write) -> None:
    trace = load(write("submit_s,run_s,tenant\n9,1,a\n5,2,b\n9,3,c\n5,4,a\n"))

    assert [2000, 4000, 1000, 3000] == list(trace.run_ms)
    assert [0, 0, 4000, 4000] == list(trace.submit_ms)
    assert ["b", "a", "a", "c"] == [trace.job(row).spec.tenant for row in range(4)]
    assert ["b", "a", "c"] == [spec.tenant for spec in trace.specs]


def test_equal_specs_are_one_however_they_were_written(write) -> None:
    trace = load(write("submit_s,run_s,gpus,cpus\n0,1,2,1\n0,1,2.0,1.0\n0,1, 2 ,1\n"))

    assert [JobSpec("default", Ask(Whole(2), cpu_milli=1000))] == trace.specs


def test_seconds_since_1970_are_recognised(write) -> None:
    assert 1_772_443_800_500 == load(write("submit_s,run_s\n1772443800.5,1\n")).origin_ms


@pytest.mark.parametrize(
    ("header", "message", "hint"),
    [
        ("submit_s,run_s,gpu", "1: unknown column 'gpu'; did you mean 'gpus' or 'gpu_model'?", "Known: "),
        ("submit_s,runs_s", "1: unknown column 'runs_s'; did you mean 'run_s'?", "Known: "),
        ("submit_s,run_s,zzz", "1: unknown column 'zzz'", "Known: id, submit_s,"),
        ("submit_s,gpus", "1: there is no column run_s", "The header has 'submit_s', 'gpus'."),
        ("run_s,gpus", "1: there is no column submit_s or submit", "The header has"),
        ("submit_s,submit,run_s", "1: has both submit_s and submit", "Keep"),
        ("submit_s,run_s,run_s", "1: a column stands there twice", "Keep"),
    ],
)
def test_a_wrong_header_says_what_to_do(write, header: str, message: str, hint: str) -> None:
    path = write(f"{header}\n0,1\n")

    with pytest.raises(BadInput) as error:
        load(path)

    assert f"{path}:{message}" == error.value.message
    assert hint in error.value.hint


NAMES = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=12)
PARTS = NAMES.filter(lambda part: "/" not in part)
GPUS = st.one_of(
    st.builds(Whole, st.integers(0, 64)),
    st.builds(Milli, st.integers(1, 8), st.integers(1, 1000)),
    st.builds(Mig, st.integers(1, 7), st.sampled_from(["1g.18gb", "7g.80gb", "1g.10gb+me"])),
)
ASKS = st.builds(
    Ask,
    GPUS,
    tasks=st.integers(1, 100),
    cpu_milli=st.integers(0, 10**7),
    memory_mib=st.integers(0, 10**8),
    models=st.lists(NAMES.filter(lambda model: "|" not in model), max_size=3, unique=True).map(tuple),
)
SPECS = st.builds(
    JobSpec,
    st.lists(PARTS, min_size=1, max_size=3).map("/".join),
    ASKS,
    klass=st.just("") | NAMES,
    name=st.just("") | NAMES,
    checkpoint_ms=st.integers(0, 10**9),
    restart_cost_ms=st.integers(0, 10**9),
)
ROWS = st.tuples(
    SPECS, st.integers(0, 10**11), st.integers(0, 10**14), st.integers(0, 10**14), st.integers(0, 10**12)
)


def trace_of(rows: list[tuple[JobSpec, int, int, int, int]], epoch_ms: int | None) -> Trace:
    builder = Builder("made", epoch_ms=epoch_ms)
    for spec, submit_ms, run_ms, limit_ms, due_ms in rows:
        builder.add(builder.index(spec), submit_ms, run_ms, limit_ms, due_ms)
    return builder.finish("saved")


@given(st.lists(ROWS, min_size=1, max_size=8), st.none() | st.integers(1, 10**13), st.booleans())
def test_what_is_saved_is_what_is_loaded(tmp_path_factory, rows, epoch_ms, compressed) -> None:
    trace = trace_of(rows, epoch_ms)
    path = tmp_path_factory.getbasetemp() / ("saved.csv.gz" if compressed else "saved.csv")

    save(trace, path)

    assert trace == load(path, "yard", strict=True)


def test_a_saved_trace_is_read_by_people(tmp_path: Path) -> None:
    rows = [
        (JobSpec("ml/ana", Ask(Milli(1, 250))), 0, 1500, 0, 0),
        (JobSpec("ml/ben", Ask(Whole(8), 2), "urgent"), 60_000, 3_600_000, 7_200_000, 86_400_000),
    ]

    save(trace_of(rows, None), tmp_path / "a.csv")
    save(trace_of(rows, 1_772_443_800_000), tmp_path / "b.csv.gz")

    assert (
        "submit_s,run_s,limit_s,deadline_s,tenant,class,gpus,tasks\n"
        "0,1.5,0,,ml/ana,,0.25,\n"
        "60,3600,7200,86400,ml/ben,urgent,8,2\n"
    ) == (tmp_path / "a.csv").read_text()
    assert (
        "\n2026-03-02T09:30:00.000Z,1.5,0,," in gzip.decompress((tmp_path / "b.csv.gz").read_bytes()).decode()
    )
    assert ["a.csv", "b.csv.gz"] == sorted(path.name for path in tmp_path.iterdir())


@pytest.mark.parametrize(
    "spec",
    [
        JobSpec("a", Ask(Memory(1, 1024, Isolation.ANY))),
        JobSpec("a", Ask(Whole(1), pools=("h100",))),
        JobSpec("a", Ask(Whole(1)), work=Image("trainer")),
        JobSpec("a", Ask(Whole(1)), name="two\nlines"),
        JobSpec("a", Ask(Whole(1)), name=" padded"),
        JobSpec("a//b", Ask(Whole(1))),
        JobSpec("", Ask(Whole(1))),
    ],
)
def test_a_job_that_the_columns_cannot_hold_is_refused_and_the_old_file_stays(write, spec: JobSpec) -> None:
    path = write("old")

    with pytest.raises(BadInput, match="does not fit the columns"):
        save(trace_of([(spec, 0, 1, 0, 0)], None), path)

    assert [b"old"] == [each.read_bytes() for each in path.parent.iterdir()]


def test_saving_where_one_cannot_write(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be written"):
        save(trace_of([(ONE, 0, 1, 0, 0)], None), tmp_path / "no" / "such" / "folder.csv")


def test_a_deadline_before_the_submission_cannot_be_saved(tmp_path: Path) -> None:
    trace = trace_of([(ONE, 0, 1, 0, 0), (ONE, 5000, 1, 0, 1)], None)
    trace.deadline_ms[1] = 4000

    with pytest.raises(BadInput, match="deadline before its submission"):
        save(trace, tmp_path / "a.csv")


def test_the_reader_takes_a_header_with_blanks_and_capitals(write) -> None:
    path = write(" Submit_S , RUN_S \r\n1,2\r\n")

    with open_source(path) as source:
        assert ["Submit_S , RUN_S", "1,2"] == source.first_lines()
    assert [2000] == list(load(path).run_ms)
