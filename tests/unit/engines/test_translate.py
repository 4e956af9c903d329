"""The local engine's translation: names that drivers really use, nodes made of readings, plans made of launches."""

import pytest

from gpuyard.engines.contract import Launch, Part, Phase, Recipe
from gpuyard.engines.local.translate import (
    LocalContext,
    MachineReading,
    Seat,
    find_alike,
    make_node,
    plan_of,
    read_end,
)
from gpuyard.engines.machine.launches import UnixAccount, find_key_flaw
from gpuyard.engines.machine.nvml import GpuReading
from gpuyard.model import Outcome
from gpuyard.model.gpu_names import recognise_model

MACHINE = MachineReading("box", 64_000, 500_000)
ACCOUNT = UnixAccount(1000, 1000, "ann", "/home/ann", "/bin/zsh")


@pytest.mark.parametrize(
    ("driver", "memory_mib", "name"),
    [
        ("NVIDIA H200", 143_771, "H200"),
        ("NVIDIA H100 80GB HBM3", 81_559, "H100"),
        ("NVIDIA H100 PCIe", 81_559, "H100"),
        ("NVIDIA A100-SXM4-80GB", 81_920, "A100-80GB"),
        ("NVIDIA A100 80GB PCIe", 81_920, "A100-80GB"),
        ("NVIDIA A100-PCIE-40GB", 40_960, "A100-40GB"),
        ("Tesla V100-SXM2-16GB", 16_384, "V100"),
        ("Tesla V100-SXM2-32GB", 32_768, "V100-32GB"),
        ("Tesla T4", 15_360, "T4"),
        ("NVIDIA L4", 23_034, "L4"),
        ("NVIDIA L40S", 46_068, "L40S"),
        ("NVIDIA A10", 23_028, "A10"),
        ("NVIDIA A10G", 23_028, "A10G"),
        ("NVIDIA B200", 183_359, "B200"),
        ("NVIDIA GeForce RTX 4090", 24_564, "GeForce-RTX-4090"),
        ("A100-80GB", 0, "A100-80GB"),
        ("", 0, "unknown"),
    ],
)
def test_model_names(driver: str, memory_mib: int, name: str) -> None:
    assert name == recognise_model(driver, memory_mib)


def gpus(count: int, linked: list[set[int]] | None = None, numa: list[int] | None = None) -> list[GpuReading]:
    return [
        GpuReading(
            f"GPU-{i}",
            "NVIDIA H100 80GB HBM3",
            81_559,
            numa=numa[i] if numa else 0,
            linked=tuple(sorted(next((group for group in linked or [] if i in group), {i}) - {i})),
        )
        for i in range(count)
    ]


@pytest.mark.parametrize(
    ("readings", "group", "domains"),
    [
        (gpus(0), 0, 1),
        (gpus(1), 0, 1),
        (gpus(4), 0, 1),
        (gpus(4, [{0, 1, 2, 3}], [0, 0, 1, 1]), 4, 2),
        (gpus(4, [{0, 1}, {2, 3}], [0, 0, 1, 1]), 2, 2),
        (gpus(4, [{0, 2}, {1, 3}], [0, 1, 0, 1]), 0, 1),
        (gpus(3, [{0, 1}], [0, 0, 1]), 0, 1),
    ],
    ids=["none", "one", "no-links", "all-linked", "pairs", "crossed", "uneven"],
)
def test_links_and_numa(readings: list[GpuReading], group: int, domains: int) -> None:
    node = make_node(MACHINE, readings, "c", "p")

    assert (len(readings), group, domains) == (node.gpus, node.nvlink_group_size, node.numa_domains)


def test_a_node_is_made_of_the_gpus_that_are_alike() -> None:
    display = GpuReading("GPU-d", "Tesla T4", 15_360)

    assert [1, 2] == find_alike([display, *gpus(2)])
    assert [] == find_alike([])


def place(**changes: object) -> LocalContext:
    values: dict[str, object] = {
        "seats": (Seat("box", tuple(f"GPU-{i}" for i in range(8))),),
        "boot": "b",
        "folder": "/data/attempts/y-7-1",
        "job_folder": "/data/jobs/7",
        "cgroup": "/cg/y-7-1",
        "limits": True,
        "drop": True,
        "port": 4242,
        "lang": "C.UTF-8",
    }
    return LocalContext(**(values | changes))  # type: ignore[arg-type]


def plan(recipe: Recipe, part: Part, **changes: object) -> dict[str, object]:
    one = Launch("y-7-1", 7, 1, "7", "name", recipe, (part,), 0, 0)
    return plan_of(one, ACCOUNT, place(**changes))


@pytest.mark.parametrize(
    ("gpus", "tasks", "shares"),
    [
        ((), 2, ["", ""]),
        ((3,), 1, ["GPU-3"]),
        ((0, 1, 4, 5), 2, ["GPU-0,GPU-1", "GPU-4,GPU-5"]),
        ((6, 7), 3, ["GPU-6,GPU-7"] * 3),
    ],
)
def test_all_see_all_gpus_and_are_told_which_are_meant_for_them(
    gpus: tuple[int, ...], tasks: int, shares: list[str]
) -> None:
    envs = plan(Recipe(("x",)), Part("box", gpus, 1000, 1000, 64, tasks))["envs"]

    assert shares == [env["YARD_TASK_GPUS"] for env in envs]  # type: ignore[attr-defined]
    every = ",".join([f"GPU-{gpu}" for gpu in gpus])
    assert [every] * tasks == [env["CUDA_VISIBLE_DEVICES"] for env in envs]  # type: ignore[attr-defined]


def test_output_is_streamed_unless_the_job_says_otherwise() -> None:
    part = Part("box", (), 1000, 1000, 64, 1)
    (plain,) = plan(Recipe(("x",)), part)["envs"]  # type: ignore[misc]
    (own,) = plan(Recipe(("x",), env={"PYTHONUNBUFFERED": ""}), part)["envs"]  # type: ignore[misc]

    assert ("1", "") == (plain["PYTHONUNBUFFERED"], own["PYTHONUNBUFFERED"])


def test_a_job_is_told_in_slurms_words_what_it_has() -> None:
    env = {"SLURM_JOB_ACCOUNT": "p12345", "SLURM_SUBMIT_DIR": "/from"}
    recipe = Recipe(("x",), env=env, cwd="/to", slurm_commands=True)
    parts = (
        Part("n1", (0, 1), 1000, 2500, 4096, 2),
        Part("n2", (0, 1), 1000, 2500, 4096, 2),
        Part("n7", (5,), 1000, 1000, 4096, 1),
    )
    one = Launch(
        "y-7-1", 7, 1, "7", "name", recipe, parts, 0, 0, partition="a100", account="research", qos="batch"
    )
    seats = tuple([Seat(part.node, tuple([f"GPU-{part.node}-{i}" for i in range(8)])) for part in parts])
    envs = plan_of(one, ACCOUNT, place(seats=seats, host="head"))["envs"]

    wanted = {
        "SLURM_JOB_PARTITION": "a100", "SLURM_JOB_ACCOUNT": "p12345", "SLURM_JOB_QOS": "batch", "SLURM_JOB_USER": "ann",
        "SLURM_JOB_UID": "1000", "SLURM_NODELIST": "n[1-2,7]", "SLURM_TASKS_PER_NODE": "2(x2),1",
        "SLURM_JOB_CPUS_PER_NODE": "3(x2),1", "SLURM_MEM_PER_NODE": "4096", "SLURM_SUBMIT_DIR": "/from",
        "SLURM_SUBMIT_HOST": "head", "SLURM_TMPDIR": "/data/attempts/y-7-1/tmp", "WORLD_SIZE": "5",
    }  # fmt: skip
    for env in envs:
        assert wanted == {name: env[name] for name in wanted}
    assert ["0,1", "0,1", "2,3", "2,3", "4"] == [env["SLURM_GTIDS"] for env in envs]
    assert ["2", "2", "2", "2", "1"] == [env["SLURM_GPUS_ON_NODE"] for env in envs]
    assert ["3", "3", "3", "3", "1"] == [env["SLURM_CPUS_ON_NODE"] for env in envs]
    asked = Recipe(("x",), env={"SLURM_MEM_PER_CPU": "100"})
    (other,) = plan(asked, parts[2])["envs"]  # type: ignore[misc]
    assert "SLURM_MEM_PER_NODE" not in other


def test_a_recipe_may_set_its_checkpoint_file_but_not_what_the_yard_grants() -> None:
    env = {"YARD_CHECKPOINT_FILE": "ck", "CUDA_VISIBLE_DEVICES": "0", "YARD_JOB_ID": "1", "PATH": "/mine"}
    made = plan(Recipe(("x",), env=env, cwd="/home/ann/run"), Part("box", (2,), 1000, 1000, 64, 1))
    (task,) = made["envs"]  # type: ignore[misc]

    assert ("ck", "GPU-2", "7", "/mine") == tuple(task[name] for name in env)
    assert "/home/ann/run/ck" == made["checkpoint"]


def test_limits_are_planned_only_where_they_can_be_set() -> None:
    part = Part("box", (), 1000, 2500, 64, 1)

    assert [(64, 2500), (0, 0)] == [
        (made["memory_mib"], made["cpu_milli"])
        for made in (plan(Recipe(("x",)), part), plan(Recipe(("x",)), part, limits=False))
    ]


def test_a_checkpoint_from_after_the_end_is_one_from_the_end() -> None:
    end = {
        "outcome": "COMPLETED",
        "exit_code": 0,
        "started_ms": 1,
        "ended_ms": 2,
        "checkpoint_ms": 99,
        "why": "",
    }
    report = read_end("k", end)

    assert (Phase.ENDED, Outcome.COMPLETED, 2) == (report.phase, report.outcome, report.checkpoint_ms)


@pytest.mark.parametrize("key", ["", "..", ".", "a/b", "a b", "-a", "a\0", "a\n", "ü", "x" * 201])
def test_a_key_that_is_no_folder_name_is_refused(key: str) -> None:
    assert "" != find_key_flaw(key)


def test_a_key_is_letters_digits_and_dashes() -> None:
    assert "" == find_key_flaw("yard-12-3")
