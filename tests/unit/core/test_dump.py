"""A dump holds everything, and a state loaded from it is the same in every respect."""

import json

import pytest

from gpuyard.core import apply
from gpuyard.core.state.dump import canonical, derived, dump, load
from gpuyard.model import (
    Ask,
    AttemptConfirmed,
    AttemptStopping,
    Budget,
    Command,
    DemandLearned,
    Image,
    Isolation,
    JobHeld,
    JobSpec,
    JobSuspended,
    Memory,
    Mig,
    Milli,
    NodeCordoned,
    NodeDown,
    Outcome,
    PolicySpec,
    Quota,
    Settings,
    StopCause,
    Tenant,
    Whole,
)
from gpuyard.model.serialise import from_plain, to_plain
from gpuyard.testing import URGENT, ask, node, nodes, share, tenant
from harness.machines.checked import CheckedYard, replayed
from harness.yard import Yard

S = 1000


def busy() -> Yard:
    """Something of everything: shares, gangs, earmarks, held, deferred, frozen and stopping jobs, usage, budgets."""
    tenants = [
        tenant("a", 3, guarantee=8, lend=2),
        tenant("a/x", max_gpus_per_user=4000),
        tenant("b", limit={"H100": 12}, budget=Budget(10_000 * S, 60 * S)),
    ]
    here = CheckedYard("default", [*nodes(2), *nodes(1, model="A100-80GB"), node("cpu", gpus=0)], tenants)
    here.submit(8, tenant="a", limit_ms=90 * S, checkpoint_ms=7 * S, restart_cost_ms=S)
    here.submit(ask(3, 2), tenant="b", limit_ms=80 * S)
    here.submit(share(250), tenant="c", limit_ms=80 * S)
    here.submit(share(700), tenant="c", limit_ms=80 * S)
    here.step()
    here.wait(31 * S)
    here.apply(AttemptConfirmed(here.now_ms, 1, 1))
    here.apply(JobSuspended(here.now_ms, 3))
    here.submit(8, tenant="d", klass="urgent", deadline_ms=99 * S)
    here.submit(2, tenant="a/x/new", begin_ms=200 * S)
    here.step()
    here.apply(JobHeld(here.now_ms, here.submit(1, tenant="e")))
    here.apply(NodeCordoned(here.now_ms, 2, "drain"))
    here.apply(NodeDown(here.now_ms, 3, "failed"))
    here.apply(AttemptStopping(here.now_ms, 4, 1, StopCause.REQUEUE))
    here.apply(DemandLearned(here.now_ms, ((ask(2), 3), (share(500), 1))))
    for gpus in (1, 2, 8):
        here.submit(gpus, tenant="a", limit_ms=10 * S)
    here.step()
    return here


def test_a_loaded_state_is_the_same_in_every_respect() -> None:
    here = busy()
    again = load(json.loads(json.dumps(dump(here.state))))
    again.reindex(here.policy.order)
    assert canonical(here.state) == canonical(again)
    assert derived(here.state) == derived(again)
    held, shown = here.state, again
    assert held.wake_ms() == shown.wake_ms()
    assert [held.earmarks.keys(), held.deferred.keys()] == [shown.earmarks.keys(), shown.deferred.keys()]
    assert held.earmarks or held.leaving


def test_a_dump_is_made_of_what_json_has() -> None:
    def check(value: object) -> None:
        assert type(value) in (dict, list, str, int, bool, type(None)), f"{value!r}"
        for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            check(part)

    plain = dump(busy().state)
    check(plain)
    assert plain == json.loads(json.dumps(plain))


def test_the_rows_of_jobs_may_stand_in_any_order() -> None:
    """Nothing hangs on the order in which jobs are entered: the queue is sorted, not remembered."""
    here = busy()
    wanted = here.decide()
    plain = dump(here.state)
    for turn in range(1, len(plain["jobs"])):
        rows = plain["jobs"][turn:] + plain["jobs"][:turn]
        state = load({**plain, "jobs": rows[::-1]})
        other = Yard("default")
        other.state, other.now_ms = state, here.now_ms
        assert wanted == other.decide()


def test_a_state_that_goes_on_after_a_restart_gets_to_the_same_place() -> None:
    """Cut at every event: what follows leads to the same state and the same plans."""
    whole = busy()
    for job in sorted(whole.state.running):
        whole.end(job, Outcome.COMPLETED)
        whole.step()
    for cut in range(0, len(whole.log), 3):
        here = CheckedYard("default")
        here.log, here.now_ms = [], 0
        here.state = load(dump(replayed(whole.log[:cut])))
        for event in whole.log[cut:]:
            apply(here.state, event)
        assert canonical(whole.state) == canonical(here.state)


def test_another_version_is_refused() -> None:
    with pytest.raises(ValueError, match="version 2"):
        load({**dump(Yard().state), "version": 2})


@pytest.mark.parametrize(
    "value",
    [
        Ask(Whole(2), 3, 1000, 2048, ("H100", "A100-80GB"), ("p",), 4),
        Ask(Milli(1, 250)),
        Ask(Mig(2, "1g.18gb")),
        Ask(Memory(1, 40_000, Isolation.STRICT)),
        JobSpec("t", Ask(Whole(0)), work=Command(("python", "train.py"))),
        JobSpec("t", Ask(Whole(0)), work=Image("registry/image:1", ("--fast",))),
        Settings(
            version=7,
            tenants=(Tenant("a", 2, Quota({"total": 1}, {"H100": 2}, {}, {}, 1, None, 3), Budget(5, 6)),),
            classes=(URGENT,),
            default_class="urgent",
            share_weights={"H100": 3},
            policy=PolicySpec("p", ("class", "fair"), preemption=("reclaim",), quotas=False),
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_come_back_as_they_were(value: object) -> None:
    assert value == from_plain(type(value), json.loads(json.dumps(to_plain(value))))


def test_what_has_no_plain_form_is_refused() -> None:
    with pytest.raises(TypeError, match="float has no plain form"):
        to_plain(0.5)


def test_jobs_that_wait_are_loaded_without_anything_that_only_running_ones_have() -> None:
    yard = Yard("fifo", nodes(1))
    running, *waiting = [yard.submit(8) for _ in range(3)]
    yard.step()
    state = load(dump(yard.state))
    first, second = [state.jobs[job_id] for job_id in waiting]
    assert first.usage is second.usage, "there may be hundreds of thousands"
    assert (None, None) == (first.extras, second.extras)
    assert yard.state.jobs[running].rate == state.jobs[running].rate > 0
