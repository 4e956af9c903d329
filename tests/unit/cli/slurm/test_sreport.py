"""`sreport` on planted figures: columns, roundings, conditions and messages. Beside Slurm's own: tests/slurm."""

import pwd
import time
from types import SimpleNamespace
from typing import Any

import pytest

from gpuyard.cli.slurm.commands import sreport
from gpuyard.cli.slurm.language.stopping import Stop
from gpuyard.reports.usage import REPORT

HOUR_MS = 3_600_000


def line(tenant: str, user: str, gpus: int, cpus: int, hours: float, runs: int = 1) -> dict[str, Any]:
    ms = int(hours * HOUR_MS)
    return {
        "cluster": "box", "tenant": tenant, "user": user, "gpu_milli": gpus * 1000, "cpu_milli": cpus * 1000,
        "runs": runs, "gpu_ms": gpus * ms, "cpu_ms": cpus * ms,
    }  # fmt: skip


def had(count: int, allocated: float, idle: float, planned: float = 0) -> dict[str, int]:
    parts = {"allocated": allocated, "down": 0, "idle": idle, "planned": planned, "over": 0}
    return {"count": count, **{f"{name}_ms": int(hours * HOUR_MS) for name, hours in parts.items()}}


LINES = [
    line("lab/vision/ana", "ana", 2, 4, 5),
    line("lab/bob", "bob", 1, 8, 2.5),
    line("shop", "ana", 0, 1, 1),
]
REPLY = {
    "lines": LINES,
    "clusters": [{"cluster": "box", "gpus": had(8, 12.5, 67.5), "cpus": had(16, 41, 100, 19)}],
}


@pytest.fixture(autouse=True)
def asked(answering_yard: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """What the yard was asked for; it answers with the planted figures."""
    found: dict[str, int] = {}

    def report(wanted: dict[str, str]) -> dict[str, Any]:
        found.update({name: int(value) for name, value in wanted.items()})
        return {**REPLY, **found}

    answering_yard({REPORT.endpoint: report})
    monkeypatch.delenv("SREPORT_TRES", raising=False)
    monkeypatch.setattr(pwd, "getpwnam", lambda user: SimpleNamespace(pw_gecos=user.title()))
    return found


def rows(capsys: pytest.CaptureFixture[str], words: str) -> list[str]:
    assert 0 == sreport.run(["-n", "-P", *words.split()])
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("-t hours cluster utilization", ["box|41|0|0|100|19|160"]),
        ("-T gres/gpu -t hours cluster util", ["box|gres/gpu|12|0|0|68|0|80"]),
        ("-T gres/gpu -t minper cluster util format=allocated", ["750(15.62%)"]),
        (
            "-t hours cluster AccountUtilizationByUser format=account,login,used",
            ["root||41", "lab||40", "lab|bob|20", "vision||20", "vision|ana|20", "shop||1", "shop|ana|1"],
        ),
        ("-t hours cluster a accounts=vision format=acc,login,used", ["vision||20", "vision|ana|20"]),
        ("-t hours cluster a users=bob format=acc,login,used", ["lab|bob|20"]),
        ("-t seconds cluster UA format=login,acc,used", ["ana|vision|72000", "bob|lab|72000", "ana|shop|3600"]),
        ("-T gres/gpu -t hours user top topcount=1", ["box|ana|Ana|vision|gres/gpu|10"]),
        ("-t hours user top group format=login,account,used", ["ana|shop, vision|21", "bob|lab|20"]),
        ("-t hours job sizes grouping=2,8", ["box|root|1|20|20|100.00%"]),
        ("-t hours job sizes grouping=individual format=account", ["root|1|20|20|100.00%"]),
        ("job sizes flat printj grouping=4 format=a", ["lab|0|1|33.33%", "shop|1|0|33.33%", "vision|0|1|33.33%"]),
    ],
)  # fmt: skip
def test_rows(capsys: pytest.CaptureFixture[str], words: str, wanted: list[str]) -> None:
    assert wanted == rows(capsys, words)


def test_the_head_says_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    sreport.run(
        ["-T", "gres/gpu", "cluster", "utilization", "start=2026-11-01T10:29", "end=2026-11-01T12:31"]
    )
    head = capsys.readouterr().out.splitlines()
    assert "Cluster Utilization 2026-11-01T10:00:00 - 2026-11-01T12:59:59" == head[1]
    assert "Usage reported in TRES Minutes" == head[2]
    assert "  Cluster      TRES Name Allocate     Down PLND Dow     Idle  Planned Reported " == head[4]


def test_a_user_that_used_nothing_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    sreport.run(["-n", "user", "top", "users=nobodyy"])
    assert "sreport: no user nobodyy used anything in this time\n" == capsys.readouterr().err


def test_without_times_it_is_the_whole_of_yesterday(asked: dict[str, int]) -> None:
    sreport.run(["-n", "cluster", "util"])
    today = int(time.mktime((*time.localtime()[:3], 0, 0, 0, 0, 0, -1))) * 1000
    assert today == asked["until_ms"]
    assert 23 <= (today - asked["from_ms"]) // HOUR_MS <= 25


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "name a report"),
        ("cluster", "too few arguments for keyword:cluster"),
        ("cluster bogus", "Not valid report bogus"),
        ("foo bar", "invalid keyword: foo"),
        ("reservation utilization", "a yard has no reservations"),
        ("job sizesbywckey", "a yard has no wckeys"),
        ("-t years cluster util", "unknown time format years"),
        ("-T mem cluster util", "a yard counts cpu and gres/gpu, not mem"),
        ("-T cpu,gres/gpu job sizes", "only supports a single --tres type"),
        ("cluster util format=bogus", "Unknown field 'bogus'"),
        ("job sizes format=bogus", "Unknown field 'bogus'"),
        ("cluster util start=bogus", "Invalid time specification"),
        ("cluster util start=2026-03-02 end=2026-03-01", "end=2026-03-01 is before start=2026-03-02"),
        ("cluster util start=1960-01-01", "start=1960-01-01 is before 1970"),
        ("cluster util start=2190-01-01", "start=2190-01-01 is still to come"),
        ("cluster util nonsense=3", "Unknown condition: nonsense=3"),
        ("cluster util nonsense", "Unknown condition: nonsense"),
        ("user top topcount=x", "Invalid value for TopCount (x)"),
        ("job sizes grouping=x", "grouping=x is not a list of sizes"),
        ("cluster util clusters=nope", "there is no cluster nope; there is: box"),
        ("--federation cluster util", "--federation is not served by a yard"),
    ],
)
def test_what_cannot_be_read_is_refused(words: str, said: str) -> None:
    with pytest.raises(Stop) as stop:
        sreport.run(words.split())
    assert said in " ".join(stop.value.lines)
    assert 1 == stop.value.code
