"""What is kept of jobs that ended: as long as it should be, as long as anybody needs it, and whole until it goes."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from subprocess import PIPE

import pytest

from gpuyard.control.clusters import Clusters
from gpuyard.control.duties.duty import RunningDuty
from gpuyard.control.duties.retention import (
    EVERY_S,
    PruneCursor,
    Pruner,
    PruneWish,
    Tally,
    duty,
    parse_cursor,
)
from gpuyard.control.refusals import Removed, Unacceptable
from gpuyard.control.replica.labels import attempt_key, parse_label
from gpuyard.engines.contract import Leftover
from gpuyard.engines.machine.leftovers import REMOVED, Leftovers
from gpuyard.model import ConfigSet, Retention
from gpuyard.model.units import DAY_MS
from rigs.hung import hung_mount
from rigs.request_service import Rig, rig

NOW = PruneWish("ana", 0)


class DyingLeftovers(Leftovers):
    """One may die once folders are out of their places, before they are removed."""

    dies = False

    def _with_each(self, paths: Sequence[str], do: Callable[[Sequence[str], float], None]) -> None:
        if self.dies and paths and paths[0].startswith(self.out):
            raise KeyboardInterrupt
        super()._with_each(paths, do)


class Folders:
    """The part of an engine that this is about, over real folders."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()
        self.kept = DyingLeftovers(str(root))
        self.dies = False
        """Whether the process dies when it is to remove something."""
        self.images: dict[str, int] = {}
        """When each was last used."""

    def leftovers(self, what: Leftover, names: list[str]) -> dict[str, int]:
        return self.kept.sizes(what, names)

    def remove(self, what: Leftover, names: list[str]) -> None:
        if self.dies:
            raise KeyboardInterrupt
        self.kept.remove(what, names)

    def prune_images(self, before_ms: int, *, dry_run: bool) -> dict[str, int]:
        old = {name: 1_000 for name, at_ms in self.images.items() if at_ms < before_ms}
        self.images = self.images if dry_run else {n: at for n, at in self.images.items() if n not in old}
        return old


class Yard:
    """a service whose jobs leave what an engine leaves."""

    def __init__(self, service: Rig, root: Path) -> None:
        self.requests = service
        self.folders = Folders(root)
        clusters = Clusters({"c": self.folders})  # type: ignore[dict-item]
        self.keeper = Pruner(service.replica, clusters, lambda: service.time_ms)

    def key(self, job_id: int, attempt: int = 1) -> str:
        record = self.requests.replica.state.jobs.get(job_id)
        row = self.requests.replica.store.history.find(job_id)
        submitted_ms = record.job.submitted_ms if record is not None else row.submitted_ms  # type: ignore[union-attr]
        return attempt_key(self.requests.replica.store.yard, job_id, attempt, submitted_ms)

    def run(self, token: str = "s3cret", *, end: bool = True) -> int:
        job_id = self.requests.submit(env={"TOKEN": token})
        self.requests.start(job_id)
        for path in (self.log(job_id), self.folder(job_id) / "deep" / "checkpoint"):
            path.parent.mkdir(parents=True)
            path.write_bytes(b"x" * 10_000)
        if end:
            self.requests.end(job_id)
        return job_id

    def log(self, job_id: int) -> Path:
        return self.folders.root / "logs" / self.key(job_id) / "stdout"

    def folder(self, job_id: int) -> Path:
        return self.folders.root / "jobs" / str(job_id)

    def left(self, job_id: int) -> str:
        """What is there of a job: its environment, its script, its log, its folder."""
        try:
            _view, recipe = self.requests.views.recipe(parse_label(str(job_id)))
        except Removed:
            recipe = {"env": {}, "command": []}
        assert "TOKEN" in recipe["env"] or not recipe["env"]
        there = (
            recipe["env"],
            recipe["command"],
            self.log(job_id).exists(),
            (self.folder(job_id) / "deep" / "checkpoint").exists(),
        )
        return "".join(word for word, is_there in zip("eslf", there, strict=True) if is_there)

    def walk(self, wish: PruneWish) -> Tally:
        tally, place = Tally(), PruneCursor()
        going: PruneCursor | None = place
        while going is not None:
            going = self.keeper.step(wish, going, tally)
        return tally


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    with rig(tmp_path) as service:
        made = Yard(service, tmp_path / "engine")
        yield made
        made.folders.kept.close()


def test_each_kind_is_kept_for_as_long_as_yard_yaml_says(yard: Yard) -> None:
    job, forever = yard.run(), Retention(DAY_MS, 2 * DAY_MS, logs_ms=0, folders_ms=4 * DAY_MS)
    service = yard.requests
    service.add(ConfigSet(service.now_ms(), replace(service.replica.state.settings, retention=forever)))
    for days, left in ((0, "eslf"), (1, "slf"), (1, "lf"), (1, "lf"), (1, "l"), (4000, "l")):
        service.time_ms += days * DAY_MS
        done = yard.keeper.by_itself()
        assert left == yard.left(job), (days, done)
        if left == "slf":
            _view, recipe = service.views.recipe(parse_label(str(job)))
            assert "retention" == recipe["removed"]["environments"]["by"]
    view = service.views.job(parse_label(str(job)), explained=True)
    assert {"scripts", "folders"} == set(view["removed"])
    assert "retention" == view["removed"]["scripts"]["by"]


def test_what_a_live_job_needs_stays_however_old_it_is(yard: Yard) -> None:
    ended, other = yard.run(), yard.run("another")
    runs, waits = yard.run(end=False), yard.requests.submit(env={"TOKEN": "s3cret"})
    dry = yard.walk(replace(NOW, dry_run=True))
    assert (["eslf"] * 3, 1) == ([yard.left(job) for job in (ended, runs, other)], dry.counts["scripts"][0])
    done = yard.walk(NOW)
    assert [n for n, _ in dry.counts.values()] == [n for n, _ in done.counts.values()] == [1, 1, 2, 2, 0]
    assert (2, 2) == (done.counts["logs"][0], done.counts["folders"][0])
    assert 20_000 <= done.counts["logs"][1] < 200_000
    # It shares its script with two jobs that live.
    assert ["es", "eslf", ""] == [yard.left(job) for job in (ended, runs, other)]
    yard.requests.end(runs)
    assert 0 == yard.walk(NOW).counts["scripts"][0], "one still waits"
    yard.requests.start(waits)
    yard.requests.end(waits)
    assert 1 == yard.walk(NOW).counts["scripts"][0]
    assert ["", ""] == [yard.left(job) for job in (ended, runs)]


def test_images_go_a_while_after_their_last_use(yard: Yard) -> None:
    service = yard.requests
    yard.folders.images = {"1000/old": service.now_ms() - 31 * DAY_MS, "1000/new": service.now_ms()}
    dry = yard.walk(PruneWish("ana", DAY_MS, dry_run=True))
    assert ([1, 1_000], 2) == (dry.counts["images"], len(yard.folders.images))
    assert 1 == yard.keeper.by_itself().counts["images"][0]
    assert ["1000/new"] == list(yard.folders.images)
    kept = replace(service.replica.state.settings, retention=Retention(images_ms=0))
    service.add(ConfigSet(service.now_ms(), kept))
    service.time_ms += 400 * DAY_MS
    assert 0 == yard.keeper.by_itself().counts["images"][0], "forever"


def test_what_is_gone_is_said_with_its_day(yard: Yard) -> None:
    job = yard.run()
    yard.walk(NOW)
    label, views = parse_label(str(job)), yard.requests.views
    with pytest.raises(
        Removed, match=rf"the script of job {job} was removed on 1970-01-01 by ana, with `yard prune`"
    ):
        views.recipe(label)
    with pytest.raises(Removed, match=rf"the log of job {job} was removed on 1970-01-01"):
        views.check_kept(str(label), views.brief(label)["removed"], "logs")
    again = yard.run()
    assert "removed" not in views.brief(parse_label(str(again)))
    assert "es" == yard.left(job), "the same script was submitted again"


def test_a_crash_between_two_steps_leaves_nothing_half(yard: Yard) -> None:
    job = yard.run()
    yard.folders.dies = True
    with pytest.raises(KeyboardInterrupt):
        yard.walk(NOW)
    assert "lf" == yard.left(job), "said, and not yet gone"
    yard.folders.dies, yard.folders.kept.dies = False, True
    with pytest.raises(KeyboardInterrupt):
        yard.walk(NOW)
    yard.folders.kept.dies = False
    assert "f" == yard.left(job), "out of its place, whole"
    assert 1 == len(os.listdir(yard.folders.root / REMOVED))
    yard.walk(NOW)
    assert ("", []) == (yard.left(job), os.listdir(yard.folders.root / REMOVED))


KILLED = """
import os, select, signal, sys
from gpuyard.control.clusters import Clusters
from gpuyard.control.replica.replica import Replica
from gpuyard.control.duties.retention import Pruner, PruneCursor, Tally, PruneWish
from gpuyard.engines.machine.leftovers import Leftovers
from gpuyard.store import open_store
class Folders(Leftovers):
    leftovers = Leftovers.sizes
def walk(begun):
    with open_store(sys.argv[1]) as store:
        keeper = Pruner(Replica(store), Clusters({"c": Folders(sys.argv[2])}), lambda: int(sys.argv[3]))
        place = PruneCursor()
        os.write(begun, b"x")
        while place is not None:
            place = keeper.step(PruneWish("ana", 0), place, Tally())
for line in sys.stdin:
    heard, begun = os.pipe()
    child = os.fork()
    if not child:
        try:
            walk(begun)
        finally:
            os._exit(0 if not sys.exc_info()[0] else 1)
    os.read(heard, 1)
    select.select([], [], [], float(line))
    os.kill(child, signal.SIGKILL)
    print(os.waitpid(child, 0)[1], flush=True)
"""


def test_kill_9_at_any_time_leaves_nothing_half(tmp_path: Path) -> None:
    chance, kills = random.Random(14), 0
    with rig(tmp_path) as service:
        yard = Yard(service, tmp_path / "engine")
        jobs = [yard.run(f"token {number}") for number in range(25)]
        live = yard.run("token 7", end=False)
        words = [tmp_path / "yard.db", yard.folders.root, service.time_ms]
        with subprocess.Popen(
            [sys.executable, "-c", KILLED, *map(str, words)], stdin=PIPE, stdout=PIPE, text=True
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            status = signal.SIGKILL.value
            while status == signal.SIGKILL:
                print(chance.uniform(0, 0.1) * (1 + kills / 2), file=process.stdin, flush=True)
                status = int(process.stdout.readline())
                kills += status == signal.SIGKILL
                for job in jobs:
                    # A folder has all of its files in its place, or none.
                    assert not yard.folder(job).exists() or "f" in yard.left(job)
                assert "eslf" == yard.left(live)
            process.stdin.close()
        assert 0 == status, "it failed by itself"
        assert ["es" if job == jobs[7] else "" for job in jobs] == [yard.left(job) for job in jobs]
        assert [] == os.listdir(yard.folders.root / REMOVED)
    assert kills > 0


@pytest.mark.parametrize("where", [".", "deep"])
def test_a_folder_that_does_not_answer_is_left_alone(yard: Yard, where: str) -> None:
    """A user may have mounted something there whose server is gone."""
    yard.folders.kept.all_s_max = yard.folders.kept.one_s_max = 1.0
    jobs = [yard.run(f"token {number}") for number in range(3)]
    with hung_mount(yard.folder(jobs[1]) / where, taken=False):
        done = yard.walk(NOW)
        assert (3, 2) == (done.counts["logs"][0], done.counts["folders"][0])
    assert ["", "f", ""] == [yard.left(job) for job in jobs]


def test_a_walk_goes_on_where_a_reply_said(yard: Yard) -> None:
    for place in (PruneCursor(), PruneCursor("scripts", 17, "ab" * 32), PruneCursor("logs", 5, "3")):
        assert place == parse_cursor(str(place))
    wrong = (
        "",
        "logs",
        "logs:x:1",
        "other:1:1",
        "logs:1:ab",
        f"logs:1:{'9' * 30}",
        "scripts:-1:",
        "scripts:1:" + 65 * "a",
    )
    for text in wrong:
        with pytest.raises(Unacceptable):
            parse_cursor(text)


def test_it_looks_by_itself_while_it_leads(yard: Yard) -> None:
    job = yard.run()
    yard.requests.time_ms += 365 * DAY_MS
    epochs = [None, 7]
    keeps = RunningDuty(duty(yard.keeper), lambda: epochs.pop(0))
    assert EVERY_S == keeps.round()
    assert yard.left(job), "another server leads"
    assert EVERY_S == keeps.round()
    assert not yard.left(job)
