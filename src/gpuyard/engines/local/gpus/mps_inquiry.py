"""Finds the job that breaks MPS servers, by running the jobs that were there again one after the other.

A fault of one client takes all clients of its server with it, with the same error, and the client that the log names
is not always the culprit. So all jobs that were there run again, but a second one starts only once the first has run
for longer than it had when the server broke. A job is to blame if it was alone in a fault, or twice the only one there
that was still under suspicion. A job that the log names goes first, and so does one that was the only suspect once: if
it is to blame, it harms no other job.

Kept on disk, as a server may come back in between.
"""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from gpuyard.engines.machine import files

FILE = "mps-suspects.json"
MARGIN_MS = 10_000
"""How much longer than before the fault a job must run to be above suspicion."""
WAIT_MS_MAX = 10 * 60_000
"""How long the others wait for one suspect; four times as long after each further fault without a culprit."""
_TIMES_MAX = 10
SLACK_MS = 2_000
"""How far the daemon's clock and ours may differ."""
FIRST_MS = 20_000
"""How long after a fault the others wait for the one that the log named."""
FORGOTTEN_MS = 24 * 3_600_000


class Inquiry:
    """The suspects of all faults that are not settled."""

    def __init__(self, folder: str, now_ms: Callable[[], int]) -> None:
        self._path = os.path.join(folder, FILE)
        self._now_ms = now_ms

    def guilty(self, job: str, at_ms: int, there: Mapping[str, int], named: set[str]) -> bool:
        """Whether a job is to blame for a fault. `there`: its jobs, since when; `named`: those that the log names.

        If not, it is a suspect from now on, unless the culprit is known already.
        """
        suspects = self._read()
        # As it was before this fault: jobs of this fault that were judged earlier are suspects of it already.
        known = {each: of if of["at_ms"] < at_ms else of["before"] for each, of in suspects.items()}
        before = {each: of for each, of in known.items() if _is_suspect(of) and of["at_ms"] < at_ms}
        still = {
            each
            for each, started_ms in there.items()
            if each in before and at_ms - started_ms < _probation_ms(before[each])
        }
        # A job that was no suspect may be the culprit: then the inquiry starts over, whatever the log says.
        new = any([each not in before for each in {*there, *named} if each])
        # The only one under suspicion. Once may be chance, as another may break a server later than it did before;
        # but it is sure if only unknown processes were beside it, for they may be its own.
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
        """Whether a job must not yet join `live` (jobs, since when): a suspect there has not passed its probation."""
        suspects = self._read()
        mine = suspects.pop(job, None)
        now_ms = self._now_ms()
        tried = {each for each, of in suspects.items() if each in live and _tried(of, now_ms - live[each])}
        if mine is None:
            # A job that is no suspect may join after the first fault. Later it must be clear which job broke the
            # server.
            return any([suspects[each]["times"] > 1 for each in tried])
        if tried:
            return True
        rivals = {each: of for each, of in suspects.items() if of["at_ms"] == mine["at_ms"]}
        # Not if the clock was set back: the wait might be long.
        soon = -SLACK_MS <= now_ms - mine["at_ms"] < FIRST_MS
        return soon and not mine["named"] and any([of["named"] and r not in live for r, of in rivals.items()])

    def _settle(self, suspects: dict[str, Any], job: str) -> None:
        """Clear the other suspects of that fault. The culprit stays one: its job may be run again."""
        if job in suspects:
            at_ms = suspects[job]["at_ms"]
            self._write({each: of for each, of in suspects.items() if each == job or of["at_ms"] != at_ms})

    def _read(self) -> dict[str, Any]:
        oldest_ms = self._now_ms() - FORGOTTEN_MS
        kept: object = None
        # An unreadable file means no suspects.
        with suppress(OSError, RecursionError):
            kept = files.read(self._path)
        whole = kept if isinstance(kept, dict) else {}
        return {job: of for job, of in whole.items() if _is_suspect(of) and of["at_ms"] > oldest_ms}

    def _write(self, suspects: dict[str, Any]) -> None:
        # On a full disk no job becomes a suspect, and the culprit breaks a server once more.
        with suppress(OSError):
            files.replace(self._path, suspects, durable=True)


def _is_suspect(of: object) -> bool:
    if not isinstance(of, dict) or not isinstance(of.get("named"), bool) or "before" not in of:
        return False
    return all([isinstance(of.get(name), int) for name in ("at_ms", "ran_ms", "times")])


def _probation_ms(suspect: Mapping[str, int]) -> int:
    return suspect["ran_ms"] + MARGIN_MS


def _tried(suspect: Mapping[str, int], ran_ms: int) -> bool:
    """Whether other jobs wait for a suspect that has run for `ran_ms` again. Negative: the clock was set back."""
    most_ms = WAIT_MS_MAX << 2 * min(_TIMES_MAX, max(0, suspect["times"] - 1))
    return 0 <= ran_ms < min(most_ms, _probation_ms(suspect))
