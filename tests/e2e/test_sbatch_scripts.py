"""Batch scripts in the styles of real sites: each does what its writer means, or is refused with what to do."""

import os
import pwd
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.patience import until

from .conftest import Box

SEVERAL = """\
version: 1
clusters: {box: {gpus: 2 x T4, emulate: true, allow_root: true}}
tenants: {lab: {}, shop: {}}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("user")


@pytest.fixture(scope="module")
def site(box: Box) -> Iterator[Box]:
    return box


def submitted(box: Box, folder: Path, text: str, *options: str) -> int:
    (folder / "job.sbatch").write_text(text, encoding="utf-8")
    done = box("submit", *options, "job.sbatch", cwd=folder)
    assert 0 == done.code, done.err
    return int(done.out)


def test_the_yards_commands_are_found_before_the_hosts(box: Box, folder: Path) -> None:
    """Whatever the submitter's PATH has: here a folder with an `srun` that fails."""
    other = folder / "host"
    other.mkdir()
    (other / "srun").write_text("#!/bin/sh\necho the wrong srun\nexit 7\n", encoding="utf-8")
    (other / "srun").chmod(0o755)
    text = (
        "#!/bin/bash\n#SBATCH -n 2 --gpus=2\n#SBATCH -o found-%j.out\n"
        "srun -l sh -c 'echo $SLURM_STEP_ID'\nsqueue -h -j $SLURM_JOB_ID -o %T\n"
        "for name in sbatch scancel sinfo sacct scontrol; do command -v $name; done | xargs -n1 dirname | sort -u\n"
    )
    (folder / "job.sbatch").write_text(text, encoding="utf-8")
    done = box("submit", "job.sbatch", cwd=folder, PATH=f"{other}:{os.environ['PATH']}")
    box.wait(done.out.strip(), "COMPLETED")
    wrote = (folder / f"found-{done.out.strip()}.out").read_text(encoding="utf-8").splitlines()
    assert ["0: 0", "1: 0", "RUNNING"] == sorted(wrote[:2]) + wrote[2:3]
    assert 4 == len(wrote)
    assert str(box.data) in wrote[3]


def test_a_job_without_directives_keeps_the_path_it_was_given(box: Box, folder: Path) -> None:
    done = box("run", "-g", "1", "--", "sh", "-c", "echo $PATH", cwd=folder, PATH=os.environ["PATH"])
    # Before it stands the folder of the emulated GPUs' nvidia-smi.
    assert (0, os.environ["PATH"]) == (done.code, done.out.strip().partition(":")[2])


def test_a_job_requeues_itself_from_its_trap_and_goes_on(box: Box, folder: Path) -> None:
    """The shell is warned alone: what it started lives until the shell has saved its work."""
    text = """\
#!/bin/bash
#SBATCH --gres=gpu:1 --time=1
#SBATCH --signal=B:USR1@58
#SBATCH --requeue --open-mode=append
#SBATCH --output=saved.out
save() { kill -0 $work && echo "work lives"; touch saved; scontrol requeue $SLURM_JOB_ID; exit 0; }
trap save USR1
echo "run $SLURM_RESTART_COUNT"
[ -e saved ] && { echo resumed; exit 0; }
sleep 600 &
work=$!
wait
wait
"""
    (folder / "saved.out").write_text("from before\n", encoding="utf-8")
    number = submitted(box, folder, text)
    box.wait(number, "COMPLETED", s=60)
    wrote = (folder / "saved.out").read_text(encoding="utf-8").splitlines()
    assert ["from before", "run 0", "work lives", "run 1", "resumed"] == wrote


def test_file_names_are_filled_in_as_in_slurm(box: Box, folder: Path) -> None:
    text = "#!/bin/bash\n#SBATCH -J fill -o %u-%x-%5j-%J-%s-%2t-%n-100%%-%q.out\ntrue\n"
    (folder / "job.sbatch").write_text(text, encoding="utf-8")
    done = box("submit", "job.sbatch", cwd=folder)
    assert "%q stands for nothing and stays as it is" in done.err
    number = int(done.out)
    box.wait(number, "COMPLETED")
    user = pwd.getpwuid(os.geteuid()).pw_name
    name = f"{user}-fill-{number:05d}-{number}-batch-00-0-100%-%q.out"
    until((folder / name).exists)


def test_each_remedy_of_a_refusal_for_want_of_a_tenant_works(tmp_path: Path) -> None:
    settings = tmp_path / "settings"
    (settings / "gpuyard").mkdir(parents=True)
    box = Box(tmp_path / "data", SEVERAL)
    box.up()
    try:
        submit = ("slurm", "sbatch", "--parsable", "--hold", "--wrap", "true")
        bare = {"XDG_CONFIG_HOME": str(settings)}
        refused = box(*submit, **bare)
        named = re.search(r" -A (\S+);", refused.err)
        assert (1, True) == (refused.code, named is not None), refused.err
        assert "--tenant" not in refused.err, "sbatch has no such option"
        (settings / "gpuyard" / "defaults.yaml").write_text("tenant: lab\n")
        nowhere = {"XDG_CONFIG_HOME": str(tmp_path / "none")}
        for words, variables in (
            (("-A", named and named[1]), nowhere),
            ((), nowhere | {"YARD_TENANT": "lab"}),
            ((), bare),
        ):
            taken = box(*submit, *words, **variables)
            assert (0, "") == (taken.code, taken.err), words
            assert "lab" == box.wait(taken.out.strip(), "PENDING")["tenant"].partition("/")[0]
    finally:
        box("down", "--jobs")
