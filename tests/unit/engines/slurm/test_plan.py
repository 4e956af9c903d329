"""What a job of a driven Slurm is told: by the yard, by whoever submits it, and the rest by Slurm itself."""

from gpuyard.engines.contract import Launch, Part, Recipe
from gpuyard.engines.machine.launches import UnixAccount
from gpuyard.engines.slurm.plan import SlurmContext, plan_of
from gpuyard.engines.slurm.words.forms import Gres
from gpuyard.engines.slurm.words.rows import SlurmNode

NODES = {"n1": SlurmNode("n1", "IDLE", 64, 512_000, (Gres("gpu", "a100", 8),), (), ("gpu",), "n1")}
ANN = UnixAccount(1000, 1000, "ann", "/home/ann", "/bin/sh")


def planned(env: dict[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The variables below those of Slurm, and those above."""
    recipe = Recipe(argv=("true",), env=env, cwd="/to")
    one = Launch("y-1-1", 1, 1, "1", "a", recipe, (Part("n1", (0,), 1000, 1000, 64, 1),), 0, 0)
    made = plan_of(one, ANN, SlurmContext("/s/a", "/s/j", "/s/k", "p", []), NODES)
    return made["env"], made["yard"]


def test_output_is_streamed_unless_the_job_says_otherwise() -> None:
    assert "1" == planned({})[0]["PYTHONUNBUFFERED"]
    assert "0" == planned({"PYTHONUNBUFFERED": "0"})[0]["PYTHONUNBUFFERED"]


def test_where_a_job_comes_from_is_told_and_what_it_asked_for_is_left_to_slurm() -> None:
    env, yard = planned(
        {"SLURM_SUBMIT_DIR": "/from", "SLURM_SUBMIT_HOST": "login", "SLURM_MEM_PER_NODE": "4096", "SEED": "7"}
        | {"SLURM_ARRAY_TASK_COUNT": "3"}
    )

    assert ("/from", "login") == (yard["SLURM_SUBMIT_DIR"], yard["SLURM_SUBMIT_HOST"])
    assert ("7", "3") == (env["SEED"], env["SLURM_ARRAY_TASK_COUNT"])
    assert "SLURM_MEM_PER_NODE" not in env | yard
    assert "/to" == planned({})[1]["SLURM_SUBMIT_DIR"]
