"""What a yard says in Slurm's words, and what Slurm's users say in the yard's."""

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from gpuyard import cli
from gpuyard.api.client import Client
from gpuyard.cli.slurm.commands import sacct
from gpuyard.cli.slurm.commands.folding import fold_into_gang, fold_onto_node
from gpuyard.cli.slurm.commands.sbatch import of_own_tenant, refusal_text
from gpuyard.cli.slurm.commands.sshare import rows_of
from gpuyard.cli.slurm.language import squeue_fields
from gpuyard.cli.slurm.language.jobs import SlurmJob, fold_arrays, jobs_from_queue
from gpuyard.cli.slurm.language.pools import Pools
from gpuyard.cli.slurm.language.sacct_fields import CELLS, SacctLine, exit_code_text, state
from gpuyard.cli.slurm.language.words import REASONS, slurm_reason
from gpuyard.control.reading.plain_views import MORE_COLUMNS, REASON_TEXTS
from gpuyard.engines.machine.job_commands import INSTEAD, PROGRAMS, text_of
from gpuyard.intake import Caller, Intake
from gpuyard.intake.sbatch import read_sbatch
from gpuyard.wire.endpoints import QUEUE_COLUMNS

SIZE = {"pool": "gpu", "gpu_model": "A100-80GB", "gpus": 8, "cpus": 64, "memory_mib": 1 << 20}
POOLS = Pools([{"name": "n1", **SIZE}, {"name": "n2", **SIZE}])


def run(words: list[str]) -> int:
    return cli.run(["slurm", *words])


def job(**more: Any) -> SlurmJob:
    values: dict[str, Any] = {
        "id": 17, "label": "17", "name": "train", "tenant": "lab/ana", "user": "ana", "class": "batch",
        "state": "PENDING", "attempt_state": "", "gpus": 2, "nodes": "", "submitted_ms": 1000, "started_ms": 0,
        "time_limit_s": 0, "reason": "no room", "pools": "", "gpu_models": "", "tasks": 1, "cpus": 4,
        "memory_mib": 0, "begin_ms": 0, "waits_for": "", "array_id": 0, "array_index": 0, "array_limit": 0,
        "restarts": 0, "requeue": True, "ran_ms": 0, "nodes_min": 0, "partition": "", "gpus_per_task": "",
    }  # fmt: skip
    assert list(values) == [*QUEUE_COLUMNS, *MORE_COLUMNS]
    values |= more
    return jobs_from_queue({"at_ms": 61_000, "rows": [list(values.values())]}, POOLS)[0]


def test_a_waiting_job_counts_the_nodes_that_it_asks_for() -> None:
    one = job(tasks=2, gpus=8, nodes_min=2)
    assert ("2", "gres:gpu:4") == tuple(squeue_fields.BY_LETTER[letter].text(one) for letter in "Db")
    assert "node=2" in one.tres()


@pytest.mark.parametrize(
    ("asked", "nodes", "each", "tres", "gres"),
    [
        ({"tasks": 2, "gpus": 16, "gpus_per_task": "8"}, "2", "gres:gpu:8", "gres/gpu=16", "gpu:16"),
        ({"tasks": 16, "gpus": 16, "gpus_per_task": "1"}, "2", "gres:gpu:8", "gres/gpu=16", "gpu:16"),
        ({"tasks": 3, "gpus": 3, "gpus_per_task": "1", "cpus": 32}, "2", "gres:gpu:2", "gres/gpu=3", "gpu:3"),
        ({"gpus": 0.143, "gpus_per_task": "1g.10gb"}, "1", "gres:gpu:1g.10gb:1",
         "gres/gpu:1g.10gb=1,gres/gpu=1", "gpu:1g.10gb:1"),
        ({"tasks": 2, "gpus": 0.572, "gpus_per_task": "2x1g.10gb", "nodes_min": 2}, "2", "gres:gpu:1g.10gb:2",
         "gres/gpu:1g.10gb=4,gres/gpu=4", "gpu:1g.10gb:4"),
        ({"gpus": 0.25, "gpus_per_task": "0.25"}, "1", "gres:mps:25", "gres/mps=25", "mps:25"),
        ({"gpus": 0}, "1", "N/A", "", ""),
        # Another tenant's: of its tasks nothing is known.
        ({"gpus": 16, "submitted_ms": 0}, "2", "gres:gpu:8", "gres/gpu=16", "gpu:16"),
    ],
)  # fmt: skip
def test_gangs_slices_and_shares_are_counted_as_slurm_counts(
    asked: dict[str, Any], nodes: str, each: str, tres: str, gres: str
) -> None:
    one = job(**asked)

    assert (nodes, each) == tuple([squeue_fields.BY_LETTER[letter].text(one) for letter in "Db"])
    assert f"node={nodes}" in one.tres().split(",")
    assert one.tres().endswith(tres)
    assert (gres, "") == tuple([CELLS[name].text(SacctLine(one)) for name in ("reqgres", "allocgres")])


def test_every_task_of_a_gang_has_a_core_as_slurm_counts() -> None:
    for cpus in (0, 0.5, 1):
        one = job(tasks=2, cpus=cpus)
        assert "2" == squeue_fields.BY_LETTER["C"].text(one)
        assert {"cpu=2", "billing=2"} <= set(one.tres().split(","))
    assert "6" == squeue_fields.BY_LETTER["C"].text(job(tasks=2, cpus=3))


def test_a_server_of_the_release_before_is_understood() -> None:
    row = (2, "2", "mine", "a/me", "me", "batch", "RUNNING", "RUNNING", 4, "n1", 5, 1_000, 60, "",
           "", "", 1, 0, 0, 0, "", 0, 0, 0, 0, True, 0)  # fmt: skip
    assert 1 == jobs_from_queue({"at_ms": 61_000, "rows": [row]}, POOLS)[0].node_count


def test_every_reason_of_the_yard_has_a_word() -> None:
    assert [] == [text for text in REASON_TEXTS.values() if text not in REASONS]
    assert ("Priority", "Priority", "None") == (
        slurm_reason("in line"),
        slurm_reason("in line, 7 ahead"),
        slurm_reason(""),
    )


def test_reserved_is_the_time_in_which_a_job_did_not_run() -> None:
    one = job(
        state="RUNNING", attempt_state="RUNNING", nodes="n1", started_ms=61_000, restarts=1, ran_ms=50_000
    )
    assert "00:00:10" == CELLS["reserved"].text(SacctLine(one))


def test_a_running_job() -> None:
    one = job(state="RUNNING", attempt_state="RUNNING", nodes="n2,n1,n2", started_ms=1000, reason="")
    shown = {letter: squeue_fields.BY_LETTER[letter].text(one) for letter in "iPtTMDRlLrC"}
    assert {
        "i": "17", "P": "gpu", "t": "R", "T": "RUNNING", "M": "1:00", "D": "2", "R": "n[1-2]", "l": "UNLIMITED",
        "L": "UNLIMITED", "r": "None", "C": "4",
    } == shown  # fmt: skip


@pytest.mark.parametrize(
    ("attempt", "letters"), [("STARTING", "CF"), ("STOPPING", "CG"), ("UNKNOWN", "R"), ("RUNNING", "R")]
)
def test_what_is_starting_or_stopping(attempt: str, letters: str) -> None:
    one = job(state="RUNNING", attempt_state=attempt, nodes="n1", started_ms=1)
    assert letters == squeue_fields.BY_LETTER["t"].text(one)


def test_waiting_tasks_of_an_array_are_one_line() -> None:
    tasks = [
        job(id=20 + n, label=f"19_{n}", array_id=19, array_index=n, array_limit=2 if n > 2 else 0)
        for n in range(1, 6)
    ]
    tasks[0].state = "RUNNING"
    assert ["19_1", "19_[2-5%2]"] == [each.shown_id for each in fold_arrays(tasks)]
    assert ["19_5"] == [each.shown_id for each in fold_arrays(tasks[4:])]


@pytest.mark.parametrize(
    ("how", "code", "step", "shown"),
    [
        ("COMPLETED", 0, False, "0:0"),
        ("FAILED", 3, False, "3:0"),
        ("FAILED", 137, False, "0:9"),
        ("FAILED", 255, False, "255:0"),
        ("CANCELLED", 143, False, "0:0"),
        ("CANCELLED", 143, True, "0:15"),
        ("TIMEOUT", 143, False, "0:0"),
    ],
)
def test_exit_codes(how: str, code: int, step: bool, shown: str) -> None:
    one = job(state=how)
    one.exit_code = code
    assert shown == exit_code_text(SacctLine(one, step))


def test_who_cancelled_it() -> None:
    one = job(state="CANCELLED", reason="cancelled by root")
    assert ("CANCELLED by 0", "CANCELLED") == (state(SacctLine(one)), state(SacctLine(one, step=True)))


# -- what is handed in -------------------------------------------------------------------------------------------


def taken(options: str) -> Intake:
    caller = Caller(
        now=datetime(2027, 1, 1, tzinfo=UTC), cwd="/work", arguments=tuple(options.split()), slurm_output=True
    )
    return read_sbatch("#!/bin/sh\ntrue\n", "a.sh", caller)


@pytest.mark.parametrize(
    ("options", "gpus", "cpus", "ranks"),
    [
        ("", 0, 1, None),
        ("--gres=gpu:2 -c4", 2, 4, None),
        ("-n 4 -c 2 --gpus-per-task=1", 4, 8, 4),
        ("-N1 --ntasks-per-node=4 --gres=gpu:4", 4, 4, 4),
        ("-n 3", 0, 3, 3),
    ],
)
def test_a_batch_job_of_several_tasks_is_one_task_that_has_room_for_all(
    options: str, gpus: int, cpus: int, ranks: int | None
) -> None:
    fields = fold_onto_node(taken(options)).request()
    assert (gpus, cpus, ranks) == (
        fields.get("gpus", 0),
        fields["cpus"],
        fields.get("ranks"),
    )
    assert "tasks" not in fields


def test_several_nodes_stay_what_they_are() -> None:
    assert 2 == fold_onto_node(taken("-N2 --gres=gpu:8")).request()["nodes_min"]


@pytest.mark.parametrize(
    ("options", "tasks", "gpus", "cpus"),
    [
        ("", 1, 0, 1),
        ("-n 4 --gpus-per-task=1", 4, 1, 1),
        ("-N1 -n 4 --gres=gpu:8 -c2", 4, 2, 2),
        ("-N2 --ntasks-per-node=2 --gpus-per-node=4", 4, 2, 1),
    ],
)
def test_srun_runs_as_a_gang(options: str, tasks: int, gpus: int, cpus: float) -> None:
    fields = fold_into_gang(taken(options)).request()
    assert (tasks, gpus, cpus) == (fields.get("tasks", 1), fields.get("gpus", 0), fields["cpus"])


def tenant(path: str, place: int = 1, members: int = 1, charged: int = 0, **more: Any) -> dict[str, Any]:
    """A row of `GET /share`, as far as sshare reads it."""
    depth = path.count("/") + 1 if path else 0
    fixed = {"path": path, "depth": depth, "weight": 1, "share_ppm": 1_000_000 // members, "used_ppm": 0}
    counts = {"place": place, "members": members, "usage_milli_usd": charged, "current_milli_usd": 0}
    return fixed | counts | more


def test_shares_are_a_tree_with_users_at_its_ends() -> None:
    rows = rows_of(
        [tenant(path) for path in ("", "lab", "lab/vision", "lab/vision/-", "lab/vision/ana", "solo")]
    )
    assert [
        ("root", "", 0), ("lab", "", 1), ("vision", "", 2), ("vision", "", 3), ("vision", "ana", 3), ("solo", "", 1),
    ] == [row[:3] for row in rows]  # fmt: skip


def test_who_is_served_first_has_the_highest_factor() -> None:
    """Level by level: everybody in a team that has had less comes before everybody in one that has had more."""
    rows = rows_of(
        [
            tenant("", charged=400),
            tenant("lab", place=2, members=2, charged=300, share_ppm=500_000, used_ppm=750_000),
            tenant("lab/ana", place=2, members=2, charged=300),
            tenant("lab/bob", place=1, members=2),
            tenant("solo", place=1, members=2, charged=100),
        ]
    )
    assert [None, None, 1 / 3, 2 / 3, 1.0] == [row.factor for row in rows]
    assert [1.0, 0.75, 0.75, 0, 0.25] == [row.of_all for row in rows]
    assert 2 / 3 == rows[1].level


def test_no_rank_where_some_are_out_of_sight() -> None:
    rows = rows_of([tenant(""), tenant("lab", members=2), tenant("lab/ana")])
    assert [None] * 3 == [row.factor for row in rows]


# -- on the PATH -------------------------------------------------------------------------------------------------


def test_links_are_written_and_written_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "with space" / "bin"
    for _ in range(2):
        assert 0 == run(["--install-links", str(folder)])
        said = capsys.readouterr().out
        assert f"export PATH='{folder}':$PATH" == said.splitlines()[-1]
        assert [] == [name for name in (*PROGRAMS, *INSTEAD) if name not in said]
    assert sorted([*PROGRAMS, *INSTEAD]) == sorted(os.listdir(folder))
    done = subprocess.run([folder / "squeue", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("slurm-wlm 22.05")


def test_what_others_made_is_not_touched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "sinfo").write_text("#!/bin/sh\n")
    assert 2 == run(["--install-links", str(tmp_path)])
    assert "was not made by `yard`; nothing was written" in capsys.readouterr().err
    assert ["sinfo"] == os.listdir(tmp_path)


@pytest.mark.parametrize(
    "python", ["/usr/bin/python3", "/with space/python3", "/" + "long/" * 40 + "python3"]
)
def test_the_first_line_of_a_link_is_one_that_kernels_take(python: str) -> None:
    first = text_of("squeue", python).splitlines()[0]
    assert len(first) <= 127
    assert first in (f"#!{python}", "#!/bin/sh")


@pytest.mark.parametrize("words", [["nosuch"], ["--install-links"], ["--install-links", "a", "b"]])
def test_what_cannot_be_read_ends_with_two(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == run(words)
    error = capsys.readouterr().err
    assert error.startswith("yard: ") or "yard slurm: there is no command 'nosuch'\n" in error


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_helps_itself_without_a_yard(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == run([name, "--help"])
    assert capsys.readouterr().out.startswith(f"Usage: {name}")


def test_without_a_yard_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("YARD_DATA", str(tmp_path))
    assert 1 == run(["squeue"])
    assert "squeue: error: no yard is running here: start one with `yard up -d`\n" == capsys.readouterr().err


def test_squeue_imports_nothing_that_takes_time() -> None:
    code = (
        "import sys, gpuyard.cli, gpuyard.cli.slurm.face, gpuyard.cli.slurm.commands.squeue; "
        "print(*sys.modules)"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    heavy = {
        "pydantic",
        "rich",
        "yaml",
        "dataclasses",
        "inspect",
        "datetime",
        "gpuyard.core",
        "gpuyard.intake",
    }
    assert set() == heavy & set(loaded)


@pytest.mark.parametrize("name", INSTEAD)
def test_a_command_that_a_yard_lacks_says_what_to_use(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == run([name, "show"])
    assert f"{name}: error: a yard has no {name}: {INSTEAD[name]}\n" == capsys.readouterr().err


def test_cpu_time_is_written_as_slurm_writes_it() -> None:
    lines = [SacctLine(job(), cpu_s=seconds) for seconds in (7.25, 3599.9996, 3723.4, None)]
    assert ["00:07.250", "59:59.999", "01:02:03", ""] == [CELLS["totalcpu"].text(line) for line in lines]


def test_what_a_job_took_is_asked_for_once_and_memory_stands_with_its_step() -> None:
    class Yard:
        asked = 0

        def job(self, _label: str, *, explain: bool) -> dict[str, Any]:
            assert not explain
            self.asked += 1
            return {"used": {"cpu_s": 61.5, "memory_mib": 3}}

    yard = Yard()
    whole, step = sacct._measured(cast(Client, yard), [SacctLine(job()), SacctLine(job(), step=True)])

    assert 1 == yard.asked
    assert [("", "01:01.500"), ("3072K", "01:01.500")] == [
        (CELLS["maxrss"].text(line), CELLS["totalcpu"].text(line)) for line in (whole, step)
    ]


def test_a_refusal_names_what_the_typed_command_takes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said = refusal_text("it names no tenant", "Name it: --tenant lab/ana; for good, set YARD_TENANT.")
    assert "it names no tenant\nName it: -A lab/ana; for good, set YARD_TENANT." == said

    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("YARD_TENANT", raising=False)
    assert {"gpus": 1} == of_own_tenant({"gpus": 1})
    (tmp_path / "gpuyard").mkdir()
    (tmp_path / "gpuyard/defaults.yaml").write_text("tenant: lab\n")
    assert "lab" == of_own_tenant({"gpus": 1})["tenant"]
    monkeypatch.setenv("YARD_TENANT", "shop")
    assert ["shop", "own"] == [of_own_tenant(each)["tenant"] for each in ({"tenant": ""}, {"tenant": "own"})]


def test_reasons_of_an_observed_slurm_are_its_own_words() -> None:
    down = "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"
    for text in ("JobHeldUser", "QOSMaxGRESPerUser", down):
        assert text == slurm_reason(f"Slurm: {text}")
    assert "None" == slurm_reason("Slurm: it waits there")
    assert "Priority" == slurm_reason("Harbour: no berth is free")


def test_the_page_calls_nothing_empty_that_sacct_shows() -> None:
    page = Path(__file__).resolve().parents[4] / "docs/how-to/slurm-users.md"
    (empty,) = [
        line.partition(". ")[0]
        for line in page.read_text(encoding="utf-8").splitlines()
        if "**What is not measured is empty**" in line
    ]
    measured = {"memory": "maxrss", "CPU": "totalcpu"}
    assert {*measured.values()} <= CELLS.keys()
    assert [] == [word for word in measured if word in empty]
