"""`yard slurm sreport` over an observed cluster beside Slurm's own `sreport`: the same jobs, every figure alike.

slurmdbd adds up whole hours, an hour at a time, and begins where it ended. So that a test need not take hours, jobs
that have run are given other times in its database, all in the past, and it is told to begin before them; the yard
reads the same rows by `sacct`. The adding up, and what is printed, is Slurm's.
"""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.conftest import Box
from harness.patience import until
from rigs.slurm.cluster import SlurmCluster

HOUR_S = 3600
JOB = "#!/bin/sh\nexec sleep 1\n"
ACCOUNTS = (("research", "root"), ("vision", "research"), ("product", "root"))
USERS = (("games", "vision"), ("daemon", "vision"), ("games", "product"), ("root", "research"))
JOBS = (
    # Account, user, what is asked for; when it starts and how long it runs, in seconds after the first hour.
    ("vision", "games", ("--gres=gpu:2", "-c3"), 100, 1_234),
    ("vision", "daemon", ("--gres=gpu:1",), 3_599, 2),
    ("vision", "games", ("--gres=gpu:8", "-c32"), 3_000, 7_777),
    ("product", "games", ("-N2", "--gres=gpu:4", "-c5"), 11_000, 5_000),
    ("research", "root", ("--gres=gpu:1", "-c1", "--array=1-3"), 7_200, 3_600),
    ("product", "games", ("-c64",), 9_000, 20_000),
)
NO_SIZES = "We need a grouping list"
HOURS = 9
SPANS = (("all", 0, HOURS), ("one hour", 1, 2), ("the middle", 2, 5), ("yesterday", 0, 0))
REPORTS = (
    "cluster Utilization",
    "-T gres/gpu cluster Utilization",
    "-T cpu,gres/gpu -t seconds cluster utilization",
    "-t percent -T gres/gpu cluster util",
    "-t hourper cluster Utilization format=cluster,trescount,allocated,down,idle,over,reported",
    "cluster AccountUtilizationByUser",
    "-T gres/gpu -t hours cluster AccountUtilizationByUser",
    "-T gres/gpu,cpu -t secper cluster AccountUtilizationByUser",
    "-t seconds cluster AccountUtilizationByUser accounts=research",
    "-t seconds cluster AccountUtilizationByUser users=games",
    "cluster AccountUtilizationByUser tree",
    "-T gres/gpu -t seconds cluster UserUtilizationByAccount",
    "cluster UserUtilizationByAccount users=games,daemon",
    "-t minper cluster UserUtilizationByAccount accounts=vision",
    "user TopUsage",
    "-T gres/gpu -t hours user TopUsage topcount=2",
    "-t seconds user TopUsage group",
    "-t seconds user Top format=login%20,used,account%-12",
    "job SizesByAccount",
    "-t seconds job SizesByAccount grouping=2,33",
    "-T gres/gpu -t seconds job SizesByAccount grouping=2,8",
    "-t percent job SizesByAccount flatview",
    "-t hours job SizesByAccount accounts=research,product printjobcount",
    "-t seconds job SizesByAccount grouping=individual",
    "-n -P -T gres/gpu -t seconds cluster AccountUtilizationByUser",
    "-p user TopUsage",
)


def sql(rig: SlurmCluster, text: str) -> str:
    command = ["mariadb", "--no-defaults", f"--socket={rig.folder / 'db' / 'db.sock'}", "-N", "slurm_acct_db"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def ran(rig: SlurmCluster) -> dict[int, int]:
    """Jobs that ran and are in the accounting: their rows there, and which of `JOBS` each is."""
    numbers: dict[int, int] = {}
    for place, (account, user, asked, _, _) in enumerate(JOBS):
        options = (f"--account={account}", f"--uid={user}", "--mem=100", "--chdir=/", *asked)
        numbers[rig.submit(JOB, *options)] = place
    query = (
        "select job_db_inx, if(id_array_job, id_array_job, id_job) from yardrig_job_table where time_end > 0;"
    )

    def found() -> dict[int, int]:
        return {int(row): int(number) for row, number in map(str.split, sql(rig, query).splitlines())}

    # The tasks of an array get its number there some seconds after they have ended.
    until(lambda: len(jobs := found()) == len(JOBS) + 2 and {*jobs.values()} <= numbers.keys())
    return {row: numbers[number] for row, number in found().items()}


def back(rig: SlurmCluster, first_s: int) -> None:
    """Have the jobs of `JOBS` run after the first of these hours, and slurmdbd add up these hours."""
    rows = ran(rig)
    rig.end("slurmctld")
    rig.end("slurmdbd")
    changes = []
    for row, place in rows.items():
        _, _, _, start_s, lasts_s = JOBS[place]
        start_s += first_s
        changes.append(
            f"update yardrig_job_table set time_submit={start_s - 500 - row}, time_eligible={start_s - 500 - row}, "
            f"time_start={start_s}, time_end={start_s + lasts_s} where job_db_inx={row};"
        )
    early_s = first_s - 48 * HOUR_S
    changes += [
        "delete from yardrig_event_table where node_name != '' or time_end != 0;",
        f"update yardrig_event_table set time_start={early_s};",
        f"update yardrig_last_ran_table set hourly_rollup={early_s}, daily_rollup={early_s}, "
        f"monthly_rollup={early_s};",
    ]
    sql(rig, "\n".join(changes))
    for state in (rig.folder / "state").glob("job_state*"):
        # A controller that knows of jobs tells the accounting once more when they ended.
        state.unlink()
    rig.start("slurmdbd")
    rig.start("slurmctld")
    until(
        lambda: int(sql(rig, "select hourly_rollup from yardrig_last_ran_table;")) >= first_s + HOURS * HOUR_S
    )


@pytest.fixture
def sides(own_rig: SlurmCluster, tmp_path: Path) -> Iterator[tuple[SlurmCluster, Box, int]]:
    """Slurm and the yard that observes it, and when the first hour began."""
    for name, parent in ACCOUNTS:
        own_rig.command("sacctmgr", "-i", "add", "account", name, f"parent={parent}")
    for user, account in USERS:
        own_rig.command("sacctmgr", "-i", "add", "user", user, f"account={account}")
    first_s = (int(time.time()) // HOUR_S - HOURS - 1) * HOUR_S
    back(own_rig, first_s)
    box = Box(tmp_path / "data")
    done = box("slurm", "import", "--conf", own_rig.folder / "slurm.conf", "--dir", tmp_path / "site")
    assert 0 == done.code, done.err
    box = Box(tmp_path / "data", (tmp_path / "site" / "yard.yaml").read_text())
    box.up()
    yield own_rig, box, first_s
    box("down")


def test_every_figure_is_slurms_own(sides: tuple[SlurmCluster, Box, int]) -> None:
    rig, box, first_s = sides
    with box.client() as client:
        until(lambda: len(client.history(limit=100).jobs) >= len(JOBS) + 2)
    differ = []
    first, *others = SPANS
    for place, said in enumerate(REPORTS):
        for name, low, high in (first, others[place % len(others)]):
            times = [first_s + hour * HOUR_S for hour in (low, high)]
            start, end = [time.strftime("%Y-%m-%dT%H:%M", time.localtime(each)) for each in times]
            words = [*said.split(), *([f"start={start}", f"end={end}"] if high else [])]
            try:
                theirs = rig.command("sreport", *words)
            except RuntimeError as error:
                # Slurm's own has no sizes to name if no job ran in the span, as yesterday at most hours of a day.
                if name != "yesterday" or NO_SIZES not in str(error):
                    raise
                continue
            ours = box("slurm", "sreport", *words)
            assert 0 == ours.code, ours.err
            if theirs != ours.out:
                differ.append(f"{said}, {name}\n{theirs}\n{ours.out}")
    assert not differ, "\n\n".join(differ)
