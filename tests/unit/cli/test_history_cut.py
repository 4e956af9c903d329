"""`yard history` does not pass off the newest jobs as all of them."""

from typing import Any

import pytest

from gpuyard.cli.commands.jobs import history
from gpuyard.cli.line.options import Output
from gpuyard.wire.endpoints import HISTORY


def ended(jobs: int, limit: int) -> dict[str, Any]:
    """A page of so many ended jobs."""
    shown = [dict.fromkeys(history.fields(), 1) | {"id": n, "labels": {}} for n in range(min(limit, jobs))]
    return {"jobs": shown, "next_cursor": "more" if jobs > limit else None}


@pytest.mark.parametrize(
    ("jobs", "limit", "rows", "told"),
    [(50, None, 50, False), (51, None, 50, True), (51, 10, 10, False), (51, 100, 51, False)],
)
def test_a_list_that_is_cut_unasked_says_so(
    jobs: int,
    limit: int | None,
    rows: int,
    told: bool,
    answering_yard: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:
    answering_yard({HISTORY: lambda wanted: ended(jobs, int(wanted["limit"]))})

    history.history(limit=limit, output=Output.CSV, columns="id,gpus")

    out, err = capsys.readouterr()
    assert rows + 1 == len(out.splitlines())
    assert told == ("the newest 50, and there are more: --limit N shows more" in err)
