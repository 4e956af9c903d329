"""Who breaks MPS servers, found out by letting those who were there run again one after the other.

A fault of one client takes all clients of its server with it, with the same error, and whom the log names is not always
the one. So everybody who was there runs again, but no two of them side by side before the first has run for as long as
it had when the server broke. A job that is alone with a fault, or twice the only one of them that is still under
suspicion, is to blame. Whom the log names goes first, and so does who was the only one once: if it is to blame, nobody
else is harmed.

Kept on disk, as a server may come back in between.
"""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from gpuyard.engines.local import files

FILE = "mps-suspects.json"
MARGIN_MS = 10_000
"""So much longer than before the fault somebody must run to be above suspicion."""
WAIT_MS_MAX = 10 * 60_000
"""How long the others wait for one of them; four times as long after each further fault that showed nobody's guilt."""
_TIMES_MAX = 10
SLACK_MS = 2_000
"""How far the daemon's clock and ours may differ."""
FIRST_MS = 20_000
"""How long after a fault the others wait for the one that was named."""
FORGOTTEN_MS = 24 * 3_600_000


class Inquiry:
    """The suspects of all faults that are not settled."""

    def __init__(self, folder: str, now_ms: Callable[[], int]) -> None:
        self._path = os.path.join(folder, FILE)
        self._now_ms = now_ms

    def guilty(self, job: str, at_ms: int, there: Mapping[str, int], named: set[str]) -> bool:
        """Whether a job is to blame for a fault. `there`: who was there, since when; `named`: whom the log names.

        Who is not is a suspect from now on, unless it is known already who it was.
        """
        suspects = self._read()
        # As it was before this fault: those of it who were judged first are suspects of this one already.
        known = {each: of if of["at_ms"] < at_ms else of["before"] for each, of in suspects.items()}
        before = {each: of for each, of in known.items() if _is_suspect(of) and of["at_ms"] < at_ms}
        still = {
            each
            for each, started_ms in there.items()
            if each in before and at_ms - started_ms < _probation_ms(before[each])
        }
        # Whom nobody suspected may be another one: then all of it begins anew, whomever the log names.
        new = any([each not in before for each in {*there, *named} if each])
        # The only one under suspicion. Once may be chance, as others may break a server later than they did before;
        # but not whom nobody knows: it may be a process of its own.
        sole = "" if new or len(still) != 1 else next(iter(still))
        sure = bool(sole) and (before[sole].get("sole") is True or there.keys() <= {sole, ""})
        if there.keys() <= {job} or (sure and sole == job):
            self._settle(suspects, job)
            return True
        if not sure:
            ran_ms = max(0, at_ms - there.get(job, at_ms))
            times = before[job]["times"] + 1 if job in before else 1
            suspects[job] = {
                "at_ms": at_ms,
                "ran_ms": ran_ms,
                "named": job == sole if sole else job in named,
                "sole": job == sole,
                "times": times,
                "before": before.get(job, {}) | {"before": {}},
            }
            self._write(suspects)
        return False

    def waits(self, job: str, live: Mapping[str, int]) -> bool:
        """Whether a job must not join these, who compute there since then: a suspect is to show itself first."""
        suspects = self._read()
        mine = suspects.pop(job, None)
        now_ms = self._now_ms()
        tried = {each for each, of in suspects.items() if each in live and _tried(of, now_ms - live[each])}
        if mine is None:
            # Somebody new may join the first time. After that it must be plain whose the next fault is.
            return any([suspects[each]["times"] > 1 for each in tried])
        if tried:
            return True
        rivals = {each: of for each, of in suspects.items() if of["at_ms"] == mine["at_ms"]}
        # Not if the clock was set back: it may be long until then.
        soon = -SLACK_MS <= now_ms - mine["at_ms"] < FIRST_MS
        return soon and not mine["named"] and any([of["named"] and r not in live for r, of in rivals.items()])

    def _settle(self, suspects: dict[str, Any], job: str) -> None:
        """It is known who it was: the others of that fault are above suspicion. It is not: it may be tried again."""
        if job in suspects:
            at_ms = suspects[job]["at_ms"]
            self._write({each: of for each, of in suspects.items() if each == job or of["at_ms"] != at_ms})

    def _read(self) -> dict[str, Any]:
        oldest_ms = self._now_ms() - FORGOTTEN_MS
        kept: object = None
        # Whatever lies there instead of it: then nobody is a suspect.
        with suppress(OSError, RecursionError):
            kept = files.read(self._path)
        whole = kept if isinstance(kept, dict) else {}
        return {job: of for job, of in whole.items() if _is_suspect(of) and of["at_ms"] > oldest_ms}

    def _write(self, suspects: dict[str, Any]) -> None:
        # On a full disk nobody is a suspect, and whoever breaks a server breaks it once more.
        with suppress(OSError):
            files.replace(self._path, suspects, durable=True)


def _is_suspect(of: object) -> bool:
    if not isinstance(of, dict) or not isinstance(of.get("named"), bool) or "before" not in of:
        return False
    return all([isinstance(of.get(name), int) for name in ("at_ms", "ran_ms", "times")])


def _probation_ms(suspect: Mapping[str, int]) -> int:
    return suspect["ran_ms"] + MARGIN_MS


def _tried(suspect: Mapping[str, int], ran_ms: int) -> bool:
    """Whether others wait for one that has run for so long again. Less than nothing: the clock was set back."""
    most_ms = WAIT_MS_MAX << 2 * min(_TIMES_MAX, max(0, suspect["times"] - 1))
    return 0 <= ran_ms < min(most_ms, _probation_ms(suspect))
