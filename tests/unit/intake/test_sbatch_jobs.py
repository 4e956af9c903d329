"""What the directives of a script come to as a native job."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gpuyard.api.messages.schemas import JobRequest
from gpuyard.errors import BadInput
from gpuyard.intake import PROPOSED, Caller, Intake
from gpuyard.intake.sbatch import read_sbatch, split_command
from gpuyard.intake.sbatch.options import OPTIONS
from gpuyard.intake.sbatch.unsupported import REFUSED, SILENT, WARNINGS

GANG = {"batch": True}


def two_nodes(**more: Any) -> dict[str, Any]:
    return {"tasks": 2, "batch": True, "nodes_min": 2, "nodes_max": 2, **more}


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ("", {"cpus": 1}),
        ("-c 8", {"cpus": 8}),
        ("--gres=gpu:2", {"gpus": 2, "cpus": 1}),
        ("--gpus-per-node=2", {"gpus": 2, "cpus": 1}),
        ("-G 4 -c 16 --mem=64G", {"gpus": 4, "cpus": 16, "memory_mib": 65536}),
        ("--gpus=0", {"cpus": 1}),
        ("--gpus-per-socket=2 --sockets-per-node=2", {"gpus": 4, "cpus": 1}),
        ("--ntasks-per-node=4 -c 8 --gres=gpu:4", {"gpus": 4, "cpus": 32, "ranks": 4}),
        ("-N2", two_nodes(cpus=1)),
        ("-N2 --gres=gpu:8 --mem=100G", two_nodes(cpus=1, gpus=8, memory_mib=102400)),
        ("-N2 --gpus=8", two_nodes(cpus=1, gpus=4)),
        ("-N2 -n8 -c2", two_nodes(cpus=8, ranks=8)),
        ("-N2 --ntasks-per-node=4 --gpus-per-task=1", two_nodes(cpus=4, gpus=4, ranks=8)),
        ("-N2 --gpus-per-node=4 --mem-per-gpu=10G", two_nodes(cpus=1, gpus=4, memory_mib=40960)),
        ("-N2 --gpus-per-node=4 --cpus-per-gpu=6", two_nodes(cpus=24, gpus=4)),
        ("-N2-4 --gres=gpu:1", two_nodes(cpus=1, gpus=1)),
        ("-N2-4 -n8 --gpus-per-node=1", two_nodes(cpus=4, gpus=1, ranks=8)),
        (
            "-N1-2 -n8 --gpus-per-task=1",
            {"tasks": 8, "cpus": 1, "gpus": 1, "nodes_min": 1, "nodes_max": 2, **GANG},
        ),
        ("-N2-9 -n4", {"tasks": 4, "cpus": 1, "nodes_min": 2, "nodes_max": 4, **GANG}),
        ("-N4 -n2", two_nodes(cpus=1)),
        ("--gpus=16 --gpus-per-node=8", two_nodes(cpus=1, gpus=8)),
        ("--gpus=16 --gpus-per-node=8 -n1", two_nodes(cpus=1, gpus=8, ranks=1)),
        ("-n4 --gpus-per-task=1 --gpus-per-node=2", two_nodes(cpus=2, gpus=2, ranks=4)),
        ("-N2 --ntasks-per-gpu=2", two_nodes(cpus=2, gpus=1, ranks=4)),
        ("-n8 --ntasks-per-gpu=2 --gres=gpu:1", {"cpus": 2, "gpus": 1, "ranks": 2}),
        ("-n1 -w n[1-2]", {"cpus": 1, "on_nodes": ["n1"]}),
        ("-n 8", {"tasks": 8, "cpus": 1, **GANG}),
        ("-n 8 --gpus-per-task=1 -c4", {"tasks": 8, "cpus": 4, "gpus": 1, **GANG}),
        ("-n 8 --gpus=16", {"tasks": 8, "cpus": 1, "gpus": 2, **GANG}),
        ("-n 8 -c2 --mem-per-cpu=1G", {"tasks": 8, "cpus": 2, "memory_mib": 2048, **GANG}),
        ("-n 8 --gpus=4", {"cpus": 8, "gpus": 4, "ranks": 8}),
        ("-n 8 --gres=gpu:4", {"cpus": 8, "gpus": 4, "ranks": 8}),
        ("-n 8 --mem=10G", {"cpus": 8, "memory_mib": 10240, "ranks": 8}),
        ("-n 6 --ntasks-per-node=3", two_nodes(cpus=3, ranks=6)),
        (
            "-N2 -n3 --gpus-per-task=1",
            {"tasks": 3, "cpus": 1, "gpus": 1, "nodes_min": 2, "nodes_max": 2, **GANG},
        ),
        ("-N2 -n3 --gres=gpu:1", two_nodes(cpus=2, gpus=1, ranks=3)),
        ("--gpus=4 --ntasks-per-gpu=2", {"cpus": 8, "gpus": 4, "ranks": 8}),
        ("-n 8 --ntasks-per-gpu=2", {"cpus": 8, "gpus": 4, "ranks": 8}),
        ("-N1 -n16 --overcommit", {"cpus": 1, "ranks": 16}),
        ("--mem=0", {"cpus": 1}),
    ],
)
def test_resources(sbatch: Any, options: str, fields: dict[str, Any]) -> None:
    script = f"#!/bin/bash\n#SBATCH {options}\nhostname\n"
    job = sbatch(options).job
    # What an option leaves in the environment is looked at by itself.
    job.pop("env", None)
    assert {"name": "job.sh", "script": script, "slurm_commands": True, **fields} == job


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ("-J train", {"name": "train"}),
        ("--job-name='two words'", {"name": "two words"}),
        ("-J 'a/b*c'", {"name": "a-b-c"}),
        ("-t 1-2", {"time_limit_s": 26 * 3600}),
        ("-t 1:30", {"time_limit_s": 120}),
        ("-A research", {"tenant": "research"}),
        ("--account=org/team", {"tenant": "org/team"}),
        ("-q high", {"class": "high"}),
        ("-p gpu,big", {"pools": ["gpu", "big"]}),
        ("-M new,old", {"clusters": ["new", "old"]}),
        ("-a 1-10:2%4", {"array": "1-10:2", "array_limit": 4}),
        ("-d afterok:3", {"dependencies": [{"kind": "afterok", "job": 3}]}),
        (
            "-d afterok:3?after:4",
            {
                "dependencies": [{"kind": "afterok", "job": 3}, {"kind": "after", "job": 4}],
                "dependencies_any": True,
            },
        ),
        ("-H", {"hold": True}),
        ("--no-requeue", {"requeue": False}),
        ("--no-requeue --requeue", {}),
        ("--exclusive", {"exclusive": True}),
        ("-w n[1-2] -n2", {"on_nodes": ["n1", "n2"]}),
        ("-x n3", {"not_nodes": ["n3"]}),
        ("-L matlab:2,abaqus", {"licenses": {"matlab": 2, "abaqus": 1}}),
        ("--signal=B:USR1@300", {"warn_signal": 10, "warn_s": 300, "warn_shell": True}),
        ("--signal=USR1@300", {"warn_signal": 10, "warn_s": 300}),
        ("--open-mode=append", {"open_mode": "append"}),
        ("--open-mode=t", {"open_mode": "truncate"}),
        (
            "-n2 --gpus-per-task=1 --gpu-bind=none",
            {"env": {"SLURM_GPUS_PER_TASK": "1", "SLURM_GPU_BIND": "none"}},
        ),
        ("-D /data", {"cwd": "/data"}),
        ("-D runs/1", {"cwd": "/home/ana/runs/1"}),
        ("-o %x-%j.out -e %x-%j.err", {"stdout": "%x-%j.out", "stderr": "%x-%j.err"}),
        ("--begin=16:00", {"begin_ms": int(datetime(2026, 3, 10, 16, tzinfo=UTC).timestamp()) * 1000}),
        ("--begin=now", {}),
        ("--begin=2020-01-01", {}),
        ("--deadline=tomorrow", {"deadline_ms": int(datetime(2026, 3, 11, tzinfo=UTC).timestamp()) * 1000}),
        ("--export=SEED=7,HOME", {"env": {"SEED": "7"}}),
        ("-C intel", {"constraint": "intel"}),
        ("-C 'a100&ib' --gres=gpu:1", {"gpu_models": ["A100-40GB", "A100-80GB"], "constraint": "ib"}),
        ("-C 'h100|h200' --gres=gpu:1", {"gpu_models": ["H100", "H200"]}),
        ("-C '[rack1|rack2]' --gres=gpu:1", {"constraint": "[rack1|rack2]"}),
        ("-C a100", {"constraint": "a100"}),
        ("--prefer 'nvme&ib'", {"prefer": ["nvme, ib"]}),
        ("--prefer 'nvme|ib'", {"prefer": ["nvme", "ib"]}),
        ("--gres=gpu:a100:1 -C a100_80gb", {"gpu_models": ["A100-80GB"]}),
        ("--gres=gpu:h100:1", {"gpu_models": ["H100"]}),
        ("--gres=gpu:rtx9000:1", {"gpu_models": ["rtx9000"]}),
        ("--gres=gpu:1g.10gb:1", {"mig": "1g.10gb"}),
        ("--gres=gpu:a100_3g.20gb:1", {"mig": "3g.20gb", "gpu_models": ["A100-40GB", "A100-80GB"]}),
    ],
)
def test_fields(sbatch: Any, options: str, fields: dict[str, Any]) -> None:
    job = sbatch(options).job
    common = {"name", "script", "slurm_commands", "cpus", "gpus", "tasks", "batch", "nodes_min", "nodes_max"}

    assert fields == {key: value for key, value in job.items() if key not in common - fields.keys()}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("--mail-type=END", "no mail is sent"),
        ("--nice=10", "--nice is not served"),
        ("--reservation=x", "no reservations"),
        ("--time=0", "the limit of its class"),
        ("--mem=0", "all memory of the node"),
        ("-N 2-4", "is read as 2, the least of the range; for 3 say --nodes=3"),
        ("-N 4 -n 2", "takes 2 of the 4 nodes"),
        ("--gres=gpu:1,nvme:10", "'nvme:10' is not served"),
        ("--exclusive=user", "by user is not served"),
        ("--signal=R:USR1", "'R:' is not served"),
        ("-o %q", "%q stands for nothing"),
        ("-J a/b", "it is 'a-b' here"),
        ("-n4 --gres=gpu:1", "read as one node"),
        ("-n4 --mem=1G", "read as one node"),
        ("-n4 --gpus=2", "read as one node"),
        ("--gpus=16", "add --nodes to spread them"),
        ("-N2 -n3 --mem=1G", "the room of 2 tasks"),
        ("--wrap=date", "in a script means nothing"),
        ("--gpus=gpu:2", "read as any GPU"),
        ("-i in.txt", "standard input is /dev/null"),
        ("--kill-on-invalid-dep=no", "can no longer come true is cancelled"),
        ("-o a-%a", "this is not an array"),
    ],
)
def test_what_is_not_served_is_named_with_its_line(sbatch: Any, options: str, says: str) -> None:
    (warning,) = sbatch(options).warnings

    assert 2 == warning.line
    assert says in warning.text


@pytest.mark.parametrize(
    "options",
    [
        "--mail-type=NONE",
        "-i /dev/null",
        "--no-kill=off",
        "--profile=none",
        "-v",
        "--hint=multithread",
        "--kill-on-invalid-dep=yes",
        "--open-mode=append",
        "--gpu-bind=none",
    ],
)
def test_what_asks_for_nothing_is_not_worth_a_word(sbatch: Any, options: str) -> None:
    assert () == sbatch(options).warnings


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("--help", "submits nothing"),
        ("-V", "submits nothing"),
        ("-F nodes.txt", "use --nodelist"),
        ("--gpus-per-task=1", "add --ntasks"),
        ("--gpus-per-socket=1", "needs --sockets-per-node"),
        ("--mem-per-gpu=1G", "asks for none"),
        ("--cpus-per-gpu=2 -c2 -G1", "exclude each other"),
        ("--gpus=3 -N2", "--gpus-per-node"),
        ("--gpus=6 --gpus-per-node=4", "multiple"),
        ("--gpus=8 --gpus-per-node=4 -N3", "--nodes excludes"),
        ("--gpus=5 --gpus-per-task=2", "2 tasks of 2 come to 4"),
        ("--gpus=4 --gpus-per-task=1 -n2", "2 tasks of 1 come to 2"),
        ("-N4 --gpus=8 --gpus-per-task=4", "4 nodes, and GPUs by task make 2 tasks: every node needs one"),
        ("--gpus=2 --gpus-per-node=4", "multiple"),
        ("--gpus-per-task=1 -N2 -c2", "add --ntasks"),
        ("--gpus-per-task=1 -n4 -N1 --gpus-per-node=2", "comes to 4 GPUs, and 1 node of 2 to 2"),
        ("--ntasks-per-gpu=2", "add --gpus or --ntasks"),
        ("--ntasks-per-gpu=2 -n3", "multiple of --ntasks-per-gpu"),
        ("--ntasks-per-gpu=2 --ntasks-per-node=2 -G1", "exclude each other"),
        ("--ntasks-per-gpu=2 --gpus-per-task=2 -n2", "exclude each other"),
        ("--gpus=4 --gres=gpu:a100:4", "none and a100"),
        ("--gres=gpu:1 --gpus-per-node=2", "keep one of them"),
        ("--gpus=a100:1 --gpus-per-task=h100:1 -n1", "different types"),
        ("-w n[1-3] -N2", "names 3 nodes"),
        ("--deadline=2020-01-01", "has passed"),
        ("-A 'a b'", "cannot be a tenant"),
        ("-q a/b", "cannot be a class"),
        ("-p a/b", "cannot be the name of a pool"),
        ("--gres=gpu:h100:1 -C a100", "the GPUs are h100"),
        ("-C '[a'", "must be features"),
        ("--mem=1G --mem-per-cpu=1G", "exclude each other"),
        ("hetjob", "heterogeneous"),
        ("--array=0-20000", "split it"),
    ],
)
def test_what_cannot_be_served_is_refused_with_its_line(sbatch: Any, options: str, says: str) -> None:
    with pytest.raises(BadInput) as refused:
        sbatch(options)

    assert refused.value.message.startswith("job.sh:2: ")
    assert says in refused.value.message


def test_every_mistake_is_reported_at_once(sbatch: Any) -> None:
    with pytest.raises(BadInput) as refused:
        sbatch("-t 2h", "--mem=4Gi", "-n 0", arguments=("--gres=gpu:x:y:z",))

    found = refused.value.message.splitlines()
    assert ["--gres", "job.sh:2:", "job.sh:3:", "job.sh:4:"] == [line.split(" ")[0] for line in found]


def test_later_places_win_option_by_option(sbatch: Any) -> None:
    directives = ("-J script -t 10 -N1 --mem=1G",)
    environment = {"SBATCH_JOB_NAME": "environment", "SBATCH_TIMELIMIT": "20", "OTHER": "x"}

    job = sbatch(*directives, environment=environment, arguments=("-J", "command")).job

    assert ("command", 1200, 1024) == (job["name"], job["time_limit_s"], job["memory_mib"])


def test_memory_from_the_environment_gives_way_to_any_that_is_written(sbatch: Any) -> None:
    assert 4096 == sbatch("--mem=4G", environment={"SBATCH_MEM_PER_CPU": "9G"}).job["memory_mib"]
    assert (
        2048
        == sbatch("-c2", environment={"SBATCH_MEM_PER_NODE": "9G"}, arguments=("--mem-per-cpu=1G",)).job[
            "memory_mib"
        ]
    )


@pytest.mark.parametrize(("value", "kept"), [("", True), ("yes", True), ("no", False), ("0", False)])
def test_a_switch_in_the_environment_can_be_off(sbatch: Any, value: str, kept: bool) -> None:
    assert kept == sbatch(environment={"SBATCH_WAIT": value}).options.wait


def test_a_wrong_value_in_the_environment_is_named_by_its_variable(sbatch: Any) -> None:
    with pytest.raises(BadInput, match=r"^SBATCH_TIMELIMIT in the environment must be minutes"):
        sbatch(environment={"SBATCH_TIMELIMIT": "soon"})


def test_how_it_is_handed_in_is_kept_apart(sbatch: Any) -> None:
    options = sbatch("--test-only --parsable -Q -W --export=NONE").options

    assert (True, True, True, True, False) == (
        options.test_only,
        options.parsable,
        options.quiet,
        options.wait,
        options.export_all,
    )


@pytest.mark.parametrize(
    ("export", "variables"),
    [
        ("ALL", {"HOME": "/home/ana", "SEED": "1", "SLURM_CONF": "c"}),
        ("NONE", {"SLURM_CONF": "c"}),
        ("HOME", {"HOME": "/home/ana", "SLURM_CONF": "c"}),
        ("ALL,SEED=7", {"HOME": "/home/ana", "SEED": "7", "SLURM_CONF": "c"}),
        ("SEED=7,HOME", {"HOME": "/home/ana", "SEED": "7", "SLURM_CONF": "c"}),
    ],
)
def test_the_environment_of_the_job(sbatch: Any, export: str, variables: dict[str, str]) -> None:
    submitter = {"HOME": "/home/ana", "SEED": "1", "SLURM_CONF": "c"}

    wanted = variables | {"SLURM_EXPORT_ENV": export}
    assert wanted == sbatch(f"--export={export}").environment(submitter)


def wrapped(*arguments: str) -> Intake:
    return read_sbatch("", "-", Caller(now=datetime(2026, 3, 10, tzinfo=UTC), arguments=arguments))


@pytest.mark.parametrize(
    ("directives", "fields"),
    [
        (["--container=/bundles/a"], {"image": "/bundles/a"}),
        (["--container=b"], {"image": "/home/ana/b"}),
        (
            ["--container-image=nvcr.io#nvidia/pytorch:24.01-py3"],
            {"image": "nvcr.io/nvidia/pytorch:24.01-py3"},
        ),
        (["--container-image=docker://ana@ghcr.io#team/a"], {"image": "ghcr.io/team/a"}),
        (["--container-image", "python:3.12"], {"image": "python:3.12"}),
        (
            ["--container-image=a", "--container-mounts=/data:/mnt:ro+rslave,/x", "--container-workdir=/w"],
            {"image": "a", "volumes": ["/data:/mnt:ro", "/x:/x"], "workdir": "/w"},
        ),
        (["--container-image=a", "--no-container-mount-home"], {"image": "a"}),
    ],
)
def test_the_images_of_slurm_and_of_pyxis(sbatch: Any, directives: list[str], fields: dict[str, Any]) -> None:
    taken = sbatch(" ".join(directives))
    names = ("image", "volumes", "workdir")

    assert fields == {name: taken.job[name] for name in names if name in taken.job}
    assert (False, ()) == (taken.options.export_all, taken.warnings), "PATH is that of another system"
    assert "#!" == JobRequest.model_validate(taken.job).script[:2]


def test_an_export_that_is_asked_for_goes_into_an_image_too(sbatch: Any) -> None:
    assert sbatch("--container-image=a --export=ALL").options.export_all


@pytest.mark.parametrize(
    ("directives", "says"),
    [
        ("--container-image=/a/b.sqsh", "must be an image of a registry"),
        ("--container-image=a --container=/b", "name two images for one job"),
        ("--container-mounts=/a", "give --container-image"),
        ("--container-image=a --container-mounts=a:b", "must be /folder or /folder:/inside"),
        ("--container-image=a --container-name=x", "containers go with their attempt"),
    ],
)
def test_an_image_that_cannot_be_served_is_refused(sbatch: Any, directives: str, says: str) -> None:
    with pytest.raises(BadInput) as refused:
        sbatch(directives)

    assert says in refused.value.message


def test_what_the_yard_lacks_is_refused_with_its_line(sbatch: Any) -> None:
    taken = sbatch("-J a", "--gres=gpu:1 --tmp=10G --licenses=matlab:1")
    with pytest.raises(BadInput, match=r"^job.sh:3: 'licenses'"):
        taken.request()


def test_a_command_is_wrapped_into_a_script() -> None:
    job = wrapped("--wrap=nvidia-smi -L", "-G2").job

    assert ("wrap", 2) == (job["name"], job["gpus"])
    assert "#!/bin/sh\n# This script was created by sbatch --wrap.\n\nnvidia-smi -L\n" == job["script"]


def test_a_script_from_standard_input_is_called_sbatch() -> None:
    caller = Caller(now=datetime(2026, 3, 10, tzinfo=UTC), script_arguments=("a", "b c"), slurm_output=True)
    job = read_sbatch("#!/bin/sh\n", "-", caller).job

    assert ("sbatch", ["a", "b c"], "slurm-%j.out") == (job["name"], job["command"], job["stdout"])


def test_an_array_has_a_file_for_each_task(sbatch: Any) -> None:
    assert "slurm-%A_%a.out" == sbatch("-a 0-3", slurm_output=True).job["stdout"]
    assert "mine" == sbatch("-a 0-3 -o mine", slurm_output=True).job["stdout"]


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["-N2", "run.sh", "-n", "4"], (["-N2"], "run.sh", ["-n", "4"])),
        (["-N", "2", "--mem=1G", "run.sh"], (["-N", "2", "--mem=1G"], "run.sh", [])),
        (["--wrap", "date"], (["--wrap", "date"], "", [])),
        (["-J", "--", "run.sh"], (["-J", "--"], "run.sh", [])),
        (["-H", "--", "run.sh", "--", "x"], (["-H"], "run.sh", ["--", "x"])),
        ([], ([], "", [])),
    ],
)
def test_a_command_line_is_taken_apart(words: list[str], parts: tuple[list[str], str, list[str]]) -> None:
    assert parts == split_command(words)


def test_every_option_is_served_named_or_refused() -> None:
    served = {
        "account", "array", "begin", "chdir", "clusters", "constraint", "cpus-per-gpu", "cpus-per-task", "deadline",
        "dependency", "error", "exclude", "exclusive", "export", "gpus", "gpus-per-node", "gpus-per-socket",
        "gpus-per-task", "gres",
        "hold", "job-name", "licenses", "mem", "mem-per-cpu", "mem-per-gpu", "no-requeue", "nodelist", "nodes",
        "ntasks", "ntasks-per-gpu", "ntasks-per-node", "output", "parsable", "partition", "qos", "quiet", "requeue",
        "signal", "test-only", "time", "wait", "wrap", "overcommit", "open-mode", "gpu-bind", "distribution",
        "container", "container-image", "container-mounts", "container-mount-home", "container-workdir",
        "switches", "wckey", "prefer",
    }  # fmt: skip
    every = {option.key for option in OPTIONS}

    assert every == served | WARNINGS.keys() | SILENT | REFUSED.keys()
    assert not served & (WARNINGS.keys() | SILENT | REFUSED.keys())
    letters = [option.short for option in OPTIONS if option.short]
    assert len(set(letters)) == len(letters)


def test_a_wait_after_another_job_begins_is_kept_and_named_as_lacking(sbatch: Any) -> None:
    taken = sbatch("-d after:3+5")

    assert [{"kind": "after", "job": 3, "delay_s": 300}] == taken.job["dependencies"]
    assert ("delay_s" in PROPOSED) == ("delay_s" in taken.lacking)


def test_the_page_calls_refused_what_is_refused(sbatch: Any) -> None:
    """intake.md went on refusing `--container` when it was served."""
    page = (Path(__file__).resolve().parents[3] / "docs/how-to/intake.md").read_text(encoding="utf-8")
    (told,) = re.findall(r"named in a warning\. (.*) are refused\.\n", page)
    for name in (named := re.findall(r"`--([a-z-]+)`", told)):
        with pytest.raises(BadInput):
            sbatch(f"--{name}=x:1").request()

    assert named
    first_column = "".join(re.findall(r"^\| (`--.*?) \| ", page, re.MULTILINE))
    assert set() == {*re.findall(r"`--([a-z-]+)", first_column)} & ({*named} | REFUSED.keys())


@pytest.mark.parametrize(
    ("options", "topology"),
    [
        ("-N 4 --switches=1", {"level": "switch", "for_s": 300}),
        ("-N 4 --switches=1@2:00:00", {"level": "switch", "for_s": 7200}),
        ("-N 4 --switches=1@unlimited", {"level": "switch"}),
        ("-N 1 --switches=1", None),
        ("-N 4 --switches=2@60", None),
    ],
)
def test_switches_are_waited_for(sbatch: Any, options: str, topology: dict[str, object] | None) -> None:
    found = sbatch(options)

    assert found.job.get("topology") == topology
    assert ("switches=2" in options) == any("it waits for none" in each.text for each in found.warnings)
