"""The series on disk: what is kept how long, and that late, doubled and lost samples leave the truth or a hole."""

import math
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gpuyard.quantities import DAY_MS, HOUR_MS, MINUTE_MS
from gpuyard.telemetry.samples import check_sample
from gpuyard.telemetry.series import POINTS_KEPT, SAVE_MS, Series
from gpuyard.telemetry.spans import compute_mean, find_spans

BEGIN = 1_700_006_400_000 // DAY_MS * DAY_MS
STEP = 10_000


def fill(
    series: Series, begin: int, end: int, step: int = STEP, node: str = "n1", key: str = "y-7-1"
) -> None:
    """A GPU that is half busy, and an attempt that uses a core."""
    for at in range(begin, end, step):
        told = {
            "gpu/0/busy": 400 if at // step % 2 else 600,
            "gpu/0/energy": (at - BEGIN) // 10,
            f"attempt/{key}/cpu": at - begin + step,
            f"attempt/{key}/memory": 1000 + (at - begin) // HOUR_MS,
        }
        series.add(check_sample(node, at, told, at), at)
        series.work(at)


def all_done(series: Series, now: int) -> None:
    while series.work(now, 100):
        pass


@pytest.fixture
def series(tmp_path: Path) -> Series:
    return Series(str(tmp_path / "series.db"))


def test_samples_show_at_once_and_after_a_restart(tmp_path: Path) -> None:
    series = Series(str(tmp_path / "series.db"))
    fill(series, BEGIN, BEGIN + 15 * MINUTE_MS)
    now = BEGIN + 15 * MINUTE_MS
    before = series.curves("n1", "gpu/0", BEGIN, now, now)
    # Other users may pass through the folder: who computes what is not for them.
    assert {0o600} == {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    series.close()
    after = Series(str(tmp_path / "series.db")).curves("n1", "gpu/0", BEGIN, now, now)

    assert 90 == len(before["busy"].times_ms)
    assert before == after


def test_what_is_not_saved_yet_is_soon(tmp_path: Path) -> None:
    path = str(tmp_path / "series.db")
    series = Series(path)
    fill(series, BEGIN, BEGIN + 10 * MINUTE_MS)
    killed = Series(path).curves("n1", "gpu/0", BEGIN, BEGIN + HOUR_MS, BEGIN + HOUR_MS)["busy"]

    assert BEGIN + 10 * MINUTE_MS - SAVE_MS - 2 * STEP <= killed.times_ms[-1]


def test_four_days_in_three_tiers(series: Series) -> None:
    end = BEGIN + 4 * DAY_MS
    fill(series, BEGIN, end, 120_000)
    all_done(series, end)

    old = series.curves("n1", "gpu/0", BEGIN, BEGIN + DAY_MS, end)
    assert [BEGIN + hour * HOUR_MS for hour in range(24)] == old["busy"].times_ms
    assert {500} == set(old["busy"].values)
    whole = series.curves("n1", "gpu/0", BEGIN, end, end)["energy"]
    assert 96 == len(whole.times_ms)
    assert (end - 120_000 - BEGIN) // 10 == sum([value or 0 for value in whole.values])
    minutes = series.curves("n1", "gpu/0", end - DAY_MS, end, end, 5000)
    assert 720 == len(minutes["busy"].times_ms)
    raw = series.curves("n1", "gpu/0", end - HOUR_MS, end, end, 5000)
    assert 30 == len(raw["busy"].times_ms)
    sizes = series.bytes()
    assert all([size > 0 for size in sizes.values()])


def test_old_chunks_go(series: Series) -> None:
    fill(series, BEGIN, BEGIN + HOUR_MS, MINUTE_MS)
    all_done(series, BEGIN + 3 * HOUR_MS + 11 * MINUTE_MS)
    assert 0 == series.bytes()["raw"]
    assert 0 < series.bytes()["minutes"]
    all_done(series, BEGIN + 5 * DAY_MS)
    assert 0 == series.bytes()["minutes"]
    assert 0 < series.bytes()["hours"]
    all_done(series, BEGIN + 402 * DAY_MS)
    assert {"raw": 0, "minutes": 0, "hours": 0} == series.bytes()


def test_a_yard_that_was_down_for_a_week_folds_what_it_had(tmp_path: Path) -> None:
    series = Series(str(tmp_path / "series.db"))
    fill(series, BEGIN, BEGIN + 2 * HOUR_MS)
    series.close()
    later = BEGIN + 7 * DAY_MS
    series = Series(str(tmp_path / "series.db"))
    all_done(series, later)

    found = series.curves("n1", "gpu/0", BEGIN, later, later)["busy"]
    assert ([BEGIN, BEGIN + HOUR_MS], [500, 500]) == (found.times_ms, found.values)


def test_samples_late_doubled_and_out_of_order_come_to_the_same(tmp_path: Path) -> None:
    told = [(BEGIN + place * STEP, {"gpu/0/busy": place, "gpu/0/energy": 7 * place}) for place in range(500)]
    order = told[::-1] + told[100:300]
    now = BEGIN + 500 * STEP
    found = []
    for number, samples in enumerate((told, order)):
        series = Series(str(tmp_path / f"{number}.db"))
        for at, values in samples:
            series.add(check_sample("n1", at, values, BEGIN + HOUR_MS), now)
            series.work(now + number * SAVE_MS)
        all_done(series, BEGIN + 90 * MINUTE_MS)
        found.append(series.curves("n1", "gpu/0", BEGIN, BEGIN + HOUR_MS, BEGIN + 5 * HOUR_MS))
        found.append(series.curves("n1", "gpu/0", BEGIN, now, now, 5000))

    assert found[:2] == found[2:]
    assert 7 * 360 - 7 == sum([value or 0 for value in found[0]["energy"].values])


def test_a_late_sample_reaches_an_hour_that_was_folded(series: Series) -> None:
    fill(series, BEGIN, BEGIN + HOUR_MS)
    now = BEGIN + HOUR_MS + 10 * MINUTE_MS
    all_done(series, now)
    series.add(check_sample("n1", BEGIN + 30 * MINUTE_MS + 1, {"gpu/0/temperature": 91}, now), now)
    all_done(series, now + SAVE_MS)

    later = BEGIN + DAY_MS
    assert [91] == series.curves("n1", "gpu/0", BEGIN, later, later)["temperature"].values


def test_a_collector_that_was_dead_leaves_a_hole_and_no_energy_is_lost(series: Series) -> None:
    fill(series, BEGIN, BEGIN + 10 * MINUTE_MS)
    fill(series, BEGIN + 70 * MINUTE_MS, BEGIN + 80 * MINUTE_MS)
    now = BEGIN + 80 * MINUTE_MS
    found = series.curves("n1", "gpu/0", BEGIN, now, now, 5000)

    assert 120 == len(found["busy"].times_ms)
    assert (now - STEP - BEGIN) // 10 == sum([value or 0 for value in found["energy"].values])


def test_a_value_that_is_no_number_is_a_hole_and_a_reset_loses_nothing_after_it(series: Series) -> None:
    energies = [1000, 1100, math.nan, 1300, 50, 150]
    for place, energy in enumerate(energies):
        at = BEGIN + place * STEP
        series.add(check_sample("n1", at, {"gpu/0/energy": energy, "gpu/0/busy": 1}, at), at)
    found = series.curves("n1", "gpu/0", BEGIN, BEGIN + HOUR_MS, BEGIN + HOUR_MS)

    assert [0, 100, 200, 50, 100] == found["energy"].values
    assert 6 == len(found["busy"].values)
    assert {("n1", "no number"): 1} == series.faults


def test_an_ended_attempt_keeps_its_curves(series: Series) -> None:
    end = BEGIN + 20 * HOUR_MS
    for node in ("n1", "n2"):
        fill(series, BEGIN, end, 60_000, node=node)
    series.keep("y-7-1", ["n1", "n2"], BEGIN, end, end)
    all_done(series, BEGIN + 10 * DAY_MS)
    kept = series.kept("y-7-1")

    assert {"cpu", "memory"} == set(kept)
    assert POINTS_KEPT >= len(kept["cpu"].times_ms) >= POINTS_KEPT // 2
    # Two nodes with a core each for all of the time.
    assert 2 * (end - BEGIN) == sum([value or 0 for value in kept["cpu"].values])
    assert 2 * 1019 == max([value or 0 for value in kept["memory"].values])
    series.forget(["y-7-1"])
    assert {} == series.kept("y-7-1")


def test_the_first_half_minute_of_a_gang_is_its_whole_time(series: Series) -> None:
    """Its nodes are put together minute by minute: what was seen lies neither before its start nor in the future."""
    started, now = BEGIN + 20_000, BEGIN + 50_000
    for node in ("n1", "n2"):
        fill(series, started, now, node=node)
    curve = series.of_attempt("y-7-1", ["n1", "n2"], started, now, now)["cpu"]
    found = find_spans(curve.times_ms, curve.values, started, counts=True)

    assert [(started, now - 1)] == [(since, until) for since, until, _value in found]
    assert 2000 == round(compute_mean(found), -2)


def test_curves_of_one_attempt_are_not_those_of_another(series: Series) -> None:
    fill(series, BEGIN, BEGIN + MINUTE_MS, key="y-7-1")
    fill(series, BEGIN, BEGIN + MINUTE_MS, key="y-7-11", node="n1")

    assert {"cpu", "memory"} == set(
        series.curves("n1", "attempt/y-7-1", BEGIN, BEGIN + HOUR_MS, BEGIN + HOUR_MS)
    )
    assert {} == series.curves("n1", "attempt/y-7", BEGIN, BEGIN + HOUR_MS, BEGIN + HOUR_MS)


def test_a_damaged_file_is_set_aside_and_the_yard_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "series.db"
    path.write_bytes(b"no database" * 1000)
    series = Series(str(path))
    fill(series, BEGIN, BEGIN + MINUTE_MS)

    assert "begin anew" in series.note
    assert 6 == len(series.curves("n1", "gpu/0", BEGIN, BEGIN + HOUR_MS, BEGIN + HOUR_MS)["busy"].values)


def test_a_damaged_chunk_is_a_hole(tmp_path: Path) -> None:
    path = tmp_path / "series.db"
    series = Series(str(path))
    fill(series, BEGIN, BEGIN + 30 * MINUTE_MS)
    series.close()
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE chunks SET blob = ? WHERE from_ms = ?", (b"x", BEGIN + 10 * MINUTE_MS))
    db.close()
    series = Series(str(path))

    assert 120 == len(series.curves("n1", "gpu/0", BEGIN, BEGIN + HOUR_MS, BEGIN + HOUR_MS)["busy"].values)
    assert {("n1", "damaged on disk"): 1} == series.faults


def test_series_of_a_release_that_named_no_clusters_get_theirs_and_two_of_one_name_begin_anew(
    tmp_path: Path,
) -> None:
    path = tmp_path / "series.db"
    series = Series(str(path))
    for node in ("n1", "n2"):
        fill(series, BEGIN, BEGIN + 10 * MINUTE_MS, node=node)
    series.close()
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("PRAGMA user_version = 0")
    db.close()
    series = Series(str(path), {"n1": "east", "n2": ""}.__getitem__)
    again = Series(str(path))

    def seen(node: str) -> int:
        found = again.curves(node, "gpu/0", BEGIN, BEGIN + HOUR_MS, BEGIN + HOUR_MS)
        return len(found["busy"].values) if found else 0

    assert [60, 0, 0, 0] == [seen(node) for node in ("east:n1", "n1", "n2", ":n2")]
    assert "1 nodes begin anew" in series.note
    assert "" == again.note
