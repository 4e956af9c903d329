"""Who waits for parts of GPUs: what is promised to it can be used, and keeps nobody waiting in vain."""

import pytest

from gpuyard.core.explain.why import explain_why
from gpuyard.model import EndJobs, Mig, Milli
from gpuyard.policies import registry
from gpuyard.testing import ask, node, nodes
from harness.yard import Yard

PRESETS_THAT_BACKFILL = [name for name, spec in registry.PRESETS.items() if spec.backfill != "none"]


@pytest.mark.parametrize("name", PRESETS_THAT_BACKFILL)
@pytest.mark.parametrize("limit_ms", [0, 3_600_000])
def test_a_share_that_waits_for_a_cut_gpu_keeps_no_slice_from_it(name: str, limit_ms: int) -> None:
    here = Yard(name, [node("vm", 1, "H200")], now_ms=1000)
    first = here.submit(ask(Mig(1, "3g.71gb")), limit_ms=limit_ms)
    here.step()
    here.now_ms += 5000
    share_of = here.submit(ask(Milli(1, 250, "ann")))
    assert not here.step().starts
    told = explain_why(here.state, here.policy, share_of, here.now_ms)
    assert told is not None
    (reason,) = told.reasons
    assert reason.text.endswith("that GPU is cut into slices (3g.71gb) until job 1 ends"), reason.text
    assert EndJobs((first,)) == reason.lift
    assert told.judged
    if limit_ms:
        assert 1000 + limit_ms == told.start_ms
        assert "when job 1 ends as promised" in told.how
    else:
        assert (None, "it waits for job 1, which has no time limit") == (told.start_ms, told.how)
    here.now_ms += 5000
    small = here.submit(ask(Mig(1, "1g.18gb")))
    assert [small] == here.started(here.step())
    here.end(first)
    assert not here.step().starts
    here.end(small)
    assert [share_of] == here.started(here.step())


@pytest.mark.parametrize("name", PRESETS_THAT_BACKFILL)
def test_a_promised_share_keeps_its_gpu_from_shares_of_other_users(name: str) -> None:
    """The GPU has enough for both; but shares of one GPU belong to one user."""
    here = Yard(name, nodes(1, 1))
    ann = here.submit(ask(Milli(1, 500, "ann")), limit_ms=20_000)
    here.step()
    here.now_ms += 1
    bob = here.submit(ask(Milli(1, 250, "bob")), limit_ms=20_000)
    here.step()
    longer, shorter = (
        here.submit(ask(Milli(1, 250, "ann")), limit_ms=60_000),
        here.submit(ask(Milli(1, 250, "ann")), limit_ms=9000),
    )
    assert [shorter] == here.started(here.step())
    here.now_ms = 20_000
    here.end(ann)
    here.end(shorter)
    assert [bob] == here.started(here.step())
    assert longer in here.state.jobs


@pytest.mark.parametrize("name", ["conservative", "default"])
def test_a_promise_for_slices_counts_the_gpus_that_take_them(name: str) -> None:
    """Five slices of 2g.20gb, at most three to a GPU and the same number on each, take five GPUs and not two."""
    here = Yard(name, nodes(1, 5))
    whole = [here.submit(1, limit_ms=1000 * (1 + number)) for number in range(5)]
    here.step()
    waits = here.submit(ask(Mig(5, "2g.20gb")), limit_ms=1000)
    here.step()
    here.now_ms = 2000
    for job_id in whole[:2]:
        here.end(job_id)
    here.submit(1, limit_ms=60_000)
    plan = here.step()
    assert not plan.starts
    assert (waits, 5000) == (plan.reservations[0].job_id, plan.reservations[0].at_ms)
    here.now_ms = 5000
    for job_id in whole[2:]:
        here.end(job_id)
    assert [waits] == here.started(here.step())
