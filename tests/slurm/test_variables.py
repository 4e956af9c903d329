"""The variables of a batch job and of its steps, name by name beside those of the same script on a real Slurm."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.conftest import Box
from harness.patience import patient
from rigs.slurm.cluster import SlurmCluster

CONFIG = """\
version: 1
clusters:
  yardrig:
    allow_root: true
    pools:
      main: {nodes: 2, gpus: 8 x A100-80GB, cpus: 64, memory: 500G, emulate: true}
classes: {normal: {limit: 1d}}
default_class: normal
"""
SCRIPT = """\
#!/bin/bash
#SBATCH --job-name=vars
{options}
set -u
env | grep ^SLURM > {folder}/batch
srun bash -c 'env | grep ^SLURM > {folder}/step-$SLURM_PROCID'
"""
ASKED = {
    "gpus": "--gpus=2 -n 1",
    "nodes": "-N 2 -n 4 --ntasks-per-node=2 --gpus-per-node=4 --cpus-per-task=3 --mem=4G -t 10",
    "array": "--array=4 --gpus-per-task=1 -n 2 --mem-per-cpu=100M",
    "export": "-n 1 --gres=gpu:2 --mem-per-gpu=1G --chdir=/tmp --export=ALL,A=1 --cpus-per-gpu=2 -p main",
}

NOT_SERVED = {
    "SLURM_CONF": "there is no slurm.conf; Slurm's own commands would look for a cluster that is not there",
    "SLURM_WORKING_CLUSTER": "there is no controller of Slurm to speak to",
    "SLURM_NODE_ALIASES": "it is for nodes in clouds, and always (null) elsewhere",
    "SLURM_SRUN_COMM_HOST": "nothing listens for messages to a step",
    "SLURM_SRUN_COMM_PORT": "nothing listens for messages to a step",
    "SLURM_STEP_LAUNCHER_PORT": "nothing listens for messages to a step",
    "SLURM_JOB_CPUS_PER_NODE_PACK_GROUP_0": "there are no heterogeneous jobs",
    "SLURM_DISTRIBUTION": "it would be read as an option by the next srun, and nobody asked for it",
    "SLURM_GET_USER_ENV": "it tells slurmd to run a login shell first; what goes along is known at submission",
    "SLURMD_TRES_BIND": "it speaks of Slurm's own binding to slurmd; YARD_TASK_GPUS and CUDA_VISIBLE_DEVICES say it",
    "SLURM_UMASK": "it is always 0022 here, as `umask` says",
}
"""Variables that Slurm sets and a yard does not, each with its reason."""

ALIKE = (
    "SLURM_ARRAY_TASK_COUNT", "SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_MAX", "SLURM_ARRAY_TASK_MIN",
    "SLURM_ARRAY_TASK_STEP", "SLURM_CLUSTER_NAME", "SLURM_CPUS_ON_NODE", "SLURM_CPUS_PER_GPU", "SLURM_CPUS_PER_TASK",
    "SLURM_EXPORT_ENV", "SLURM_GPUS", "SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE", "SLURM_GPUS_PER_TASK",
    "SLURM_GTIDS", "SLURM_JOB_ACCOUNT", "SLURM_JOB_CPUS_PER_NODE", "SLURM_JOB_GID", "SLURM_JOB_GPUS",
    "SLURM_JOB_NAME", "SLURM_JOB_NUM_NODES", "SLURM_JOB_PARTITION", "SLURM_JOB_QOS", "SLURM_JOB_UID",
    "SLURM_JOB_USER", "SLURM_LOCALID", "SLURM_MEM_PER_CPU", "SLURM_MEM_PER_GPU", "SLURM_MEM_PER_NODE", "SLURM_NNODES",
    "SLURM_NODEID", "SLURM_NPROCS", "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE", "SLURM_PROCID", "SLURM_STEP_GPUS",
    "SLURM_STEP_ID", "SLURM_STEP_NUM_NODES", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE", "SLURM_SUBMIT_HOST",
    "SLURM_TASKS_PER_NODE", "SLURM_TOPOLOGY_ADDR_PATTERN", "SLURM_LAUNCH_NODE_IPADDR",
)  # fmt: skip
"""Variables with the same value on both, where Slurm sets them."""

Told = dict[str, dict[str, str]]
"""By `batch` and `step-0`, `step-1`, … the variables."""


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    made = Box(tmp_path_factory.mktemp("variables") / "yard", CONFIG)
    made.up()
    yield made
    made("down", "--jobs")


def told(folder: Path, options: str, submit: Callable[[Path], None]) -> Told:
    """What one script was told."""
    folder.mkdir()
    script = folder / "job.sh"
    lines = f"#SBATCH {options} --output={folder}/out"
    script.write_text(SCRIPT.format(options=lines, folder=folder))
    submit(script)
    files = [*folder.glob("batch"), *sorted(folder.glob("step-*"))]
    assert len(files) > 1, (folder / "out").read_text()
    return {file.name: dict([line.split("=", 1) for line in file.read_text().splitlines()]) for file in files}


@pytest.mark.parametrize("asked", ASKED)
def test_every_variable_is_served_or_left_out_for_a_reason(
    rig: SlurmCluster, box: Box, tmp_path: Path, asked: str
) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "from").mkdir()

    def to_slurm(script: Path) -> None:
        subprocess.run(
            ["sbatch", "--wait", script],
            env=rig.environment,
            cwd=tmp_path / "from",
            check=True,
            timeout=patient(120),
        )

    def to_yard(script: Path) -> None:
        done = box("slurm", "sbatch", "--wait", script, cwd=tmp_path / "from")
        assert 0 == done.code, done.err

    real = told(tmp_path / "slurm", ASKED[asked], to_slurm)
    ours = told(tmp_path / "yard", ASKED[asked], to_yard)

    assert real.keys() == ours.keys()
    for where, wanted in real.items():
        found = ours[where]
        assert set() == wanted.keys() - found.keys() - NOT_SERVED.keys(), where
        assert set() == found.keys() & NOT_SERVED.keys(), where
        alike = [name for name in ALIKE if name in wanted]
        assert {name: wanted[name] for name in alike} == {name: found[name] for name in alike}, where
        assert str(tmp_path / "from") == found["SLURM_SUBMIT_DIR"] == wanted["SLURM_SUBMIT_DIR"]
        assert found["SLURM_NODELIST"] == found["SLURM_JOB_NODELIST"]
        assert found["SLURMD_NODENAME"] == found["SLURM_TOPOLOGY_ADDR"]
        assert found["SLURM_TASK_PID"].isdecimal()


@pytest.mark.parametrize("indices", ["3-9:3", "1,4,5", "7"])
def test_the_tasks_of_an_array_know_its_extent(
    rig: SlurmCluster, box: Box, tmp_path: Path, indices: str
) -> None:
    names = ("COUNT", "MIN", "MAX", "STEP")
    text = " ".join([f"$SLURM_ARRAY_TASK_{name}" for name in names])
    script = tmp_path / "job.sh"
    script.write_text(
        f"#!/bin/bash\n#SBATCH --array={indices} --output=/dev/null\necho {text} >$1-$SLURM_ARRAY_TASK_ID\n"
    )
    subprocess.run(
        ["sbatch", "--wait", script, tmp_path / "slurm"],
        env=rig.environment,
        check=True,
        timeout=patient(120),
    )
    done = box("slurm", "sbatch", "--wait", script, tmp_path / "yard", cwd=tmp_path)
    assert 0 == done.code, done.err

    real, ours = [
        {file.name.partition("-")[2]: file.read_text() for file in tmp_path.glob(f"{kind}-*")}
        for kind in ("slurm", "yard")
    ]
    assert real
    assert real == ours
