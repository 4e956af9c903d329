"""`yard history` does not pass off the newest jobs as all of them."""

from typing import Any

import pytest

from gpuyard.api.client import Page
from gpuyard.cli.commands.jobs import history
from gpuyard.cli.line.options import Output


class Yard:
    """Has so many ended jobs."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs

    def __enter__(self) -> "Yard":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def history(self, *, limit: int, **_: Any) -> Page:
        shown = [
            dict.fromkeys(history.fields(), 1) | {"id": n, "labels": {}} for n in range(min(limit, self.jobs))
        ]
        return Page(shown, "more" if self.jobs > limit else None)


@pytest.mark.parametrize(
    ("jobs", "limit", "rows", "told"),
    [(50, None, 50, False), (51, None, 50, True), (51, 10, 10, False), (51, 100, 51, False)],
)
def test_a_list_that_is_cut_unasked_says_so(
    jobs: int,
    limit: int | None,
    rows: int,
    told: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(history, "client", lambda: Yard(jobs))

    history.history(limit=limit, output=Output.CSV, columns="id,gpus")

    out, err = capsys.readouterr()
    assert rows + 1 == len(out.splitlines())
    assert told == ("the newest 50, and there are more: --limit N shows more" in err)
