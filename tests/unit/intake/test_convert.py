"""`yard convert`: the command itself, without the group it will stand in."""

import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuyard.cli.commands.submit import convert as command
from gpuyard.cli.commands.submit.convert import take
from gpuyard.cli.line.options import read
from gpuyard.errors import BadInput
from gpuyard.intake import PROPOSED

SCRIPT = "#!/bin/bash\n#SBATCH -J train --gres=gpu:2 --mail-type=END\nnvidia-smi\n"
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  restartPolicy: Never
  containers: [{image: i, command: [a]}]
"""
NATIVE = """\
name: train
script: |
  #!/bin/bash
  #SBATCH -J train --gres=gpu:2 --mail-type=END
  nvidia-smi
gpus: 2
cpus: 1
slurm_commands: true
"""

Convert = Callable[..., tuple[str, str]]


@pytest.fixture
def convert(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Convert:
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> tuple[str, str]:
        command.convert(**read(command.convert, words))
        written = capsys.readouterr()
        return written.out, written.err

    return call


def test_a_script_becomes_native_yaml(convert: Convert) -> None:
    Path("train.sh").write_text(SCRIPT)
    out, err = convert("train.sh")

    assert NATIVE == out
    assert "warning: train.sh:2: --mail-type is not served: no mail is sent\n" == err


def test_native_yaml_stays_what_it_is(convert: Convert) -> None:
    Path("train.sh").write_text(SCRIPT)
    once, _ = convert("train.sh")
    Path("job.yaml").write_text(once)

    assert (once, "") == convert("job.yaml")


def test_standard_input_and_a_form_that_is_said(convert: Convert, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(SCRIPT.encode())))
    out, err = convert("-", "--from", "sbatch")

    assert out.startswith("name: train\n")
    assert err.startswith("warning: <stdin>:2: ")


def test_variables_of_sbatch_count(convert: Convert, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SBATCH_TIMELIMIT", "5")
    Path("train.sh").write_text(SCRIPT)

    assert "\ntime_limit_s: 300\n" in convert("train.sh")[0]


def test_a_pod_runs_in_its_image_until_someone_wants_a_process(convert: Convert) -> None:
    Path("pod.yaml").write_text(POD)

    out, err = convert("pod.yaml")
    assert ("name: p\nimage: ", "") == (out[:15], err)
    assert out.endswith("entrypoint:\n  - a\n")
    assert ("name: p\ncommand:\n  - a\n", "") == convert("pod.yaml", "--host-process")


def test_what_the_yard_lacks_is_said(convert: Convert, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROPOSED, "hold", "it waits")
    Path("train.sh").write_text("#!/bin/sh\n#SBATCH --hold\ntrue\n")

    assert "warning: train.sh:2: this yard has no 'hold' yet: it waits\n" == convert("train.sh")[1]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("absent.sh",), "absent.sh: no such file"),
        ((".",), "Is a directory"),
        (("absent.sh", "--from", "slurm"), "'slurm' is not a form"),
    ],
)
def test_what_cannot_be_read_is_refused(convert: Convert, words: tuple[str, ...], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        convert(*words)


def test_other_commands_take_files_the_same_way(convert: Convert, capsys: pytest.CaptureFixture[str]) -> None:
    Path("train.sh").write_text(SCRIPT)
    (script,) = take("train.sh", arguments=("-G4", "--gres=none"), script_arguments=("--seed", "7"))
    (wrapped,) = take("", source="sbatch", arguments=("--wrap=date",), slurm_output=True)

    assert (4, ["--seed", "7"]) == (script.request()["gpus"], script.request()["command"])
    assert ("wrap", "slurm-%j.out") == (wrapped.job["name"], wrapped.job["stdout"])
    assert "warning: train.sh:2: " in capsys.readouterr().err


def test_a_job_that_needs_more_than_the_yard_has_is_not_handed_in(
    convert: Convert, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PROPOSED, "hold", "it waits")
    Path("train.sh").write_text("#!/bin/sh\n#SBATCH --hold\ntrue\n")
    (taken,) = take("train.sh")

    assert ("hold",) == taken.lacking
    with pytest.raises(BadInput, match=r"train\.sh:2: 'hold' is not there yet: it waits"):
        taken.request()
