"""This machine and a Slurm cluster in one yard, and a second Slurm beside them that it only observes: one queue, one
set of quotas, and a Slurm, then a yard, that dies in the middle."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import pytest

from e2e.slurm_yard import SlurmYard
from harness.patience import patient, until
from rigs.slurm.cluster import SlurmCluster

pytestmark = pytest.mark.slurm

TENANTS = ("research", "product", "interns")
LIMIT = 12
CLUSTERS = """  here: {{gpus: 8 x H100, emulate: true, allow_root: true}}
  old:
    engine: slurm
    slurm: {{mode: observe, conf: {conf}, gpu_types: {{a100: A100-80GB}}}}
tenants:
  research: {{weight: 2, guarantee: 16}}
  product: {{weight: 1, limit: {limit}}}
  interns: {{weight: 1}}
  probes: {{weight: 1}}
classes:
  batch: {{priority: 0, preemptible: false}}
  urgent: {{priority: 100, preemptible: false}}
"""


@pytest.fixture
def old() -> Iterator[SlurmCluster]:
    """A Slurm that schedules itself. Its nodes have the names of the other's."""
    with SlurmCluster(nodes=1, gpus=4, rest=False) as cluster:
        yield cluster


@pytest.fixture
def yard(slurm_of_eight: SlurmCluster, old: SlurmCluster, tmp_path: Path) -> Iterator[SlurmYard]:
    policy = CLUSTERS.format(conf=old.folder / "slurm.conf", limit=LIMIT)
    made = SlurmYard(tmp_path, slurm_of_eight, policy=policy)
    made.box.up()
    made.until_nodes(len(slurm_of_eight.layout.nodes) + 2)
    yield made
    made.close()
    made.heal()


class Queue:
    """Jobs of three tenants, each of which writes down when it began, where, with how many GPUs, and when it ended."""

    def __init__(self, yard: SlurmYard) -> None:
        self.yard = yard
        self.gpus: dict[str, int] = {}

    def submit(self, jobs: int) -> None:
        with self.yard.box.client() as client:
            for _ in range(jobs):
                number = len(self.gpus)
                name, gpus, tenant = f"j{number}", 1 + number % 4, TENANTS[number % 3]
                self.gpus[name] = gpus
                path = self.yard.effects / name
                text = (
                    f"echo start $(date +%s%N) $SLURM_CLUSTER_NAME >>{path}; sleep {1 + number % 3}; "
                    f"echo end $(date +%s%N) >>{path}"
                )
                client.submit(command=["/bin/sh", "-c", text], name=name, gpus=gpus, tenant=tenant)

    def lines(self, name: str) -> list[list[str]]:
        return [line.split() for line in self.yard.written(name)]

    def begun(self) -> int:
        return sum(1 for name in self.gpus if self.yard.written(name))

    def runs(self) -> dict[str, list[str]]:
        """What each job did, as they say themselves."""
        return {name: [line[0] for line in self.lines(name)] for name in self.gpus}

    def clusters(self) -> set[str]:
        return {line[2] for name in self.gpus for line in self.lines(name) if line[0] == "start"}

    def most_gpus(self, tenant: str) -> int:
        """The GPUs that a tenant had at a time, over all clusters."""
        changes = []
        for number, (name, gpus) in enumerate(self.gpus.items()):
            if TENANTS[number % 3] == tenant:
                changes += [
                    (int(line[1]), gpus if line[0] == "start" else -gpus) for line in self.lines(name)
                ]
        most = held = 0
        for _at, change in sorted(changes):
            held += change
            most = max(most, held)
        return most


def start_s(yard: SlurmYard, name: str) -> float:
    """How long a job that may only run on this machine, and needs no GPU there, takes to its first line."""
    wanted = {"gpus": 0, "clusters": ["here"], "tenant": "probes", "class": "urgent", "name": name}
    began_s = time.monotonic()
    with yard.box.client() as client:
        job = client.submit(command=yard.script(name), **wanted)
        while not yard.written(name):
            assert time.monotonic() - began_s < patient(30), client.why(job["id"])
            time.sleep(0.02)
    return time.monotonic() - began_s


def starts_s(yard: SlurmYard, name: str, holds: Callable[[int], bool]) -> list[float]:
    """Starts on this machine, one after the other, as long as that holds."""
    found: list[float] = []
    while holds(len(found)):
        found.append(start_s(yard, f"{name}{len(found)}"))
        time.sleep(0.5)
    return found


def kill_all(yard: SlurmYard, old: SlurmCluster, jobs: int, gone_s: float) -> None:
    """One queue; slurmctld dies and stays away, then the yard dies. Every job runs once."""
    cluster, queue = yard.cluster, Queue(yard)
    theirs = [old.submit(f"#!/bin/sh\nsleep {2 + i % 3}\n", "--gres=gpu:2") for i in range(8)]
    queue.submit(jobs)
    until(lambda: queue.begun() > jobs // 8, 300)
    before_s = starts_s(yard, "before", lambda count: count < 9)
    until(lambda: queue.begun() > jobs // 4, 300)
    os.kill(cluster.pid("slurmctld"), signal.SIGKILL)
    cluster.end("slurmctld")
    since_s = time.monotonic()
    while_s = starts_s(yard, "while", lambda _count: time.monotonic() - since_s < gone_s)
    told = {"here": "", "hpc": "cluster hpc does not answer", "old": ""}
    with yard.box.client() as client:
        until(lambda: told == {node["cluster"]: node["why"] for node in client.nodes()})
    cluster.start("slurmctld")
    queue.submit(jobs // 4)
    until(lambda: queue.begun() > jobs, 600)
    os.kill(int(yard.box.note()["pid"]), signal.SIGKILL)
    yard.box.up()
    until(lambda: not yard.waiting(), 600)
    print(f"starts here: median {median(before_s):.2f} s before, {median(while_s):.2f} s while Slurm is away")

    assert {name: ["start", "end"] for name in queue.gpus} == queue.runs()
    # Slurm calls itself something else than yard.yaml does.
    assert {"here", "yardrig"} == queue.clusters()
    assert LIMIT >= queue.most_gpus("product")
    assert 1.1 * median(before_s) + 0.3 >= median(while_s)
    check_observed(yard, old, theirs)


def check_observed(yard: SlurmYard, old: SlurmCluster, theirs: list[int]) -> None:
    """The jobs of the other Slurm are in the history once, with its own times, and counted for no tenant."""
    done = old.command(
        "env", "SLURM_TIME_FORMAT=%s", "sacct", "-X", "-n", "-P", "-o", "JobID,State,Submit,Start,End"
    )
    true = {f"old:{job_id}": [state, *map(int, times)] for job_id, state, *times in rows(done)}
    shown: dict[str, list[object]] = {}
    found, cursor = 0, None
    with yard.box.client() as client:
        while found == 0 or cursor is not None:
            page = client.history(limit=1000, cursor=cursor)
            found, cursor = found + len(page.jobs), page.next_cursor
            for job in [job for job in page.jobs if job["clusters"] == ["old"]]:
                assert job["label"] not in shown
                times = (job["submitted_ms"], job["started_ms"], job["ended_ms"])
                shown[job["label"]] = [job["state"], *[(each or 0) // 1000 for each in times]]
        tenants = {row["path"] for row in client.share()["tenants"]}
    assert {f"old:{job_id}" for job_id in theirs} == true.keys()
    assert true == shown
    # Slurm's root has no place in the tree, unless its jobs count.
    assert "root" not in tenants


def rows(text: str) -> list[list[str]]:
    return [line.split("|") for line in text.splitlines()]


def test_an_observed_cluster_beside_driven_ones(yard: SlurmYard, old: SlurmCluster, tmp_path: Path) -> None:
    """Its queue is shown with its own reasons, and what its jobs write; nothing can be asked of it here."""
    script, output = "#!/bin/sh\necho seen there\nsleep 60\n", f"--output={tmp_path}/%j"
    runs, waits = [old.submit(script, "--gres=gpu:4", output) for _ in range(2)]
    box = yard.box
    until(lambda: f"old:{waits}" in box("queue", "--cluster", "old").out, 60)
    # The yard's own jobs have the ids that they would have without it.
    own = box.submit("-g", 1, "--tenant", "interns", "--", "true")
    box.wait(own, "COMPLETED")

    def reason() -> bool:
        why = box("why", f"old:{waits}").out
        return "Slurm says: Resources" in why or "Slurm says: Priority" in why

    # Slurm has no reason for a job until it has tried to start it, and it is looked at every few seconds.
    until(reason, 60)
    queue = box("queue", "--cluster", "old").out
    nodes = box("nodes", "--cluster", "old", "-o", "json").out
    cancelled = box("cancel", f"old:{runs}")
    named = box("submit", "-g", 1, "--tenant", "interns", "--cluster", "old", "--", "true")
    drained = box("drain", "old:n1")
    until(lambda: box("logs", f"old:{runs}").out == "seen there\n", 30)
    shown = box("show", f"old:{runs}").out
    eta = box("eta", f"old:{waits}").out

    assert 1 == own
    assert f"old:{runs}" in queue
    assert str(own) not in queue.split()
    assert '"cluster": "old"' in nodes
    assert '"cluster": "here"' not in nodes
    for refused in (cancelled, named, drained):
        assert 0 != refused.code
        assert "cluster 'old' is observed: Slurm decides there" in refused.err
    assert f"Use scancel {runs}" in cancelled.err
    assert "RUNNING" in shown
    assert "schedules itself" in eta
    assert "RUNNING" in old.command("squeue", "-h", "-o", "%T", "-j", str(runs))
    old.command("scancel", str(runs), str(waits))
    until(lambda: "CANCELLED" in box("show", f"old:{runs}").out, 60)


def test_slurm_then_the_yard_dies_and_every_job_runs_once(yard: SlurmYard, old: SlurmCluster) -> None:
    kill_all(yard, old, jobs=200, gone_s=40)


@pytest.mark.soak
def test_slurm_is_gone_for_two_minutes(yard: SlurmYard, old: SlurmCluster) -> None:
    kill_all(yard, old, jobs=600, gone_s=120)
