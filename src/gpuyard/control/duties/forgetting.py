"""The duty `forgetting`: old idempotency keys are forgotten, and the log is cut where nobody needs it any more."""

import logging
from collections.abc import Callable, Collection

from gpuyard.control.duties.duty import BackOff, Duty, Turn
from gpuyard.model.units import DAY_MS
from gpuyard.store import Store

KEYS_KEPT_MS = 7 * DAY_MS
"""How long an idempotency key is remembered."""
LOG_KEPT_MS = 90 * DAY_MS
"""How long the log is kept, and so how far back `why --at` can look. The history of ended jobs stays."""
EVERY_S = 3600.0
_log = logging.getLogger(__name__)


def duty(store: Store, following: Collection[str], now_ms: Callable[[], int]) -> Duty:
    """Of the leader. `following`: projections whose checkpoints have to cover what is cut off the log."""

    def round(_turn: Turn) -> None:
        forget(store, following, now_ms())

    return Duty(
        "forgetting",
        round,
        every_s=EVERY_S,
        leader=True,
        undone="nothing old was forgotten",
        retry=BackOff(60.0, EVERY_S),
    )


def forget(store: Store, following: Collection[str], now_ms: int) -> None:
    """Forget what is too old by now."""
    store.forget_keys(now_ms - KEYS_KEPT_MS)
    cut = store.forget_log(now_ms - LOG_KEPT_MS, following)
    if cut:
        _log.info("%d events older than %d days were cut off the log", cut, LOG_KEPT_MS // DAY_MS)
