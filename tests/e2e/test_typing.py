"""What a person types: options for every field, one's own jobs, cancelling what matches, defaults, aliases."""

import csv
import getpass
import io
import json
import re
import subprocess
import sys
from pathlib import Path

from gpuyard.cli.completing import offered
from gpuyard.cli.line.commands import ALIASES

from .conftest import Box, terminal_of


def test_options_reach_the_job_and_defaults_stand_behind_them(box: Box, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "vars").write_text("A=file\nB='of a file'\n")
    home = {"XDG_CONFIG_HOME": str(tmp_path / "config"), "YARD_TENANT": "team/env"}
    (tmp_path / "config" / "gpuyard").mkdir(parents=True)
    defaults = tmp_path / "config" / "gpuyard" / "defaults.yaml"
    defaults.write_text("tenant: team/kept\ntime: 1:00:00\ngpus: 2\nqueue_columns: [id, limit]\n")

    words = ("--chdir", "work", "--env-file", "vars", "--env", "A=typed", "--", "sh", "-c", "pwd; echo $A $B")
    done = box("submit", *words, cwd=tmp_path, **home)
    assert (0, "") == (done.code, done.err), "the defaults ask for GPUs"
    job = box.wait(done.out.strip(), "COMPLETED")
    assert ("team/env", 3600, 2) == (job["tenant"], job["time_limit_s"], job["gpus"])
    assert f"{tmp_path}/work\ntyped of a file\n" == box("logs", job["id"]).out

    job_id = box("submit", "--begin", "+1h", "-t", "2:00:00", "-g", 1, "--", "true", **home).out.strip()
    with box.client() as client:
        later = client.job(job_id)
    assert (7200, 1, "before its begin time") == (later["time_limit_s"], later["gpus"], later["reason"])
    assert ["ID", "LIMIT"] == box("queue", **home).out.splitlines()[0].split()
    assert "'nosuch'" in box("submit", "--pool", "nosuch", "--", "true").err
    assert "'nosuch'" in box("submit", "--exclude", "nosuch", "--", "true").err
    assert f"team/env, for jobs that name none: from {'YARD_TENANT'}" in box("whoami", **home).out
    assert f"tenant   {getpass.getuser()}, for jobs that name none" in box("whoami").out

    defaults.write_text("tenant: a\nclas: b\n")
    refused = box("submit", "--", "true", XDG_CONFIG_HOME=str(tmp_path / "config"))
    assert 2 == refused.code
    assert f"{defaults}:2: unknown key 'clas'; did you mean 'class'?" in refused.err
    assert 0 == box("cancel", job_id).code


def test_what_matches_is_cancelled_once_somebody_says_so(box: Box, tmp_path: Path) -> None:
    held = [box.submit("--hold", "-g", 0, "-n", name, "--", "true") for name in ("sweep", "sweep", "other")]
    assert "cancel which job?" in box("cancel").err

    refused = box("cancel", "--name", "sweep")
    assert 2 == refused.code
    assert (
        f"2 jobs would be cancelled, and there is no terminal to ask on: {held[0]}, {held[1]}" in refused.err
    )
    assert len(held) == len(box("queue", "--mine", "-o", "csv").out.splitlines()) - 1

    done = box("cancel", "--name", "sweep", "--state", "PENDING", "--yes")
    assert (0, f"cancelled 2 jobs: {held[0]}, {held[1]}\n", "") == (done.code, done.out, done.err)
    assert "no job matches" in box("cancel", "--name", "sweep", "-y").out
    assert "no job matches" in box("cancel", "--all", "--user", "nobody-here", "-y").out
    both = box("cancel", "--mine", "--user", "nobody-here", "-y")
    assert (2, True) == (both.code, "--mine and --user or --tenant exclude each other" in both.err)
    assert (
        f"1 job would be cancelled, and there is no terminal to ask on: {held[2]}"
        in box("cancel", "--mine").err
    )

    yard = f"{sys.executable} -m gpuyard.cli"
    with terminal_of(tmp_path, box.environment) as terminal:
        terminal.enter(f"clear; {yard} kill --all")
        terminal.until(lambda screen: "Cancel 1 job? [y/N]" in screen and " other" in screen)
        terminal.enter("n")
        terminal.until(lambda screen: "nothing is cancelled" in screen)
        terminal.enter(f"clear; {yard} kill --all")
        terminal.until(lambda screen: "Cancel 1 job? [y/N]" in screen)
        terminal.enter("y")
        terminal.until(lambda screen: f"cancelled 1 job: {held[2]}" in screen)
    assert "CANCELLED" == box.wait(held[2], "CANCELLED")["state"]


def test_a_verb_says_what_it_has_done_and_what_it_has_not(box: Box) -> None:
    first, second = (box.submit("--hold", "-g", 0, "--", "true") for _ in range(2))
    array = box.submit("--hold", "-g", 0, "--array", "0-2", "--", "true")

    said = box("cancel", first, array, 99_999, f"{array}_7")
    assert (2, f"cancelled 4 jobs: {first}, {array} (3 tasks)\n") == (said.code, said.out)
    assert "there is no job 99999" in said.err
    assert f"there is no job {array}_7" in said.err
    assert f"on hold already: {second}\n" == box("hold", second).out
    assert f"moved 1 job to the top: {second}\n" == box("update", second, "--top").out
    assert f"released 1 job: {second}\n" == box("release", second).out


def test_a_number_is_a_job_that_people_see(box: Box, tmp_path: Path) -> None:
    array = box.submit("-g", 0, "--array", "0-1", "--hold", "--", "true")
    hidden = int(array) + 1
    for line in (
        ("update", hidden, "--top"),
        ("cancel", hidden),
        ("show", hidden),
        ("why", hidden),
        ("eta", hidden),
    ):
        said = box(*line)
        assert (2, True) == (said.code, f"there is no job {hidden}" in said.err), line
    waits = ("submit", "-g", 0, "--after")
    assert f"there is no job {hidden} to wait for" in box(*waits, hidden, "--", "true").err
    box("release", array)
    box.wait(f"{array}_0", "COMPLETED")
    assert f"there is no job {hidden}" in box("logs", hidden).err
    assert f"there is no job {hidden} to wait for" in box(*waits, hidden, "--", "true").err

    # To programs, and in Slurm's words, it has a number of its own: SLURM_JOB_ID.
    assert f"JobId={hidden} " in box("slurm", "scontrol", "show", "job", hidden).out
    with box.client() as client:
        assert f"{array}_0" == client.job(hidden)["label"]


def test_columns_are_the_same_in_every_form(box: Box) -> None:
    number = box.submit("--hold", "-g", 1, "-n", "cols", "--", "true")
    for listing, names in (
        ("queue", "id,name,gpus"),
        ("queue", "label,time,attempt_state"),
        ("queue", "submitted_ms,where_or_why"),
        ("history", "id,ran,exit_code"),
        ("nodes", "name,gpus_free,state"),
    ):
        heads = " ".join(names.split(",")).upper().replace("_", " ")
        assert heads == " ".join(box(listing, "--columns", names).out.splitlines()[0].split())
        rows = list(csv.reader(io.StringIO(box(listing, "--columns", names, "-o", "csv").out)))
        assert names.split(",") == rows[0]
        found = json.loads(box(listing, "--columns", names, "-o", "json").out)
        assert all(names.split(",") == list(each) for each in found)
    for output in ("table", "wide", "csv", "json", "yaml"):
        refused = box("queue", "--columns", "id,nmae", "-o", output)
        assert 2 == refused.code
        assert "there is no column 'nmae'; did you mean 'name'?\nThere are: id, name, " in refused.err
    assert 0 == box("cancel", number).code


def test_words_that_people_type_are_understood(box: Box) -> None:
    number = box.submit("--hold", "-g", 1, "-n", "typed", "--", "true")
    for word in ("ps", "ls", "jobs", "status"):
        assert " typed " in box(word).out
    assert box("show", number).out == box("status", number).out == box("info", number).out
    assert "Usage: yard queue" in box("ps", "--help").out
    assert 0 == box("kill", number).code
    page = box("--help").out
    assert "Also understood: ps, ls, jobs for queue; kill, stop for cancel;" in " ".join(page.split())
    assert not any(f"\n  {alias} " in page for alias in ALIASES)
    assert [each.word for each in offered(["ps"], "--")] == [each.word for each in offered(["queue"], "--")]


def test_the_python_example_of_the_page_runs_as_printed(box: Box, tmp_path: Path) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "one-machine.md").read_text(
        encoding="utf-8"
    )
    (example,) = [each for each in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "Client()" in each]
    (tmp_path / "example.py").write_text(example, encoding="utf-8")
    (tmp_path / "train.py").write_text(
        "import os; print(os.getcwd(), os.environ['MARK'])\n", encoding="utf-8"
    )

    done = subprocess.run(
        [sys.executable, "example.py"], cwd=tmp_path, env=box.environment | {"MARK": "kept"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert (0, "") == (done.returncode, done.stderr)
    assert f"b'{tmp_path} kept\\n'" == done.stdout.splitlines()[0]
    assert "'state': 'COMPLETED', 'exit_code': 0" in done.stdout


def test_show_tells_the_owner_what_a_job_runs_and_used(box: Box, tmp_path: Path) -> None:
    number = box.submit(
        "-g", 2, "--env", "SEED=a b", "--chdir", tmp_path, "--", "sh", "-c", "sleep 1; echo 'x y'"
    )
    box.wait(number, "COMPLETED")
    # The curves under the rows have lines without a name: they are there once a sample met the job.
    pairs = (line.partition("  ") for line in box("show", number).out.splitlines())
    told = {name: text.strip() for name, _, text in pairs}
    assert ("sh -c 'sleep 1; echo '\"'\"'x y'\"'\"''", str(tmp_path)) == (told["command"], told["folder"])
    assert f"kept by the yard: yard logs {number}" == told["output"]
    assert re.fullmatch(r"ran for [1-9]s, 0\.00\d{2,3} GPU-hours, \$0\.0\d{3}", told["used"]), told
    assert "SEED='a b'\n" in box("show", "--env", number).out
    assert "runs a command, and has no script" in box("show", "--script", number).err

    number = box.submit("--", sys.executable, "-c", "x = b'x' * (300 << 20); n = sum(range(30_000_000))")
    box.wait(number, "COMPLETED")
    heads, *rows = box("history", "--columns", "id,gpu-hours,cost").out.splitlines()
    assert ["ID", "GPU-HOURS", "COST"] == heads.split()
    # A job without GPUs owes for the cores that it kept from them, as the books have it.
    hours, owes = next(row.split()[1:] for row in rows if row.split()[0] == str(number))
    assert ("0.00", True) == (hours, re.fullmatch(r"\$0\.0\d(\d\d)?", owes) is not None), owes
    took = re.search(r"\nCPU time +(\d+\.\d) s, at most (\d+) MiB of memory", box("show", number).out)
    assert took is not None
    assert (True, True) == (0.2 < float(took[1]) < 60, 300 <= int(took[2]) < 600), took[0]

    (tmp_path / "job.sh").write_text("#!/bin/sh\necho $1\n")
    number = box.submit("-g", 1, tmp_path / "job.sh", "word")
    box.wait(number, "COMPLETED")
    assert f"a script with word: yard show --script {number}" in box("show", number).out
    assert "#!/bin/sh\necho $1\n" == box("show", "--script", number).out
