"""`yard submit` takes what a job in native YAML takes: where and when, in which folder, with which variables."""

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gpuyard.cli.commands.submit.jobplaces import limit_s, moment_ms, place, variables
from gpuyard.cli.commands.submit.submit import submit
from gpuyard.cli.line.options import Option
from gpuyard.cli.line.reading import Parameter, parameters
from gpuyard.errors import BadInput
from gpuyard.intake import PROPOSED
from gpuyard.intake.native_fields import FIELDS
from gpuyard.wire.job_fields import JOB_FIELDS

NOTHING: dict[str, Any] = {
    "chdir": "", "pool": None, "cluster": None, "constraint": "", "nodes": "", "node": None, "exclude": None,
    "exclusive": False, "begin": "", "deadline": "", "checkpoint": "",
}  # fmt: skip
FROM_SBATCH_ALONE = {"batch", "ranks", "slurm_commands"}
"""Fields for the shapes of Slurm's batch scripts; a person who types a command has no use for them."""
FROM_FILES_ALONE = {"entrypoint", "workdir", "containers"}
"""Fields of pods; a job of several containers stands in a file."""


def test_every_field_of_a_job_has_its_option_within_the_same_bounds() -> None:
    """The command line does not wait for the table to be loaded: that takes as long as reading it."""
    options = {name: says.option for name, says in JOB_FIELDS.items() if says.native and says.option}
    assert FIELDS.keys() == options.keys() | PROPOSED.keys() | FROM_SBATCH_ALONE | FROM_FILES_ALONE
    declared = {
        name: each for each in parameters(submit) if isinstance(each, Parameter) for name in each.on_off[0]
    }
    assert {option for option in options.values() if option.startswith("-")} <= declared.keys()
    numbers = {
        name: (declared[option].says, JOB_FIELDS[name])
        for name, option in options.items()
        if option in declared and declared[option].kind in (int, float)
    }
    assert {"tasks", "cpus", "retries"} == numbers.keys()
    for option, says in numbers.values():
        assert isinstance(option, Option)
        assert option.min == says.least
        assert option.max in (None, says.most)


def test_where(tmp_path: Path) -> None:
    said = NOTHING | {
        "chdir": str(tmp_path), "pool": ["a,b", "c"], "constraint": "nvme", "nodes": "2-4", "node": ["gpu[1-2]"],
        "exclude": ["gpu9"], "exclusive": True, "checkpoint": "30m",
    }  # fmt: skip
    assert place(**said) == {
        "cwd": str(tmp_path), "pools": ["a", "b", "c"], "constraint": "nvme", "nodes_min": 2, "nodes_max": 4,
        "on_nodes": ["gpu1", "gpu2"], "not_nodes": ["gpu9"], "exclusive": True, "checkpoint_s": 1800,
    }  # fmt: skip
    assert {} == place(**NOTHING)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90), ("2h", 7200), ("1d12h", 129_600), ("90", 5400), ("90:30", 5430), ("2:00:00", 7200),
        ("1-12", 129_600), ("1-12:30", 131_400), ("0-0:0:5", 5),
    ],
)  # fmt: skip
def test_times_as_slurm_and_as_people_write_them(text: str, seconds: int) -> None:
    assert seconds == limit_s("--time", text)


@pytest.mark.parametrize("text", ["0", "0:00", "soon", "2:00:00:00", "-5", "1h30", "2 h"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="--time"):
        limit_s("--time", text)


def test_when() -> None:
    now_ms = time.time() * 1000
    assert abs(moment_ms("--begin", "+2h") - now_ms - 7_200_000) < 5_000
    assert moment_ms("--begin", "2027-01-20T08:00") == round(
        time.mktime((2027, 1, 20, 8, 0, 0, 0, 0, -1)) * 1000
    )
    for wrong in ("soon", "+soon"):
        with pytest.raises(BadInput, match="--begin must be"):
            moment_ms("--begin", wrong)


def test_variables_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text("# mine\nexport SEED=1\nNAME='two words' # why\n\nURL=http://x/?a=b\nEMPTY=\n")
    assert ["SEED=1", "NAME=two words", "URL=http://x/?a=b", "EMPTY="] == variables(str(file))
    file.write_text("SEED=1\nnot a line\n")
    with pytest.raises(BadInput, match=r"\.env:2: is not NAME=VALUE"):
        variables(str(file))
    with pytest.raises(BadInput, match="No such file"):
        variables(str(tmp_path / "none"))


def test_a_deadline_that_is_over_is_refused() -> None:
    with pytest.raises(BadInput, match="--deadline 2020-01-01: that time is over"):
        place(**{**NOTHING, "deadline": "2020-01-01"})
    assert {} != place(**{**NOTHING, "deadline": "+1h"})


def test_a_time_limit_is_read_without_the_configuration() -> None:
    code = (
        "import sys; from gpuyard.cli.commands.submit.jobplaces import limit_s; "
        "print(limit_s('--time', '1h30m'), *[name for name in sys.modules if name.startswith('gpuyard.')])"
    )
    seconds, *loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "5400" == seconds
    assert set() == {"gpuyard.config", "gpuyard.model"} & set(loaded)
