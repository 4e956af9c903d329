"""Jobs that share one GPU, some of which break its server: it ends, in few faults, and only they have failed."""

import random
from pathlib import Path

import pytest

from gpuyard.engines.local.gpus.mps_inquiry import FIRST_MS, MARGIN_MS, Inquiry

T = 1_700_000_000_000
TICK_MS = 5_000
PLACES = 5


class Gpu:
    """One with five places, a queue before it, and a clock that jumps."""

    def __init__(
        self,
        folder: Path,
        jobs: int,
        bad: set[int],
        break_s: int,
        run_s: int,
        log: str,
        retries: int,
        seed: int,
    ) -> None:
        self.now_ms = T
        self._inquiry = Inquiry(str(folder), lambda: self.now_ms)
        self._queue = [str(job) for job in range(jobs)]
        self._bad = {str(job) for job in bad}
        self._break_ms, self._run_ms, self._log = break_s * 1000, run_s * 1000, log
        self._random = random.Random(seed)
        self._live: dict[str, int] = {}
        self._retries = dict.fromkeys(self._bad, retries)
        self.faults = 0
        self.failed: set[int] = set()

    def run(self, hours: int) -> bool:
        """Whether all have ended in time."""
        while self._queue or self._live:
            self.now_ms += TICK_MS
            if self.now_ms > T + hours * 3_600_000:
                return False
            places = self._queue[: PLACES - len(self._live)]
            for job in places:
                if not self._inquiry.waits(job, self._live):
                    self._queue.remove(job)
                    self._live[job] = self.now_ms
            ran = {job: self.now_ms - since_ms for job, since_ms in self._live.items()}
            for job in [each for each in ran if each not in self._bad and ran[each] >= self._run_ms]:
                del self._live[job]
            if broke := [each for each in ran if each in self._bad and ran[each] >= self._break_ms]:
                self._fault(broke[0])
        return True

    def _fault(self, job: str) -> None:
        self.faults += 1
        there = list(self._live)
        self._random.shuffle(there)
        named = {"right": {job}, "none": set[str](), "any": {self._random.choice(there)}}[self._log]
        guilty = [each for each in there if self._inquiry.guilty(each, self.now_ms, self._live, named)]
        assert len(guilty) <= 1
        self.failed |= {int(each) for each in guilty}
        again = [each for each in guilty if self._retries.get(each)]
        for each in again:
            self._retries[each] -= 1
        self._queue = sorted(set(there) - set(guilty), key=int) + again + self._queue
        self._live = {}


@pytest.mark.parametrize("log", ["right", "none", "any"])
@pytest.mark.parametrize(
    ("jobs", "bad", "break_s", "run_s", "faults_max"),
    [
        (50, {3}, 5, 60, 3),
        (50, {37}, 30, 60, 4),
        # Longer than anybody waits for another one at first.
        (6, {2}, 900, 7200, 4),
        (6, {2}, 3600, 4 * 3600, 6),
        (10, set(range(10)), 30, 60, 25),
    ],
)
def test_only_who_breaks_a_server_fails_and_it_takes_few_faults(
    tmp_path: Path, log: str, jobs: int, bad: set[int], break_s: int, run_s: int, faults_max: int
) -> None:
    gpu = Gpu(tmp_path, jobs, bad, break_s, run_s, log, 0, 1)
    assert gpu.run(hours=24)
    assert bad == gpu.failed
    assert gpu.faults <= faults_max


@pytest.mark.parametrize("log", ["right", "none", "any"])
@pytest.mark.parametrize(
    ("bad", "retries", "faults_max"), [({3, 4, 20, 21}, 0, 12), ({3}, 3, 8), ({3, 17}, 2, 12)]
)
def test_nobody_is_to_blame_for_what_others_did_who_joined_it_or_came_again(
    tmp_path: Path, log: str, bad: set[int], retries: int, faults_max: int
) -> None:
    for seed in range(20):
        folder = tmp_path / str(seed)
        folder.mkdir()
        gpu = Gpu(folder, 50, bad, 30, 60, log, retries, seed)
        assert gpu.run(hours=2), f"seed {seed}"
        assert bad == gpu.failed, f"seed {seed}"
        assert gpu.faults <= faults_max, f"seed {seed}"


def test_nobody_waits_for_a_clock_that_was_set_back(tmp_path: Path) -> None:
    now_ms = [T]
    inquiry = Inquiry(str(tmp_path), lambda: now_ms[0])
    for job in ("a", "b"):
        assert not inquiry.guilty(job, T, {"a": T - 1, "b": T - 1}, {"a"})
    assert inquiry.waits("b", {})
    assert inquiry.waits("b", {"a": T - MARGIN_MS})
    now_ms[0] -= 24 * 3_600_000
    assert not inquiry.waits("b", {})
    assert not inquiry.waits("b", {"a": T})
    now_ms[0] = T + FIRST_MS
    assert not inquiry.waits("b", {})


def test_nobody_is_to_blame_because_another_one_breaks_a_server_later_than_before(tmp_path: Path) -> None:
    now_ms = [T]
    inquiry = Inquiry(str(tmp_path), lambda: now_ms[0])

    def guilty(at_ms: int, there: dict[str, int]) -> list[str]:
        now_ms[0] = at_ms
        return [job for job in there if inquiry.guilty(job, at_ms, there, set(there))]

    assert [] == guilty(T, {"good": T - 30_000, "bad": T - 30_000})
    # This time it takes a minute longer, when the other one has just begun again.
    late_ms = T + 100_000
    assert [] == guilty(late_ms, {"bad": T + 10_000, "good": late_ms - 5_000})
    # That one shows itself by itself.
    assert (True, False) == (inquiry.waits("bad", {}), inquiry.waits("good", {}))
    began_ms = now_ms[0] = late_ms + 1_000
    assert inquiry.waits("bad", {"good": began_ms})
    now_ms[0] += 5_000 + MARGIN_MS
    assert not inquiry.waits("bad", {"good": began_ms})
    # Twice it is the other way round, and that is no chance any more.
    assert [] == guilty(began_ms + 80_000, {"good": began_ms, "bad": began_ms + 20_000})
    again_ms = began_ms + 200_000
    assert ["bad"] == guilty(again_ms + 60_000, {"good": again_ms - 60_000, "bad": again_ms})
