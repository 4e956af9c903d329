"""Changes of jobs by people: what is judged, what is refused, what is written."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuyard.api.handlers.jobs import revise
from gpuyard.control.access.people import Person
from gpuyard.control.access.rights import Right, Role
from gpuyard.control.commands.changes import Change
from gpuyard.control.commands.wishes import Gone, WishedId
from gpuyard.control.foresight.ahead import Foresights
from gpuyard.control.refusals import CouldNever, Forbidden, Impossible, Unacceptable
from gpuyard.control.replica.follower import Follower
from gpuyard.control.replica.questions import QuestionRunner
from gpuyard.control.replica.replica import Replica
from gpuyard.control.views.audit import read_audit
from gpuyard.core.jobs.records import JobRecord
from gpuyard.core.state.dump import canonical
from gpuyard.model import AttemptConfirmed, Capability, EngineSeen, JobClass, Settings, Tenant, Verb, Whole
from gpuyard.model.units import HOUR_MS
from gpuyard.policies.registry import PRESETS
from rigs.request_service import ANA, ROOT, Rig, granted, rig

SETTINGS = Settings(
    policy=PRESETS["default"],
    tenants=(Tenant("red"), Tenant("blue")),
    classes=(
        JobClass("batch", 0, grace_ms=60_000, limit_ms=4 * HOUR_MS),
        JobClass("urgent", 10, grace_ms=60_000, limit_ms=HOUR_MS),
        JobClass("kept", 5, grace_ms=60_000, limit_ms=HOUR_MS, users=("root",)),
    ),
    default_class="batch",
)
BEN = Person(1002, 1002, "ben", False, given=(Right(Role.USER, "red"),))
LEA = Person(1003, 1003, "lea", False, given=(Right(Role.TENANT_ADMIN, "red"),))
ANA_RED = Person(1001, 1001, "ana", False, given=(Right(Role.USER, "red"),))


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Rig]:
    with rig(tmp_path, SETTINGS) as found:
        yield found


def changed(service: Rig, label: object, who: Person = ROOT, **fields: Any) -> WishedId:
    nice, place = fields.pop("nice_s", None), fields.pop("place", None)
    if "klass" in fields:
        fields["class"] = fields.pop("klass")
    wish = service.requests.change(who, Change(fields, nice, place), [str(label)], revise)
    (found,) = granted(service.requests, wish)
    return found


def record(service: Rig, job_id: int) -> JobRecord:
    service.replica.catch_up()
    return service.replica.state.jobs[job_id]


def refused(service: Rig, label: object, who: Person = ROOT, **fields: Any) -> Exception:
    before = len(service.replica.store.read(0, 10_000))
    found = changed(service, label, who, **fields)
    assert found.error is not None
    assert before == len(service.replica.store.read(0, 10_000)), "nothing is written"
    return found.error


def test_a_change_is_one_event_and_shows_at_once(service: Rig) -> None:
    job = service.submit(ANA_RED, tenant="red/ana")
    found = changed(
        service,
        job,
        ANA_RED,
        name="eval",
        time_limit_s=1800,
        klass="urgent",
        memory_mib=2048,
        labels={"a": "b"},
    )
    now = record(service, job)

    assert (1, None) == (found.jobs, found.error)
    assert ("eval", "urgent", 2048) == (now.job.spec.name, now.klass.name, now.job.spec.ask.memory_mib)
    assert (1_800_000, (("a", "b"),), "red/ana") == (now.limit_ms, now.job.spec.labels, now.job.spec.tenant)
    assert canonical(service.replica.state) == canonical(Replica(service.replica.store).state)
    (line, *_), _more = read_audit(service.replica.store, str)
    assert ("ana", "update", "red/ana") == (line["who"], line["what"], line["tenant"])
    assert f"job {job}: name eval, time_limit 30m, memory 2G, labels a=b, class urgent" == line["about"]


def test_asking_for_more_goes_to_the_end_of_the_line_and_for_less_does_not(service: Rig) -> None:
    job = service.submit(gpus=2, limit_ms=HOUR_MS, tenant="red")
    less = changed(service, job, gpus=1, time_limit_s=60)
    assert (0, {}) == (record(service, job).joined_ms, less.notes)
    for fields in ({"gpus": 2}, {"cpus": 4}, {"memory_mib": 64}, {"time_limit_s": 120}, {"klass": "urgent"}):
        more = changed(service, job, **fields)
        assert ["it asks for more than before, and goes to the end of its line"] == [*more.notes]
        assert service.time_ms == record(service, job).joined_ms
    assert 0 == changed(service, job, klass="urgent").jobs, "it is so already"


def test_gpus_are_asked_for_in_one_way(service: Rig) -> None:
    job = service.submit(gpus=2, tenant="red")
    assert isinstance(refused(service, job, gpus=4, gpu_milli=500), Unacceptable)
    changed(service, job, gpu_milli=500, gpus=1)
    changed(service, job, gpus=3)
    assert Whole(3) == record(service, job).job.spec.ask.gpus


def test_labels_are_added_replaced_and_removed(service: Rig) -> None:
    job = service.submit(tenant="red", labels=(("project", "x"), ("stage", "eval")))
    changed(service, job, labels={"stage": "", "kind": "big"})
    assert (("kind", "big"), ("project", "x")) == record(service, job).job.spec.labels
    changed(service, job, project="y")
    assert (("kind", "big"), ("project", "y")) == record(service, job).job.spec.labels


def test_what_admission_says_of_a_new_job_is_said_of_a_changed_one(service: Rig) -> None:
    job = service.submit(ANA_RED, tenant="red/ana")
    assert isinstance(refused(service, job, ANA_RED, gpus=9), CouldNever)
    assert "unknown class" in str(refused(service, job, ANA_RED, klass="nosuch"))
    assert "unknown pool" in str(refused(service, job, ANA_RED, pools=["q"]))
    assert "may not submit for blue" in str(refused(service, job, ANA_RED, tenant="blue"))
    assert "class kept is not for jobs of ana" in str(refused(service, job, klass="kept")), (
        "the owner's, not root's"
    )
    assert "a job of class urgent may run for 1 h" in str(
        refused(service, job, ANA_RED, klass="urgent", time_limit_s=7200)
    )


def test_only_an_administrator_goes_beyond_the_limit_of_a_class(service: Rig) -> None:
    job = service.submit(ANA_RED, tenant="red/ana", limit_ms=HOUR_MS)
    assert "may run for 4 h" in str(refused(service, job, ANA_RED, time_limit_s=6 * 3600))
    assert "may run for 4 h" in str(refused(service, job, LEA, time_limit_s=6 * 3600))
    changed(service, job, ROOT, time_limit_s=6 * 3600)
    assert 6 * HOUR_MS == record(service, job).limit_ms
    assert "may run for 4 h" in str(refused(service, job, ANA_RED, memory_mib=1)), (
        "a change is judged as a whole"
    )


def test_whose_job_it_is(service: Rig) -> None:
    job = service.submit(ANA_RED, tenant="red/ana")
    assert isinstance(refused(service, job, BEN, name="x"), Forbidden)
    assert 1 == changed(service, job, LEA, name="x").jobs
    assert "ana" == record(service, job).job.spec.user
    assert isinstance(refused(service, job, ANA_RED, nice_s=-60), Forbidden)
    assert isinstance(refused(service, job, LEA, place=Verb.TOP), Forbidden)
    assert 1 == changed(service, job, ANA_RED, nice_s=60).jobs
    assert 60_000 == record(service, job).nice_ms
    assert 1 == changed(service, job, nice_s=-60, name="y").jobs
    assert 1 == changed(service, job, place=Verb.TOP).jobs
    assert 1 == record(service, job).boost


def test_jobs_that_wait_for_each_other_are_refused(service: Rig) -> None:
    one, two, three = [service.submit(tenant="red", gpus=8) for _ in range(3)]
    changed(service, two, dependencies=[{"job": str(one)}])
    changed(service, three, dependencies=[{"kind": "afterany", "job": str(two)}])
    assert {two, three} == set(service.replica.state.deferred)
    for job, other in ((one, one), (one, two), (one, three), (two, three)):
        assert "waits for it" in str(refused(service, job, dependencies=[{"job": str(other)}]))
    changed(service, three, dependencies=[])
    changed(service, one, dependencies=[{"job": str(three)}])
    assert {one, two} == set(service.replica.state.deferred)
    assert "no job 77" in str(refused(service, two, dependencies=[{"job": "77"}]))


def test_an_array_and_one_task_of_it(service: Rig) -> None:
    array = service.submit(tenant="red", array=(0, 1, 2), array_limit=2)
    found = changed(service, f"{array}_1", memory_mib=64)
    assert (1, [0, 64, 0]) == (found.jobs, _memory(service))
    service.start(array + 1)
    found = changed(service, array, memory_mib=128)
    assert (2, [0, 128, 128]) == (found.jobs, _memory(service))
    assert any("1 of its tasks are left as they are: job 1_0 runs" in note for note in found.notes)
    last = record(service, array + 3).job.spec.after
    changed(service, array, dependencies=[{"kind": "afterany", "job": str(service.submit(tenant="red"))}])
    assert last[0] in record(service, array + 3).job.spec.after, "how many run at a time stays"


def _memory(service: Rig) -> list[int]:
    service.replica.catch_up()
    return [
        r.job.spec.ask.memory_mib for _id, r in sorted(service.replica.state.jobs.items()) if r.job.array_id
    ]


def test_of_a_running_job_only_what_lowers_its_claim(service: Rig) -> None:
    job = service.submit(tenant="red")
    service.start(job)
    assert "cannot be changed now" in str(refused(service, job, gpus=2))
    assert "runs already" in str(refused(service, job, place=Verb.TOP))
    assert 1 == changed(service, job, name="x", labels={"a": "b"}, requeue=False).jobs
    service.end(job)
    assert isinstance(refused(service, job, name="y"), Gone)


def test_a_running_job_gets_another_limit_where_its_engine_can(service: Rig) -> None:
    job = service.submit(ANA_RED, tenant="red/ana", limit_ms=HOUR_MS)
    service.start(job)
    before = record(service, job).end_ms
    assert 1 == changed(service, job, ANA_RED, time_limit_s=7200).jobs
    assert (before + HOUR_MS, 0) == (record(service, job).end_ms, record(service, job).joined_ms)
    assert "may run for 4 h" in str(refused(service, job, ANA_RED, time_limit_s=5 * 3600))
    service.add(AttemptConfirmed(service.now_ms(), job, 1))
    service.time_ms += 60_000
    assert ["it has run for longer than its new limit, and ends now"] == [
        *changed(service, job, time_limit_s=5).notes
    ]
    service.add(EngineSeen(service.now_ms(), "c", (Capability.NEW_LIMITS,)))
    assert "gives no running job another time limit" in str(refused(service, job, time_limit_s=600))
    assert 1 == changed(service, job, name="x").jobs


def test_an_ask_that_was_settled_at_submission_is_not_changed(service: Rig) -> None:
    job = service.submit(tenant="red", exclusive=True)
    assert "yard submit --like" in getattr(refused(service, job, memory_mib=5), "hint", "")
    assert isinstance(refused(service, job, memory_mib=5), Impossible)
    assert 1 == changed(service, job, time_limit_s=60).jobs


def test_a_dry_run_tells_what_would_become_of_it(service: Rig) -> None:
    service.start(service.submit(tenant="red", gpus=8, limit_ms=HOUR_MS), gpus=0xFE)
    job = service.submit(tenant="red", gpus=8, limit_ms=HOUR_MS)
    follower = Follower(service.replica.store.place)
    ahead = Foresights(
        service.replica,
        service.requests,
        service.views,
        QuestionRunner(service.replica, follower),
        service.now_ms,
    )
    try:
        less = ahead.rehearse_change(ROOT, Change({"gpus": 1}), str(job), revise)
        same = ahead.rehearse_change(ROOT, Change({"gpus": 8}), str(job), revise)
        never = ahead.rehearse_change(ROOT, Change({"gpus": 9}), str(job), revise)
        with pytest.raises(Forbidden):
            ahead.rehearse_change(ANA, Change({"gpus": 1}), str(job), revise)
    finally:
        follower.close()

    assert (True, True, job, 1.0) == (less["would_run"], less["starts_now"], less["id"], less["gpus"])
    assert (True, False) == (same["would_run"], same["starts_now"])
    assert not never["would_run"]
    assert Whole(8) == record(service, job).job.spec.ask.gpus
