"""Batch scripts in the styles of many sites, on one yard of emulated nodes: what each writes, or why it is refused.

All of them are handed in at once, and what they wrote is looked at when they have ended.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from harness.patience import until

from .conftest import Box, Done

pytestmark = pytest.mark.rig
"""It needs no server, but takes long: `make test` is to stay quick."""

SITE = """\
version: 1
clusters:
  site:
    engine: local
    allow_root: true
    pools:
      big: {nodes: 2, gpus: 4 x A100-40GB, cpus: 64, memory: 512G, emulate: true, features: [gpu, nvlink]}
      old: {nodes: 1, gpus: 2 x V100, cpus: 40, memory: 192G, emulate: true, features: [gpu]}
partitions: {gpu: [old, big], gpu-big: big, gpu-scavenge: big}
accounts: {m4711_g: lab, project_462: lab, ast101: lab}
qos: {regular: batch, premium: batch}
tenants: {lab: {}}
"""
TOOLS = {
    "module": 'echo "module $*"',
    "ibrun": 'exec srun "$@"',
    "solver": 'echo "rank $SLURM_PROCID of $SLURM_NTASKS on $SLURMD_NODENAME sees '
    '$(echo $CUDA_VISIBLE_DEVICES | tr , "\\n" | grep -c .)"',
}
"""What sites and users have beside Slurm: not the yard's, so stubs stand in."""


class Style(NamedTuple):
    """A script, and what is to come of it."""

    name: str
    directives: str
    body: str
    writes: str = ""
    """Its output, lines sorted; `*` stands for anything."""
    refused: str = ""
    """Part of what is said instead."""
    file: str = ""
    """Where it writes; empty: slurm-ID.out."""


FOUR = "\n".join([f"rank {rank} of 4 on big-000{1 + rank // 2} sees {{0}}" for rank in range(4)])
STYLES = (
    Style(
        "two nodes, GPUs by task, no binding",
        "-A m4711_g -C gpu -q regular -t 10 -N 2 --ntasks-per-node=2 -c 16 --gpus-per-task=1 --gpu-bind=none",
        "srun solver",
        FOUR.format(2),
    ),
    Style(
        "two nodes, GPUs by task, each its own",
        "-A m4711_g -C gpu -q premium -t 10 -N 2 --ntasks-per-node=2 -c 16 --gpus-per-task=1",
        "srun solver",
        FOUR.format(1),
    ),
    Style(
        "a range of nodes of which only the larger number fits",
        "-A ast101 -p gpu-big -N 1-2 --gpus=8",
        "srun solver",
        "rank 0 of 2 on big-0001 sees 4\nrank 1 of 2 on big-0002 sees 4",
    ),
    Style(
        "a range of nodes for tasks",
        "-A ast101 -p gpu-big -N 1-2 -n 8 --gpus-per-task=1",
        "srun solver",
        "\n".join([f"rank {rank} of 8 on big-000{1 + rank // 4} sees 1" for rank in range(8)]),
    ),
    Style(
        "a typed GPU and memory by core",
        "--account=project_462 --partition=gpu --time=00:15:00 --mem-per-cpu=4000 --gres=gpu:v100:1",
        "module load cuda\nsrun solver",
        "module load cuda\nrank 0 of 1 on old-0001 sees 1",
    ),
    Style(
        "a launcher of the site, files for output and errors",
        "-J wave -o %x.o%j -e %x.e%j -p gpu-big -N 1 -n 2 -t 00:30:00 --mail-type=all -A ast101 --gpus-per-node=2",
        "ibrun solver",
        "rank 0 of 2 on big-* sees 2\nrank 1 of 2 on big-* sees 2",
        file="wave.o%j",
    ),
    Style(
        "a head node by name, one launcher on each node",
        "-A ast101 --nodes=2 --ntasks-per-node=1 --gpus-per-node=4 --cpus-per-task=4 --exclusive",
        'nodes=($(scontrol show hostnames "$SLURM_JOB_NODELIST"))\n'
        'head=$(srun --nodes=1 --ntasks=1 -w "${nodes[0]}" printenv SLURMD_NODENAME)\n'
        'echo "head $head of ${#nodes[@]}"\nsrun sh -c \'echo "launch $SLURM_NODEID on $SLURMD_NODENAME"\'',
        "head big-0001 of 2\nlaunch 0 on big-0001\nlaunch 1 on big-0002",
    ),
    Style(
        "steps beside each other",
        "-A ast101 -n 4 --gpus=4 -t 5 --cpus-per-task=2 --mem=8G",
        "for i in 1 2 3 4; do srun --exact -n1 -c2 --gpus-per-task=1 --mem=1G "
        "sh -c 'echo $SLURM_STEP_ID $SLURM_STEP_GPUS; touch s.$SLURM_JOB_ID.$SLURM_STEP_ID; "
        "until [ -e s.$SLURM_JOB_ID.3 ]; do sleep 0.1; done' & done; wait",
        "0 0\n1 1\n2 2\n3 3",
    ),
    Style(
        "one of two models, several partitions, other clusters' nodes left out",
        '-A ast101 --constraint="a100|h100" --gres=gpu:1 --qos=premium --partition=gpu,gpu-scavenge --nice=100 '
        '--exclude=bad[01-03] --comment="mine" --mail-type=END,TIME_LIMIT_80',
        "solver",
        "rank 0 of 1 on big-* sees 1",
    ),
    Style(
        "cores and memory by GPU",
        "-A ast101 --gpus=2 --cpus-per-gpu=4 --mem-per-gpu=8G",
        'echo "$SLURM_CPUS_PER_GPU $SLURM_MEM_PER_GPU"; srun -n1 solver',
        "4 8192\nrank 0 of 1 on * sees 2",
    ),
    Style(
        "later, by a time, and what asks for nothing",
        "-A ast101 --gres=gpu:1 --begin=now+1seconds --deadline=now+1hour --kill-on-invalid-dep=yes --propagate=NONE "
        "--tmp=1G --reservation=course --get-user-env",
        "echo ran",
        "ran",
    ),
    Style(
        "a job that has its number and step in the file's name",
        "-A ast101 --gres=gpu:1 --output=%x-%J-%4j.log -J note",
        "echo noted",
        "noted",
        file="note-%j-%4j.log",
    ),
    Style("a MIG slice", "-A ast101 --gres=gpu:a100_1g.5gb:1 --mem=2G", "echo ${CUDA_VISIBLE_DEVICES%%-*}", "MIG"),
    Style(
        "more tasks than one node has GPUs",
        "-A ast101 -n 6 --gpus-per-task=1",
        "srun sh -c 'echo $SLURMD_NODENAME' | sort | uniq -c | wc -l",
        "2",
    ),
    Style(
        "labels, masks and maps",
        "-A ast101 -N1 -n 2 --gpus-per-node=4",
        "srun -l --gpu-bind=map_gpu:3,0 printenv SLURM_STEP_GPUS\n"
        "srun -l --gpu-bind=mask_gpu:3,c printenv SLURM_STEP_GPUS",
        "0: 0,1\n0: 3\n1: 0\n1: 2,3",
    ),
    Style(
        "a step that asks for too much, and the script goes on",
        "-A ast101 -n 1 --gpus=1",
        "srun --gpus=2 echo never\necho code $?",
        "code 1\nsrun: error: Step requested gres=gpu:2 is more than the job's gres=gpu:1\n"
        "srun: error: Unable to create step for job * Invalid generic resource (gres) specification",
    ),
    Style("set -u and the usual variables", "-A ast101 --gres=gpu:1 -J strict",
          "set -u\necho $SLURM_JOB_NAME $SLURM_NNODES $SLURM_NTASKS $SLURM_RESTART_COUNT", "strict 1 1 0"),
    Style("nodes in cyclic order", "-A ast101 -N 2 -n 4 --gpus-per-node=1 --distribution=cyclic",
          'srun -l printenv SLURMD_NODENAME', "0: big-0001\n1: big-0002\n2: big-0001\n3: big-0002"),
    Style("two tasks to a GPU", "-A ast101 -N1 --gpus=2 --ntasks-per-gpu=2", "srun solver | cut -d' ' -f 7-",
          "sees 1\nsees 1\nsees 1\nsees 1"),
    Style("a head node under pipefail", "-A ast101 -N 2 --ntasks-per-node=1 --gpus-per-node=1",
          'set -euo pipefail\nfor i in 1 2 3 4 5 6; do head=$(scontrol show hostnames $SLURM_NODELIST | head -n 1); '
          "done\necho $head", "big-0001"),
    Style("what the site has, and what waits", "-A ast101 --gres=gpu:1",
          "sinfo -h -p big -o %f\njob=$(sbatch --parsable -H -A ast101 -N 2 --gpus-per-node=1 -t 1 --wrap true)\n"
          'squeue -h -j $job -o "%D %b"', "2 gres:gpu:1\ngpu,nvlink"),
    Style("an unknown account", "-A nobody --gres=gpu:1", "true", refused="nobody"),
    Style("an unknown QOS", "-A ast101 -q golden --gres=gpu:1", "true", refused="golden"),
    Style("an unknown partition", "-A ast101 -p gpu-huge --gres=gpu:1", "true", refused="gpu-huge"),
    Style("an unknown feature", "-A ast101 -C haswell --gres=gpu:1", "true", refused="haswell"),
    Style("a node that is not there", "-A ast101 -w node77 --gres=gpu:1", "true", refused="node77"),
    Style("an image", "-A ast101 --gres=gpu:1 --container-image=/images/pytorch.sqsh", "true",
          refused="must be an image of a registry"),
    Style("a licence", "-A ast101 --gres=gpu:1 --licenses=matlab:1", "true", refused="'licenses' is not there yet"),
    Style("a slice that no GPU here can be cut into", "-A ast101 --gres=gpu:1g.18gb:1", "true", refused="1g.18gb"),
    Style("more GPUs than the fleet has", "-A ast101 -N 2 --gpus-per-node=8", "true", refused="could never start"),
)  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    box = Box(tmp_path_factory.mktemp("site") / "yard", SITE)
    tools = box.data.parent / "tools"
    tools.mkdir()
    for name, text in TOOLS.items():
        (tools / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        (tools / name).chmod(0o755)
    box.up()
    yield box
    assert 0 == box("down", "--jobs").code


@pytest.fixture(scope="module")
def handed_in(site: Box) -> dict[str, Done]:
    """What was said to each script when it was submitted."""
    tools = site.data.parent / "tools"
    found = {}
    for number, style in enumerate(STYLES):
        script = site.data.parent / f"job{number}.sbatch"
        script.write_text(f"#!/bin/bash\n#SBATCH {style.directives}\n{style.body}\n", encoding="utf-8")
        words = ("slurm", "sbatch", "--parsable", script)
        found[style.name] = site(*words, PATH=f"{tools}:/usr/local/bin:/usr/bin:/bin")
    return found


@pytest.mark.parametrize("style", [style for style in STYLES if style.writes], ids=lambda style: style.name)
def test_it_runs_as_its_writer_means_it(site: Box, handed_in: dict[str, Done], style: Style) -> None:
    done = handed_in[style.name]
    assert 0 == done.code, done.err
    number = int(done.out)
    site.wait(number, "COMPLETED", s=60)
    name = (style.file or "slurm-%j.out").replace("%4j", f"{number:04d}").replace("%j", str(number))
    wrote = Path(site.data.parent / name).read_text(encoding="utf-8")
    lines = "\n".join(sorted(wrote.splitlines()))
    assert re.fullmatch(re.escape(style.writes).replace(r"\*", ".*"), lines), lines


@pytest.mark.parametrize("style", [style for style in STYLES if style.refused], ids=lambda style: style.name)
def test_it_is_refused_at_once_with_what_is_wrong(handed_in: dict[str, Done], style: Style) -> None:
    done = handed_in[style.name]
    assert "" == done.out
    assert 0 != done.code
    assert style.refused in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(("program", "ranks"), [("srun", ["0", "1"]), ("salloc", [""])])
def test_a_range_of_nodes_is_served_where_only_the_larger_number_fits(
    site: Box, program: str, ranks: list[str]
) -> None:
    say = ("sh", "-c", 'echo "$SLURM_NNODES:$RANK"')
    done = site("slurm", program, "-Q", "-A", "ast101", "-p", "gpu-big", "-N", "1-2", "--gpus=8", *say)
    assert (0, {f"2:{rank}" for rank in ranks}) == (done.code, set(done.out.split())), done.err
    assert f"{program}: warning: on 2 nodes: on 1 it could never start\n" in done.err


def test_names_that_the_file_maps_are_known_to_every_command_and_shown_in_lists(site: Box) -> None:
    def ask(*words: object) -> list[str]:
        done = site("slurm", *words)
        assert (0, "") == (done.code, done.err), words
        return done.out.split()

    script = 'echo "$SLURM_JOB_PARTITION" >"told-$SLURM_JOB_ID"; sleep 60'
    submit = ("sbatch", "-A", "project_462", "--parsable", "-q", "premium", "-J", "mapped", "--wrap", script)
    job, two = [ask(*submit, "--gpus=1", "-p", names)[0] for names in ("gpu-scavenge", "gpu-big,gpu")]
    unnamed = ask(*submit, "--gres=gpu:v100:1")[0]
    for number, partition in ((job, "gpu-scavenge"), (two, "gpu-big"), (unnamed, "old")):
        told = site.data.parent / f"told-{number}"
        until(lambda told=told: told.exists() and told.read_text().endswith("\n"))  # type: ignore[misc]
        assert partition == told.read_text().strip()
        assert [partition] == ask("squeue", "-h", "-j", number, "-o", "%P")
        assert [partition] == ask("sacct", "-n", "-X", "-j", number, "-o", "partition%20")
        assert f"Partition={partition}" in ask("scontrol", "show", "job", number)
    lists = (
        ("squeue", "-h", "-n", "mapped", "-o", "%A"),
        ("sacct", "-n", "-X", "--name=mapped", "-o", "jobid"),
    )
    for command, p, a, q in zip(lists, ("-p", "-r"), ("-A", "-A"), ("-q", "-q"), strict=True):
        assert [job] == ask(*command, p, "gpu-scavenge")
        assert {job, two} == set(ask(*command, p, "big"))
        assert {job, two, unnamed} == set(ask(*command, a, "m4711_g")) == set(ask(*command, q, "premium"))
        assert [] == ask(*command, a, "nobody")
    assert ["gpu", "gpu-big", "gpu-scavenge", "old"] == ask("sinfo", "-h", "-s", "-o", "%R")
    assert ["gpu-big", "big-[0001-0002]"] == ask("sinfo", "-h", "-p", "gpu-big", "-o", "%R %N")
    assert ["big", "big-[0001-0002]"] == ask("sinfo", "-h", "-p", "big", "-o", "%R %N")
    for name in ("gpu-big", "big"):
        assert {f"PartitionName={name}", "Nodes=big-[0001-0002]"} <= set(
            ask("scontrol", "show", "partition", name)
        )
    assert "Partitions=gpu,gpu-big,gpu-scavenge" in ask("scontrol", "show", "node", "big-0001")
    assert ask("sshare", "-n", "-A", "project_462") == ask("sshare", "-n", "-A", "lab")
    assert [] == ask("scancel", "-p", "gpu-scavenge", "-A", "ast101", "-q", "regular")
    site.wait(job, "CANCELLED")
    assert [] == ask("scancel", two, unnamed)
