"""Scripts are read as real sbatch reads them: each is handed to Debian's Slurm, held, and compared field by field.

What Slurm took a script for is what `scontrol show job` says. Where we read something else on purpose it stands in
`ON_PURPOSE` with the reason, and the test fails if the two agree after all, so that the list cannot grow stale.
"""

import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gpuyard.errors import BadInput
from gpuyard.intake import Caller
from gpuyard.intake.sbatch import expand_pattern, read_sbatch
from harness.patience import patient
from rigs.components import Missing, skip_or_fail
from rigs.slurm.cluster import SlurmCluster
from slurm.scontrol import Case, differences, submit

SCRIPTS = Path(__file__).resolve().parents[1] / "unit" / "intake" / "scripts"
NAMES = sorted(path.name for path in SCRIPTS.iterdir() if path.is_file())

SITE = (
    "PartitionName=gpu Nodes=ALL MaxTime=INFINITE State=UP",
    "Licenses=matlab:10,abaqus:5",
    "NodeName=DEFAULT Feature=a100,nvlink,v100",
)

ON_PURPOSE: dict[tuple[str, str], str] = {
    (
        "43_tasks_by_node.sh",
        "memory",
    ): "Slurm counts one node until it places the job, we the two that it must have",
    ("44_range_of_nodes.sh", "cpus"): "with a range of nodes Slurm counts one core until it places the job",
    (
        "47_gpus_and_gpus_of_a_node.sh",
        "cpus",
    ): "Slurm adds --cpus-per-gpu when it places the job, we when we read it",
    (
        "52_accounting.sh",
        "exclusive",
    ): "--reboot takes whole nodes in Slurm; a yard does not reboot nodes, and says so",
}
"""Script and field: why the yard reads something else."""

PLAIN = "#!/bin/bash\nhostname\n"
ASKS = "#!/bin/bash\n#SBATCH --mem=4G --no-requeue -N2 --gres=gpu:1 -J fromscript -t 60\nhostname\n"

TAKEN = (
    *[
        ("--time", value)
        for value in ("90", "1:30", "1:2:3", "1-2", "1-2:3", "1-2:3:4", "5:90", "0:1", "100:00:00", "1-")
    ],
    *[("--time", value) for value in ("0", "INFINITE", "unlimited", "-1", "00:00:30", "5-30")],
    *[
        ("--mem", value)
        for value in ("4G", "4g", "4GB", "512", "512M", "2000K", "1T", "1025K", "1500k", "4096MB")
    ],
    *[
        ("--gres", value)
        for value in ("gpu", "gpu:2", "gpu:a100", "gpu:a100:2", "gpu:0", "gres:gpu:2", "none")
    ],
    *[("--gpus", value) for value in ("4", "a100:4", "a100", "0")],
    *[
        ("--array", value)
        for value in ("1-10:2%4", "0-3", "5", "1,3-5,9", "1-3,2-4", "007", "[1-5]", "1-3%2,5", "1-5%")
    ],
    *[
        ("--dependency", f"{kind}:990001")
        for kind in ("after", "afterok", "afterany", "afternotok", "aftercorr")
    ],
    *[
        ("--dependency", value)
        for value in ("singleton", "990001", "AFTEROK:990001", "afterok:990001:990002")
    ],
    *[
        ("--dependency", value)
        for value in ("after:990001+5", "afterok:990001?afterany:990002", "afterok:990001_7", "")
    ],
    *[("--nodes", value) for value in ("2", "1-3", "1k")],
    *[
        ("--begin", value)
        for value in ("2031-01-20", "2031-01-20T12:34", "012031", "01/20/31", "01.20.31-10:00", "now")
    ],
    *[
        ("--begin", value)
        for value in ("16:00", "4:30pm", "midnight", "noon", "teatime", "tomorrow 10:00", "01/20")
    ],
    *[("--nodelist", value) for value in ("n1", "n[1-2]", "n1,n3", "n[1,3-4]")],
    *[("--exclude", value) for value in ("n1", "n[2-3]")],
    *[
        ("--signal", value)
        for value in ("USR1@60", "B:USR1@60", "R:USR1", "SIGUSR1", "10@120", "RB:USR1@5", "USR1@")
    ],
)
"""An option alone, with a value that sbatch takes."""

TOGETHER = (
    "-N2 -n8 --gres=gpu:2",
    "--gpus=8 -N2",
    "--gpus-per-task=2 -n3",
    "--gpus-per-task=2 --gpus=6",
    "--gpus-per-task=2 -N2",
    "--gpus-per-task=1 -N2 --ntasks-per-node=4",
    "--gpus=4 --ntasks-per-gpu=2",
    "--ntasks-per-gpu=2 --gres=gpu:4 -N2",
    "--mem-per-gpu=10G --gres=gpu:2 -N2",
    "--mem-per-gpu=8G --gpus-per-task=2 -n3",
    "--mem-per-cpu=1G -n4 -c2 -N2",
    "-c4 -N2 --mem=10G",
    "--ntasks-per-node=4",
    "--ntasks-per-node=4 -N2",
    "-N4 -n2",
    "-w n[1-2] -N3",
    "-w n[1-2] --mem=1G",
    "--tasks-per-node=3 -N2",
    "-HN2 -n4",
)
"""Options that mean something together."""

LAYERS = (
    ((), {}),
    (("-J", "cli"), {"SBATCH_JOB_NAME": "env"}),
    ((), {"SBATCH_JOB_NAME": "env"}),
    (("-t", "5"), {"SBATCH_TIMELIMIT": "7"}),
    ((), {"SBATCH_TIMELIMIT": "1-0"}),
    ((), {"SBATCH_REQUEUE": ""}),
    (("--requeue",), {}),
    ((), {"SBATCH_GRES": "gpu:3"}),
    ((), {"SBATCH_MEM_PER_CPU": "2G"}),
    ((), {"SBATCH_MEM_PER_NODE": "2G"}),
    (("--mem-per-cpu=1G",), {"SBATCH_MEM_PER_NODE": "2G"}),
    ((), {"SBATCH_ARRAY_INX": "1-3%2"}),
    ((), {"SBATCH_EXCLUSIVE": ""}),
    ((), {"SBATCH_PARTITION": "gpu"}),
    ((), {"SBATCH_NODES": "3", "SBATCH_NTASKS": "5"}),
    (("-N", "3", "-N1"), {}),
)
"""Options and variables over a script that asks for something already."""

BOTH_REFUSE = (
    *[("--time", value) for value in ("1h", "30m", "1.5", "", "10:", ":30", "1:2:3:4", "1-2-3", "+5")],
    *[("--mem", value) for value in ("1.5G", "-1", "4Gi", "abc", "4X", "", "1P")],
    *[
        ("--gres", value)
        for value in ("gpu:x:y:2", "gpu:", "gpu:a100:", "mps:50", "gpu:2,", "gpu:2,gpu:a100:1")
    ],
    *[("--array", value) for value in ("10-1", "1-10:0", "a", "-1", "1 - 3")],
    *[
        ("--dependency", value)
        for value in ("foo:1", "afterok:", "afterok", "1:2", "afterok:1?", "afterok:0", "afterok:x")
    ],
    *[("--nodes", value) for value in ("2-", "4-2", "2=3", "1,2", "")],
    *[
        ("--begin", value)
        for value in ("4PM", "now+1h", "now+1min", "25:00", "elevenses", "2031-13-01", "1PM 01/20")
    ],
    *[("--signal", value) for value in ("FOO@10", "0", "B:SIGTERM@90000", "@60", "B:", "USR1@1:30", "RTMIN")],
    *[("--ntasks", value) for value in ("0", "=2", "x")],
    ("--gpus-per-task", "2"),
    ("--mem-per-gpu", "8G"),
    ("--gpus-per-socket", "1"),
    ("--deadline", "2020-01-01"),
    ("--n", "2"),
    ("--nosuch", "2"),
)

STRICTER = {
    "--nodes=0": "Slurm takes a job for no nodes, and never starts it",
    "--gpus=-1": "Slurm takes a negative number, and never starts the job",
    "--gpus=4,4": "Slurm takes the same GPUs twice",
    "--gpus=3 --nodes=2": "a yard gives every node of a job the same; the message says what to write",
    "--gres=gpu:1 --gpus-per-node=2": "Slurm takes two answers to one question",
    "--dependency=afterok:990001,afterany:990002?after:990003": "Slurm reads 'any of them' into all of it",
    "--dependency=afterburstbuffer:990001": "a yard has no burst buffers",
    "-J=name": "Slurm calls the job '=name'; nobody means that",
    "--signal=65@10": "there is no signal 65",
    "--time=99999999999": "Slurm takes two million days",
}
"""What sbatch takes and we refuse, and why."""

NO_SCRIPTS = {
    "empty": "",
    "blank": "\n  \n",
    "without #!": "#SBATCH -N2\nhostname\n",
    "byte order mark": "\ufeff#!/bin/bash\nhostname\n",
    "line breaks of Windows": "#!/bin/bash\r\n#SBATCH -N2\r\nhostname\r\n",
    "one line break of Windows": "#!/bin/bash\n#SBATCH -N2\r\nhostname\n",
    "open quote": '#!/bin/bash\n#SBATCH --comment="abc\nhostname\n',
    "word that is not an option": "#!/bin/bash\n#SBATCH --comment=hello world -N 2\nhostname\n",
    "words after --": "#!/bin/bash\n#SBATCH -- -N2\nhostname\n",
    "colon": "#!/bin/bash\n#SBATCH -N1 : -N2\nhostname\n",
    "longer magic word": "#!/bin/bash\n#SBATCHED -N2\nhostname\n",
    "value for a switch": "#!/bin/bash\n#SBATCH --requeue=yes\nhostname\n",
    "no value": "#!/bin/bash\n#SBATCH --nodes\nhostname\n",
    "two kinds of memory": "#!/bin/bash\n#SBATCH --mem=4G --mem-per-cpu=1G\nhostname\n",
}


@pytest.fixture(scope="module")
def site() -> Iterator[SlurmCluster]:
    """A site with what the scripts name: partitions, features, licenses, accounts, a QOS and a reservation."""
    try:
        cluster = SlurmCluster(nodes=4, gpus=8, rest=False, extra=SITE)
    except Missing as refusal:
        skip_or_fail(str(refusal))
        raise
    with cluster as slurm:
        slurm.command("sacctmgr", "-i", "add", "qos", "high")
        slurm.command("sacctmgr", "-i", "add", "account", "research")
        slurm.command("sacctmgr", "-i", "add", "user", "root", "account=research", "qos=normal,high")
        when = ("starttime=now", "duration=UNLIMITED", "flags=ignore_jobs")
        slurm.command(
            "scontrol", "create", "reservation", "reservationname=workshop", "users=root", "nodes=n4", *when
        )
        yield slurm


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    (tmp_path / "plain.sh").write_text(PLAIN)
    return tmp_path / "plain.sh"


def read(path: Path, *arguments: str) -> None:
    read_sbatch(path.read_text(), path.name, Caller(now=datetime.now(UTC), arguments=arguments))


@pytest.mark.parametrize("name", NAMES)
def test_a_script_is_read_as_sbatch_reads_it(site: SlurmCluster, name: str) -> None:
    found = differences(site, SCRIPTS / name, Case())
    meant = {field for script, field in ON_PURPOSE if script == name}

    assert {} == {field: values for field, values in found.items() if field not in meant}
    assert meant == found.keys() & meant


@pytest.mark.parametrize(("option", "value"), TAKEN)
def test_a_value_is_read_as_sbatch_reads_it(site: SlurmCluster, plain: Path, option: str, value: str) -> None:
    assert {} == differences(site, plain, Case((f"{option}={value}",)))


@pytest.mark.parametrize("options", TOGETHER)
def test_options_mean_together_what_they_mean_to_sbatch(
    site: SlurmCluster, plain: Path, options: str
) -> None:
    assert {} == differences(site, plain, Case(tuple(options.split())))


@pytest.mark.parametrize(("arguments", "environment"), LAYERS)
def test_the_same_place_wins(
    site: SlurmCluster, tmp_path: Path, arguments: tuple[str, ...], environment: dict[str, str]
) -> None:
    path = tmp_path / "asks.sh"
    path.write_text(ASKS)

    assert {} == differences(site, path, Case(arguments, environment))


@pytest.mark.parametrize(("option", "value"), BOTH_REFUSE)
def test_what_sbatch_refuses_is_refused(site: SlurmCluster, plain: Path, option: str, value: str) -> None:
    argument = f"{option}={value}"

    with pytest.raises(RuntimeError):
        submit(site, plain, Case((argument,)))
    with pytest.raises(BadInput):
        read(plain, argument)


@pytest.mark.parametrize("options", STRICTER)
def test_what_we_refuse_on_purpose_is_taken_by_sbatch(site: SlurmCluster, plain: Path, options: str) -> None:
    submit(site, plain, Case(tuple(options.split())))

    with pytest.raises(BadInput):
        read(plain, *options.split())


@pytest.mark.parametrize("text", NO_SCRIPTS.values(), ids=NO_SCRIPTS.keys())
def test_what_is_no_script_to_sbatch_is_none_to_us(site: SlurmCluster, tmp_path: Path, text: str) -> None:
    path = tmp_path / "none.sh"
    path.write_bytes(text.encode())

    with pytest.raises(RuntimeError):
        submit(site, path, Case())
    with pytest.raises(BadInput):
        read_sbatch(text, path.name, Caller(now=datetime.now(UTC)))


def test_files_are_named_as_slurm_names_them(site: SlurmCluster, tmp_path: Path) -> None:
    pattern = "%x-%A-%3a-%u-%N-%%-%6j-%n-%s-%t-%q.txt"
    script = tmp_path / "names.sh"
    script.write_text(PLAIN)
    command = [
        "sbatch",
        "--wait",
        "--quiet",
        "--mem=1",
        "--array=7",
        f"--output={tmp_path}/{pattern}",
        str(script),
    ]
    subprocess.run(command, env=site.environment, check=True, timeout=patient(60))
    (made,) = tmp_path.glob("*.txt")
    number = int(made.name.split("-")[1])
    values = {
        "x": "names.sh",
        "A": number,
        "a": 7,
        "u": "root",
        "N": made.name.split("-")[4],
        "j": number,
        "n": 0,
        "s": "batch",
        "t": 0,
    }

    assert made.name == expand_pattern(pattern, values)
