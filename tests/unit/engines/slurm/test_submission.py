"""What is handed to Slurm: nodes named, counts exact, nothing left for it to decide."""

from dataclasses import replace

import pytest

from gpuyard.engines.contract import Launch, Part, Recipe
from gpuyard.engines.slurm.calls import submission
from gpuyard.engines.slurm.calls.submission import NodeGroup, Submission, amounts, choose_minutes, group_nodes
from gpuyard.engines.slurm.words.forms import Gres
from gpuyard.engines.slurm.words.rows import Partition, SlurmNode
from gpuyard.model.units import MINUTE_MS

PARTITIONS = [Partition("gpu", ("n1", "n2", "n3"), True, max_ms=60 * MINUTE_MS)]


def node(name: str) -> SlurmNode:
    return SlurmNode(name, "IDLE", 64, 512_000, (Gres("gpu", "a100", 8),), (), ("gpu",), name)


NODES = {name: node(name) for name in ("n1", "n2", "n3")}


def launch(*parts: Part, batch: bool = False, limit_ms: int = 0) -> Launch:
    recipe = Recipe(argv=("true",), batch=batch)
    return Launch("y-1-1", 1, 1, "1", "train", recipe, parts, limit_ms, 30_000)


def part(name: str, gpus: int, tasks: int = 1, cpu_milli: int = 4000, memory_mib: int = 1000) -> Part:
    return Part(name, tuple(range(gpus)), 1000, cpu_milli, memory_mib, tasks)


def test_nodes_that_get_the_same_are_one_group() -> None:
    (group,) = group_nodes(launch(part("n1", 2), part("n2", 2)), NODES, PARTITIONS)

    assert NodeGroup(("n1", "n2"), 2, "a100", 4, 1000, 1, "gpu") == group
    assert "gpu:a100:2" == group.gres


def test_nodes_that_get_different_amounts_are_several() -> None:
    groups = group_nodes(launch(part("n1", 4, 2), part("n2", 2), part("n3", 4, 2)), NODES, PARTITIONS)

    assert [("n1", "n3"), ("n2",)] == [group.nodes for group in groups]
    assert ["--het-group=0", "--het-group=1"] == [words[1] for words in submission.list_sruns(groups)]


def test_a_batch_script_finds_its_tasks_in_slurm() -> None:
    (group,) = group_nodes(launch(part("n1", 4, 4), batch=True), NODES, PARTITIONS)
    (uneven,) = group_nodes(launch(part("n1", 4, 3), batch=True), NODES, PARTITIONS)

    spread = launch(part("n1", 4), part("n2", 4), batch=True)
    (ranks,) = group_nodes(replace(spread, recipe=replace(spread.recipe, ranks=4)), NODES, PARTITIONS)

    assert (4, 1, 2) == (group.tasks, uneven.tasks, ranks.tasks)


@pytest.mark.parametrize(
    ("asked", "cpus", "memory_mib"),
    [
        (part("n1", 2), 4, 1000),
        (part("n1", 2, cpu_milli=1500), 2, 1000),
        # Slurm would give one core, and all the memory.
        (part("n1", 2, cpu_milli=0, memory_mib=0), 16, 128_000),
        (part("n1", 0, cpu_milli=0, memory_mib=0), 1, 8_000),
        (part("n1", 0, cpu_milli=2000, memory_mib=0), 2, 16_000),
    ],
)
def test_who_asks_for_nothing_gets_its_part(asked: Part, cpus: int, memory_mib: int) -> None:
    assert (cpus, memory_mib) == amounts(asked, NODES["n1"])


@pytest.mark.parametrize(
    ("longest", "limit_ms", "minutes"),
    [(60, 600_000, 13), (60, 86_400_000, 60), (60, 0, 60), (0, 0, 0), (0, 86_400_000, 1443)],
)
def test_the_time_limit_lies_behind_ours_and_within_its_own_partitions(
    longest: int, limit_ms: int, minutes: int
) -> None:
    """Without a limit it is all that is allowed: left out, Slurm would take the partition's DefaultTime."""
    partitions = [
        Partition("gpu", ("n1",), True, max_ms=longest * MINUTE_MS),
        Partition("short", ("n9",), True, max_ms=5 * MINUTE_MS),
    ]
    wanted = launch(part("n1", 1), limit_ms=limit_ms)

    assert minutes == choose_minutes(wanted, group_nodes(wanted, NODES, partitions), partitions)


def test_no_limit_is_said_to_slurm() -> None:
    (group,) = group_nodes(launch(part("n1", 1)), NODES, PARTITIONS)
    endless = replace(job(group), minutes=0)

    assert "--time=0" in submission.sbatch_words(endless, as_user=False)
    assert {"set": True, "infinite": True} == submission.make_body(endless, {})["job"]["time_limit"]


def job(*groups: NodeGroup) -> Submission:
    return Submission(
        "y-1-1", "y-1-1@ab", "a\nname", 1000, 100, groups, 13, "/s/%j", "#!/bin/sh\n", account="ml"
    )


ONE = NodeGroup(("n1", "n2"), 2, "a100", 4, 1000, 1, "gpu")


def test_words_for_sbatch() -> None:
    assert [
        "--parsable",
        "--uid=1000",
        "--gid=100",
        "--no-requeue",
        "--job-name=a name",
        "--comment=y-1-1@ab",
        "--chdir=/",
        "--output=/s/%%j",
        "--export=ALL",
        "--partition=gpu",
        "--account=ml",
        "--nodes=2",
        "--nodelist=n1,n2",
        "--ntasks-per-node=1",
        "--cpus-per-task=4",
        "--gres=gpu:a100:2",
        "--mem=1000M",
        "--time=13",
    ] == submission.sbatch_words(job(ONE), as_user=True)
    assert ":" in submission.sbatch_words(job(ONE, ONE), as_user=False)


def test_the_body_for_slurmrestd() -> None:
    body = submission.make_body(job(ONE), {"PATH": "/bin"})["job"]

    assert (["n1", "n2"], 2, 2) == (body["required_nodes"], body["minimum_nodes"], body["maximum_nodes"])
    assert ("gres/gpu:a100:2", {"set": True, "number": 13}) == (body["tres_per_node"], body["time_limit"])
    assert ["PATH=/bin"] == body["environment"]
    assert 2 == len(submission.make_body(job(ONE, ONE), {})["jobs"])


def test_nothing_of_a_user_is_in_the_batch_script() -> None:
    text = submission.make_script("python3", submission.find_program("/a 'b"), "/a 'b/attempts/y-1-1")

    assert text.startswith("#!/bin/sh\nexec python3 -I -S -c ")
    assert 2 == text.count("\n")
