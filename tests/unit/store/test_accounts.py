"""The books as a report reads them: some days, with what is still open."""

from gpuyard.control.projections.ledger import Ledger
from gpuyard.control.upkeep.filling import Filler
from gpuyard.control.views.accounts import accounts
from gpuyard.ledger.units import GPU_HOUR, IDLE, UNMEASURED
from gpuyard.model import AttemptConfirmed, AttemptStarted, Grant, NodeAdded
from gpuyard.model.units import DAY_MS, HOUR_MS
from gpuyard.store import Store
from gpuyard.testing.values import node
from rigs.stores import SPEC, accepted, submission

BEGIN_MS = 20_000 * DAY_MS


def test_what_is_open_counts_up_to_now_and_nothing_of_it_is_written(store: Store) -> None:
    lease = store.elect("test")
    assert lease is not None
    job_id = accepted(store, submission(1))[0].first_id
    store.append(
        [
            NodeAdded(BEGIN_MS, node(gpus=4)),
            AttemptStarted(BEGIN_MS, job_id, 1, (Grant(0, 0b11, 1000, 0, 0, 2),)),
            AttemptConfirmed(BEGIN_MS, job_id, 1),
        ]
    )
    filler = Filler(store, [Ledger()], lambda: BEGIN_MS)
    while filler.step(lease.epoch):
        pass

    (nobody, tenant) = accounts(store, 20_000, 20_001, BEGIN_MS + 3 * HOUR_MS).lines(["tenant"])
    assert (("",), (SPEC.tenant,)) == (nobody.names, tenant.names)
    assert 6 * GPU_HOUR == tenant.time[UNMEASURED] == nobody.time[IDLE]
    assert 12 * GPU_HOUR * 6_880_000 == nobody.fleet == 2 * tenant.charged

    # A day later, the first day has 24 hours of it.
    (_nobody, tenant) = accounts(store, 20_000, 20_001, BEGIN_MS + 30 * HOUR_MS).lines(["tenant"])
    assert 48 * GPU_HOUR == tenant.time[UNMEASURED]
    assert [] == accounts(store, 20_000, 20_001).lines(["tenant"])
