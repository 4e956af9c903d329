"""What a collector keeps while the yard is away, and what it hands in."""

from gpuyard.telemetry.batches import DROPPED, MOMENTS_MAX, Buffer
from gpuyard.telemetry.samples import LATE_MS, OUT_OF_BOUNDS, Sample
from gpuyard.telemetry.sources import GpuLook

NOW = 1_000_000_000


def sample(at_ms: int, **faults: int) -> Sample:
    return Sample("n1", at_ms, {"gpu/0/busy": at_ms % 1000, "node/cpu": 7}, faults)


def test_samples_are_handed_in_oldest_first_and_again_until_they_are_answered() -> None:
    buffer = Buffer()
    for turn in range(3):
        buffer.add(sample(NOW + turn))
    looks = [GpuLook(0, "GPU-1", {}, model="H200", pci="1B", driver="580")]

    first = buffer.batch(NOW + 5, 17, looks)
    again = buffer.batch(NOW + 5, 17, looks)
    buffer.taken()

    assert first == again
    assert [NOW, NOW + 1, NOW + 2] == first["at_ms"]
    assert {"gpu/0/busy": [0, 1, 2], "node/cpu": [7, 7, 7]} == first["series"]
    assert [{"gpu": 0, "uuid": "GPU-1", "model": "H200", "pci": "1B", "driver": "580"}] == first["cards"]
    assert 0 == len(buffer)


def test_a_series_that_comes_and_goes_has_holes() -> None:
    buffer = Buffer()
    for at_ms, values in (
        (1, {"node/cpu": 1}),
        (2, {"gpu/0/busy": 5}),
        (3, {"node/cpu": 3, "gpu/0/busy": 6}),
    ):
        buffer.add(Sample("n1", NOW + at_ms, values))

    found = buffer.batch(NOW, 0, [])["series"]

    assert {"node/cpu": [1, None, 3], "gpu/0/busy": [None, 5, 6]} == found


def test_what_is_kept_has_an_end_and_what_was_dropped_is_told() -> None:
    buffer = Buffer(values_max=20)
    for turn in range(30):
        buffer.add(sample(NOW + turn))

    found = buffer.batch(NOW, 0, [])

    assert list(range(NOW + 20, NOW + 30)) == found["at_ms"]
    assert {DROPPED: 40} == found["faults"]


def test_samples_that_the_yard_would_not_take_any_more_are_not_kept() -> None:
    buffer = Buffer()
    buffer.add(sample(NOW))
    buffer.add(sample(NOW + LATE_MS + 1))

    assert [NOW + LATE_MS + 1] == buffer.batch(NOW, 0, [])["at_ms"]


def test_a_batch_is_bounded_and_faults_are_told_once() -> None:
    buffer = Buffer()
    for turn in range(MOMENTS_MAX + 5):
        buffer.add(Sample("n1", NOW + turn, {"node/cpu": 1}, {OUT_OF_BOUNDS: 1}))

    first = buffer.batch(NOW, 0, [])
    buffer.taken()
    second = buffer.batch(NOW, 0, [])

    assert (MOMENTS_MAX, 5) == (len(first["at_ms"]), len(second["at_ms"]))
    assert ({OUT_OF_BOUNDS: MOMENTS_MAX + 5}, {}) == (first["faults"], second["faults"])


def test_samples_dropped_while_a_batch_is_under_way_are_not_forgotten_twice() -> None:
    buffer = Buffer(values_max=6)
    for turn in range(3):
        buffer.add(sample(NOW + turn))
    buffer.batch(NOW, 0, [])
    buffer.add(sample(NOW + 3))
    buffer.taken()

    assert [NOW + 3] == buffer.batch(NOW, 0, [])["at_ms"]
