"""What is to be done about attempts that stand still: only what the yard was asked for."""

from types import SimpleNamespace
from typing import Any

import pytest

from gpuyard.control.loop.act import RetryPace, find_todo
from gpuyard.control.replica.labels import current_key
from gpuyard.engines.contract import AttemptReport, Phase
from gpuyard.model import AttemptState, Verb


@pytest.mark.parametrize(
    ("phase", "wanted", "resumed"),
    [
        (AttemptState.RUNNING, None, False),
        (AttemptState.RUNNING, Verb.CONTINUE, True),
        (AttemptState.SUSPENDED, Verb.CONTINUE, True),
        (AttemptState.SUSPENDED, None, False),
    ],
)
def test_what_others_froze_stays_frozen(phase: AttemptState, wanted: Verb | None, resumed: bool) -> None:
    record: Any = SimpleNamespace(
        id=1, attempt=1, phase=phase, wanted=wanted, job=SimpleNamespace(submitted_ms=5)
    )
    key = current_key("y", record)

    found = find_todo(
        {key: record}, {key: AttemptReport(key, Phase.SUSPENDED)}, frozenset(), RetryPace(), 1_000
    )

    assert [key] * resumed == found.resume
    assert [] == found.suspend
