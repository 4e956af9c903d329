"""How many jobs of one user may wait, and that jobs that wait are counted right."""

from collections import Counter
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import pytest

from gpuyard.control.access import people
from gpuyard.control.access.people import Person
from gpuyard.control.admission.entering import Crowd, Crowding
from gpuyard.control.admission.wanted import make_job
from gpuyard.control.reading.overview import make_fleet, make_overview
from gpuyard.control.refusals import Impossible
from gpuyard.control.replica.replica import Replica
from gpuyard.core import State
from gpuyard.core.state.dump import canonical, dump, load
from gpuyard.model import Outcome, Settings, Tenant, Verb
from gpuyard.model.units import DAY_MS, HOUR_MS
from gpuyard.policies.registry import PRESETS
from gpuyard.store import Idempotency, open_store
from rigs.request_service import ANA, ROOT, granted, rig

BOB = Person(1002, 1002, "bob", False)


@pytest.fixture(autouse=True)
def server_of_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(people.os, "geteuid", lambda: 0)


def test_so_many_jobs_of_one_user_may_wait(tmp_path: Path) -> None:
    settings = Settings(waiting_per_user=10, policy=PRESETS["default"])
    with rig(tmp_path, settings) as service:
        first = service.submit(ANA)
        array = service.submit(ANA, array=tuple(range(6)), hold=True)
        with pytest.raises(Impossible) as refusal:
            service.submit(ANA, array=tuple(range(4)))
        assert (
            "7 jobs of ana wait already, and these would be 4 more; a user may have 10"
            == refusal.value.message
        )
        assert "`waiting_per_user` in yard.yaml" in refusal.value.hint
        key = Idempotency("ana", "k", "h")
        two = make_job(command=("true",), gpus=1, array=(1, 2))
        accepted = service.requests.submit(ANA, two, Future(), key).result(10)
        service.submit(ANA)
        with pytest.raises(Impossible, match="10 jobs of ana wait already; a user may have 10"):
            service.submit(ANA)
        again = service.requests.submit(ANA, two, Future(), key).result(10)
        assert (accepted.first_id, True) == (again.first_id, again.replayed), "it was accepted before"
        service.submit(BOB)
        service.submit(ROOT, array=tuple(range(20)))

        service.start(first)
        service.submit(ANA)
        with pytest.raises(Impossible):
            service.submit(ANA)
        granted(service.requests, service.requests.wish(ANA, Verb.CANCEL, [str(array)]))
        service.submit(ANA, array=tuple(range(6)))
        service.replica.catch_up()
        assert 10 == service.replica.state.counts.of_user("ana")


def crowd(jobs: int, last_id: int, recipe: str = "r", recipe_bytes: int = 1) -> Crowd:
    return Crowd(jobs, last_id - jobs + 1, last_id, recipe, recipe_bytes, 0)


def test_jobs_that_the_books_have_not_read_count_too() -> None:
    state = State()
    state.settings = replace(state.settings, waiting_per_user=10)
    crowding = Crowding()
    crowding.check(ANA, crowd(6, 7), state)
    crowding.check(BOB, crowd(9, 17), state)
    asked = [crowding.has_room(ANA, crowd(jobs, 23), state) for jobs in (4, 4, 5)]
    assert [True, True, False] == asked, "to ask counts nothing"
    with pytest.raises(Impossible, match="6 jobs of ana wait already, and these would be 5 more"):
        crowding.check(ANA, crowd(5, 23), state)
    state.last_job_id = 5
    with pytest.raises(Impossible, match="2 jobs of ana"):
        crowding.check(ANA, crowd(9, 27), state)
    state.last_job_id = 7
    crowding.check(ANA, crowd(10, 27), state)
    with pytest.raises(Impossible, match="9 jobs of bob wait already, and these would be 2 more"):
        crowding.check(BOB, crowd(2, 29), state)


KIB = 1024
PART = 400 * KIB


def script(letter: str) -> str:
    return f"#!/bin/sh\n# {letter * PART}\n"


def test_so_much_of_one_users_jobs_may_be_kept_until_they_end(tmp_path: Path) -> None:
    settings = Settings(recipes_mib_per_user=1, policy=PRESETS["default"])
    with rig(tmp_path, settings) as service:
        first = service.submit(ANA, script=script("a"), hold=True)
        second = service.submit(ANA, script=script("b"))
        with pytest.raises(Impossible) as refusal:
            service.submit(ANA, script=script("c"))
        assert "of ana's jobs that have not ended take 819," in refusal.value.message
        assert "a user may have 1,048,576" in refusal.value.message
        assert "`recipes_per_user` in yard.yaml" in refusal.value.hint
        for _ in range(3):
            service.submit(ANA, script=script("b"))  # The store keeps it once.
        service.submit(BOB, script=script("c"))
        for letter in "abcd":
            service.submit(ROOT, script=script(letter))
        service.replica.catch_up()
        state = service.replica.state
        kept = state.counts.recipe_bytes("ana")
        assert 2 * PART < kept < 2 * PART + 4 * KIB

        # A server that starts, another one beside this one, and a dump know it too.
        with open_store(tmp_path / "yard.db", durable=False) as store:
            other = Replica(store)
            other.catch_up()
            assert kept == other.state.counts.recipe_bytes("ana")
        assert kept == load(dump(state)).counts.recipe_bytes("ana")
        state.configure(settings)
        assert kept == state.counts.recipe_bytes("ana")

        granted(service.requests, service.requests.wish(ANA, Verb.CANCEL, [str(first)]))
        array = service.submit(ANA, script=script("c"), array=tuple(range(600)))
        with pytest.raises(Impossible):
            service.submit(ANA, script=script("d"))
        granted(service.requests, service.requests.wish(ANA, Verb.CANCEL, [str(array)]))
        service.start(second)
        service.replica.catch_up()
        assert kept // 2 + KIB > state.counts.recipe_bytes("ana") > PART, "a job that runs needs it"
        service.end(second)
        for job_id in (second + 1, second + 2, second + 3):
            service.start(job_id)
            service.end(job_id, Outcome.FAILED, 1)
        assert 0 == state.counts.recipe_bytes("ana")
        assert not state.counts.has_recipe("ana", "")


def test_a_user_who_cancels_what_was_submitted_gets_so_much_a_day_into_the_store(tmp_path: Path) -> None:
    settings = Settings(recipes_mib_per_user=1, policy=PRESETS["default"])
    with rig(tmp_path, settings) as service:

        def come_and_go(letter: str) -> None:
            job = service.submit(ANA, script=script(letter), hold=True)
            granted(service.requests, service.requests.wish(ANA, Verb.CANCEL, [str(job)]))

        come_and_go("a")
        come_and_go("b")
        with pytest.raises(Impossible) as refusal:
            service.submit(ANA, script=script("c"))
        assert "of ana's jobs that ended take 819," in refusal.value.message
        assert "Submit it again in 4 h " in refusal.value.hint
        service.submit(BOB, script=script("c"))
        for letter in "abcd":
            service.submit(ROOT, script=script(letter))
        service.replica.catch_up()
        state = service.replica.state
        again = load(dump(state))
        assert canonical(state) == canonical(again)
        state.configure(replace(settings))
        for each in (state, again):
            assert 2 * PART < each.counts.ended_bytes("ana", state.now_ms)
            # An hour later it is a part of a day less, and after two days nothing is left of it.
            assert (
                2 * PART - KIB * KIB // 24 < each.counts.ended_bytes("ana", state.now_ms + HOUR_MS) < 2 * PART
            )
            assert 0 == each.counts.ended_bytes("ana", state.now_ms + 2 * DAY_MS)
        service.time_ms += 5 * HOUR_MS
        come_and_go("c")
        service.time_ms += 2 * DAY_MS
        for letter in "de":
            come_and_go(letter)
        # A store of an earlier release has no such figures.
        old = {key: value for key, value in dump(service.replica.state).items() if key != "ended_recipes"}
        assert 0 == load(old).counts.ended_bytes("ana", service.time_ms)


def test_recipes_that_the_books_have_not_read_count_too() -> None:
    state = State()
    state.settings = replace(state.settings, recipes_mib_per_user=1)
    crowding, most = Crowding(), KIB * KIB
    crowding.check(ANA, crowd(600, 600, "a", most - 10), state)
    crowding.check(BOB, crowd(1, 601, "b", most), state)
    crowding.check(ANA, crowd(1, 602, "a", most - 10), state)
    with pytest.raises(Impossible, match="take 1,048,566 bytes of the store, and this one takes 11 more"):
        crowding.check(ANA, crowd(1, 603, "c", 11), state)
    crowding.check(ANA, crowd(1, 603, "d", 10), state)
    with pytest.raises(Impossible):
        crowding.check(BOB, crowd(1, 604, "e", 1), state)
    state.last_job_id = 100
    with pytest.raises(Impossible, match=f"take {10:,} bytes"):
        crowding.check(ANA, crowd(1, 604, "e", most), state)
    state.last_job_id = 603
    crowding.check(ANA, crowd(1, 604, "e", most), state)
    state.settings = replace(state.settings, recipes_mib_per_user=0)
    crowding.check(ANA, crowd(1, 605, "f", 10 * most), state)


def walked(state: State) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """Waiting jobs by user and tenant, and the GPUs that they want, by a walk through all jobs."""
    users, jobs, milli = Counter[str](), Counter[str](), Counter[str]()
    for record in state.jobs.values():
        if record.phase is None:
            users[record.job.spec.user] += 1
            for number in state.tenants.chain[record.leaf]:
                jobs[state.tenants.path[number]] += 1
                milli[state.tenants.path[number]] += record.shape.gpu_milli
    return users, jobs, milli


def test_an_overview_counts_as_a_walk_through_all_jobs_does(tmp_path: Path) -> None:
    tenants = tuple(map(Tenant, ("a", "a/x", "b")))
    with rig(tmp_path, Settings(tenants=tenants, policy=PRESETS["default"])) as service:
        ids = [
            service.submit(ROOT, tenant=("a/x", "b", "a/y")[n % 3], gpus=n % 4, hold=n % 5 == 0)
            for n in range(30)
        ]
        service.submit(ROOT, tenant="b", array=tuple(range(7)), gpus=2)
        for job_id, outcome in (
            (ids[1], Outcome.COMPLETED), (ids[9], Outcome.PREEMPTED), (ids[13], Outcome.FAILED),
        ):  # fmt: skip
            service.start(job_id)
            service.end(job_id, outcome)
        service.start(ids[17])
        granted(
            service.requests,
            service.requests.wish(ROOT, Verb.CANCEL, [str(ids[2]), str(ids[5]), str(ids[9])]),
        )
        service.replica.catch_up()
        state = service.replica.state
        again = load(dump(state))
        state.configure(replace(state.settings, tenants=(*tenants, Tenant("a/z"))))
        for each in (state, again):
            users, jobs, milli = walked(each)
            assert users["root"] == each.counts.of_user("root")
            rows = {row["tenant"]: row for row in make_overview(make_fleet(each, 0), 0)["tenants"]}
            assert {path: jobs[path] for path in rows} == {path: row["waiting"] for path, row in rows.items()}
            assert {path: milli[path] / 1000 for path in rows} == {
                path: row["gpus_wanted"] for path, row in rows.items()
            }
