"""Whatever a file holds, an importer gives a trace or a `BadInput`, and the trace is sound."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.errors import BadInput
from gpuyard.model import Job
from gpuyard.sim.trace import SKIPPED_NAMED_MAX, Trace
from gpuyard.sim.traces import FORMATS, detect, load, save

SAMPLES = {
    "yard": (
        b"submit_s,run_s,tenant,gpus,tasks,gpu_model,cpus,limit_s,deadline_s\n"
        b"0,1,a/b,0.5,2,H100|T4,1.5,9,99\n"
    ),
    "philly": b"timestamp,duration,num_gpus,gpu_time,cluster\n2017-09-04 10:30:41,2240194.0,12,1.0,7f04ca\n",
    "openb": (
        b"name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,"
        b"creation_time,deletion_time,scheduled_time\np,12000,16384,1,460,T4|G2,LS,Running,0,12537496,3\n"
    ),
    "sacct": (
        b"JobID|Account|User|QOS|State|Submit|Start|End|Elapsed|Timelimit|AllocTRES\n"
        b"1|ml|ana|urgent|COMPLETED|2026-03-02T09:30:00|2026-03-02T09:31:00|2026-03-02T09:41:00|1-00:10:00"
        b"|UNLIMITED|cpu=16,gres/gpu:a100=8,gres/gpu=8,mem=1.5T,node=2\n"
    ),
    "swf": b"; UnixStartTime: 1500000000\n1 0 3 60 4 -1 -1 12 120 -1 1 7 2 -1 1 1 -1 -1\n",
}
PIECES = st.sampled_from(
    [
        *b",|\0|\xff|\n|\r| |;|-|=|/|\xc2\xa0|\x1f\x8b".split(b"|"),
        *b"-1|nan|inf|1e999|1e15|0x1|1_0|0|1|8|1x|2x0.5|1g.5gb".split(b"|"),
        *(b"", b"|", b'"', b"9" * 400, b"9" * 5000, "٣".encode(), "\u2028".encode()),
        *(b"9999-12-31T23:59:59.999999+23:59", b"0001-01-01T00:00:00-23:59"),
    ]
)


def sound(trace: Trace) -> None:
    """What every reader of a trace relies on."""
    columns = (trace.spec, trace.submit_ms, trace.run_ms, trace.limit_ms, trace.deadline_ms)
    assert {len(trace)} == {len(column) for column in columns}
    assert 0 == trace.submit_ms[0]
    assert sorted(trace.submit_ms) == list(trace.submit_ms)
    assert all(value >= 0 for column in columns for value in column)
    assert set(range(len(trace.specs))) == set(trace.spec)
    assert len(set(trace.specs)) == len(trace.specs)
    assert trace.rows == len(trace) + trace.skipped
    assert len(trace.skipped_named) == min(trace.skipped, SKIPPED_NAMED_MAX)
    assert trace.origin_ms >= 0


def try_all(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    for name in (None, *FORMATS):
        for strict in (False, True):
            trace, refusal = outcome(path, name, strict)
            if trace is None:
                assert refusal is not None
                assert refusal.message.isprintable()
                assert refusal.hint
            else:
                sound(trace)
                save(trace, path.with_name("again.csv"))
                again = load(path.with_name("again.csv"), strict=True)
                assert jobs(trace) == jobs(again)


def outcome(path: Path, name: str | None, strict: bool) -> tuple[Trace | None, BadInput | None]:
    try:
        return load(path, name, strict=strict, models=True, cpu_jobs=True), None
    except BadInput as error:
        return None, error


def jobs(trace: Trace) -> list[Job]:
    return [trace.job(row) for row in range(len(trace))]


@pytest.fixture(scope="module")
def attempt(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bytes], None]:
    path = tmp_path_factory.mktemp("bytes") / "any"
    return lambda content: try_all(path, content)


@given(st.binary(max_size=200))
def test_any_bytes(attempt, content: bytes) -> None:
    attempt(content)


@given(
    st.sampled_from(sorted(SAMPLES)),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 12), PIECES), max_size=4),
)
def test_a_damaged_file(attempt, name: str, cuts: list[tuple[int, int, bytes]]) -> None:
    header, _, rows = SAMPLES[name].partition(b"\n")
    content = header + b"\n" + rows * 3
    for at, length, piece in cuts:
        content = content[:at] + piece + content[at + length :]

    attempt(content)


@given(st.sampled_from(sorted(SAMPLES)), st.integers(0, 300), st.binary(max_size=8))
def test_a_damaged_compressed_file(attempt, name: str, at: int, piece: bytes) -> None:
    packed = gzip.compress(SAMPLES[name], mtime=0)

    attempt(packed[:at] + piece + packed[at + len(piece) :])


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_the_samples_are_what_they_say(tmp_path: Path, name: str) -> None:
    path = tmp_path / "sample"
    path.write_bytes(SAMPLES[name])

    assert (name, 1) == (detect(path), len(load(path, strict=True)))
