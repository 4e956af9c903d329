"""Wishes about many jobs: written in batches, in time that grows with their number and no faster."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuyard.control.access.rights import Sight
from gpuyard.control.commands import wishes
from gpuyard.control.commands.wishes import BATCH, FEW, Gone, WishedId
from gpuyard.control.refusals import Forbidden, Impossible, NotFound, Unacceptable
from gpuyard.control.replica.labels import Label, find_live, make_live_finder, parse_label
from gpuyard.control.replica.replica import Replica
from gpuyard.control.views.views import Views
from gpuyard.model import Outcome, Verb
from gpuyard.store import StoreFull
from harness.sqlite import asked as asked_of_sqlite
from harness.steered import steering
from rigs.request_service import ANA, ROOT, Rig, granted, rig


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Rig]:
    with rig(tmp_path) as found:
        yield found


def asked(service: Rig, verb: Verb, *labels: object, who: object = ROOT) -> list[WishedId]:
    return granted(service.requests, service.requests.wish(who, verb, [str(label) for label in labels]))  # type: ignore[arg-type]


def waiting(service: Rig) -> list[str]:
    service.replica.catch_up()
    return [record.job.label for record in service.replica.state.jobs.values()]


def test_each_id_has_its_own_answer_in_their_order(service: Rig) -> None:
    mine, theirs, array = service.submit(ANA), service.submit(), service.submit(ANA, array=(0, 2, 4))
    found = asked(service, Verb.CANCEL, theirs, f"{array}_2", "x", mine, 99, array, mine, who=ANA)

    assert [0, 1, 0, 1, 0, 2, 0] == [each.jobs for each in found]
    kinds = [type(each.error) for each in found]
    assert [Forbidden, type(None), Unacceptable, type(None), Gone, type(None), Gone] == kinds
    assert [str(theirs)] == waiting(service)


def test_a_transaction_holds_no_more_than_a_batch(service: Rig) -> None:
    array = service.submit(array=tuple(range(3 * BATCH)))
    sizes: list[int] = []
    store = steering(service.replica.store)
    commit = store.commit

    def counted(*arguments: Any) -> list[int]:
        seqs: list[int] = commit(*arguments)
        sizes.append(len(seqs))
        return seqs

    with store.doing(commit=counted):
        (one,) = asked(service, Verb.HOLD, array)
    assert (3 * BATCH, [FEW, BATCH, BATCH, BATCH - FEW]) == (one.jobs, sizes)


def test_many_ids_are_looked_up_before_anything_is_written(
    service: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within the first transaction, twenty thousand ids would keep everybody else from writing."""
    one, array = service.submit(), service.submit(array=tuple(range(3 * BATCH)))
    wish = service.requests.wish(
        ROOT, Verb.CANCEL, [f"{array}_{n}" for n in range(3 * BATCH)] + [str(one), "x", "99"]
    )
    service.requests.look_up(wish)
    monkeypatch.setattr(wishes, "make_live_finder", _not_now)
    monkeypatch.setattr(wishes, "read_label", _not_now)

    found = granted(service.requests, wish)
    assert [1] * (3 * BATCH + 1) + [0, 0] == [each.jobs for each in found]
    assert [Unacceptable, Gone] == [type(each.error) for each in found[-2:]]
    assert [] == waiting(service)


def _not_now(*_args: object) -> None:
    raise AssertionError("looked up as a part of a transaction")


def test_ids_of_a_store_that_cannot_be_read_are_answered_so(
    service: Rig,
) -> None:
    wish = service.requests.wish(ROOT, Verb.CANCEL, [str(service.submit())] * 20)
    with steering(service.replica.store).doing(read=_full), pytest.raises(StoreFull) as caught:
        service.requests.look_up(wish)
    wish.give_up(caught.value)
    assert ({StoreFull}, True) == ({type(each.error) for each in wish.asked}, wish.finished)


def _full(*_args: object, **_named: object) -> None:
    raise StoreFull("no space is left")


def test_what_was_written_stays_and_asking_again_does_the_rest(service: Rig, tmp_path: Path) -> None:
    """As when the server is killed in the middle: a replica that is read anew has whole batches, the rest waits."""
    array = service.submit(array=tuple(range(2 * BATCH)))
    wish = service.requests.wish(ROOT, Verb.CANCEL, [f"{array}_{index}" for index in range(2 * BATCH)])
    service.requests.grant(wish).result(10)
    again = Replica(service.replica.store)
    assert [f"{array}_{index}" for index in range(BATCH, 2 * BATCH)] == [
        r.job.label for r in again.state.jobs.values()
    ]

    found = asked(service, Verb.CANCEL, *[f"{array}_{index}" for index in range(2 * BATCH)])
    assert [Gone] * BATCH + [type(None)] * BATCH == [type(each.error) for each in found]
    assert [] == waiting(service)


def test_a_store_that_fails_in_the_middle_leaves_an_answer_for_every_id(
    service: Rig,
) -> None:
    first, array = service.submit(), service.submit(array=tuple(range(2 * BATCH)))
    labels = [str(first), *[f"{array}_{index}" for index in range(2 * BATCH)]]
    wish = service.requests.wish(ROOT, Verb.HOLD, labels)
    wish.enter(service.requests.grant(wish).result(10))
    with steering(service.replica.store).doing(commit=_full), pytest.raises(StoreFull) as caught:
        service.requests.grant(wish).result(10)
    wish.give_up(caught.value)

    assert wish.finished
    assert ([1] * BATCH, [StoreFull] * (BATCH + 1)) == (
        [each.jobs for each in wish.asked[:BATCH]],
        [type(each.error) for each in wish.asked[BATCH:]],
    )


def test_an_array_of_which_nothing_makes_sense_is_refused(service: Rig) -> None:
    array = service.submit(array=tuple(range(2 * FEW)))
    (one,) = asked(service, Verb.RELEASE, array)
    assert isinstance(one.error, Impossible)
    assert f"job {array}_0 is not on hold" in one.error.message
    asked(service, Verb.HOLD, f"{array}_{2 * FEW - 1}")
    (one,) = asked(service, Verb.RELEASE, array)
    assert (None, 1) == (one.error, one.jobs)


def test_many_labels_are_looked_up_as_one_is(service: Rig) -> None:
    ids = [service.submit(array=(1, 5, 7)) for _ in range(2 * FEW)] + [service.submit()]
    asked(service, Verb.CANCEL, f"{ids[0]}_5", ids[1])
    state = service.replica.state
    labels = [Label(number, index) for number in (*ids, ids[0] + 1, 10_000) for index in (None, 0, 1, 5, 7)]
    labels.append(Label(ids[2] + 1, by_number=True))
    for some in (labels, labels[:5], labels[-1:]):
        find = make_live_finder(state, some)
        assert [find_live(state, label) for label in some] == [find(label) for label in some]


def test_four_times_as_many_ids_take_about_four_times_as_long(service: Rig) -> None:
    def cpu_s(count: int) -> float:
        array = service.submit(array=tuple(range(count)))
        service.replica.catch_up()
        began_s = time.process_time()
        found = asked(service, Verb.HOLD, *[f"{array}_{index}" for index in range(count)])
        assert count == sum([each.jobs for each in found])
        return time.process_time() - began_s

    cpu_s(500)
    assert min([cpu_s(4000) / cpu_s(1000) for _ in range(2)]) < 7


def test_an_error_for_each_of_many_ids_holds_nothing_but_its_words(service: Rig) -> None:
    """20,000 ids of jobs that never were took 20 MiB of the server, until a collection of everything."""
    labels = [parse_label(str(number)) for number in range(900, 910)]
    found = Views(service.replica, lambda: 0).ends(labels)

    assert labels == list(found)
    assert {None} == {each.__traceback__ for each in found.values()}


def test_many_ids_that_are_gone_are_told_as_one_is(service: Rig) -> None:
    one, fine, mixed = service.submit(), service.submit(array=(1, 5)), service.submit(array=(0, 1, 2))
    asked(service, Verb.CANCEL, one, f"{mixed}_1")
    for job_id, outcome in (
        (fine + 1, Outcome.COMPLETED),
        (fine + 2, Outcome.COMPLETED),
        (mixed + 1, Outcome.COMPLETED),
        (mixed + 3, Outcome.FAILED),
    ):
        service.start(job_id)
        service.end(job_id, outcome)
    ends = {
        str(one): "CANCELLED",
        str(fine): "COMPLETED",
        f"{fine}_5": "COMPLETED",
        str(mixed): "CANCELLED",
        f"{mixed}_1": "CANCELLED",
        f"{mixed}_2": "FAILED",
    }
    gone = [f"{one}_0", f"{fine}_0", f"{mixed}_3", "900", "900_1"]
    found = service.views.ends([parse_label(text) for text in [*ends, *gone]])

    told = {str(label): error.message for label, error in found.items()}
    assert {text: f"job {text} has ended already: {state}" for text, state in ends.items()} | {
        text: f"there is no job {text}" for text in gone
    } == told
    out_of_sight = service.views.ends([parse_label(text) for text in ends], Sight(("nobody",)))
    assert {NotFound} == {type(error) for error in out_of_sight.values()}


def test_many_ids_that_are_gone_take_few_looks_at_the_store(
    service: Rig,
) -> None:
    """Four times 20,000 ids of jobs that never were did not get their answers in 150 s: three looks for each."""
    looks: list[str] = []
    with asked_of_sqlite(looks.append):
        service.views.ends(
            [parse_label(f"{number}{task}") for number in range(900, 950) for task in ("", "_1")]
        )

    assert 3 == len([look for look in looks if look.startswith("SELECT")])
