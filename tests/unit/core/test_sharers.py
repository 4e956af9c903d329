"""Shares of one GPU belong to one user, unless the settings say otherwise."""

import random

import pytest

from gpuyard.control.access.people import RunAs
from gpuyard.control.admission.entering import set_share_owner
from gpuyard.core.estimate.estimate import estimate
from gpuyard.core.explain.why import explain_why
from gpuyard.core.state.dump import canonical, derived, dump, load
from gpuyard.model import Ask, EndJobs, Mig, Milli, Settings, Whole
from gpuyard.testing import ask, nodes
from harness.yard import Yard


def share(user: str, milli: int = 250) -> Ask:
    return Ask(Milli(1, milli, user))


def where(here: Yard, job: int) -> tuple[int, int]:
    (grant,) = here.state.jobs[job].grants
    return grant.node, grant.gpus


def test_shares_of_two_users_go_on_two_gpus() -> None:
    here = Yard("default", nodes(1, gpus=2))
    jobs = [here.submit(share(user)) for user in ("ana", "bo", "ana", "bo")]
    assert jobs == here.started(here.step())
    places = [where(here, job) for job in jobs]
    assert places[0] == places[2] != places[1] == places[3]


def test_who_finds_only_the_gpus_of_others_waits_and_is_told_why() -> None:
    here = Yard("default", nodes(1, gpus=1))
    first = here.submit(share("ana"), limit_ms=50_000)
    here.step()
    waits = here.submit(share("bo"), limit_ms=1000)
    assert [] == here.started(here.step())
    assert 50_000 == estimate(here.state, here.policy, here.now_ms, here.state.jobs[waits]).at_ms
    (reason,) = explain_why(here.state, here.policy, waits, here.now_ms).reasons
    assert (
        "only beside shares of other users, and shares of one GPU belong to one user (mps_users)"
        in reason.text
    )
    assert EndJobs((first,)) == reason.lift
    # A share of the same user goes past: it does not delay the other one, which needs all of the GPU to be free.
    here.end(first)
    assert [waits] == here.started(here.step())
    here.end(waits)
    assert {} == here.state.nodes.sharers


def test_shares_that_name_nobody_go_anywhere() -> None:
    here = Yard("default", nodes(1, gpus=1))
    for user in ("ana", ""):
        here.submit(share(user))
    assert 2 == len(here.step().starts)


def test_a_share_is_owned_by_whom_the_job_runs_as() -> None:
    share, ana = Ask(Milli(1, 250)), RunAs(1001, 1001, "ana")
    assert Ask(Milli(1, 250, "ana")) == set_share_owner(share, ana, Settings())
    assert share == set_share_owner(share, ana, Settings(mps_users="many"))
    assert share == set_share_owner(share, RunAs(), Settings())
    whole = Ask(Whole(1))
    assert whole == set_share_owner(whole, ana, Settings())


@pytest.mark.parametrize("policy", ["fifo", "default", "conservative", "fgd", "pack", "class"])
@pytest.mark.parametrize("seed", range(4))
def test_no_gpu_is_ever_shared_by_two_users(policy: str, seed: int) -> None:
    rng = random.Random(seed)
    here = Yard(policy, nodes(2, gpus=2, model="H200"))
    beside = 0
    for _ in range(80):
        here.now_ms += rng.randrange(1, 5000)
        for _job in range(rng.randrange(4)):
            user, milli = rng.choice(["ana", "bo", "cy"]), rng.choice([200, 300, 500])
            wanted = rng.choice([share(user, milli), share(user, milli), ask(1), ask(Mig(1, "1g.18gb"))])
            here.submit(wanted, limit_ms=rng.randrange(1000, 60_000), klass=rng.choice(["", "urgent"]))
        for job_id in sorted(here.state.running):
            if rng.random() < 0.3:
                here.end(job_id)
        here.step()
        users: dict[tuple[int, int], list[str]] = {}
        for record in here.state.running.values():
            for grant in record.grants:
                if grant.user:
                    assert grant.user == record.job.spec.ask.gpus.user
                    users.setdefault((grant.node, grant.gpus), []).append(grant.user)
        assert all([len(set(found)) == 1 for found in users.values()])
        beside += any([len(found) > 1 for found in users.values()])
        again = load(dump(here.state))
        again.reindex(here.policy.order)
        assert canonical(here.state) == canonical(again)
        assert derived(here.state) == derived(again)
    assert beside
