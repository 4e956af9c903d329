"""Asked against used: what is proposed, and five real programs that run with that."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gpuyard.reports.efficiency import options, smaller_gpu, suggest_cores, suggest_memory_mib
from harness.patience import patient
from rigs.teams import CONFIG, team

A100 = [("1g.10gb", 9728, 142), ("2g.20gb", 19_968, 285), ("3g.40gb", 40_192, 428), ("7g.80gb", 81_152, 1000)]


@pytest.mark.parametrize(
    ("need", "need_mib", "busy", "sizes", "found"),
    [
        (110, 3_300, 100, A100, "1g.10gb"),
        (220, 3_300, 200, A100, "2g.20gb"),
        (490, 40_000, 100, A100, "3g.40gb"),
        (220, 3_300, 200, [], "0.25"),
        (10, 100, 1, [], "0.05"),
        (760, 3_300, 690, A100, ""),
        (1045, 3_300, 950, A100, ""),
        (900, 73_000, 50, A100, ""),
    ],
)
def test_a_slice_or_a_share_does_for_what_was_seen(
    need: int, need_mib: int, busy: int, sizes: list[tuple[str, int, int]], found: str
) -> None:
    assert found == smaller_gpu(need, need_mib, busy, sizes)


def test_a_proposal_leaves_room_above_the_peak() -> None:
    assert 384 == suggest_memory_mib(300, 1)
    assert 128 == suggest_memory_mib(1, 1)
    assert [1, 1, 2, 4] == [suggest_cores(peak, 1) for peak in (0.01, 1.05, 1.2, 4.0)]
    assert 2 == suggest_cores(8.0, 4)


def test_a_smaller_ask_is_what_submit_takes() -> None:
    assert "--gpus 0.25 --memory 384M" == options({"gpus": "0.25", "memory": "384M"})


def test_earlier_jobs_of_the_same_user_and_name_are_found(tmp_path: Path) -> None:
    with team(tmp_path / "yard") as made:
        token = made.tokens["adam"]
        asked = (("ulla", "eval"), ("ulla", "eval"), ("ulla", "else"), ("adam", "eval"))
        ended = [
            made.submit(user, "research", hold=False, name=name, command=["true"]) for user, name in asked
        ]

        def live() -> list[str]:
            states = [made.call("GET", f"/api/v1/jobs/{job}", token).json["state"] for job in ended]
            return [state for state in states if state in ("PENDING", "RUNNING")]

        made.until(lambda: not live())
        new = made.submit("ulla", name="eval", command=["true"])
        # A long line of tasks that have not run hides none of those that have.
        made.submit("ulla", "research", name="line", command=["true"], array="0-150")

        def found(query: str) -> list[str]:
            return [
                row["label"] for row in made.call("GET", f"/api/v1/efficiency?{query}", token).json["jobs"]
            ]

        assert [str(ended[1]), str(ended[0])] == found(f"like={new}")
        assert [str(ended[1])] == found(f"like={new}&limit=1")
        assert [str(ended[3]), str(ended[1]), str(ended[0])] == found("name=eval")
        assert [str(each) for each in reversed(ended)] == found("")

        # Nor do thousands that were cancelled before they ran.
        line = made.submit("ulla", "research", name="line", command=["true"], array="0-5199")
        assert made.call("DELETE", f"/api/v1/jobs/{line}", token).status == 202
        made.until(lambda: made.call("GET", f"/api/v1/jobs/{line}_0", token).json["state"] == "CANCELLED")
        assert [str(each) for each in reversed(ended)] == found("")


PROGRAM = """
import json, os, resource, sys, time
mib, cores, duty, run_s, path = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]), sys.argv[5]
held = b"x" * (mib << 20)
children = []
for _ in range(cores):
    if (pid := os.fork()) == 0:
        began = time.monotonic()
        while time.monotonic() - began < run_s:
            busy = time.monotonic() + 0.2 * duty
            while time.monotonic() < busy:
                pass
            time.sleep(0.2 * (1 - duty))
        os._exit(0)
    children.append(pid)
began = time.monotonic()
for pid in children:
    os.waitpid(pid, 0)
time.sleep(max(0, run_s - (time.monotonic() - began)))
own = resource.getrusage(resource.RUSAGE_SELF)
rest = resource.getrusage(resource.RUSAGE_CHILDREN)
with open(path, "w") as file:
    json.dump({"cpu_s": own.ru_utime + own.ru_stime + rest.ru_utime + rest.ru_stime, "mib": mib}, file)
"""
RUN_S = 24.0
NEEDS: dict[str, dict[str, Any]] = {
    "little memory": {"mib": 300, "cores": 0, "duty": 1.0, "load": "80% 70GiB", "busy": 80.0, "gpu_mib": 71_680},
    "one core": {"mib": 20, "cores": 1, "duty": 1.0, "load": "90% 75GiB", "busy": 90.0, "gpu_mib": 76_800},
    "half idle": {"mib": 20, "cores": 1, "duty": 0.5, "load": "100% 8GiB 12s, 0% 8GiB", "busy": 50.0, "gpu_mib": 8192},
    "small model": {"mib": 150, "cores": 0, "duty": 1.0, "load": "10% 3GiB", "busy": 10.0, "gpu_mib": 3072},
    "fifth of a GPU": {"mib": 20, "cores": 1, "duty": 0.2, "load": "20% 15GiB", "busy": 20.0, "gpu_mib": 15_360},
}  # fmt: skip


@pytest.mark.soak
def test_five_programs_of_known_need_run_with_the_smaller_ask(tmp_path: Path) -> None:
    """What the report says is held against what each program counted of itself."""
    pool = "box: {allow_root: true, pools: {main: {nodes: 1, gpus: 8 x A100-80GB, emulate: true}}}"
    config = CONFIG.replace("box: {gpus: 8 x A100-80GB, emulate: true, allow_root: true}", pool)
    assert pool in config
    with team(tmp_path / "yard", config) as made:
        made.yard.duties["watch"].stop(patient(60))
        engine = made.yard.watch._eyes[0]._engine

        def submitted(name: str, round_: str, **asked: Any) -> int:
            need = NEEDS[name]
            words = [need["mib"], need["cores"], need["duty"], RUN_S, tmp_path / f"{name} {round_}"]
            command = [sys.executable, "-c", PROGRAM, *map(str, words)]
            env = {"YARD_EMULATED_LOAD": need["load"]}
            return made.submit("ulla", hold=False, name=name, command=command, env=env, **asked)

        def watched(ids: dict[str, int]) -> None:
            """Look often: these jobs live for seconds, not for hours."""
            made.until(lambda: len(engine.whereabouts()) == len(ids))
            while engine.whereabouts():
                made.yard.watch._look()
                time.sleep(0.4)
            made.yard.watch._look()

        first = {name: submitted(name, "1", gpus=1, cpus=4, memory_mib=2048) for name in NEEDS}
        watched(first)
        rows = {
            name: made.call("GET", f"/api/v1/efficiency?job={job}", made.tokens["ulla"]).json["jobs"][0]
            for name, job in first.items()
        }
        for name, row in rows.items():
            need, own = NEEDS[name], json.loads((tmp_path / f"{name} 1").read_text())
            assert "COMPLETED" == row["state"]
            assert need["busy"] == pytest.approx(row["gpu_busy_pct"], rel=0.05), name
            assert need["gpu_mib"] == row["gpu_memory_mib"]
            assert own["cpu_s"] == pytest.approx(row["cpus_used"] * row["ran_s"], rel=0.05, abs=0.3), name
            assert need["mib"] == pytest.approx(row["memory_used_mib"], rel=0.05, abs=16), name
            assert int(row["smaller"]["memory"][:-1]) < 2048
            assert int(row["smaller"]["cpus"]) < 4
        assert {"small model": "1g.10gb", "fifth of a GPU": "2g.20gb"} == {
            name: row["smaller"]["gpus"] for name, row in rows.items() if "gpus" in row["smaller"]
        }
        second = {}
        for name, row in rows.items():
            smaller = row["smaller"]
            asked = {"cpus": int(smaller["cpus"]), "memory_mib": int(smaller["memory"][:-1])}
            asked |= {"mig": smaller["gpus"]} if "gpus" in smaller else {}
            second[name] = submitted(name, "2", gpus=1, **asked)
        watched(second)
        for name, job in second.items():
            view = made.call("GET", f"/api/v1/jobs/{job}", made.tokens["ulla"]).json
            assert ("COMPLETED", 0) == (view["state"], view["exit_code"]), name
            assert os.path.exists(tmp_path / f"{name} 2")
