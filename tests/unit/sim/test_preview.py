"""Previews: the record as a trace, both sides simulated, and what is said of them."""

import json
from typing import Any

import pytest

from gpuyard.core import State, apply
from gpuyard.job_sizes import SizeRanges
from gpuyard.model import (
    After,
    AfterKind,
    Ask,
    AttemptStarted,
    Capability,
    ConfigSet,
    EngineSeen,
    Grant,
    Job,
    JobClass,
    JobSpec,
    JobSubmitted,
    Milli,
    Node,
    NodeAdded,
    NodeCordoned,
    Quota,
    Settings,
    Tenant,
    Whole,
)
from gpuyard.model.serialise import to_plain
from gpuyard.model.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from gpuyard.policies.registry import PRESETS
from gpuyard.sim.preview import PreviewRequest, run_preview
from gpuyard.sim.preview_words import pair_text, span_text
from gpuyard.sim.recorded_days import make_recorded

M = MINUTE_MS
BORN = 1_700_000_000_000
NODE = Node("n1", "c", "p", "H100", 4, 64_000, 1 << 18)


def limited(gpus: int) -> Settings:
    return Settings(
        tenants=(Tenant("a", quota=Quota(limit={"total": 1000 * gpus})), Tenant("b")),
        classes=(JobClass("batch", limit_ms=DAY_MS),),
        policy=PRESETS["default"],
    )


def yard(settings: Settings, now_ms: int = BORN) -> State:
    state = State()
    apply(state, ConfigSet(now_ms, settings))
    apply(state, NodeAdded(now_ms, NODE))
    return state


def ended(
    job_id: int, tenant: str, submit_m: int, start_m: int, end_m: int, *, attempts: int = 1, **spec: Any
) -> tuple[Any, ...]:
    """A row of the history; minutes from the birth of the yard. A start at 0 minutes and below: it never ran."""
    wanted = spec.pop("ask", Ask(Whole(1)))
    made = JobSpec(tenant, wanted, name=f"n{job_id}", recipe=f"r{job_id}", **spec)
    detail = {"spec": to_plain(made), "limit_ms": HOUR_MS, "deadline_ms": 0, "begin_ms": 0, "grants": []}
    times = (BORN + submit_m * M, BORN + start_m * M if start_m >= 0 else 0, BORN + end_m * M)
    return (job_id, tenant, *times, attempts, json.dumps(detail))


FOUR = [ended(1 + n, "a", 0, 10 * n, 10 * n + 10) for n in range(4)]
"""What happens to four jobs of ten minutes under a limit of one GPU."""


def previewed(
    rows: list[Any], new: Settings, until_m: int = 40, state: State | None = None, **asked: Any
) -> dict[str, Any]:
    told = PreviewRequest(
        state or yard(limited(1)), new, ("a",), BORN - 7 * DAY_MS, BORN + until_m * M, **asked
    )
    return run_preview(told, rows, lambda *_: None)


def test_a_limit_that_is_raised_halves_the_work_before_each() -> None:
    found = previewed(FOUR, limited(2))
    (row,) = found["tenants"]

    assert ("a", 4, [15 * M, 5 * M], [30 * M, 10 * M]) == (
        row["tenant"], row["jobs"], row["wait_mean_ms"], row["wait_p95_ms"],
    )  # fmt: skip
    # Forty minutes of four GPUs, of which four jobs of ten minutes use a quarter on both sides.
    assert [0.25, 0.25] == found["utilisation"]
    assert (
        "over the last 40 minutes: mean wait of a 15 → 5 min, utilisation 25 % as before" == found["sentence"]
    )


def test_waits_are_told_by_size_of_job() -> None:
    large = Ask(Whole(2), tasks=2)
    rows = [*FOUR, ended(5, "b", 0, 5, 25, ask=large), ended(6, "b", 0, 25, 35, ask=Ask(Whole(1)))]
    found = previewed(rows, limited(2))

    one, some = found["sizes"]
    assert [("up to 1", 5), ("2-8", 1)] == [(each["size"], each["jobs"]) for each in (one, some)]
    assert found["all"]["jobs"] == one["jobs"] + some["jobs"]
    means = [
        (one["wait_mean_ms"][side] * one["compared"] + some["wait_mean_ms"][side] * some["compared"]) // 6
        for side in (0, 1)
    ]
    assert found["all"]["wait_mean_ms"] == means
    assert some["wait_mean_ms"] == some["wait_median_ms"] == some["wait_p95_ms"]

    (both,) = previewed(rows, limited(2), sizes=SizeRanges([4]))["sizes"]
    assert ("up to 4", 6) == (both["size"], both["jobs"])


def test_the_simulation_is_held_against_what_really_happened() -> None:
    found = previewed(FOUR, limited(2))
    assert {"jobs": 4, "really_mean_ms": 15 * M, "simulated_mean_ms": 15 * M} == found["check"]
    assert not any("off" in note for note in found["notes"])

    slow = [ended(1, "a", 0, 30, 40)]
    assert any("the simulation is off" in note for note in previewed(slow, limited(2))["notes"])


def test_only_what_came_under_the_present_settings_checks_the_simulation() -> None:
    rows = [ended(1, "a", 0, 30, 40), ended(2, "b", 20, 20, 30)]
    found = previewed(rows, limited(2), since_ms=BORN + 15 * M)

    assert {"jobs": 1, "really_mean_ms": 0, "simulated_mean_ms": 0} == found["check"]
    assert "the present configuration is 25 minutes old; it is simulated for the whole time" in found["notes"]


def test_utilisation_is_told_in_points() -> None:
    """Half of the work comes after the recorded time under the old limit."""
    found = previewed(FOUR, limited(2), until_m=20)

    assert [0.25, 0.5] == found["utilisation"]
    assert found["sentence"].endswith("utilisation +25 points")


def test_what_could_never_start_is_not_hidden_in_a_mean() -> None:
    rows = [*FOUR, ended(5, "b", 0, 0, 10)]
    new = Settings(
        tenants=(Tenant("a", quota=Quota(limit={"total": 0})), Tenant("b")),
        classes=limited(1).classes,
        policy=PRESETS["default"],
    )
    found = previewed(rows, new)

    assert [0, 4] == found["never"]
    assert "jobs that could never start: 0 → 4" in found["notes"]
    assert [None, None] == found["tenants"][0]["wait_mean_ms"]
    assert "mean wait of b 0 s as before" in found["sentence"]


def test_a_preview_heeds_what_the_engine_cannot_do() -> None:
    state = yard(limited(1))
    apply(state, EngineSeen(BORN, NODE.cluster, (Capability.SHARES,)))
    half = JobSpec("a", Ask(Milli(1, 500)))
    row = (9, "a", BORN, BORN, BORN + M, 1, json.dumps({"spec": to_plain(half), "limit_ms": HOUR_MS,
           "deadline_ms": 0, "begin_ms": 0, "grants": []}))  # fmt: skip

    assert [0, 0] == previewed([*FOUR, row], limited(2))["never"]
    assert [1, 1] == previewed([*FOUR, row], limited(2), state=state)["never"]


def test_waiting_jobs_that_would_wait_for_ever_are_named() -> None:
    state = yard(limited(1))
    apply(state, JobSubmitted(BORN, Job(7, JobSpec("a", Ask(Whole(1))), BORN)))
    found = previewed([], limited(0), state=state)

    assert "job 7, which waits, could never start under it" in found["notes"]


def test_few_jobs_say_little_and_strangers_are_named() -> None:
    notes = previewed([*FOUR, ended(9, "gone/eve", 0, 0, 1)], limited(2), shortened=True)["notes"]

    assert "it stands on 5 jobs: too few to say much" in notes
    assert any(note.startswith("1 job of tenants that it does not have (gone)") for note in notes)
    assert "more was recorded than is simulated: only the latest part of it counts" in notes


def test_nodes_that_take_nothing_are_left_out() -> None:
    state = yard(limited(1))
    apply(state, NodeAdded(BORN, Node("n2", "c", "p", "H100", 4, 64_000, 1 << 18)))
    apply(state, NodeCordoned(BORN, 1, "sick"))
    found = previewed(FOUR, limited(2), state=state)

    assert [0.25, 0.25] == found["utilisation"]
    assert "without nodes that are down or drained: n2" in found["notes"]


def test_no_history_is_said_plainly() -> None:
    found = previewed([], limited(2))

    assert (0, "no job was recorded whose wait could be compared") == (
        found["jobs"], found["sentence"].partition(": ")[2],
    )  # fmt: skip


def test_same_settings_same_figures() -> None:
    found = previewed([*FOUR, ended(5, "b", 3, 3, 9)], limited(1))

    assert all(before == after for row in found["tenants"] for before, after in [row["wait_mean_ms"]])
    assert found["utilisation"][0] == found["utilisation"][1]


# -- the record as a trace -------------------------------------------------------------------------------------------


def test_equal_jobs_share_a_spec_and_what_never_ran_is_left_out() -> None:
    found = make_recorded([*FOUR, ended(5, "a", 0, -1, 5)], State(), BORN, BORN + 40 * M)

    assert (4, 1, 1) == (len(found.trace), len(found.trace.specs), found.never_ran)
    assert [10 * M] * 4 == list(found.trace.run_ms)


def test_jobs_of_before_take_their_room_and_are_not_counted() -> None:
    found = make_recorded(
        [ended(1, "a", 0, 10, 50), ended(2, "a", 30, 40, 50)], State(), BORN + 20 * M, BORN + 60 * M
    )

    assert ([0, 10 * M], [30 * M, 10 * M]) == (list(found.trace.submit_ms), list(found.trace.run_ms))
    assert ([False, True], 1) == (found.counted, found.carried)
    assert [-1, 10 * M] == list(found.waited_ms)


def test_a_wait_for_another_job_is_no_wait_for_room() -> None:
    rows = [ended(1, "a", 0, 0, 30), ended(2, "a", 5, 32, 40, after=(After(AfterKind.COMPLETED, 1),))]
    found = make_recorded(rows, State(), BORN, BORN + 40 * M)

    assert ([0, 30 * M], [0, 2 * M]) == (list(found.trace.submit_ms), list(found.waited_ms))
    assert () == found.trace.specs[0].after


def test_a_job_that_was_tried_again_is_no_check_of_the_model() -> None:
    found = make_recorded([ended(1, "a", 0, 10, 20, attempts=3)], State(), BORN, BORN + 20 * M)

    assert ([-1], 1) == (list(found.waited_ms), found.retried)


def test_live_jobs_run_on_and_waiting_ones_run_as_their_tenant_does() -> None:
    state = yard(limited(1))
    spec = JobSpec("a/ana", Ask(Whole(1)))
    for job_id in (1, 2):
        apply(state, JobSubmitted(BORN, Job(job_id, spec, BORN)))
    apply(state, AttemptStarted(BORN + 5 * M, 1, 1, (Grant(0, 1, 1000, 0, 0, 1),)))
    found = make_recorded([ended(9, "a", 0, 0, 7)], state, BORN, BORN + 20 * M)

    assert (2, [30 * M, 7 * M, 7 * M]) == (found.live, list(found.trace.run_ms))


def test_after_the_first_that_waits_only_the_lucky_have_started() -> None:
    """Their waits are short because they were lucky; the simulation need not choose the same ones."""
    state = yard(limited(1))
    apply(state, JobSubmitted(BORN + 3 * M, Job(1, JobSpec("a", Ask(Whole(1))), BORN + 3 * M)))
    rows = [ended(8, "b", 0, 2, 5), ended(9, "b", 10, 10, 12)]
    found = previewed(rows, limited(2), until_m=20, state=state)

    assert {"jobs": 1, "really_mean_ms": 2 * M, "simulated_mean_ms": 0} == found["check"]


# -- words -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before_ms", "after_ms", "text"),
    [
        (41 * M, 18 * M, "41 → 18 min"),
        (6 * M, 7 * M, "6 → 7 min"),
        (0, 0, "0 s as before"),
        (90 * SECOND_MS, 100 * SECOND_MS, "90 → 100 s"),
        (5 * HOUR_MS, 90 * M, "5 → 1.5 h"),
        (None, 3 * M, "- → 3 min"),
    ],
)
def test_two_waits_in_one_unit(before_ms: int | None, after_ms: int | None, text: str) -> None:
    assert text == pair_text(before_ms, after_ms)


@pytest.mark.parametrize(
    ("span_ms", "text"),
    [
        (7 * DAY_MS, "the last 7 days"),
        (DAY_MS, "the last day"),
        (26 * HOUR_MS, "the last day"),
        (3 * HOUR_MS, "the last 3 hours"),
        (40 * M, "the last 40 minutes"),
        (1, "the last minute"),
    ],
)
def test_a_span_in_words(span_ms: int, text: str) -> None:
    assert text == span_text(span_ms)
