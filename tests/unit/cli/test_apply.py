"""`yard apply` and `yard rollback` where the preview of a change fails, and how one is shown."""

from typing import Any

import pytest

from gpuyard.cli.commands.config import apply
from gpuyard.cli.commands.config.changes import show_preview
from gpuyard.errors import YardError
from gpuyard.wire import endpoints
from harness.answering import CUT, Problem, Stream

from .conftest import EXAMPLE, Yard

TOO_LONG = {"detail": "the preview took longer than 10 min", "hint": "Ask for fewer --days."}
DIFFERENCE = {"version": 3, "same": False, "restores": None, "changes": [], "notes": [], "obstacles": []}


PROGRESS = ("progress", {"side": "before", "done": 1, "jobs": 2})


class Server:
    """A yard whose preview fails in a given way, and what was put in force there."""

    def __init__(self, answering_yard: Any) -> None:
        self.failure: Any = None
        self.put: list[int] = []
        answering_yard(
            {
                endpoints.CONFIG: {"version": 3},
                endpoints.DIFF: DIFFERENCE,
                endpoints.PREVIEW: lambda _: self.failure or Stream(iter([PROGRESS, ("error", TOO_LONG)])),
                endpoints.APPLY: self._apply,
                endpoints.ROLLBACK: self._apply,
            }
        )

    def _apply(self, wanted: dict[str, Any]) -> dict[str, Any]:
        self.put.append(wanted["against"])
        return {"version": wanted["against"] + 1}


@pytest.fixture
def server(answering_yard: Any) -> Server:
    return Server(answering_yard)


COMMANDS = [("apply", "-f", str(EXAMPLE)), ("rollback", "2")]
FAILURES = [
    (None, "the preview took longer than 10 min"),
    (Problem(503, "another preview is being made"), "another preview is being made"),
    (CUT, "the connection to the yard broke: "),
]


@pytest.mark.parametrize(("failure", "said"), FAILURES)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_decided_change_goes_on_without_its_preview(
    yard: Yard, server: Server, command: tuple[str, ...], failure: Any, said: str
) -> None:
    server.failure = failure
    done = yard(*command, "--yes")

    assert (0, [3]) == (done.code, server.put)
    assert "version 4 is in force" in done.out
    assert f"note: there is no preview: {said}" in done.err


@pytest.mark.parametrize("command", COMMANDS)
def test_a_look_without_a_preview_says_how_to_do_without(
    yard: Yard, server: Server, command: tuple[str, ...]
) -> None:
    done = yard(*command, "--dry-run", "--yes")

    assert (1, []) == (done.code, server.put)
    assert "there is no preview: the preview took longer than 10 min" in done.err
    assert "Ask for fewer --days. Without a preview: --no-preview. Nothing was changed." in done.err


def test_an_undecided_change_ends_where_its_preview_fails(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    with pytest.raises(YardError, match="there is no preview: the preview took longer") as caught:
        apply.rollback(2)

    assert [] == server.put
    assert "--no-preview" in caught.value.hint


# -- how it is shown


def waits(jobs: int, before_s: int, after_s: int, **about: str) -> dict[str, Any]:
    pair = [before_s * 1000, after_s * 1000]
    return {
        **about,
        "jobs": jobs,
        "compared": jobs,
        "wait_median_ms": [each // 2 for each in pair],
        "wait_mean_ms": pair,
        "wait_p95_ms": [3 * each for each in pair],
    }


def preview(*sizes: dict[str, Any]) -> dict[str, Any]:
    return {
        "sentence": "over the last day: …",
        "jobs": 12,
        "live": 2,
        "tenants": [waits(12, 60, 20, tenant="a")],
        "all": waits(12, 60, 20, tenant="all"),
        "sizes": list(sizes),
        "utilisation": [0.5, 0.75],
        "preemptions": [0, 3],
    }


def test_sizes_have_a_table_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    show_preview(preview(waits(10, 40, 8, size="up to 1"), waits(2, 160, 800, size="17+")))
    lines = capsys.readouterr().out.splitlines()

    heads = [line for line in lines if "JOBS" in line]
    assert ["TENANT", "GPUS OF A JOB"] == [head.partition("  ")[0] for head in heads]
    large = "17+               2  2.7 → 13 min  1.3 → 6.7 min      8 → 40 min"
    assert [large] == [line for line in lines if line.startswith("17+")]


def test_one_size_and_an_older_yard_have_none(capsys: pytest.CaptureFixture[str]) -> None:
    older = preview()
    del older["sizes"]
    for each in (preview(waits(12, 60, 20, size="up to 1")), older):
        show_preview(each)
        assert 1 == capsys.readouterr().out.count("JOBS")
