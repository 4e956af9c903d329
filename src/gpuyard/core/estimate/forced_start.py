"""When other jobs may be stopped for a job: not before they have had their minimum run time."""

from typing import NamedTuple

from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.phrases import names_text
from gpuyard.core.schedule.decide import rehearse
from gpuyard.core.schedule.policy import Policy
from gpuyard.core.schedule.running_jobs import is_preemptible, protected_until_ms
from gpuyard.core.state.state import State
from gpuyard.quantities import span_words

LOOKS_MAX = 4
"""How many of the times at which a victim loses its protection are tried."""


class Forced(NamedTuple):
    """When a job starts by force, and which jobs that stops."""

    at_ms: int
    how: str


def find_forced_start(state: State, policy: Policy, now_ms: int, record: JobRecord) -> Forced | None:
    """The first time at which a plan would stop others for the job, if nothing changes before; None: none was found."""
    rights = [
        rule.rights(state, record, now_ms) for rule in policy.rules if rule.applies(state, record, now_ms)
    ]
    if not rights or record.id in state.deferred:
        return None
    times = sorted(
        {
            protected_until_ms(victim)
            for victim in state.running.values()
            if is_preemptible(state, victim)
            and protected_until_ms(victim) > now_ms
            and any([may_stop(victim) for may_stop in rights])
        }
    )
    for at_ms in times[:LOOKS_MAX]:
        # Not `decide`, which would cache the answer for that time as if it held now.
        plan = rehearse(state, policy, at_ms, lambda: None)
        victims = [state.jobs[stop.job_id] for stop in plan.stops if stop.for_job == record.id]
        if victims:
            grace_ms = max([victim.klass.grace_ms for victim in victims])
            labels = names_text([victim.job.label for victim in victims])
            several = len(victims) > 1
            how = (
                f"job{'s' if several else ''} {labels} {'are' if several else 'is'} stopped for it in "
                f"{span_words(at_ms - now_ms)}, once {'they have' if several else 'it has'} had "
                f"{'their' if several else 'its'} minimum run time, with {span_words(grace_ms)} to end"
            )
            return Forced(at_ms + grace_ms, how)
    return None
