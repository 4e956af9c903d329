"""Living with it: every listing in every form, and small things that users stumbled over."""

import csv
import io
import json
import subprocess
from pathlib import Path

import pytest
import yaml

from gpuyard.cli.commands.jobs import history
from gpuyard.reports.nodes import REPORT as NODES
from gpuyard.wire.endpoints import QUEUE_COLUMNS
from harness.patience import patient, until

from .conftest import Box

LISTINGS = {"queue": list(QUEUE_COLUMNS), "history": history.fields(), "nodes": list(NODES.fields({}))}


def rows_of(text: str) -> tuple[list[str], list[list[str]]]:
    head, *rows = list(csv.reader(io.StringIO(text)))
    return head, rows


def test_csv_names_its_columns_even_without_rows(box: Box) -> None:
    """It comes before `jobs`: the yard is new."""
    for name in ("queue", "history"):
        done = box(name, "-o", "csv")
        assert (0, (LISTINGS[name], [])) == (done.code, rows_of(done.out))
        assert "[]\n" == box(name, "-o", "json").out


@pytest.fixture(scope="module")
def jobs(box: Box) -> dict[str, int]:
    """One that ended, one that runs, one that waits."""
    ended = box.submit("-g", 1, "-n", "ended", "--", "true")
    box.wait(ended, "COMPLETED")
    runs = box.submit("-g", 5, "-n", "runs", "--", "sleep", 600)
    box.wait(runs, "RUNNING")
    return {"ended": ended, "runs": runs, "waits": box.submit("-g", 8, "-n", "waits", "--", "sleep", 600)}


@pytest.mark.parametrize("name", LISTINGS)
def test_every_listing_in_every_form(box: Box, jobs: dict[str, int], name: str) -> None:
    as_json = json.loads(box(name, "-o", "json").out)
    assert as_json
    assert LISTINGS[name] == list(as_json[0])
    as_yaml = yaml.safe_load(box(name, "-o", "yaml").out)
    assert [list(each) for each in as_json] == [list(each) for each in as_yaml]
    head, rows = rows_of(box(name, "-o", "csv").out)
    assert (LISTINGS[name], len(as_json)) == (head, len(rows))
    table, wide = box(name).out.splitlines(), box(name, "-o", "wide").out.splitlines()
    assert len(as_json) + 1 == len(table) == len(wide)
    assert set(table[0].split()) - {"WHERE", "OR"} < set(wide[0].split()) | {"WHY"}
    assert "\x1b" not in "".join([*table, *wide])


def test_one_job_in_every_form(box: Box, jobs: dict[str, int]) -> None:
    waits = jobs["waits"]
    as_json = json.loads(box("show", waits, "-o", "json").out)
    assert (waits, "waits") == (as_json["id"], as_json["name"])
    assert as_json["name"] == yaml.safe_load(box("show", waits, "-o", "yaml").out)["name"]
    head, (row,) = rows_of(box("show", waits, "-o", "csv").out)
    assert "waits" == row[head.index("name")]
    assert box("show", waits).out.startswith(f"job        {waits}  waits\n")


def test_only_some_columns(box: Box, jobs: dict[str, int]) -> None:
    assert "STATE    ID" == box("queue", "--columns", "state,id").out.splitlines()[0]
    head, rows = rows_of(box("queue", "-o", "csv", "--columns", "name,gpus").out)
    assert (["name", "gpus"], ["runs", "5"]) == (head, rows[0])
    assert [{"name", "state"}] == [
        set(each) for each in json.loads(box("nodes", "-o", "json", "--columns", "name,state").out)
    ]
    for name in LISTINGS:
        done = box(name, "--columns", "stat")
        assert (2, "") == (done.code, done.out)
        assert done.err.startswith("yard: there is no column 'stat'; did you mean 'state'?\nThere are: ")


def test_watching_is_for_terminals(box: Box, jobs: dict[str, int]) -> None:
    for words in (
        ("queue", "--watch"),
        ("nodes", "-w", 5),
        ("history", "--watch=1"),
        ("show", jobs["runs"], "-w"),
    ):
        done = box(*words)
        assert (2, "") == (done.code, done.out)
        assert (
            "yard: --watch draws on a terminal, and standard output is not one\nLeave out --watch" in done.err
        )


def test_a_drained_node_is_named_as_a_reason(box: Box) -> None:
    with box.client() as client:
        (node,) = [each["name"] for each in client.nodes()]
    assert 0 == box("drain", node, "--why", "fans").code
    box.submit("-g", 1, "--", "true")
    until(lambda: f"no room; node {node} is drained" in box("queue").out)
    box("resume", node)


def test_one_is_not_many(box: Box, jobs: dict[str, int]) -> None:
    assert "asks for   1 GPU, no time limit\n" in box("show", jobs["ended"]).out
    assert "asks for   5 GPUs, no time limit\n" in box("show", jobs["runs"]).out


def test_what_comes_on_standard_input_is_not_lost_without_a_word(box: Box, tmp_path: Path) -> None:
    text = tmp_path / "in.txt"
    text.write_text("hello\n", encoding="utf-8")
    done = box("run", "--", "cat", stdin="hello\n")
    assert (0, "") == (done.code, done.out)
    assert "yard: a job reads no standard input: what comes through the pipe is not passed on\n" == done.err
    shell = f"{' '.join(box.command('run', '--', 'cat'))} < {text}"
    code, err = _shell(box, shell)
    assert 2 == code
    assert "would not be read\nLet the job open it: yard run … -- sh -c 'COMMAND < FILE'\n" in err
    loop = f"while read word; do {' '.join(box.command('run', '--', 'true'))}; done < {text}"
    assert (0, "") == _shell(box, loop)
    assert (0, "", "") == tuple(vars(box("run", "--", "true")).values())


def _shell(box: Box, line: str) -> tuple[int, str]:
    done = subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, env=box.environment, timeout=patient(60), check=False,
        cwd=box.data.parent,
    )  # fmt: skip
    return done.returncode, done.stderr


def test_a_second_yard_on_the_same_folder_and_port(box: Box) -> None:
    port = box.note()["port"]
    for words in (("-d",), ()):
        done = box("up", *words, "--port", port, "--emulate", "8 x H100")
        assert 3 == done.code
        assert f"yard: a yard is running on {box.data} already, with pid {box.note()['pid']}\n" in done.err


def test_emulated_gpus_are_mentioned_once(bare: Box) -> None:
    done = bare("up", "-d", "--port", 0)
    assert 0 == done.code
    assert 1 >= done.err.count("emulated"), "a machine with GPUs says nothing, one without says it once"
