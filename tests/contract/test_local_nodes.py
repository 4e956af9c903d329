"""The local engine as several nodes: what every task is told about its own, and layouts, shares and ends by node."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from contract.rigs import EPOCH, SEVERAL_NODES, LocalRig, Program, ended, launch, look, until, until_alive
from gpuyard.engines.contract import Answer, AttemptReport, Launch, Part, Phase, Recipe, StopRequest
from gpuyard.engines.local.gpus.mps import THROUGH
from gpuyard.model import Outcome
from gpuyard.model.mig import Slice

TOLD = (
    "SLURM_PROCID", "RANK", "LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "MASTER_ADDR", "YARD_NODE", "SLURMD_NODENAME",
    "SLURM_NODEID", "SLURM_NNODES", "SLURM_JOB_NODELIST", "SLURM_GPUS", "SLURM_JOB_GPUS", "CUDA_VISIBLE_DEVICES",
    THROUGH,
)  # fmt: skip
HALF = Slice(0, "3g.71gb", 0)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[LocalRig]:
    made = LocalRig(tmp_path, nodes=SEVERAL_NODES)
    yield made
    made.close()


def part(node: str, *gpus: int, tasks: int = 1, milli: int = 1000, slices: tuple[Slice, ...] = ()) -> Part:
    return Part(node, gpus, milli, 1000, 64, tasks, slices)


def over(rig: LocalRig, key: str, *parts: Part, recipe: Recipe | None = None) -> Launch:
    """A launch with a part on each of several nodes."""
    one = launch(rig, key, Program(run_ms=60_000), recipe=recipe)
    return Launch(key, 1, 1, "1", "a job", one.recipe, parts, 0, 400)


def told(rig: LocalRig, key: str, *parts: Part, batch: bool = False) -> list[dict[str, str]]:
    """What each task of a job was told, as the tasks wrote it down, by rank."""
    lines = "\\n".join([f"{name} ${{{name}-}}" for name in TOLD])
    text = f"#!/bin/bash\nprintf '%b\\n' \"{lines}\" > '{rig.effects}/{key}-'$SLURM_PROCID\n"
    started = over(rig, key, *parts, recipe=Recipe(script=text, batch=batch))
    assert [Answer.DONE] == [reply.answer for reply in rig.engine.start(EPOCH, [started])]
    assert Outcome.COMPLETED is ended(rig, key).outcome
    files = sorted(rig.effects.glob(f"{key}-*"))
    return [dict([line.split(" ", 1) for line in file.read_text().splitlines()]) for file in files]


def test_the_nodes_are_those_that_were_described(rig: LocalRig) -> None:
    assert [*SEVERAL_NODES.nodes] == [report.node for report in rig.engine.nodes()]
    assert [True] * 3 == [report.up for report in rig.engine.nodes()]
    signals = rig.engine.signals()
    assert [("a-1", 8), ("a-2", 8), ("b-1", 2)] == [
        (name, sum(each.node == name for each in signals)) for name in ("a-1", "a-2", "b-1")
    ]
    assert "3 nodes are emulated on this machine, with 18 GPUs" in "\n".join(rig.engine.notes)


def test_tasks_of_a_gang_know_their_node_rank_and_gpus(rig: LocalRig) -> None:
    tasks = told(rig, "y-1-1", part("a-1", 0, 1, tasks=2), part("b-1", 1))

    wanted = {
        "SLURM_PROCID": ["0", "1", "2"],
        "RANK": ["0", "1", "2"],
        "LOCAL_RANK": ["0", "1", "0"],
        "NODE_RANK": ["0", "0", "1"],
        "WORLD_SIZE": ["3"] * 3,
        "MASTER_ADDR": ["127.0.0.1"] * 3,
        "YARD_NODE": ["a-1", "a-1", "b-1"],
        "SLURMD_NODENAME": ["a-1", "a-1", "b-1"],
        "SLURM_NODEID": ["0", "0", "1"],
        "SLURM_NNODES": ["2"] * 3,
        "SLURM_JOB_NODELIST": ["a-1,b-1"] * 3,
        "SLURM_GPUS": ["3"] * 3,
        "SLURM_JOB_GPUS": ["0,1", "0,1", "1"],
    }
    assert wanted == {name: [task[name] for task in tasks] for name in wanted}
    seen = [task["CUDA_VISIBLE_DEVICES"].split(",") for task in tasks]
    assert seen[0] == seen[1]
    assert (2, 1, 3) == (len(seen[0]), len(seen[2]), len({*seen[0], *seen[2]}))


def test_a_batch_script_runs_once_on_the_first_node(rig: LocalRig) -> None:
    (task,) = told(rig, "y-1-1", part("a-2", 3, tasks=2), part("b-1", 0), batch=True)

    names = ("YARD_NODE", "SLURM_NODEID", "SLURM_JOB_NODELIST", "SLURM_NNODES", "SLURM_JOB_GPUS")
    assert ("a-2", "0", "a-2,b-1", "2", "3") == tuple([task[name] for name in names])


def test_a_task_that_fails_on_one_node_ends_those_on_the_others(rig: LocalRig) -> None:
    program = Program(exit_code=7, only_rank=2, run_ms=500)
    made = over(
        rig, "y-1-1", part("a-1", tasks=2), part("a-2"), part("b-1"), recipe=rig.recipe("y-1-1", program)
    )
    rig.engine.start(EPOCH, [made])
    report = ended(rig, "y-1-1")

    assert (Outcome.FAILED, 7) == (report.outcome, report.exit_code)
    assert (4, 0) == (rig.starts("y-1-1"), rig.alive("y-1-1"))


def test_a_gang_outlives_the_engine_and_is_stopped_as_a_whole(rig: LocalRig) -> None:
    rig.engine.start(EPOCH, [over(rig, "y-1-1", part("a-1", 0), part("a-2", 0))])
    until_alive(rig, "y-1-1", 2)
    rig.engine.close()
    rig.engine = rig.reopen()

    assert Phase.RUNNING is until(rig, "y-1-1", Phase.RUNNING).phase
    rig.engine.stop(EPOCH, [StopRequest("y-1-1", Outcome.CANCELLED, 400)])
    assert Outcome.CANCELLED is ended(rig, "y-1-1").outcome
    assert 0 == rig.alive("y-1-1")


def test_a_node_that_is_taken_down_ends_what_runs_there_and_nothing_else(rig: LocalRig) -> None:
    both = over(rig, "y-1-1", part("a-1", 0), part("a-2", 0))
    rig.engine.start(EPOCH, [both, over(rig, "y-2-1", part("a-2", 1))])
    until_alive(rig, "y-1-1", 2)
    until_alive(rig, "y-2-1", 1)
    (rig.data / "down" / "a-1").touch()

    assert [False, True, True] == [report.up for report in rig.engine.nodes()]
    report = ended(rig, "y-1-1")
    assert (Outcome.NODE_FAIL, "node a-1 went down") == (report.outcome, report.why)
    assert Phase.RUNNING is look(rig, "y-2-1").phase
    (rig.data / "down" / "a-1").unlink()
    assert [True] * 3 == [report.up for report in rig.engine.nodes()]
    rig.engine.stop(EPOCH, [StopRequest("y-2-1", Outcome.CANCELLED, 0)])
    ended(rig, "y-2-1")


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ((part("a-9"),), "there is no node a-9 here; 3 are"),
        ((part("a-1"), part("a-1")), "a launch names each of its nodes once"),
        ((part("a-1", 7), part("b-1", 7)), "there are no GPUs [7] on b-1, which has 2"),
        ((part("a-1", tasks=1000), part("a-2", tasks=1000)), "2000 tasks on one machine: it takes 1 to 1024"),
        ((part("a-1"), part("a-2", tasks=0)), "0 tasks on a-2: it takes at least one"),
    ],
)
def test_what_no_node_can_do_is_refused(rig: LocalRig, parts: tuple[Part, ...], why: str) -> None:
    (reply,) = rig.engine.start(EPOCH, [over(rig, "y-1-1", *parts)])

    assert (Answer.REFUSED, why) == (reply.answer, reply.why)
    assert AttemptReport("y-1-1", Phase.UNKNOWN) == look(rig, "y-1-1")


def test_layouts_are_kept_by_node(rig: LocalRig) -> None:
    pinned = rig.engine.pin(EPOCH, "b-1", {0: (HALF,)})
    other = rig.engine.pin(EPOCH, "a-1", {2: (Slice(2, "3g.40gb", 4),)})
    assert [Answer.DONE] * 2 == [pinned[0].answer, other[2].answer]
    assert Answer.REFUSED is rig.engine.pin(EPOCH, "b-2", {0: (HALF,)})[0].answer

    assert {"a-1": (Slice(2, "3g.40gb", 4),), "a-2": (), "b-1": (HALF,)} == rig.engine.cuts()
    rig.engine.close()
    rig.engine = rig.reopen()
    assert {"a-1": (Slice(2, "3g.40gb", 4),), "a-2": (), "b-1": (HALF,)} == rig.engine.cuts()
    rig.engine.pin(EPOCH, "a-1", {})
    assert 1 == len(json.loads((rig.data / "pins.json").read_text()))


def test_slices_and_shares_are_of_the_node_that_was_named(rig: LocalRig) -> None:
    (slice_task,) = told(rig, "y-1-1", part("b-1", 0, milli=428, slices=(HALF,)))
    assert slice_task["CUDA_VISIBLE_DEVICES"].startswith("MIG-")
    assert {"a-1": (), "a-2": (), "b-1": (HALF,)} == rig.engine.cuts()

    shares = told(rig, "y-2-1", part("a-1", 0, milli=500), part("a-2", 0, milli=500))
    assert ["mps", "mps"] == [task[THROUGH] for task in shares]
    assert 2 == len({task["CUDA_VISIBLE_DEVICES"] for task in shares})


def test_emulated_nodes_have_addresses_in_their_jobs_alone(rig: LocalRig) -> None:
    """`MASTER_ADDR=$(scontrol show hostnames | head -1)` is what scripts say."""
    if os.geteuid() != 0:
        pytest.skip("only a yard of root gives emulated nodes their addresses")
    text = f"#!/bin/sh\ngetent ahostsv4 a-1 > '{rig.effects}/seen'; getent ahostsv4 b-1 >> '{rig.effects}/seen'\n"
    started = over(rig, "y-1-1", part("a-1", 0), part("b-1", 1), recipe=Recipe(script=text, batch=True))
    rig.engine.start(EPOCH, [started])

    assert Outcome.COMPLETED is ended(rig, "y-1-1").outcome
    addresses = {line.split()[0] for line in (rig.effects / "seen").read_text().splitlines()}
    assert {"127.0.0.1"} == addresses
    assert (
        2 == subprocess.run(["getent", "ahostsv4", "a-1"], check=False, stdout=subprocess.DEVNULL).returncode
    )
