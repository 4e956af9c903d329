"""A real Slurm cluster, observed: read-only, through restarts of its daemons and of the yard, nothing counted twice."""

import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from e2e.conftest import Box
from gpuyard.engines.slurm.calls.commands import Commands
from gpuyard.engines.slurm.observed import ObservedSlurm, key_of
from gpuyard.engines.slurm.site.accounting import read_jobs
from gpuyard.engines.slurm.site.site import answer, list_sources
from harness.patience import until
from rigs.slurm.cluster import SlurmCluster

pytestmark = pytest.mark.xdist_group("slurm-admin")

PROGRAMS = ("squeue", "sacct", "sinfo", "scontrol", "sacctmgr", "sbatch", "scancel", "srun", "salloc")
SHIM = """\
#!/bin/sh
echo "{name} $*" >> {log}
exec {real} "$@"
"""
LONG, SHORT = "#!/bin/sh\nexec sleep 600\n", "#!/bin/sh\nexec sleep 1\n"


@pytest.fixture
def box(rig: SlurmCluster, yard: Callable, tmp_path: Path) -> Iterator[Box]:
    """A yard over the cluster, with a witness to every command it runs."""
    done = yard("slurm", "import", "--conf", rig.folder / "slurm.conf", "--dir", tmp_path / "site")
    assert 0 == done.code, done.err
    folder = tmp_path / "programs"
    folder.mkdir()
    for name in PROGRAMS:
        shim = folder / name
        shim.write_text(SHIM.format(name=name, log=tmp_path / "commands.log", real=shutil.which(name)))
        shim.chmod(0o755)
    config = yaml.safe_load((tmp_path / "site" / "yard.yaml").read_text())
    config["clusters"]["yardrig"]["programs"] = str(folder)
    found = Box(tmp_path / "data", yaml.safe_dump(config, sort_keys=False))
    found.up()
    yield found
    found("down")


def labels(box: Box, command: str) -> list[str]:
    with box.client() as client:
        rows = client.queue()["rows"] if command == "queue" else client.history(limit=500).jobs
    return [row[1] if command == "queue" else row["label"] for row in rows]


def accounted(rig: SlurmCluster) -> dict[str, tuple[str, int, int]]:
    """What Slurm's own accounting has, by key."""
    source = next(source for source in list_sources(1) if source.file == "jobs.txt")
    text = answer(source, Commands(conf=str(rig.folder / "slurm.conf")).run)
    return {
        key_of(row): (row.state, row.start_ms, row.end_ms)
        for row in read_jobs(text).rows
        if not row.live and row.end_ms
    }


def ended(rig: SlurmCluster) -> set[str]:
    """The labels of the jobs that Slurm's accounting knows the end of."""
    return {key.partition("@")[0] for key in accounted(rig)}


def test_observed_through_restarts_and_never_touched(rig: SlurmCluster, box: Box) -> None:
    free = ("--mem=1G", "-t10")
    done = rig.submit(SHORT, "--gres=gpu:2", *free)
    failed = rig.submit("#!/bin/sh\nexit 3\n", "--gres=gpu:1", *free)
    array = rig.submit(SHORT, "--gres=gpu:1", "--array=1-3", *free)
    long = rig.submit(LONG, "--gres=gpu:8", *free)
    held = rig.submit(LONG, "--gres=gpu:1", "-H", *free)
    written = box.data.parent / "job %j.out"
    talks = rig.submit("#!/bin/sh\necho from Slurm\nexec sleep 600\n", f"--output={written}", *free)
    until(lambda: "from Slurm\n" == box("logs", talks).out)
    told = box("show", talks).out
    assert "slurmctld: [" in told
    assert f"JobId={talks} " in told
    assert "slurmd n" in told
    rig.command("scancel", str(talks))
    until(lambda: str(talks) in labels(box, "history"))
    # What Slurm itself adds at the end is there too.
    out = box("logs", talks).out
    assert out.startswith("from Slurm\n")
    assert "CANCELLED" in out
    until(lambda: {str(done), str(failed), f"{array}_3"} <= {*labels(box, "history")})
    until(lambda: {str(long), str(held)} == {*labels(box, "queue")})
    assert "Slurm says: JobHeldUser" in box("why", held).out
    assert ("FAILED", 3) == (box.wait(failed, "FAILED")["state"], box.wait(failed, "FAILED")["exit_code"])
    refused = box("submit", "--", "true")
    assert 2 == refused.code
    assert "Submit it with sbatch" in refused.err
    assert "Use scancel" in box("cancel", long).err

    # What slurmctld has not told slurmdbd yet is lost with it, and no books of Slurm's would have it then.
    before = {str(done), str(failed), str(talks), *(f"{array}_{task}" for task in (1, 2, 3))}
    until(lambda: before <= ended(rig), say=lambda: f"not accounted: {before - ended(rig)}")
    # Nor may slurmctld come back with a state in which they still run: it would open their books again.
    _saved(rig, held)
    # slurmctld dies and comes back; the yard says so, and concludes nothing.
    rig.end("slurmctld", signal.SIGKILL)
    time.sleep(7)
    assert str(long) in labels(box, "queue")
    rig.start("slurmctld")
    # slurmdbd is away while a job runs, and the yard is killed meanwhile.
    rig.end("slurmdbd")
    unseen = rig.submit(SHORT, "--gres=gpu:1", *free)
    os.kill(box.note()["pid"], signal.SIGKILL)
    rig.command("scancel", str(long), str(held))
    rig.start("slurmdbd")
    box.up()
    until(lambda: {str(long), str(held), str(unseen)} <= {*labels(box, "history")}, 60)

    _compare(rig, box, done, unknown={str(held)})
    ran = (box.data.parent / "commands.log").read_text().splitlines()
    assert ran
    assert [] == [
        line for line in ran if not line.startswith(("squeue ", "sacct ", "sinfo ")) and " show " not in line
    ]


def _saved(rig: SlurmCluster, job: int) -> None:
    """Change a job that waits, and wait until slurmctld has its state on the disk, seconds later."""
    state = rig.folder / "state" / "job_state"
    before = state.stat().st_mtime_ns if state.exists() else 0
    rig.command("scontrol", "update", f"jobid={job}", "comment=saved")
    until(lambda: state.exists() and state.stat().st_mtime_ns > before)


def _compare(rig: SlurmCluster, box: Box, first: int, unknown: set[str]) -> None:
    """Everything that Slurm's accounting has from the job `first` on is in the history, once, with the same state
    and end.

    It never hears of a job that was cancelled before it could have started; other tests have left such jobs.
    """

    def recent(label: str) -> bool:
        return int(label.partition("_")[0]) >= first

    with box.client() as client:
        rows = [row for row in client.history(limit=500).jobs if recent(row["label"])]
    spans = {row["label"]: (row["started_ms"] or 0, row["ended_ms"], row["state"]) for row in rows}
    # The accounting tells later what the queue told at once.
    ours = [row["label"] for row in rows]
    until(lambda: {*ours} - ended(rig) <= unknown, say=lambda: f"not accounted: { ({*ours} - ended(rig)) }")
    theirs = {key.partition("@")[0]: each for key, each in accounted(rig).items()}
    assert len(ours) == len({*ours})
    assert {label for label in theirs if recent(label)} <= {*ours}
    for label in ours:
        if label in theirs:
            state, start_ms, end_ms = theirs[label]
            began_ms, ended_ms, named = spans[label]
            assert (state, end_ms) == (named, ended_ms), label
            assert not began_ms or abs(began_ms - start_ms) <= 15_000, label


def test_the_workload_key_is_the_project(rig: SlurmCluster, box: Box) -> None:
    plain = rig.submit(SHORT, "--gres=gpu:1", "--mem=1G", "-t10")
    keyed = rig.submit(SHORT, "--gres=gpu:2", "--mem=1G", "-t10", "--wckey=Vision")
    until(lambda: {str(plain), str(keyed)} <= {*labels(box, "history")})

    def projects() -> set[str]:
        lines = json.loads(box("cost", "--by", "project", "-o", "json").out)
        return {line["project"] for line in lines if line["unmeasured_gpu_hours"] > 0}

    until(lambda: "vision" in projects())
    assert {"", "vision"} == projects()


def test_slurm_that_tracks_workload_keys() -> None:
    """It has a key for every job: a star stands before one that is its user's default, or alone where there is none."""
    with SlurmCluster(nodes=1, gpus=8, rest=False, extra=("TrackWCKey=yes",)) as tracking:
        plain = tracking.submit(SHORT, "--mem=1G")
        keyed = tracking.submit(SHORT, "--mem=1G", "--wckey=two\nlines")
        assert "*" in tracking.command("squeue", "--all", "-h", "-o", "%w")
        slurm = ObservedSlurm("rig", Commands(conf=str(tracking.folder / "slurm.conf")))
        expected = {plain: "", keyed: "two lines"}

        assert expected == {row.id: row.wckey for row in slurm.queue().rows}
        until(lambda: expected == {row.id: row.wckey for row in slurm.history(0).rows if not row.live})
        assert 0 == slurm.history(0).broken
