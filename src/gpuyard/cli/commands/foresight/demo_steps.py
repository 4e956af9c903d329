"""What the jobs of the demo did, by what they themselves wrote: each step once, across every stop.

The demo says that a job that was stopped went on where it was. The yard's books cannot tell; the log can.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from gpuyard.errors import YardError

SCRIPT = """\
#!/bin/sh
# Counts to $1. It saves how far it got, and goes on from there when it was stopped for others.
# A file that is written in place is empty for a moment; one that is renamed is whole, whenever the job is stopped.
save() { printf '%s\\n' "$2" >"$1.new" && sync "$1.new" && mv -f "$1.new" "$1"; }

step=$(cat "$YARD_CHECKPOINT_FILE" 2>/dev/null || echo 0)
[ "$step" -gt 0 ] && echo "attempt $YARD_ATTEMPT resumes at step $step"
while [ "$step" -lt "$1" ]; do
    sleep 0.2
    step=$((step + 1))
    echo "step $step of $1 on $CUDA_VISIBLE_DEVICES"
    save "$YARD_CHECKPOINT_FILE" "$step"
done
"""

_STEP = re.compile(r"step (\d+) of \d+ on ")


class JobLog(NamedTuple):
    """What one job wrote, attempt by attempt."""

    label: str
    team: str
    wanted: int
    """How many steps it was to do."""
    attempts: Sequence[str]

    def steps(self) -> list[list[int]]:
        """The numbers of the steps that each attempt wrote."""
        return [[int(number) for number in _STEP.findall(text)] for text in self.attempts]

    @property
    def resumed(self) -> bool:
        """Whether its last attempt went on with what an earlier one had saved."""
        return "resumes at step" in self.attempts[-1]


def check_steps(log: JobLog) -> int:
    """How many steps it did twice; an error, in words, where it did not go on where it was.

    A step that was written and not yet saved when the job was stopped is done again: one for each stop, at most.
    """
    at = again = 0
    for number, steps in enumerate(log.steps(), 1):
        if not steps:
            continue
        if steps[0] not in {at or 1, at + 1}:
            raise YardError(
                f"job {log.label} of the demo did not go on where it was: it had come to step {at} of {log.wanted}, "
                f"and attempt {number} began with step {steps[0]}"
            )
        if steps != list(range(steps[0], steps[-1] + 1)):
            raise YardError(f"job {log.label} of the demo left out steps in attempt {number}: {steps}")
        again += steps[0] == at
        at = steps[-1]
    if at != log.wanted:
        raise YardError(
            f"job {log.label} of the demo has ended, and its log has {at} of its {log.wanted} steps"
        )
    return again
