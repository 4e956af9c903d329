"""`yard submit` takes what a job in native YAML takes: where and when, in which folder, with which variables."""

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gpuyard.cli.commands.submit.jobfields import (
    build_request,
    change_request,
    drop_unknown,
    limit_s,
    moment_ms,
    variables,
)
from gpuyard.cli.commands.submit.run import run
from gpuyard.cli.commands.submit.submit import submit
from gpuyard.cli.line.options import Parameter, list_parameters, read
from gpuyard.errors import BadInput
from gpuyard.intake import PROPOSED
from gpuyard.intake.native_fields import FIELDS
from gpuyard.wire.endpoints import NODES
from gpuyard.wire.job_fields import JOB_FIELDS, JOB_OPTIONS

FROM_SBATCH_ALONE = {"batch", "ranks", "slurm_commands"}
"""Fields for the shapes of Slurm's batch scripts; a person who types a command has no use for them."""
FROM_FILES_ALONE = {"entrypoint", "workdir", "containers"}
"""Fields of pods; a job of several containers stands in a file."""


def asked(*words: str) -> dict[str, Any]:
    """The fields that options of `yard submit` set."""
    values = read(submit, [*words, "--", "true"], carries=True)
    fields = build_request(values["ctx"], {option.name: values[option.name] for option in JOB_OPTIONS})
    return {
        name: value
        for name, value in fields.items()
        if name not in ("cwd", "env") or ("-D" in words and name == "cwd")
    }


@pytest.mark.parametrize(
    ("words", "fields"),
    [
        (["--memory", "32G"], {"memory_mib": 32_768}),
        (["-g", "2"], {"gpus": 2, "gpu_milli": None}),
        (["--gpu-memory", "20G"], {"gpu_memory_mib": 20_480, "gpus": None, "gpu_milli": None}),
        (["--array", "0-3"], {"array": "0-3", "array_limit": None}),
        (["--signal", "TERM"], {"warn_signal": 15, "warn_s": 0}),
        (["--nodes", "2"], {"nodes_min": 2, "nodes_max": 2}),
        (["--numa", "single"], {"numa": "single"}),
        (["--topology", "rack"], {"topology": {"level": "rack"}}),
        (["--topology", "prefer:rack"], {"topology": {"level": "rack", "required": False}}),
        (["--topology", "switch@2h"], {"topology": {"level": "switch", "for_s": 7200}}),
        (["--env", "B=2"], {"env": {"A": "1", "B": "2"}}),
        (["--env", "A=2", "--no-export"], {"env": {"A": "2"}}),
        (["-D", "/tmp"], {"cwd": "/tmp"}),
        (["--label", "b=2", "--project", "x"], {"labels": {"a": "1", "b": "2"}, "project": "x"}),
        (["--no-requeue"], {"requeue": False}),
    ],
)
def test_what_is_typed_with_like_takes_the_place_of_what_the_job_had(
    words: list[str], fields: dict[str, Any]
) -> None:
    had: dict[str, Any] = {
        "script": "#!/bin/sh\n", "gpus": 1, "gpu_milli": 250, "memory_mib": 1024, "env": {"A": "1"}, "cwd": "/srv",
        "array": "0-9", "array_limit": 2, "warn_signal": 10, "warn_s": 60, "nodes_max": 1,
        "labels": {"a": "1"},
    }  # fmt: skip
    values = read(submit, ["--like", "7", *words], carries=True)
    options = {option.name: values[option.name] for option in JOB_OPTIONS}
    again = had | fields
    assert {name: value for name, value in again.items() if value is not None} == change_request(
        had, values["ctx"], options
    )


def test_every_field_that_a_file_may_have_can_be_typed() -> None:
    typed = {name for option in JOB_OPTIONS for name in (option.field, *option.more)} | {"command", "script"}
    assert FIELDS.keys() == typed | PROPOSED.keys() | FROM_SBATCH_ALONE | FROM_FILES_ALONE


@pytest.mark.parametrize(
    ("command", "own"),
    [
        (submit, {"words", "host_process", "dry_run", "like", "notes", "output"}),
        (run, {"words", "interactive", "quiet"}),
    ],
)
def test_the_options_of_a_job_are_those_of_the_table(command: Any, own: set[str]) -> None:
    """Not a copy of it: names, texts and bounds are what the table says."""
    declared = {each.name: each for each in list_parameters(command) if isinstance(each, Parameter)}
    table = {option.name: option for option in JOB_OPTIONS if option.run or command is submit}
    assert own | table.keys() == declared.keys()
    for name, option in table.items():
        says, field = declared[name].says, JOB_FIELDS[option.field]
        assert (option.help, option.metavar) == (says.help, says.metavar)
        number = declared[name].kind in (int, float)
        assert ((field.least, field.most) if number else (None, None)) == (says.min, says.max)
    assert {"tasks", "cpus"} <= {name for name, each in declared.items() if each.kind in (int, float)}


def test_where(tmp_path: Path) -> None:
    words = (
        "-D", str(tmp_path), "-p", "a,b", "--pool=c", "--constraint", "nvme", "--nodes", "2-4", "--node", "gpu[1-2]",
        "--exclude", "gpu9", "--exclusive", "--checkpoint-every", "30m", "--tasks", "4",
    )  # fmt: skip
    assert asked(*words) == {
        "cwd": str(tmp_path), "pools": ["a", "b", "c"], "constraint": "nvme", "nodes_min": 2, "nodes_max": 4,
        "on_nodes": ["gpu1", "gpu2"], "not_nodes": ["gpu9"], "exclusive": True, "checkpoint_s": 1800, "tasks": 4,
    }  # fmt: skip
    assert {} == asked()


def test_what_and_how() -> None:
    words = (
        "-g", "0.25", "-n", "train", "-t", "2h", "--class", "high", "--tenant", "a/b", "-c", "1.5", "-m", "8G",
        "--gpu-model", "H100,A100", "--array", "0-9%4", "--after", "afterany:12", "--after", "singleton",
        "--after-one", "--open-mode", "append", "--signal", "B:USR1@60", "--retries", "0", "--no-requeue", "--hold",
    )  # fmt: skip
    assert asked(*words) == {
        "gpus": 1, "gpu_milli": 250, "name": "train", "time_limit_s": 7200, "class": "high", "tenant": "a/b",
        "cpus": 1.5, "memory_mib": 8192, "gpu_models": ["H100", "A100"], "array": "0-9", "array_limit": 4,
        "dependencies": [{"kind": "afterany", "job": "12"}, {"kind": "singleton"}], "dependencies_any": True,
        "open_mode": "append", "warn_signal": 10, "warn_s": 60, "warn_shell": True, "retries": 0, "requeue": False,
        "hold": True,
    }  # fmt: skip
    assert {"gpu_memory_mib": 20_480, "isolation": "strict"} == asked(
        "--gpu-memory", "20G", "--isolation", "strict"
    )


def test_an_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = (
        "--image",
        "a:1",
        "--volume",
        "./data:/mnt:ro",
        "--volume",
        "tmp:/scratch",
        "--secret",
        "hf=t",
        "--pull",
        "never",
    )
    assert asked(*words) == {
        "image": "a:1", "volumes": [f"{tmp_path}/data:/mnt:ro", "tmp:/scratch"], "secrets": {"hf": f"{tmp_path}/t"},
        "pull": "never",
    }  # fmt: skip
    with pytest.raises(BadInput, match="--secret 'hf' names no file"):
        asked("--secret", "hf")


def test_an_empty_value_says_nothing_but_for_an_array() -> None:
    """A variable of a script may be unset: `--name "$NAME"`."""
    assert {} == asked("--name", "", "-g", "", "--time=", "--begin", "", "--stdout", "")
    with pytest.raises(BadInput, match="--array names no task"):
        asked("--array", "")
    with pytest.raises(BadInput, match="both say which GPUs"):
        asked("-g", "1", "--gpu-memory", "20G")


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
    with pytest.raises(BadInput, match="--deadline 2020-01-01: that time has passed"):
        asked("--deadline", "2020-01-01")
    assert {"deadline_ms"} == asked("--deadline", "+1h").keys()
    assert {"begin_ms"} == asked("--begin", "2020-01-01").keys(), "a job may begin at once"


def test_a_time_limit_is_read_without_the_configuration() -> None:
    code = (
        "import sys; from gpuyard.cli.commands.submit.jobfields import limit_s; "
        "print(limit_s('--time', '1h30m'), *[name for name in sys.modules if name.startswith('gpuyard.')])"
    )
    seconds, *loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "5400" == seconds
    assert set() == {"gpuyard.config", "gpuyard.model"} & set(loaded)


def test_a_cluster_of_a_script_that_is_not_here_is_left_out_with_a_warning(
    answering_yard: Any,
) -> None:
    answering_yard({NODES: {"nodes": [{"name": "n1", "cluster": "new"}]}})
    both = {"slurm_commands": True, "clusters": ["new", "old"]}
    typed = {"clusters": ["old"]}
    warned: list[str] = []
    drop_unknown([both, typed], warned.append)
    assert (["new"], ["old"]) == (both["clusters"], typed["clusters"])
    assert ["--clusters: there is no cluster old here"] == warned


def test_a_beginning_that_is_over_is_taken_and_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert moment_ms("--begin", "2020-01-20T08:00") < time.time() * 1000
    assert "note: --begin 2020-01-20T08:00: that time has passed, so the job may start at once\n" == (
        capsys.readouterr().err
    )
