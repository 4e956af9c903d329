"""What lies in the shared folder, and what the accounting remembers: neither is believed more than it deserves."""

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpuyard.engines.contract import Answer, AttemptReport, Phase
from gpuyard.engines.machine.backoff import NodeBackoff
from gpuyard.engines.slurm.attempt_state import Traces
from gpuyard.engines.slurm.calls.client import CommandClient, Queue
from gpuyard.engines.slurm.calls.commands import Commands, OutOfReach, Refusal
from gpuyard.engines.slurm.calls.submission import Submission
from gpuyard.engines.slurm.fleet import SlurmSettings
from gpuyard.engines.slurm.folder import SUBMIT, Folder, check_end
from gpuyard.engines.slurm.submitter import Submitter
from gpuyard.engines.slurm.watching import AttemptMonitor, KnownAttempt
from gpuyard.engines.slurm.words.queue import SlurmJob, read_past
from gpuyard.model import Outcome

SUBMITTED_S = 1_000
END = {"exit_code": 0, "why": "", "started_ms": 1, "ended_ms": 2, "checkpoint_ms": 0, "slurm_id": 7}


@pytest.mark.parametrize("outcome", [[], {}, None, 7, "DONE"])
def test_an_end_of_which_a_part_is_of_the_wrong_kind_is_none(outcome: object) -> None:
    assert check_end(END | {"outcome": outcome}) is None
    assert check_end(END | {"outcome": "COMPLETED"}) is not None
    long = check_end(END | {"outcome": "FAILED", "why": "w" * 10_000})
    assert long is not None
    assert f"{'w' * 478} [the rest is cut off]" == long["why"]


LAUNCHED: dict[str, Any] = {"uid": 0, "gid": 0, "cwd": "/", "stdout": "", "stderr": "", "checkpoint": "",
                            "limit_ms": 0, "grace_ms": 0}  # fmt: skip


def test_only_a_file_is_a_knock(tmp_path: Path) -> None:
    """Anybody may put something there; a folder would wake the loop for ever."""
    folder = Folder(tmp_path)
    (Path(folder.news) / "folder").mkdir()
    assert not folder.listen()

    (Path(folder.news) / "y-1-1").touch()
    assert [True, False] == [folder.listen(), folder.listen()]


def test_rows_of_the_accounting() -> None:
    text = "7|1000|1000|CANCELLED by 0\n7|1000|900|COMPLETED\n7.batch|1000|900|COMPLETED\n\nsacct: error\n"

    assert [(7, 1000, 1000, "CANCELLED"), (7, 1000, 900, "COMPLETED")] == [
        (job.id, job.uid, job.submit_s, job.state) for job in read_past(text)
    ]


def row(state: str, submit_s: int = SUBMITTED_S, uid: int = 1000) -> SlurmJob:
    return SlurmJob(7, 0, state, "", uid, submit_s, (), 0, 0, 0, "", "")


def asked(tmp_path: Path, past: list[SlurmJob] | Exception) -> list[SlurmJob] | None:
    def answer(_job_id: int) -> list[SlurmJob]:
        if isinstance(past, Exception):
            raise past
        return past

    client: Any = SimpleNamespace(past=answer)
    monitor = AttemptMonitor(Folder(tmp_path), client, 60_000, lambda *_: None, lambda: 0)
    known = KnownAttempt(1000, 1000, "", {})
    return monitor._with_past(known, Traces(submitted_ms=SUBMITTED_S * 1000 + 400), 7, [])


def test_what_slurm_has_forgotten_the_accounting_knows(tmp_path: Path) -> None:
    mine = row("CANCELLED")
    others = [row("FAILED", submit_s=SUBMITTED_S - 86_400), row("TIMEOUT", uid=2000)]

    assert [mine] == asked(tmp_path, [*others, mine])
    assert [] == asked(tmp_path, others)


def test_an_accounting_that_does_not_answer_is_waited_for_and_none_is_done_without(tmp_path: Path) -> None:
    assert asked(tmp_path, OutOfReach("slurmdbd is down")) is None
    assert asked(tmp_path, [row("RUNNING")]) is None
    assert [] == asked(tmp_path, Refusal("Slurm accounting storage is disabled"))


def test_a_launch_is_one_of_the_folder(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    plan = LAUNCHED | {"parts": {}}
    folder.make("y-1-1", plan, 1)

    assert ["y-1-1"] == folder.keys()
    assert plan == json.loads((tmp_path / "attempts" / "y-1-1" / "run" / "plan.json").read_text())


def handed_in(tmp_path: Path, returned_s: float | None) -> AttemptReport:
    """An attempt that was handed in long ago and still waits in Slurm, which has been in reach since then."""
    folder = Folder(tmp_path)
    plan = LAUNCHED | {"parts": {}}
    folder.make("y-1-1", plan, 1)
    folder.put("y-1-1", SUBMIT, {"at_ms": 1, "ids": [7]})
    waiting = SlurmJob(7, 0, "PENDING", "Resources", 0, 1, (), 1, 1, 1, "main", folder.mark("y-1-1"))
    client: Any = SimpleNamespace(
        queue=lambda: Queue((waiting,), 1_000_000, 0.0),
        cancel=lambda _ids: None,
        reach=SimpleNamespace(returned_s=returned_s),
    )
    (report,) = AttemptMonitor(folder, client, 60_000, lambda *_: None, lambda: 1_000_000).look(["y-1-1"])
    return report


def test_after_an_outage_slurm_gets_its_time_to_start_what_it_has(tmp_path: Path) -> None:
    assert Phase.STARTING is handed_in(tmp_path / "back", time.monotonic()).phase
    late = handed_in(tmp_path / "always", None)
    assert (Phase.ENDED, Outcome.PREEMPTED) == (late.phase, late.outcome)


def test_what_slurm_refuses_for_its_users_sake_has_an_end_and_can_be_forgotten(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    plan = LAUNCHED | {"parts": {}}
    folder.make("y-1-1", plan, 1)
    client: Any = SimpleNamespace()
    monitor = AttemptMonitor(folder, client, 60_000, lambda *_: None, lambda: 1_000)
    submitter = Submitter(
        folder, client, SlurmSettings("hpc"), monitor, NodeBackoff(30, 600, lambda: 0), "", lambda: 1_000
    )
    job = Submission("y-1-1", "", "", 0, 0, (), 0, "", "")
    reply = submitter._refused(job, "sbatch: error: Invalid account or account/partition combination")
    submitter.close()

    assert Answer.REFUSED is reply.answer
    (report,) = monitor.look(["y-1-1"])
    assert (Phase.ENDED, Outcome.FAILED) == (report.phase, report.outcome)


def test_a_wrapper_finds_srun_where_the_commands_are() -> None:
    client = CommandClient(Commands(folder="/opt/slurm/bin"), as_user=False)

    assert client.bare_environment()["PATH"].startswith("/opt/slurm/bin:")
