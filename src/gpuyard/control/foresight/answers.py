"""An estimate as an answer: numbers for programs, and how they were reached for people."""

from collections.abc import Mapping
from typing import Any

from gpuyard.control.foresight.oracle import Foresight
from gpuyard.core.phrases import count_text, span
from gpuyard.model.units import HOUR_MS, MILLI, NO_LIMIT_MS
from gpuyard.sim.calibration import ONE, SCORES_MIN


def answer_of(
    now_ms: int,
    state: str,
    found: Foresight | None = None,
    told: Mapping[int, int | None] | None = None,
    stretch: Mapping[int, int] | None = None,
    scores: int = 0,
    seed: int | None = None,
) -> dict[str, Any]:
    """The fields that every estimate has; without one, those of a job that does not wait."""
    found = found or Foresight(state)
    told, stretch = told or {}, stretch or {}
    starts = {f"p{percent}": None if w is None else now_ms + w for percent, w in told.items()}
    # Without some of those ahead of it a run tells no more than how early it could be at best.
    late = bool(found.left_out_ahead and found.runs)
    return {
        "job": None,
        "task": None,
        "state": state,
        "now_ms": now_ms,
        "started_ms": None,
        "starts_by_ms": starts if any(at is not None for at in starts.values()) and not late else None,
        "not_before_ms": starts.get("p50") if late else None,
        "left_out_ahead": found.left_out_ahead,
        "never_of_runs": found.runs - len(found.waits_ms),
        "runs": found.runs,
        "bound_ms": found.bound_ms,
        "how": _how(found, now_ms, stretch, scores) if found.runs else _by_limits(found),
        "basis": {
            "history_jobs": found.history_jobs,
            "level": found.level,
            "stretch": {f"p{percent}": value / ONE for percent, value in stretch.items()},
            "past_estimates": scores,
        },
        "seed": seed,
    }


def how_of(state: str, started_ms: int | None, now_ms: int) -> str:
    """What is to be said of a job that does not wait."""
    if started_ms and state in ("RUNNING", "SUSPENDED"):
        return f"it started {span(now_ms - started_ms)} ago"
    if started_ms:
        return f"it has ended: {state}"
    return f"it has ended without starting: {state}"


def _by_limits(found: Foresight) -> str:
    """How it was reached where nothing was run forward, and why nothing was."""
    if not found.cut_off:
        return found.how
    return f"{found.how}; no more can be told: so long a queue takes too long to run forward even once"


def _how(found: Foresight, now_ms: int, stretch: Mapping[int, int], scores: int) -> str:
    """How an estimate was reached, in sentences."""
    if found.waits_ms and not found.waits_ms[-1] and len(found.waits_ms) == found.runs:
        return "there is room for it now"
    drawn = (
        f"run times drawn from {count_text(found.history_jobs, 'ended job')}"
        if found.history_jobs
        else "no job has ended yet, so every job is taken to run to its time limit, "
        "and one without for an hour and as long again as it has run"
    )
    parts = [f"{found.runs} runs forward from now under the yard's own policy, {drawn}"]
    if found.left_out_ahead:
        left = f"{found.left_out_ahead:,} of the jobs ahead of it"
        parts.append(f"{left} were left out, and all that are still to come, so it starts later than that")
    elif found.left_out:
        parts.append(f"without {found.left_out:,} of the jobs behind it, and without those still to come")
    if found.runs > len(found.waits_ms):
        parts.append(f"in {found.runs - len(found.waits_ms)} of them it does not start within 14 days")
    if scores >= SCORES_MIN:
        factor = stretch.get(90, ONE) / ONE
        parts.append(f"stretched x{factor:.2f} by what the last {scores} estimates were worth")
    if found.bound_ms is None:
        parts.append(f"by time limits alone it cannot be told: {found.how}")
    elif found.bound_ms > now_ms:
        parts.append(f"if everything took its whole time limit: in {span(found.bound_ms - now_ms)}")
    return "; ".join(parts)


def cost_of(found: Foresight, price_micro_usd_h: int, tasks: int) -> dict[str, Any]:
    """What it costs at most, and what is to be expected, in micro-dollars; None: it cannot be told."""

    def micro_usd(run_ms: int) -> int:
        return price_micro_usd_h * found.gpu_milli * run_ms * tasks // (MILLI * HOUR_MS)

    limited = found.limit_ms < NO_LIMIT_MS
    free = found.gpu_milli == 0
    return {
        "gpu_model": found.model if found.gpu_milli else None,
        "price_micro_usd_h": price_micro_usd_h,
        "at_most_micro_usd": 0 if free else micro_usd(found.limit_ms) if limited else None,
        "expected_micro_usd": 0 if free else None if found.run_ms < 0 else micro_usd(found.run_ms),
        "expected_run_ms": None if found.run_ms < 0 else found.run_ms,
        "expected_from": found.level,
    }
