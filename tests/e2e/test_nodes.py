"""The shipped example as a live yard: eight emulated nodes on this machine, gangs over them, drain, restart."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.conftest import Box
from harness.patience import until

EXAMPLE = Path(__file__).parents[2] / "examples" / "yard.yaml"
SAY = 'echo "$RANK $YARD_NODE $SLURM_NODEID $WORLD_SIZE $CUDA_VISIBLE_DEVICES" >"$0-$RANK"'


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    box = Box(tmp_path_factory.mktemp("nodes") / "yard", EXAMPLE.read_text(encoding="utf-8"))
    done = box.up()
    assert "note: 8 nodes are emulated on this machine, with 64 GPUs" in done.err
    yield box
    assert 0 == box("down", "--jobs").code


def nodes(box: Box) -> dict[str, dict[str, object]]:
    return {row["name"]: row for row in json.loads(box("nodes", "-o", "json").out)}


def seen(file: Path, tasks: int) -> list[list[str]]:
    """What each task wrote, by rank."""
    files = [Path(f"{file}-{rank}") for rank in range(tasks)]
    until(lambda: all([each.exists() and each.read_text().endswith("\n") for each in files]))
    return [each.read_text().split() for each in files]


def test_there_is_a_node_for_each_that_the_file_has(rehearsal: Box) -> None:
    found = nodes(rehearsal)

    names = [f"{pool}-000{number}" for pool in ("h100", "a100") for number in (1, 2, 3, 4)]
    assert names == list(found)
    assert [("H100", 8)] * 4 + [("A100-80GB", 8)] * 4 == [(n["gpu_model"], n["gpus"]) for n in found.values()]


def test_a_gang_runs_over_nodes_and_each_task_knows_its_own(rehearsal: Box) -> None:
    for model, tenant, pool in (("H100", "research", "h100"), ("A100-80GB", "product", "a100")):
        file = rehearsal.data.parent / model
        words = ("-g", 8, "--tasks", 2, "--gpu-model", model, "--tenant", tenant)
        job = rehearsal.submit(*words, "--", "sh", "-c", SAY, file)
        tasks = seen(file, 2)

        assert [[str(rank), f"{pool}-000{rank + 1}", str(rank), "2"] for rank in range(2)] == [
            task[:4] for task in tasks
        ]
        gpus = [task[4].split(",") for task in tasks]
        assert (8, 8, 16) == (len(gpus[0]), len(gpus[1]), len({*gpus[0], *gpus[1]}))
        rehearsal.wait(job, "COMPLETED")


def test_scripts_name_partitions_that_the_file_maps_to_pools(rehearsal: Box) -> None:
    folder = rehearsal.data.parent
    script = folder / "job.sbatch"
    script.write_text('#!/bin/bash\n#SBATCH --gpus=1\necho "$SLURMD_NODENAME" >"$1"\n')
    for partition, pools in (("gpu-a100", {"a100"}), ("h100", {"h100"}), ("gpu", {"a100", "h100"})):
        file = folder / f"in-{partition}"
        words = ("sbatch", "-p", partition, "-A", "research", "--parsable", "--wait", script, file)
        done = rehearsal("slurm", *words)
        assert 0 == done.code, done.err
        assert file.read_text().partition("-")[0] in pools
    refused = rehearsal("slurm", "sbatch", "-p", "gpux", "-A", "research", script, "x")
    assert "gpux" in refused.err
    assert 0 != refused.code


def test_a_drained_node_takes_nothing_new_until_it_is_resumed(rehearsal: Box) -> None:
    assert 0 == rehearsal("drain", "h100-0001", "--why", "a new switch").code
    file = rehearsal.data.parent / "drained"
    words = ("-g", 8, "--tasks", 3, "--gpu-model", "H100", "--tenant", "product")
    rehearsal.submit(*words, "--", "sh", "-c", SAY, file)

    assert ["h100-0002", "h100-0003", "h100-0004"] == [task[1] for task in seen(file, 3)]
    four = rehearsal.submit("-g", 8, "--tasks", 4, *words[4:], "--", "true")
    until(lambda: "h100-0001 is drained" in rehearsal("queue").out)
    assert 0 == rehearsal("resume", "h100-0001").code
    rehearsal.wait(four, "COMPLETED")


def test_gangs_outlive_a_server_that_is_killed_and_lose_a_node_that_fails_meanwhile(rehearsal: Box) -> None:
    folder = rehearsal.data.parent
    kept, lost = folder / "kept", folder / "lost"
    words = ("-g", 8, "--tasks", 2, "--gpu-model")
    stays = rehearsal.submit(
        *words, "H100", "--tenant", "research", "--", "sh", "-c", f"{SAY}; sleep 60", kept
    )
    again = f'{SAY}; test "$YARD_RESTART_COUNT" = 1 || sleep 60'
    moves = rehearsal.submit(*words, "A100-80GB", "--tenant", "product", "--", "sh", "-c", again, lost)
    homes = [task[1] for task in seen(kept, 2)]
    assert ["a100-0001", "a100-0002"] == [task[1] for task in seen(lost, 2)]
    os.kill(rehearsal.note()["pid"], signal.SIGKILL)
    (rehearsal.data / "engine" / "down" / "a100-0002").touch()
    rehearsal.up()

    rehearsal.wait(moves, "COMPLETED")
    assert ["a100-0001", "a100-0003"] == [task[1] for task in seen(lost, 2)]
    found = nodes(rehearsal)
    assert ["DOWN", "UP"] == [found[name]["state"] for name in ("a100-0002", "a100-0003")]
    assert "RUNNING" == rehearsal.wait(stays, "RUNNING")["state"]
    assert [[str(stays)]] * 2 == [found[name]["jobs"] for name in homes]
    assert 0 == rehearsal("cancel", stays).code
    rehearsal.wait(stays, "CANCELLED")
    assert [[], []] == [nodes(rehearsal)[name]["jobs"] for name in homes]
