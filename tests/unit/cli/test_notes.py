"""Notes at submit: what earlier jobs of the same name used of what a new one asks for."""

import sys
from typing import Any

import pytest

from gpuyard.api.client import NoServer
from gpuyard.cli.commands.submit import jobfields
from gpuyard.cli.commands.submit.notes import notes_of, say

GPU = (
    "the last 3 jobs called eval used 3 GiB of 40 GiB of GPU memory and 14 % of the GPU at most: "
    "--gpus 2g.10gb would do"
)


def row(
    memory: int = 3072, busy: float = 11.0, ask: str = "1g.5gb", saved: float = 0.0052, **more: Any
) -> Any:
    found = {
        "name": "eval", "state": "COMPLETED", "seen_s": 22, "ran_s": 22, "gpus": "1", "gpu_memory_mib": memory,
        "gpu_memory_held_mib": 40_960, "gpu_busy_pct": busy, "memory_used_mib": 900, "cpus_peak": 1.02,
        "smaller": {"gpus": ask}, "saved_gpu_hours": saved,
    }  # fmt: skip
    return found | more


def test_what_the_last_jobs_used_is_said_with_the_largest_of_the_smaller_asks() -> None:
    rows = [row(), row(busy=14.0, ask="2g.10gb", saved=0.004), row(memory=2000)]
    assert [GPU] == notes_of(rows, {"gpus": 1})
    memory, cores = notes_of(rows, {"gpus": 0, "memory_mib": 32_768, "cpus": 8.0})
    assert memory.endswith("used 900 MiB of memory at most: --memory 1152M would do, not 32 GiB")
    assert cores.endswith("kept 1 cores busy at most: --cpus 1 would do, not 8")


@pytest.mark.parametrize(
    ("rows", "fields"),
    [
        ([row()], {"gpus": 1}),
        ([row(), row(seen_s=5)], {"gpus": 1}),
        ([row(), row(state="RUNNING")], {"gpus": 1}),
        ([row(), row(smaller={})], {"gpus": 1}),
        ([row(), row(gpus="2")], {"gpus": 1}),
        ([row(), row()], {"gpus": 1, "mig": "1g.5gb"}),
        ([row(), row(memory_used_mib=None)], {"memory_mib": 32_768}),
        ([row(), row()], {"memory_mib": 1200}),
        ([row(), row(cpus_peak=None)], {"cpus": 8.0}),
    ],
)
def test_nothing_is_said_where_little_is_known_or_the_ask_is_small(rows: list[Any], fields: Any) -> None:
    assert [] == notes_of(rows, fields)


class Asked:
    """A client that says what was asked."""

    def __init__(self, rows: list[Any] | None) -> None:
        self.rows = rows
        self.values: list[dict[str, Any]] = []

    def report(self, _report: Any, **values: Any) -> Any:
        self.values.append(values)
        if self.rows is None:
            raise NoServer("gone")
        return {"jobs": self.rows}


def test_the_server_is_asked_only_where_there_is_something_to_save(
    capsys: pytest.CaptureFixture[str],
) -> None:
    yard: Any = Asked([row(), row(busy=14.0, ask="2g.10gb", saved=0.004), row()])
    say(yard, {"gpus": 0, "cpus": 1.0}, "7")
    say(yard, {"gpus": 1})
    assert [] == yard.values
    say(yard, {"gpus": 1}, "7")
    assert [{"like": "7", "limit": 5}] == yard.values
    assert f"note: {GPU}\n" == capsys.readouterr().err
    away: Any = Asked(None)
    say(away, {"gpus": 1}, "7")
    assert "" == capsys.readouterr().err, "a note that cannot be had is none"


def test_notes_are_for_terminals_and_can_be_switched_off(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert jobfields.wants_notes()
    (tmp_path / "gpuyard").mkdir()
    (tmp_path / "gpuyard" / "defaults.yaml").write_text("notes: off\n")
    assert not jobfields.wants_notes()
    (tmp_path / "gpuyard" / "defaults.yaml").unlink()
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    assert not jobfields.wants_notes()


def test_a_job_that_says_cuda_and_asks_for_no_gpu_is_told_so(capsys: pytest.CaptureFixture[str]) -> None:
    jobfields.say_if_no_gpus("7", {"script": "#!/bin/sh\npython -c 'x.to(\"cuda:0\")'\n"})
    jobfields.say_if_no_gpus("8", {"command": ["torchrun", "train.py"]})
    jobfields.say_if_no_gpus("9", {"command": ["barracuda"]})
    jobfields.say_if_no_gpus("9", {"command": ["torchrun"], "gpus": 1})
    ending = "asks for no GPUs; -g 1 for one, -g 0 if it needs none"
    assert [
        f"note: job 7 says cuda and {ending}",
        f"note: job 8 says torchrun and {ending}",
        f"note: job 9 {ending}",
    ] == capsys.readouterr().err.splitlines()
