"""What people type wrongly, as one table: each mistake is told at once, with what is wrong and what to do about it.

The commands run in this process where they can, as their entry point would run them, over one real yard.
"""

import io
import json
import os
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest

from gpuyard.cli import main

from .conftest import Box

CONFIG = """\
version: 1
clusters:
  here: {gpus: 4 x A100-80GB, emulate: true, allow_root: true}
tenants:
  root: {}
  research: {limit: 4}
  vision: {parent: research}
classes:
  batch: {}
  urgent: {priority: 100, limit: 2h}
"""
FILES = {
    "ok.sh": b"#!/bin/sh\necho hi\n",
    "dos.sh": b"#!/bin/sh\r\necho hi\r\n",
    "bare.sh": b"echo hi\n",
    "bare.sbatch": b"#SBATCH --gres=gpu:1\ntrue\n",
    "train.py": b"print(1)\n",
    "data.bin": b"\x00\x01\x02\xff" * 20,
    "prog": b"\x7fELF\x00\x00",
    "empty.sh": b"",
    "latin.sh": b"#!/bin/sh\necho gr\xfcn\n",
    "tabs.yaml": b"command:\n\t- a\n",
    "twice.yaml": b"command: [a]\ncommand: [b]\n",
    "field.yaml": b"name: x\ncomand: [a]\n",
    "anchor.yaml": b"base: &x [echo]\ncommand: *x\n",
    "text.yaml": b"hello\n",
    "words.yaml": b"command: python train.py\n",
    "number.yaml": b"command: [echo]\ngpus: many\n",
    "open.yaml": b"command: [echo\ngpus: 1\n",
    "two.yaml": b"command: [echo]\nhold: true\n---\ncommand: [echo]\nclass: nosuch\n",
    "option.sbatch": b"#!/bin/bash\n#SBATCH --gpu=2\ntrue\n",
    "unknown.sbatch": b"#!/bin/bash\n#SBATCH --partitoin=gpu\ntrue\n",
    "spaced.sbatch": b"#!/bin/bash\n#SBATCH --mem=10 G\ntrue\n",
    "time.sbatch": b"#!/bin/bash\n#SBATCH --time=2hours\ntrue\n",
    "memory.sbatch": b"#!/bin/bash\n#SBATCH --mem=10Gigs\ntrue\n",
    "array.sbatch": b"#!/bin/bash\n#SBATCH --array=5-1\ntrue\n",
    "nodes.sbatch": b"#!/bin/bash\n#SBATCH --nodes=0\ntrue\n",
    "after.sbatch": b"#!/bin/bash\n#SBATCH --dependency=afterwhat:1\ntrue\n",
    "late.sbatch": b"#!/bin/bash\ntrue\n#SBATCH --gres=gpu:2\n",
    "deployment.yaml": b"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\n",
    "key.yard": b"version: 1\nclusters: {here: {gpus: 4 x H100, emulate: true}}\ntenants:\n  research: {wieght: 3}\n",
    "model.yard": b"version: 1\nclusters: {here: {gpus: 8 x A999, emulate: true}}\n",
    "version.yard": b"version: 2\nclusters: {here: {}}\n",
    "parent.yard": b"version: 1\nclusters: {here: {}}\ntenants:\n  a: {parent: b}\n  b: {parent: a}\n",
    "tab.yard": b"version: 1\nclusters:\n\there: {}\n",
    "without.yard": CONFIG.replace("  vision: {parent: research}\n", "").encode(),
    "columns.csv": b"a,b\n1,2\n",
    "rows.csv": b"submit_s,run_s,gpus\n0,x,1\n",
}  # fmt: skip


class Mistake(NamedTuple):
    """What is typed, and what is said to it."""

    typed: str
    says: str
    do: str = ""
    """What to do about it; empty: what is wrong says that itself."""
    code: int = 2
    env: dict[str, str] = {}  # noqa: RUF012 (never changed)


LISTS = "`yard queue` and `yard history` list what there is"
IDS = "Ids are positive numbers such as 17, or 12_3 for a task"
NO_YARD = {"YARD_DATA": "nowhere"}
ASKED = "A number of GPUs (2), a share of one (0.25), or MIG slices (1g.18gb, 2x2g.35gb)"
TIMES = "Forms that work: 2h or -2h (two hours ago), 7d, 14:05, today, yesterday"
TABLE = [
    # -- what is to run
    Mistake("submit missing.sh", "missing.sh: no such file", "If it will be there when the job starts"),
    Mistake("submit folder", "folder: is a folder", "Name what is to run: yard submit"),
    Mistake("submit data.bin", "data.bin: holds data", "If it is a program: chmod +x data.bin"),
    Mistake("submit prog", "prog: is a program that is not on the PATH", "-- ./prog"),
    Mistake("submit empty.sh", "empty.sh: is empty, so there is nothing to run"),
    Mistake("submit dos.sh", "dos.sh:1: ends with a Windows line break", "sed -i 's/\\r$//' dos.sh"),
    Mistake("submit latin.sh", "latin.sh: byte 18 is not UTF-8", "iconv -f latin1 -t utf-8 latin.sh"),
    Mistake("submit bare.sh", "bare.sh: does not begin with #!", "#!/bin/bash, or type: yard submit"),
    Mistake("submit bare.sbatch", "bare.sbatch: does not begin with #!", "Make its first line #!/bin/bash"),
    Mistake("submit train.py", "train.py: does not begin with #!", "-- python3 train.py"),
    Mistake("submit nosuchprogram", "nosuchprogram: no such file or command", "-- nosuchprogram"),
    Mistake("submit SEED=7 ok.sh", "SEED=7: no such file or command", "A variable is set with --env"),
    Mistake("submit -g 1 --", "there is nothing to run", "For example: yard submit -g 1 -- nvidia-smi"),
    Mistake("run missing", "missing: no such file or command", "yard run -g 1 -- missing"),
    Mistake("run two.yaml", "holds jobs, and `yard run` runs commands", "yard submit two.yaml"),
    # -- how much of it
    Mistake("submit -g two -- true", "-g 'two' is not an ask for GPUs", ASKED),
    Mistake("submit -g -1 -- true", "-g '-1' is not an ask for GPUs", ASKED),
    Mistake("submit -g 1.5 -- true", "-g 1.5: a share is less than one GPU", ASKED),
    Mistake("submit -g 0.0001 -- true", "-g 0.0001: a share is less than one GPU, to the thousandth", ASKED),
    Mistake("submit -g 1 --gpu-memory 5G -- true", "both say which GPUs the job asks for", "Leave one "
        "of them out"),
    Mistake("submit -g 16 -- true", "asks for 16 GPUs on one node; the largest node has 4",
            "What would change it: --gpus 4 or less, or several tasks (--tasks)"),
    Mistake("submit -g 1g.99gb -- true", "no GPU here can be cut to '1g.99gb': A100-80GB has 1g.10gb", "Name one of"),
    Mistake("submit --gpu-memory 500G -- true", "no GPU here has 500 GiB of memory; the largest has 80 GiB",
            "Ask for less memory"),
    Mistake("submit -t 2fortnights -- true", "--time", "'2fortnights'"),
    Mistake("submit -t 3x -- true", "--time", "'3x'"),
    Mistake("submit --memory 10Gigs -- true", "--memory must be an amount of memory such as 512M", "'10Gigs'"),
    Mistake("submit --memory 900T -- true", "asks for 921600 GiB on one node; the largest node has"),
    Mistake("submit --cpus many -- true", "yard submit: --cpus takes a number, not 'many'", "'yard submit --help'"),
    Mistake("submit --nodes 2 -- true", "2 nodes need as many tasks, and it has 1 task"),
    Mistake("submit --tasks 0 -- true", "--tasks takes 1 to 10000, not 0", "'yard submit --help'"),
    Mistake("submit --retries 1000 -- true", "--retries takes 0 to 100, not 1000"),
    Mistake("submit --array 5-1 -- true", "has a range that goes nowhere: '5-1'", "write 1-5"),
    Mistake("submit --array a-b -- true", "is written as 0-9, 1,3,5 or 0-100:10, not 'a-b'"),
    Mistake("submit --array 0-99999 -- true", "has more than 10,000 tasks", "split it into several arrays"),
    Mistake("submit --array 0-9%x -- true", "after % comes a number", "For example: --array 0-99%8"),
    Mistake("submit --isolation maybe --gpu-memory 5G -- true", "isolation", "'strict', 'shared' or 'any'"),
    # -- for whom, how and after whom
    Mistake("submit --tenant reserch -- true", "unknown tenant 'reserch'", "did you mean 'research'?"),
    Mistake("submit --tenant nosuch -- true", "unknown tenant 'nosuch'", "known tenants: research"),
    Mistake("submit --class urgnt -- true", "unknown class 'urgnt'", "did you mean 'urgent'?"),
    Mistake("submit --class urgent -t 5h -- true", "asks for 5 h; a job of class urgent may run for 2 h",
            "Ask for less time (--time 2h)"),
    Mistake("submit --gpu-model H999 -- true", "unknown GPU model 'H999'", "known GPU models here: A100-80GB"),
    Mistake("submit --gpu-model H100 -- true", "asks for H100; the fleet has A100-80GB", "another GPU model: A100"),
    Mistake("submit --after 9999 -- true", "there is no job 9999 to wait for", "`yard queue` and `yard history`"),
    Mistake("submit --after myself -- true", "'myself' is not a job id", IDS),
    Mistake("submit --after afterwhat:1 -- true", "it should be one of after, afterany, afterok"),
    Mistake("submit --env SEED -- true", "--env 'SEED' is not NAME=VALUE", "For example: --env SEED=7"),
    Mistake("submit -o xml -- true", "-o takes table, wide, json, yaml or csv, not 'xml'", "'yard submit --help'"),
    Mistake("submit --nosuch -- true", "there is no option --nosuch", "'yard submit --help' lists what it takes"),
    Mistake("submit --mem 10G -- true", "there is no option --mem", "did you mean '--memory'?"),
    Mistake("submit -p nosuch -- true", "unknown pool 'nosuch'; known pools: local",
            "Write --pool local, or sbatch -p local"),
    Mistake("submit --begin someday -- true", "--begin must be a time such as 16:00", "not 'someday'"),
    Mistake("submit --constraint nosuch -- true", "no node has the feature 'nosuch'",
            "Features are labels of nodes: in yard.yaml"),
    Mistake("submit --exclude nosuch -- true", "unknown node 'nosuch'", "known nodes: "),
    Mistake("submit --env-file missing.env -- true", "--env-file missing.env: No such file or directory"),
    Mistake("submit --hold ok.sh --gpus 2", "asks for no GPUs: --gpus stands behind the script",
            "options of yard stand before it", code=0),
    # -- files with jobs
    Mistake("submit tabs.yaml", "tabs.yaml:2:1: a tab in the indentation", "use spaces"),
    Mistake("submit twice.yaml", "twice.yaml:2:1: duplicate key 'command'", "already on line 1, remove one of them"),
    Mistake("submit field.yaml", "field.yaml:2:1: unknown field 'comand'", "did you mean 'command'?"),
    Mistake("submit anchor.yaml", "anchor.yaml:1:1: unknown field 'base'", "known fields: name"),
    Mistake("submit text.yaml", "text.yaml:1:1: a job must be written as 'key: value'", "not 'hello'"),
    Mistake("submit words.yaml", "words.yaml:1:10: 'command' must be a list", "or as [a, b]"),
    Mistake("submit number.yaml", "number.yaml:2:7: 'gpus' must be a whole number, not 'many'"),
    Mistake("submit open.yaml", "open.yaml:1:10: the '[' here is never closed"),
    Mistake("submit two.yaml", "job 2 of 2: unknown class 'nosuch'", "the 1 before it is submitted"),
    Mistake("submit nosuch.yaml", "nosuch.yaml: no such file", "Give the path of a batch script"),
    Mistake("submit deployment.yaml", "'Deployment' cannot be served", "write its template as the template of a Job"),
    Mistake("submit option.sbatch", "option.sbatch:2: '--gpu' may be", "write the whole name"),
    Mistake("submit unknown.sbatch", "unknown.sbatch:2: unknown option '--partitoin'", "did you mean '--partition'?"),
    Mistake("submit spaced.sbatch", "spaced.sbatch:2: 'G' is not an option", "a value with spaces needs quotes"),
    Mistake("submit time.sbatch", "time.sbatch:2: --time must be minutes, M:S", "not '2hours'"),
    Mistake("submit memory.sbatch", "memory.sbatch:2: --mem must be an amount such as 512M", "not '10Gigs'"),
    Mistake("submit array.sbatch", "array.sbatch:2: --array has a range that goes nowhere", "write 1-5"),
    Mistake("submit nodes.sbatch", "nodes.sbatch:2: --nodes"),
    Mistake("submit after.sbatch", "after.sbatch:2: --dependency"),
    Mistake("submit --hold late.sbatch", "late.sbatch:3: not read", "directives end at the first command", code=0),
    Mistake("convert missing.sh", "missing.sh: no such file", "Give the path of a batch script"),
    Mistake("convert folder", "folder: Is a directory", "Give the path of a batch script"),
    Mistake("convert --from nosuch ok.sh", "--from 'nosuch' is not a form", "known forms: sbatch, kubernetes, native"),
    Mistake("convert data.bin", "data.bin:1: holds a NUL character", "not text"),
    # -- which job
    Mistake("show 9999", "there is no job 9999", LISTS),
    Mistake("show abc", "'abc' is not a job id", IDS),
    Mistake("show {ended}_5", "there is no job {ended}_5", LISTS),
    Mistake("why 9999", "there is no job 9999", LISTS),
    Mistake("why {held} --at someday", "--at 'someday' is not a time", TIMES),
    Mistake("why {held} --at -2x", "--at must be a duration such as 90s, 10m, 24h", TIMES),
    Mistake("why {held} --at 2099-01-01", "is in the future", "`yard why {held}` tells when it is expected to start"),
    Mistake("eta 9999", "there is no job 9999", LISTS),
    Mistake("logs 9999", "there is no job 9999", LISTS),
    Mistake("logs abc", "'abc' is not a job id", IDS),
    Mistake("cancel 9999", "there is no job 9999", LISTS),
    Mistake("cancel {ended}", "job {ended} has ended already: COMPLETED", "`yard show {ended}` tells how"),
    Mistake("hold {running}", "job {running} runs already", "`yard suspend {running}` freezes it"),
    Mistake("hold {ended}", "job {ended} has ended already", "`yard show {ended}` tells how"),
    Mistake("release {running}", "job {running} is not on hold", "`yard show {running}` tells how it stands"),
    Mistake("suspend {held}", "job {held} does not run", "`yard hold {held}` keeps it from starting"),
    Mistake("continue {running}", "job {running} is not suspended", "`resume` is for nodes"),
    Mistake("requeue {held}", "job {held} waits already", "`yard why {held}` tells what for"),
    Mistake("show", "yard show: which job?", "yard show JOB"),
    Mistake("cancel", "cancel which job?", "yard cancel JOB..., or one of --name, --state"),
    Mistake("cancel --state NOPE", "unknown state 'NOPE'", "known states: PENDING, RUNNING"),
    Mistake("kill 9999", "there is no job 9999", LISTS),
    # -- lists
    Mistake("queue --mine --user ana", "--mine and --user name two people", "Leave one of them out"),
    Mistake("hlep", "there is no command 'hlep'; did you mean 'help'?"),
    Mistake("forward 1", "PORT[:REMOTE] is missing", "yard forward JOB PORT[:REMOTE]"),
    Mistake("cp ok.sh", "TO is missing", "yard cp FROM TO"),
    Mistake("run -it bash", "-t is --time here and takes a value, as in -t 2h; -i alone gives a terminal"),
    Mistake("shell -i 9999 -- id", "there is no job 9999"),
    Mistake("shell -- id", "which job?", "yard shell JOB [--] COMMAND"),
    Mistake("logs -f 1 2", "-f follows one job, and 2 are named", "yard logs -f 1"),
    Mistake("show 1 2", "'2' is one word too many: yard show JOB"),
    Mistake("diff", "which file?", "yard diff FILE"),
    Mistake("apply a.yaml -f b.yaml", "two files were named", "yard apply FILE"),
    Mistake("queue extra", "it takes no word such as 'extra'", "'yard queue --help' lists what it takes"),
    Mistake("drain", "yard drain: which node?", "yard drain NODE"),
    Mistake("queue -o xml", "-o takes table, wide, json, yaml or csv, not 'xml'", "'yard queue --help'"),
    Mistake("queue --columns id,nope", "there is no column 'nope'", "There are: id, name, tenant"),
    Mistake("history --state NOPE", "unknown state 'NOPE'", "known states: PENDING, RUNNING"),
    Mistake("history --since tomorrow", "--since 'tomorrow' is not a time", TIMES),
    Mistake("history --since 2099-01-01", "--since 2099-01-01: that time is still to come", TIMES),
    Mistake("waits --to someday", "--to 'someday' is not a time", TIMES),
    Mistake("export focus --from 2026-02-30", "--from '2026-02-30' is not a time", TIMES),
    Mistake("share nosuch", "there is no tenant 'nosuch'", "known tenants: research"),
    Mistake("cost --by nope", "is not a dimension", "tenant"),
    Mistake("cost --by tenat", "'tenat' is not a dimension; did you mean 'tenant'?", "Take some of tenant"),
    Mistake("waits --by resaon", "is not a dimension of waiting; did you mean 'reason'?", "Take some of tenant"),
    Mistake("queue --columns id,Tennant", "there is no column 'tennant'; did you mean 'tenant'?", "There are: id"),
    Mistake("queue --clumns id", "there is no option --clumns; did you mean '--columns'?", "'yard queue --help'"),
    Mistake("queue -o jsn", "not 'jsn'; did you mean 'json'?", "'yard queue --help'"),
    Mistake("submit --signal SUR1@60 -- true", "there is no signal 'SUR1'; did you mean 'USR1'?", "--signal USR1@60"),
    Mistake("export grafana queu", "there is no dashboard 'queu'; did you mean 'queue'?", "There is: gpus"),
    Mistake("queu", "there is no command 'queu'", "did you mean 'queue'?"),
    Mistake("frobnicate", "there is no command 'frobnicate'", "'yard --help' lists what it takes"),
    Mistake("drain nosuch", "there is no node 'nosuch'", "known nodes: "),
    Mistake("mig apply 9x1g.10gb", "A100-80GB cannot be cut to 9 slices", "it takes 7 at most"),
    Mistake("mig apply nosuch", "'nosuch' is not a layout", "write 7x1g.18gb"),
    Mistake("mig apply 2x1g.10gb --gpu 99", "has no GPU 99", "its GPUs are 0 to 3"),
    # -- configurations
    Mistake("validate missing.yard", "missing.yard: no such file", "give the path of a yard.yaml"),
    Mistake("validate folder", "folder: is a directory", "give the path of a file"),
    Mistake("validate key.yard", "key.yard:4:14: unknown key 'wieght' in tenant 'research'", "did you mean 'weight'?"),
    Mistake("validate model.yard", "model.yard:2:25: unknown GPU model 'A999'", "or add it under 'gpu_models'"),
    Mistake("validate version.yard", "version.yard:1:10: 'version' must be 1", "not '2'"),
    Mistake("validate parent.yard", "parent.yard:4:"),
    Mistake("validate tab.yard", "tab.yard:3:1: a tab in the indentation", "use spaces"),
    Mistake("validate data.bin", "data.bin:1:", "save the file as UTF-8"),
    Mistake("validate empty.sh", "the file is empty", "begin it with 'version: 1'"),
    Mistake("apply --yes -f without.yard", "vision", "job {running}"),
    Mistake("apply --yes -f key.yard", "key.yard:4:14: unknown key 'wieght'", "did you mean 'weight'?"),
    Mistake("diff -f missing.yard", "missing.yard: no such file", "give the path of a yard.yaml"),
    Mistake("rollback 99 --yes", "there is no version 99"),
    Mistake("config 99", "there is no version 99", "`yard config --list` lists those that exist"),
    # -- which yard
    Mistake("queue", "no yard is running here", "start one with `yard up -d`", 4, NO_YARD),
    Mistake("submit -- true", "no yard is running here", "start one with `yard up -d`", 4, NO_YARD),
    Mistake("queue", "no yard answers at 127.0.0.1:1", "Is it running?", 4, {"YARD_URL": "http://127.0.0.1:1"}),
    Mistake("queue", "'nonsense' (YARD_URL or YARD_SERVER) is not an address", "For example: https://", 2,
            {"YARD_URL": "nonsense"}),
    Mistake("queue", "its token is not this yard's", "Set YARD_TOKEN to what is in the file `token`", 2,
            {"YARD_URL": "http://127.0.0.1:{port}", "YARD_TOKEN": "wrong"}),
    Mistake("login nonsense", "'nonsense' is not an address of a yard", "For example: yard login https://"),
    Mistake("token revoke nosuch", "has no tokens", "Start it with `yard up --auth`"),
    Mistake("up -d --port 0", "a yard is running on", "stop it with `yard down`", 3),
    Mistake("up -d --data new --port {port}", "port {port} cannot be used", "or --port 0 for any", 1),
    Mistake("up -d --data ok.sh --port 0", "ok.sh cannot hold a yard's data: it is a file", "--data", 1),
    Mistake("up -d --data /proc/x --port 0", "/proc/x cannot hold a yard's data", "Name another folder", 1),
    Mistake("up -d --data new --port 99999", "--port takes 0 to 65535, not 99999"),
    Mistake("up -d --data new --emulate 8-H999", "--emulate must be a number and a GPU model such as '8 x H100'"),
    Mistake("up -d --data new --config key.yard", "key.yard:4:14: unknown key 'wieght'", "did you mean 'weight'?"),
    Mistake("up -d --data= --port 0", "--data takes a path, not ''", "'yard up --help' lists what it takes"),
    Mistake("up -d --data new --config= --port 0", "--config takes a path, not ''", "'yard up --help'"),
    Mistake("up -d --data new --config folder", "folder: is a directory", "give the path of a file"),
    Mistake("up -d --data new --config pipe", "pipe: is a pipe or a device", "write what comes from it to a file"),
    Mistake("up --data new --config /dev/null", "/dev/null: is a pipe or a device", "and name that"),
    Mistake("up -d --data new --store mysql://x", "no store can be kept at mysql://x", "postgresql://", 1),
    Mistake("up -d --data new --host 0.0.0.0", "can be reached from other machines", "Add --auth"),
    # -- foresight
    Mistake("simulate --trace columns.csv", "there is no fleet to simulate", "Give --config yard.yaml, or --gpus 64"),
    Mistake("simulate --gpus 8 --trace missing.csv", "missing.csv"),
    Mistake("simulate --gpus 8 --trace folder", "folder"),
    Mistake("simulate --gpus 8 --trace columns.csv", "columns.csv: is of no known format", "the columns submit_s and"),
    Mistake("simulate --gpus 8 --strict --trace rows.csv", "rows.csv:2"),
    Mistake("simulate --gpus 8 --trace data.bin", "data.bin: is of no known format", "Name it (swf, sacct"),
    Mistake("simulate --gpus 8 --policy nosuch --trace rows.csv", "unknown policy 'nosuch'", "known policies"),
    Mistake("simulate --gpus 8 --trace rows.csv --report /no/such/r.html", "there is no directory /no/such", "Make it"),
    Mistake("completion nosuch", "write bash, zsh or fish, not 'nosuch'", "'yard completion --help'"),
    Mistake("slurm nosuch", "there is no command 'nosuch'", "'yard slurm --help'"),
    Mistake("slurm sbatch missing.sh", "sbatch: error: Unable to open file missing.sh", "", 1),
    Mistake("slurm sbatch --chdir=/no/such ok.sh", "/no/such: the job is to run there: No such file", "mkdir -p", 1),
    Mistake("slurm srun --chdir=/no/such true", "/no/such: the job is to run there: No such file", "mkdir -p", 1),
    Mistake("slurm sbatch --gres=gpu:99 ok.sh", "asks for 99 GPUs on one node; the largest node has 4", "", 1),
]  # fmt: skip
OF_PROGRAMMERS = re.compile(
    r"Traceback|\bErrno\b|\bNone\b|list\[|\bstr\b|\bint\b|\bdict\b|object at 0x|pydantic|Exception|Value error|<class"
)


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    """A yard with teams and classes."""
    box = Box(tmp_path_factory.mktemp("mistakes") / "yard", CONFIG)
    box.up()
    yield box
    done = box("down", "--jobs")
    assert 0 == done.code, done.err


@pytest.fixture(scope="module")
def known(yard: Box) -> dict[str, str]:
    """One job of each kind, and where the yard listens."""
    running = yard.submit("-g", 1, "--tenant", "research/vision", "--", "sleep", 600)
    ended = yard.submit("-g", 1, "--", "true")
    held = yard.submit("-g", 1, "--hold", "--", "true")
    yard.wait(running, "RUNNING")
    yard.wait(ended, "COMPLETED")
    return {"running": str(running), "ended": str(ended), "held": str(held), "port": str(yard.note()["port"])}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where people are when they mistype."""
    made = tmp_path_factory.mktemp("here")
    (made / "folder").mkdir()
    os.mkfifo(made / "pipe")
    for name, content in FILES.items():
        (made / name).write_bytes(content)
    (made / "prog").chmod(0o755)
    return made


def test_the_table_is_long_and_has_nothing_twice() -> None:
    rows = [(row.typed, *row.env.items()) for row in TABLE]
    assert len(rows) == len(set(rows))
    assert 75 <= len(rows)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: " ".join([*row.env, row.typed])[:60])
def test_a_mistake_is_told_with_what_to_do(
    yard: Box,
    known: dict[str, str],
    folder: Path,
    row: Mistake,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    env = {name: value.format_map(known) for name, value in row.env.items()}
    words = row.typed.format_map(known).split()
    if words[0] == "up" and row.code != 2:
        # What is wrong comes to light in the server, a process made out of the one that `up` is called in.
        done = yard(*words, cwd=folder, **env)
        code, said = done.code, done.err
    else:
        monkeypatch.chdir(folder)
        for name in [name for name in os.environ if name.startswith("YARD_")]:
            monkeypatch.delenv(name)
        for name, value in ({"YARD_DATA": str(yard.data)} | env).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "argv", ["yard", *words])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
        with pytest.raises(SystemExit) as ended:
            main()
        code, said = int(ended.value.code or 0), capsysbinary.readouterr().err.decode()

    assert row.code == code, said
    assert row.says.format_map(known) in said
    assert row.do.format_map(known) in said
    assert not OF_PROGRAMMERS.search(said), said


def test_days_and_times_are_written_as_people_say_them(yard: Box, known: dict[str, str]) -> None:
    before = datetime.now(UTC).date() - timedelta(days=1)
    for since in ("yesterday", f"{before}T10:00", "-2h"):
        done = yard("history", "--since", since, "-o", "json")
        assert known["ended"] in [job["label"] for job in json.loads(done.out)], since
    for command in ("cost", "waits"):
        said = yard(command, "--from", "yesterday", "--to", "today").err
        after = datetime.now(UTC).date() - timedelta(days=1)
        assert any([f"note: {day} to " in said for day in (before, after)]), said
