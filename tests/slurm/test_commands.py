"""Slurm's commands of the yard beside the real ones: the same jobs on both, compared line by line.

What a node, a partition and a GPU are called differs, and so do moments; these are made alike first. Everything else
has to be the same to the character: headings, widths, states, reasons, exit codes, and the messages that scripts know.
"""

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from e2e.conftest import Box
from harness.patience import patient, until
from rigs.components import Missing, skip_or_fail
from rigs.slurm.cluster import SlurmCluster

SCRIPTS = {
    "ok.sh": "#!/bin/sh\necho hello\n",
    "bad.sh": "#!/bin/sh\nexit 3\n",
    "long.sh": "#!/bin/sh\nexec sleep 600\n",
    "noscript.sh": "echo hello\n",
    "dos.sh": "#!/bin/sh\r\ntrue\r\n",
    "empty.sh": "",
}
JOBS = (
    "ok.sh",
    "-t 5 bad.sh",
    "--gres=gpu:8 -t 60 long.sh",
    "--gres=gpu:8 -J averylongname -t 1-2 long.sh",
    "-H -t 5 long.sh",
    "--begin=now+1hour long.sh",
    "-d afterok:3 long.sh",
    "-H --array=3-9:2,12%2 --gres=gpu:2 long.sh",
)
"""Ended well and badly, running, waiting, held, later, dependent, an array. The array is the last: a yard gives its
tasks ids of their own at once, Slurm when they start."""


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Side:
    """One of the two, and the words in which it differs."""

    folder: Path
    environment: dict[str, str]
    node: str

    def __call__(self, line: str, stdin: str = "") -> Done:
        done = subprocess.run(
            line, shell=True, env=self.environment, cwd=self.folder, input=stdin, capture_output=True, text=True,
            timeout=patient(60), check=False,
        )  # fmt: skip
        return Done(done.returncode, self.plain(done.stdout), done.stderr)

    def plain(self, text: str) -> str:
        """Without the names and moments that differ."""
        text = re.sub(rf"\b{re.escape(self.node)}\b", "NODE", text)
        text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", "0000-00-00T00:00:00", text)
        text = re.sub(r"^\w{3} \w{3} +\d+ [\d:]{8} \d{4}$", "CLOCK", text, flags=re.MULTILINE)
        # Time that runs on: a job has run for 0:07 here and, on a busy machine, 1:39 there. No limit is below 5:00.
        return re.sub(r" [0-4]:\d\d ", " 0:00 ", text)


def wait_for(side: Side, command: str, wanted: str, s: float = 30.0) -> None:
    until(lambda: wanted in side(command).out, s, lambda: side(command))


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    """The real one, with its jobs."""
    try:
        cluster = SlurmCluster(nodes=1, gpus=8, rest=False)
    except Missing as refusal:
        skip_or_fail(str(refusal))
        raise
    with cluster:
        # Called as the pool of a yard is, so that lines are alike to the character.
        conf = cluster.folder / "slurm.conf"
        conf.write_text(conf.read_text().replace("PartitionName=main", "PartitionName=local"))
        cluster.command("scontrol", "reconfigure")
        yield _with_jobs(Side(tmp_path_factory.mktemp("slurm"), cluster.environment, "n1"))


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    """The yard's, with the same."""
    box = Box(tmp_path_factory.mktemp("yard") / "data")
    box.up()
    links = tmp_path_factory.mktemp("links")
    assert 0 == box("slurm", "--install-links", links).code
    with box.client() as client:
        node = client.nodes()[0]["name"]
    # Variables of a Slurm that this machine may know have no say here.
    clean = {k: v for k, v in box.environment.items() if not k.startswith(("SLURM", "SBATCH"))}
    # Compiled once for all the commands that are started here.
    clean.pop("PYTHONDONTWRITEBYTECODE", None)
    cache = str(tmp_path_factory.mktemp("cache"))
    environment = clean | {"PATH": f"{links}:{os.environ['PATH']}", "PYTHONPYCACHEPREFIX": cache}
    yield _with_jobs(Side(tmp_path_factory.mktemp("work"), environment, node))
    assert 0 == box("down", "--jobs").code


def _with_jobs(side: Side) -> Side:
    for name, text in SCRIPTS.items():
        (side.folder / name).write_text(text, newline="")
    for number, line in enumerate(JOBS, start=1):
        assert Done(0, f"Submitted batch job {number}\n", "") == side(f"sbatch {line}")
        if number == 1:
            # One after the other, so that both give the GPUs to the third.
            wait_for(side, "sacct -X -n -j 1 -o state", "COMPLETED")
    wait_for(side, "sacct -X -n -j 2 -o state", "FAILED")
    wait_for(side, "squeue -h -j 4 -o %r", "Resources")
    wait_for(side, "squeue -h -j 3 -o %T", "RUNNING")
    return side


SAME = (
    "squeue -S i",
    "squeue -l -S i",
    "squeue -h -t PD -S i",
    "squeue -h -S -i -o %i",
    "squeue -j 3",
    "squeue -j 1",
    "squeue -j 3,4 -h -o '%i|%.5j|%5j|%.3D|%r'",
    "squeue -j 8 -h -o '%i %F %K %t'",
    "squeue --array -j 8 -h -S i -o '%i %K %t'",
    "squeue -j 8_5 -h -o %i",
    "squeue -t R",
    "squeue -t cd,f -h -S i -o '%i %T'",
    "squeue -u root -h -t R -o %i",
    "squeue --me -h -t RUNNING -o %i",
    "squeue -n averylongname -h -o '%i %.20j %l %L'",
    "squeue -p local -h -S i -o %i",
    "squeue -p nosuch",
    "squeue -w NODE -h -o %i",
    "squeue -S i -O jobarrayid:20,name:5,name:.12,state,reasonlist",
    "squeue -h -S i -O 'JobID:8,UserName:10,TimeLimit:.14,NumNodes:.3,StateCompact'",
    "squeue -S i -o '%.12i|%9P|%8T|%l|%R'",
    "squeue -S i -o 'x%iy%tz'",
    "squeue --start -h -t PD -j 5 -o '%i %S'",
    "squeue -o '%a %A %b %B %c %C %d %D %e %E %f %F %g %G %h %H %i %I %j %J %k %K %l %L %m %M %n %N' -p nosuch",
    "squeue -o '%o %O %p %P %q %Q %r %R %s %S %t %T %u %U %v %V %w %W %x %X %y %Y %z %Z' -p nosuch",
    "sinfo",
    "sinfo -l",
    "sinfo -h",
    "sinfo -s",
    "sinfo -N",
    "sinfo -R",
    "sinfo -p nosuch",
    "sinfo -t idle",
    "sinfo -h -o '%P %a %l %D %t %N'",
    "sinfo -o '%a %A %b %B %c %C %d %D %e %E %f %F %g %G %h %H %I %l %L %m %M %n %N' -p nosuch",
    "sinfo -o '%o %O %p %P %r %R %s %S %t %T %u %U %v %V %w %X %Y %z %Z' -p nosuch",
    "sinfo -O partition:.12,nodes,statelong:4,available",
    "sacct -j 1",
    "sacct -X -j 1,2,3,4",
    "sacct -b -j 1,2",
    "sacct -n -X -j 2",
    "sacct -p -X -j 1,2",
    "sacct -P -j 2 --delimiter=';'",
    "sacct -X -j 2 -o jobid%20,jobname%-12,state,exitcode,user,nodelist,timelimit",
    "sacct -X -P -j 2,3,4 -o jobid,jobname,state,exitcode,user,uid,group,timelimit,timelimitraw,ncpus,nnodes,nodelist",
    "sacct -j 999",
    "sshare --version > /dev/null",
    "scontrol show hostnames x[1-3],m4",
    "scontrol show hostnames n[08-11]",
    "scontrol show hostlist x1,x2,x3,m04,m05",
    "scontrol hold 6",
    "scontrol release 6",
    "scancel 999",
    "scancel 1",
    "scancel 8_[5-7]",
    "squeue -j 8 -h -o %i",
)
"""Commands that print the same and end the same on both."""


@pytest.mark.parametrize("line", SAME)
def test_the_same_is_printed(slurm: Side, yard: Side, line: str) -> None:
    theirs, ours = slurm(line.replace("NODE", slurm.node)), yard(line.replace("NODE", yard.node))

    assert (theirs.code, theirs.out) == (ours.code, ours.out), ours.err


WRONG = (
    "squeue --foo",
    "squeue -Z",
    "squeue -S",
    "squeue -t xx",
    "squeue -j 999",
    "sinfo -Z",
    "sacct -Z",
    "sacct -s XX",
    "sacct -j xx",
    "sacct -o foo",
    "scancel",
    "scancel xx",
    "scancel --foo",
    "scancel -s FOO 3",
    "scancel -t XX",
    "scancel -u nosuchuser",
    "sshare --foo",
    "scontrol frob",
    "scontrol show frob",
    "scontrol show",
    "scontrol show job 999",
    "scontrol show node nosuch",
    "scontrol suspend 4",
    "scontrol requeue 999",
    "scontrol update NodeName=NODE State=DRAIN",
    "scontrol update Foo=3",
    "sbatch nosuch.sh",
    "sbatch --frobnicate ok.sh",
    "sbatch -Z ok.sh",
    "sbatch --output",
    "sbatch --wrap true ok.sh",
    "sbatch noscript.sh",
    "sbatch dos.sh",
    "sbatch empty.sh",
    "srun",
    "srun --foo true",
)
"""Commands that fail with the same words and the same exit code."""


@pytest.mark.parametrize("line", WRONG)
def test_the_same_is_complained_of(slurm: Side, yard: Side, line: str) -> None:
    theirs, ours = slurm(line.replace("NODE", slurm.node)), yard(line.replace("NODE", yard.node))

    assert theirs == ours


FAILS = (
    "sbatch --time=xx ok.sh",
    "sbatch -p nosuch ok.sh",
    "sbatch --gres=gpu:99 ok.sh",
    "srun -p nosuch true",
    "scontrol hold 999",
    "sinfo -t xx",
)
"""Commands that fail with the same exit code, on a yard with a better sentence."""


@pytest.mark.parametrize("line", FAILS)
def test_it_fails_with_the_same_exit_code(slurm: Side, yard: Side, line: str) -> None:
    theirs, ours = slurm(line), yard(line)

    assert (theirs.code, theirs.out) == (ours.code, ours.out)
    assert theirs.code != 0
    assert ours.err


FIELD = re.compile(r"(?:^| )([A-Z][\w:/]*)=")


@pytest.mark.parametrize(
    "line", ["scontrol show job 3", "scontrol show job 4", "scontrol show node", "scontrol show partition"]
)
def test_scontrol_shows_fields_of_the_same_names_in_the_same_order(
    slurm: Side, yard: Side, line: str
) -> None:
    theirs, ours = FIELD.findall(slurm(line).out), FIELD.findall(yard(line).out)

    # `Comment` is Slurm's as well, where a job has one.
    assert [] == [name for name in ours if name not in [*theirs, "Comment", "Reason"]]
    shared = [name for name in ours if name in theirs]
    assert shared == [name for name in theirs if name in shared]


def test_a_script_from_standard_input(slurm: Side, yard: Side) -> None:
    for side in (slurm, yard):
        done = side("sbatch --parsable -H", stdin=SCRIPTS["ok.sh"])
        assert (0, "", True) == (done.code, done.err, done.out.strip().isdecimal())
        assert 0 == side(f"scancel {done.out}").code


def test_a_cancelled_job_is_listed_the_same(slurm: Side, yard: Side) -> None:
    for side in (slurm, yard):
        assert 0 == side("scancel 3").code
        wait_for(side, "sacct -X -n -j 3 -o state%20", "CANCELLED by 0")

    line = "sacct -X -j 3 -P -o jobid,state,exitcode"
    assert slurm(line) == yard(line)


PIPELINE = """\
#!/bin/bash
# What people have beside their jobs: submit, wait, look at what came of it.
set -e
first=$(sbatch --parsable --job-name=prepare --mem=1G --time=5 --wrap 'echo prepared > data.txt')
train=$(sbatch --parsable --dependency=afterok:$first --kill-on-invalid-dep=yes train.sbatch 2> /dev/null)
bad=$(sbatch --parsable --mem=1G --time=5 --wrap 'exit 7')
while [ -n "$(squeue -h -j $train,$bad -o %i)" ]; do sleep 0.2; done
cat slurm-${train}_1.out slurm-${train}_2.out
# Slurm's accounting comes a moment after the jobs, piece by piece.
ended='^(train|wrap)[|]local[|](COMPLETED|FAILED)'
until [ "$(sacct -n -X -P -j $train,$bad -o jobname,partition,state | grep -cE $ended)" = 3 ]; do sleep 0.2; done
sacct -n -X -P -j $train -o jobname,partition,state,exitcode
sacct -n -X -P -j $bad -o jobname,partition,state,exitcode
"""
TRAIN = """\
#!/bin/bash
#SBATCH --job-name=train --array=1-2
#SBATCH --gres=gpu:2 --mem=1G --time=00:05:00
read line < data.txt
echo "$line for task $SLURM_ARRAY_TASK_ID of $SLURM_JOB_NAME"
"""


def test_a_users_own_program_runs_the_same_with_only_the_path_changed(slurm: Side, yard: Side) -> None:
    said = []
    for side in (slurm, yard):
        side("scancel -u root")
        wait_for(side, "squeue -h -o %i; echo end", "end")
        (side.folder / "pipeline.sh").write_text(PIPELINE)
        (side.folder / "train.sbatch").write_text(TRAIN)
        said.append(side("bash pipeline.sh"))

    assert said[0] == said[1]
    assert 0 == said[1].code
    assert "prepared for task 2 of train" in said[1].out
    assert "wrap|local|FAILED|7:0" in said[1].out


AFTER_ARRAYS = """\
#!/bin/bash
# Jobs that wait for a whole array, of which all, one or no task ends well, or one is cancelled.
for case in all some none cancelled; do
  array=$(sbatch --parsable --mem=1G --time=5 --array=0-1 -o /dev/null task.sh $case)
  for kind in afterok afternotok afterany; do
    sbatch -Q --mem=1G --time=5 --kill-on-invalid-dep=yes --dependency=$kind:$array -o /dev/null \
      --wrap "echo \\$(ls $case.*) > after.$case.$kind" 2> /dev/null
  done
  if [ $case = cancelled ]; then
    until [ -e cancelled.0 ]; do sleep 0.1; done
    scancel ${array}_1
  fi
done
while [ -n "$(squeue -h -o %i)" ]; do sleep 0.2; done
grep . after.*.*
"""
TASK = """\
#!/bin/bash
if [ $1$SLURM_ARRAY_TASK_ID = cancelled1 ]; then exec sleep 600; fi
if [ $SLURM_ARRAY_TASK_ID = 1 ]; then sleep 3; fi
touch $1.$SLURM_ARRAY_TASK_ID
case $1$SLURM_ARRAY_TASK_ID in some0 | none*) exit 1 ;; esac
"""


def test_jobs_that_wait_for_an_array_start_at_the_same_point(slurm: Side, yard: Side) -> None:
    said = []
    for side in (slurm, yard):
        side("scancel -u root")
        (side.folder / "arrays.sh").write_text(AFTER_ARRAYS)
        (side.folder / "task.sh").write_text(TASK)
        said.append(side("bash arrays.sh"))

    ran = [f"after.{case}.{kind}:{case}.0 {case}.1" for case, kind in (
        ("none", "afternotok"), ("none", "afterany"), ("all", "afterok"), ("all", "afterany"),
        ("some", "afternotok"), ("some", "afterany"),
    )]  # fmt: skip
    ran += [f"after.cancelled.{kind}:cancelled.0" for kind in ("afternotok", "afterany")]
    assert sorted(ran) == sorted(said[0].out.splitlines())
    assert said[0] == said[1]
