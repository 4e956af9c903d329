"""The books as a report reads them: some days, with what is still open."""

from gpuyard.control.admission.entering import make_events
from gpuyard.control.admission.wanted import Wanted
from gpuyard.control.duties.projections import Filler
from gpuyard.control.projections.ledger import Ledger
from gpuyard.control.views.accounts import find_touched, read_accounts, read_owed, told_of
from gpuyard.ledger.units import GPU_HOUR, IDLE, UNMEASURED, month_days, month_of
from gpuyard.model import (
    AttemptConfirmed,
    AttemptEnded,
    AttemptMeasured,
    AttemptStarted,
    ConfigSet,
    EarmarkSet,
    Grant,
    JobCancelled,
    JobSubmitted,
    MonthClosed,
    NodeAdded,
    Outcome,
    Price,
    Settings,
    TasksSubmitted,
)
from gpuyard.model.units import DAY_MS, HOUR_MS
from gpuyard.store import Store, Submission
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

    (nobody, tenant) = read_accounts(store, 20_000, 20_001, BEGIN_MS + 3 * HOUR_MS).lines(["tenant"])
    assert (("",), (SPEC.tenant,)) == (nobody.names, tenant.names)
    assert 6 * GPU_HOUR == tenant.time[UNMEASURED] == nobody.time[IDLE]
    assert 12 * 6_880_000 == nobody.fleet == 2 * tenant.charged

    # A day later, the first day has 24 hours of it.
    (_nobody, tenant) = read_accounts(store, 20_000, 20_001, BEGIN_MS + 30 * HOUR_MS).lines(["tenant"])
    assert 48 * GPU_HOUR == tenant.time[UNMEASURED]
    assert [] == read_accounts(store, 20_000, 20_001).lines(["tenant"])


def test_a_job_owes_what_the_books_say_at_the_price_of_each_day(store: Store) -> None:
    lease = store.elect("test")
    assert lease is not None
    prices = (Price(2_000_000, "H100", from_day=20_000), Price(5_000_000, "H100", from_day=20_001))
    first = accepted(store, submission(4))[0].first_id
    ids = range(first, first + 4)
    whole, share, node_of = first, first + 1, Grant(0, 0b1, 1000, 0, 0, 1)
    store.append(
        [
            ConfigSet(BEGIN_MS, Settings(price_book=prices)),
            NodeAdded(BEGIN_MS, node(gpus=4)),
            AttemptStarted(BEGIN_MS, whole, 1, (node_of,)),
            AttemptStarted(BEGIN_MS, share, 1, (Grant(0, 0b10, 250, 0, 0, 1),)),
        ]
    )
    # Nothing is filled yet.
    assert dict.fromkeys(ids) == read_owed(store, ids, BEGIN_MS)
    filler = Filler(store, [Ledger()], lambda: BEGIN_MS)
    while filler.step(lease.epoch):
        pass
    day_later = BEGIN_MS + 25 * HOUR_MS
    assert {whole: 53_000_000, share: 13_250_000, first + 2: 0, first + 3: 0} == read_owed(
        store, ids, day_later
    )
    # What the books lack is known all the same: an end, and a start on a node that is new.
    store.append(
        [
            AttemptEnded(day_later, whole, 1, Outcome.COMPLETED, ended_ms=day_later - HOUR_MS),
            NodeAdded(day_later, node("b", gpus=1, model="Unheard-of")),
            AttemptStarted(day_later, first + 2, 1, (Grant(1, 0b1, 1000, 0, 0, 1),)),
        ]
    )
    now_ms = day_later + HOUR_MS
    late = {whole: 48_000_000, share: 14_500_000, first + 2: None, first + 3: 0}
    assert late == read_owed(store, ids, now_ms)
    while filler.step(lease.epoch):
        pass
    assert {**late, 999: None} == read_owed(store, [*ids, 999], now_ms)


def test_a_report_knows_what_the_books_lack_of_the_log(store: Store) -> None:
    lease = store.elect("test")
    assert lease is not None
    job_id = accepted(store, submission(1))[0].first_id
    store.append(
        [ConfigSet(BEGIN_MS, Settings(prices={"H100": 2_000_000})), NodeAdded(BEGIN_MS, node(gpus=4))]
    )
    filler = Filler(store, [Ledger()], lambda: BEGIN_MS)
    while filler.step(lease.epoch):
        pass
    first, after = month_days(month_of(20_000))
    now_ms = after * DAY_MS + HOUR_MS
    # Nothing fills the books from here on: a start, a month that is closed, and another price after it.
    store.append(
        [
            AttemptStarted(BEGIN_MS, job_id, 1, (Grant(0, 0b11, 1000, 0, 0, 2),)),
            MonthClosed(now_ms, month_of(20_000), "ada"),
            ConfigSet(now_ms, Settings(prices={"H100": 7_000_000})),
        ]
    )

    found = read_accounts(store, first, after + 1, now_ms + HOUR_MS)
    (nobody, tenant) = found.lines(["tenant"], whole=True)

    hours = 24 * (after - 20_000)
    assert 2 * (hours * 2_000_000 + 2 * 7_000_000) == tenant.charged == nobody.rest
    assert (after, 0) == (found.closed_day, found.late)
    while filler.step(lease.epoch):
        pass
    assert found == read_accounts(store, first, after + 1, now_ms + HOUR_MS)._replace(prices=found.prices)


def test_books_that_are_being_filled_say_how_much_they_lack(store: Store) -> None:
    store.append([NodeAdded(BEGIN_MS, node(gpus=4))])

    assert store.head() == read_accounts(store, 20_000, 20_001, BEGIN_MS + HOUR_MS).late


def test_what_running_jobs_did_is_not_booked_until_it_is_told(store: Store) -> None:
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

    def hours(at_ms: int, until_day: int = 20_001) -> float:
        return sum(read_accounts(store, 20_000, until_day, at_ms).untold.values()) / GPU_HOUR

    half = BEGIN_MS + HOUR_MS // 2
    assert [1.0, 0.0] == [hours(half), hours(half, 20_000)]
    # Of a job that nobody has told of for an hour, nobody will.
    assert 0.0 == hours(BEGIN_MS + 2 * HOUR_MS)
    spans = ((BEGIN_MS, half),)
    store.append([AttemptMeasured(half, job_id, 1, BEGIN_MS, half, HOUR_MS, HOUR_MS, HOUR_MS, 0, spans)])
    assert [0.0, 0.5] == [hours(half), hours(half + HOUR_MS // 4)]
    assert 2.0 == hours(BEGIN_MS + 9 * HOUR_MS)


def test_tasks_that_only_wait_are_not_folded_for_a_report(store: Store) -> None:
    """Somebody submitted array after array, and each statement folded hundreds of thousands of tasks anew."""
    lease = store.elect("test")
    assert lease is not None
    store.append([NodeAdded(BEGIN_MS, node(gpus=4))])
    filler = Filler(store, [Ledger()], lambda: BEGIN_MS)
    while filler.step(lease.epoch):
        pass
    before, array = store.head(), Wanted(array=tuple(range(2_000)))
    (came,) = accepted(
        store, Submission(lambda i: make_events(array, SPEC, i, BEGIN_MS, {}), array.ids), now_ms=BEGIN_MS
    )
    task = came.first_id + 700
    started = AttemptStarted(BEGIN_MS, task, 1, (Grant(0, 0b1, 1000, 0, 0, 1),))
    store.append([started, AttemptConfirmed(BEGIN_MS, task, 1)])

    (nobody, tenant) = read_accounts(store, 20_000, 20_001, BEGIN_MS + HOUR_MS).lines(["tenant"])
    assert (GPU_HOUR, 3 * GPU_HOUR) == (tenant.time[UNMEASURED], nobody.time[IDLE])
    late = store.read(before)
    assert [TasksSubmitted] * 4 == [type(event) for _seq, event in late[:-2]]
    of_it, of_none = [[type(fact) for fact in told_of(late, {each})] for each in (task, task + 5_000)]
    assert [AttemptStarted, AttemptConfirmed] == of_none
    assert [JobSubmitted, *of_none] == of_it


def test_jobs_that_came_and_were_cancelled_are_not_folded_but_for_room_that_was_kept(store: Store) -> None:
    """Somebody submits array after array and cancels each: what was cancelled had been folded, task by task."""
    lease = store.elect("test")
    assert lease is not None
    store.append([NodeAdded(BEGIN_MS, node(gpus=4))])
    array = Wanted(array=tuple(range(2_000)))
    waits = accepted(store, submission(1))[0].first_id
    kept = EarmarkSet(BEGIN_MS, waits, (Grant(0, 0b11, 1000, 0, 0, 2),), BEGIN_MS + DAY_MS)
    store.append([kept])
    filler = Filler(store, [Ledger()], lambda: BEGIN_MS)
    while filler.step(lease.epoch):
        pass
    before, at_ms = store.head(), BEGIN_MS + HOUR_MS
    (came,) = accepted(
        store, Submission(lambda i: make_events(array, SPEC, i, at_ms, {}), array.ids), now_ms=at_ms
    )
    cancelled = [JobCancelled(at_ms, came.first_id + place) for place in range(2_000)]
    store.append([*cancelled, JobCancelled(at_ms, waits)])

    late = store.read(before, 5_000)
    assert [JobCancelled(at_ms, waits)] == [*told_of(late, find_touched(late, [waits]))]
    found = read_accounts(store, 20_000, 20_001, at_ms + HOUR_MS)
    while filler.step(lease.epoch):
        pass
    assert found == read_accounts(store, 20_000, 20_001, at_ms + HOUR_MS)._replace(prices=found.prices)
    (nobody, *_) = found.lines(["tenant"], whole=True)
    assert 6 * GPU_HOUR == nobody.time[IDLE], "half of it was kept for an hour"
