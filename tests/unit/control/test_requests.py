"""What people may ask for: what is written, and what is refused and changes nothing."""

import gc
import json
import weakref
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from gpuyard.control.admission.wanted import make_job
from gpuyard.control.commands.wishes import Gone
from gpuyard.control.duties.projections import Filler
from gpuyard.control.projections.ledger import Ledger, closed_day
from gpuyard.control.refusals import Forbidden, Impossible, NotFound, Overloaded, Unacceptable
from gpuyard.control.replica.labels import parse_label
from gpuyard.control.views.audit import read_audit
from gpuyard.control.views.explanations import Explained
from gpuyard.engines.contract import Recipe
from gpuyard.model import (
    Ask,
    Budget,
    JobClass,
    JobState,
    Node,
    NodeAdded,
    NodeChanged,
    NodeCordoned,
    Outcome,
    Settings,
    Tenant,
    Verb,
    Whole,
)
from gpuyard.model.serialise import from_plain
from gpuyard.model.units import DAY_MS, HOUR_MS
from gpuyard.policies.registry import PRESETS
from gpuyard.store import Conflict, Idempotency, StoreFull
from harness.patience import until
from harness.steered import steering
from rigs.request_service import ANA, ROOT, Rig, granted, rig


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Rig]:
    with rig(tmp_path) as found:
        yield found


def ask(service: Rig, verb: Verb, label: object, who: Any = ROOT) -> dict[str, Any]:
    """What became of a wish about one job or array: how many jobs it changed."""
    (asked,) = granted(service.requests, service.requests.wish(who, verb, [str(label)]))
    if asked.error is not None:
        raise asked.error
    return {"label": str(asked.label), "jobs": asked.jobs}


def test_a_job_is_in_the_log_with_how_to_run_it_in_a_blob(service: Rig) -> None:
    job_id = service.submit(command=("echo", "$HOME; rm -rf /"), env={"A": "1"}, cwd="/tmp", tasks=2)
    service.replica.catch_up()
    spec = service.replica.state.jobs[job_id].job.spec
    blob = service.replica.store.blob(spec.recipe)
    assert blob is not None
    recipe = from_plain(Recipe, json.loads(blob))

    assert (("echo", "$HOME; rm -rf /"), {"A": "1"}, "/tmp") == (recipe.argv, recipe.env, recipe.cwd)
    assert ("root", "root", 2) == (spec.user, spec.tenant, spec.ask.tasks)


def test_an_array_takes_an_id_more_than_it_has_tasks(service: Rig) -> None:
    array = service.submit(array=(0, 3, 7))
    after = service.submit()
    service.replica.catch_up()
    tasks = [record.job for record in service.replica.state.jobs.values() if record.job.array_id]

    assert (1, 5) == (array, after)
    assert [(2, "1_0"), (3, "1_3"), (4, "1_7")] == [(job.id, job.label) for job in tasks]


@pytest.mark.parametrize(
    ("fields", "says", "hint"),
    [
        (
            {"gpus": 4, "limit_ms": 3 * HOUR_MS},
            "it could never start: t has a budget of 10 GPU-hours, and this job may take 12",
            "What would change it: a time limit of at most 2 h 30 min, fewer GPUs, or a higher budget.",
        ),
        (
            {"gpus": 1},
            "it could never start: t has a budget, and a job without a time limit cannot be counted against it",
            "What would change it: a time limit (-t).",
        ),
    ],
)
def test_a_job_beyond_the_whole_budget_of_its_tenant_is_refused(
    tmp_path: Path, fields: dict[str, Any], says: str, hint: str
) -> None:
    budget = Budget(10 * HOUR_MS, DAY_MS)
    settings = Settings(tenants=(Tenant("t", budget=budget), Tenant("free")), policy=PRESETS["default"])
    with rig(tmp_path, settings) as service:
        with pytest.raises(Unacceptable) as caught:
            service.submit(tenant="t/ana", **fields)

        assert (says, hint) == (caught.value.message, caught.value.hint)
        # What the budget can pay for is taken, though it is spent by then; so are jobs without GPUs, and of others.
        for taken in ({"gpus": 4, "limit_ms": 5 * HOUR_MS // 2}, {"gpus": 0}):
            service.submit(tenant="t/ana", **taken)
        service.submit(tenant="free/ana", **fields)


def test_a_held_job_does_not_wait_in_line(service: Rig) -> None:
    job_id = service.submit(hold=True)
    service.replica.catch_up()
    assert service.replica.state.jobs[job_id].held
    assert 0 == service.replica.state.queue.count


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"gpus": 9}, "the largest node has 8"),
        ({"klass": "bacth"}, "unknown class 'bacth'; did you mean 'batch'?"),
        ({"gpu_models": ("H10",)}, "unknown GPU model 'H10'; did you mean 'H100'?"),
        ({"gpu_models": ("T4",)}, "asks for T4; the fleet has H100"),
        ({"cpu_milli": 99_000}, "cores on one node"),
    ],
)
def test_what_could_never_run_is_refused(service: Rig, fields: dict[str, Any], says: str) -> None:
    for _again in range(2):
        with pytest.raises(Unacceptable, match=says.replace("?", r"\?")):
            service.submit(**fields)
    assert 1 == service.submit(), "no id was used up"


def test_names_that_scripts_have_become_our_own(tmp_path: Path) -> None:
    settings = Settings(
        tenants=(Tenant("research"),),
        classes=(JobClass("batch"), JobClass("urgent")),
        partitions={"gpu": ("p", "p"), "all": ("p",)},
        accounts={"p12345": "research/vision"},
        qos={"high": "urgent"},
        policy=PRESETS["default"],
    )
    with rig(tmp_path, settings) as service:
        job_id = service.submit(pools=("gpu", "all"), tenant="p12345", klass="high")
        own = service.submit(pools=("p",), tenant="research", klass="batch")
        service.replica.catch_up()
        specs = [service.replica.state.jobs[each].job.spec for each in (job_id, own)]

        assert [("research/vision", "urgent", ("p",)), ("research", "batch", ("p",))] == [
            (spec.tenant, spec.klass, spec.ask.pools) for spec in specs
        ]
        for fields, says, key in (
            ({"pools": ("gpus",)}, "unknown pool 'gpus'; did you mean 'gpu'?", "partitions"),
            ({"klass": "hihg"}, "unknown class 'hihg'; did you mean 'high'?", "qos"),
            ({"tenant": "p1"}, "unknown tenant 'p1'", "accounts"),
        ):
            with pytest.raises(Unacceptable) as refusal:
                service.submit(**{"tenant": "research", **fields})
            assert says in refusal.value.message
            assert f"under '{key}' in yard.yaml" in refusal.value.hint


def test_tenants_are_known_or_below_a_known_one(tmp_path: Path) -> None:
    settings = Settings(
        tenants=(Tenant("research"), Tenant("research/ana"), Tenant("product")), policy=PRESETS["default"]
    )
    with rig(tmp_path, settings) as service:
        for tenant in ("research", "research/bob", "product/x/y"):
            service.submit(tenant=tenant)
        with pytest.raises(Unacceptable, match="unknown tenant 'reserch'; did you mean 'research'"):
            service.submit(tenant="reserch")
        with pytest.raises(Unacceptable, match="names no tenant"):
            service.submit()
        job_id = (
            service.requests.submit(ROOT, make_job(command=("x",), tenant="research"), Future())
            .result(10)
            .first_id
        )
        assert 4 == job_id


def test_a_wish_is_written_and_what_makes_no_sense_is_refused(service: Rig) -> None:
    """PENDING: hold, release; RUNNING: suspend; ended: nothing."""
    job_id = service.submit()
    for verb in (Verb.RELEASE, Verb.SUSPEND, Verb.CONTINUE, Verb.REQUEUE):
        with pytest.raises(Impossible):
            ask(service, verb, job_id)
    assert 1 == ask(service, Verb.HOLD, job_id)["jobs"]
    assert 0 == ask(service, Verb.HOLD, job_id)["jobs"], "it is so already"
    ask(service, Verb.RELEASE, job_id)
    service.start(job_id)
    for verb in (Verb.HOLD, Verb.RELEASE, Verb.CONTINUE):
        with pytest.raises(Impossible):
            ask(service, verb, job_id)
    ask(service, Verb.SUSPEND, job_id)
    assert Verb.SUSPEND is service.replica.state.jobs[job_id].wanted
    ask(service, Verb.CANCEL, job_id)
    assert 0 == ask(service, Verb.CANCEL, job_id)["jobs"]
    service.end(job_id, Outcome.CANCELLED)
    with pytest.raises(Gone):
        ask(service, Verb.CANCEL, job_id)


def test_a_cancelled_waiting_job_is_in_the_history_with_by_whom(service: Rig) -> None:
    job_id = service.submit()
    ask(service, Verb.CANCEL, job_id)
    view = service.views.job(parse_label(str(job_id)))

    assert (JobState.CANCELLED.value, "cancelled by root", None) == (
        view["state"],
        view["reason"],
        view["exit_code"],
    )


def test_a_wish_about_an_array_is_about_its_live_tasks(service: Rig) -> None:
    array = service.submit(array=(0, 1, 2))
    service.start(array + 1)
    service.end(array + 1)
    assert 2 == ask(service, Verb.HOLD, array)["jobs"]
    assert 1 == ask(service, Verb.CANCEL, f"{array}_2")["jobs"]
    with pytest.raises(Gone):
        ask(service, Verb.CANCEL, f"{array}_0")


def test_a_task_that_names_no_cores_counts_one_unless_it_has_a_gpu(service: Rig) -> None:
    def counted(**fields: Any) -> int:
        job = service.submit(**{"gpus": 0, **fields})
        service.replica.catch_up()
        return service.replica.state.jobs[job].job.spec.ask.cpu_milli

    assert [1000, 1000, 0, 250] == [counted(), counted(tasks=4), counted(cpu_milli=0), counted(cpu_milli=250)]
    with_gpus = ({"gpus": 1}, {"gpu_milli": 500}, {"mig": "1g.10gb"}, {"gpu_memory_mib": 20_000})
    assert [0, 0, 0, 0] == [counted(**fields) for fields in with_gpus]
    with pytest.raises(Unacceptable) as refusal:
        counted(tasks=17)
    assert "asks for 17 x 1 core; there are 16 cores on 1 node" in refusal.value.message
    assert "fewer cores a task, or none (--cpus)" in refusal.value.hint
    assert 0 == counted(tasks=17, cpu_milli=0)


def test_where_no_node_has_a_whole_core_a_task_counts_what_there_is(service: Rig) -> None:
    service.add(NodeChanged(service.now_ms(), 0, Node("n1", "c", "p", "H100", 8, 500, 64_000)))
    job = service.submit(gpus=0)
    service.replica.catch_up()
    assert 500 == service.replica.state.jobs[job].job.spec.ask.cpu_milli


def test_an_exclusive_job_asks_for_all_that_a_node_has(service: Rig) -> None:
    job = service.submit(exclusive=True, batch=True, tasks=4, cpu_milli=1000)
    service.replica.catch_up()
    spec = service.replica.state.jobs[job].job.spec
    assert Ask(Whole(8), 1, 16_000, 64_000, nodes_max=1, nodes_min=1) == spec.ask
    recipe = from_plain(Recipe, json.loads(service.replica.store.blob(spec.recipe) or b""))
    assert (True, 4) == (recipe.batch, recipe.ranks)

    service.add(NodeAdded(service.now_ms(), Node("n2", "c", "small", "H100", 4, 16_000, 64_000)))
    for fields, pool, gpus in (
        ({}, ("small",), 4),
        ({"gpus": 5}, (), 8),
        ({"pools": ("small",)}, ("small",), 4),
    ):
        job = service.submit(exclusive=True, **fields)
        service.replica.catch_up()
        spec = service.replica.state.jobs[job].job.spec
        # Of several sizes it takes the smallest that will do, and stays with it.
        assert (Whole(gpus), pool) == (spec.ask.gpus, spec.ask.pools)

    service.add(NodeCordoned(service.now_ms(), 1, "repair"))
    job = service.submit(exclusive=True)
    service.replica.catch_up()
    # The smallest is shut, and a larger one is idle.
    assert Whole(8) == service.replica.state.jobs[job].job.spec.ask.gpus


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"on_nodes": ("n11",)}, "unknown node 'n11'; did you mean 'n1'"),
        ({"not_nodes": ("other",)}, "unknown node 'other'"),
        ({"features": (("nvme",),)}, "no node has the feature 'nvme'"),
    ],
)
def test_nodes_and_features_that_are_not_there_are_named(
    service: Rig, fields: dict[str, Any], says: str
) -> None:
    with pytest.raises(Unacceptable, match=says):
        service.submit(**fields)


def test_a_running_job_says_that_it_saved_its_work(service: Rig) -> None:
    job = service.submit()
    with pytest.raises(Impossible, match="does not run"):
        service.requests.checkpoint(ROOT, str(job), None).result(10)
    service.start(job)
    began_ms = service.replica.state.jobs[job].started_ms

    said = service.requests.checkpoint(ROOT, str(job), None).result(10)
    assert began_ms < said["checkpoint_ms"] == service.replica.state.jobs[job].checkpoint_ms
    # An older one changes nothing; one that cannot be is refused.
    assert said == service.requests.checkpoint(ROOT, str(job), began_ms).result(10)
    for wrong_ms in (began_ms - 1, began_ms + 10**9):
        with pytest.raises(Unacceptable, match="this attempt did not run at"):
            service.requests.checkpoint(ROOT, str(job), wrong_ms).result(10)
    with pytest.raises(Forbidden):
        service.requests.checkpoint(ANA, str(job), None).result(10)
    with pytest.raises(Gone):
        service.requests.checkpoint(ROOT, "999", None).result(10)


def test_an_administrator_moves_waiting_jobs_to_the_top(
    service: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in the log and in what is told of the job; nobody moves a job of one's own before those of others."""
    runs, *_others = [service.submit() for _ in range(3)]
    service.start(runs)
    array = service.submit(array=(0, 1))
    assert 2 == ask(service, Verb.TOP, array)["jobs"]
    first, second = (service.replica.state.jobs[array + 1 + index] for index in range(2))
    assert (2, 1, "root") == (first.boost, second.boost, first.moved_by)
    assert "root" == service.views.job(parse_label(f"{array}_0"))["moved_by"]
    told = Explained(service.replica, service.now_ms).why(parse_label(f"{array}_0"))
    assert told["ahead"] == 0
    lines, _more = read_audit(service.replica.store, str)
    assert ("root", "top", f"2 jobs, job {array + 2} first") == tuple(
        lines[0][k] for k in ("who", "what", "about")
    )
    with pytest.raises(Impossible, match="runs already"):
        ask(service, Verb.TOP, runs)
    assert [1, 0] == [ask(service, Verb.BACK, f"{array}_0")["jobs"] for _ in range(2)]
    monkeypatch.setattr("os.geteuid", lambda: 0)
    with pytest.raises(Forbidden, match="ana may not move jobs to the top of the queue"):
        ask(service, Verb.TOP, service.submit(ANA), ANA)


def test_only_the_owner_and_root_act_on_a_job(service: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = service.submit()
    with pytest.raises(Forbidden, match="job 1 is root's, not ana's"):
        ask(service, Verb.CANCEL, theirs, ANA)
    with pytest.raises(Forbidden):
        service.requests.drain(ANA, "n1", "")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert 1 == ask(service, Verb.CANCEL, service.submit(ANA), ANA)["jobs"]


def test_a_server_that_is_not_roots_runs_nobody_elses_jobs(
    service: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1234)
    with pytest.raises(Forbidden, match="cannot run jobs as ana"):
        service.submit(ANA)


def test_nodes_are_drained_and_taken_back(service: Rig) -> None:
    service.requests.drain(ROOT, "n1", "a fan").result(10)
    assert ("DRAINED", "a fan") == (
        service.views.nodes()["nodes"][0]["state"],
        service.views.nodes()["nodes"][0]["why"],
    )
    service.requests.resume(ROOT, "n1").result(10)
    assert "UP" == service.views.nodes()["nodes"][0]["state"]
    with pytest.raises(NotFound, match="there is no node 'n2'; known nodes: n1"):
        service.requests.drain(ROOT, "n2", "").result(10)


def test_a_key_that_is_used_again_does_it_once(service: Rig) -> None:
    new = make_job(command=("true",), gpus=1)
    key = Idempotency("0", "k", "h")
    first = service.requests.submit(ROOT, new, Future(), key).result(10)
    again = service.requests.submit(ROOT, new, Future(), key).result(10)

    assert (False, True, first.reply) == (first.replayed, again.replayed, again.reply)
    with pytest.raises(Conflict):
        service.requests.submit(ROOT, new, Future(), Idempotency("0", "k", "other")).result(10)
    assert 2 == service.submit()


def test_all_that_waits_is_written_at_once_and_a_bad_one_spoils_no_other(
    service: Rig,
) -> None:
    store, batches, gate = steering(service.replica.store), [], Event()
    real = store.submit

    def submit(batch: Any, now_ms: int) -> Any:
        gate.wait(120)
        batches.append(len(batch))
        return real(batch, now_ms)

    with store.doing(submit=submit):
        good = [
            service.requests.submit(ROOT, make_job(command=("true",), gpus=1), Future()) for _ in range(5)
        ]
        bad = service.requests.submit(ROOT, make_job(command=("true",), gpus=99), Future())
        gate.set()

        assert [1, 2, 3, 4, 5] == [future.result(10).first_id for future in good]
        with pytest.raises(Unacceptable):
            bad.result(10)
    assert len(batches) <= 2, "at most the first one alone, then all the others"


def test_what_was_refused_is_not_held_until_the_next_request(service: Rig) -> None:
    """It may be a configuration of 25,000 tenants."""

    class Wanted:
        """What a request came with."""

    def refused(wanted: Wanted) -> Any:
        def make(_draft: object) -> None:
            raise Impossible(f"not {wanted}")

        return service.committer.write(make)

    gc.disable()
    try:
        wanted = Wanted()
        seen, future = weakref.ref(wanted), refused(wanted)
        with pytest.raises(Impossible):
            future.result(10)
        del wanted, future
        until(lambda: seen() is None)
    finally:
        gc.enable()


def test_a_store_that_is_full_is_told_to_everybody_and_the_desk_goes_on(
    service: Rig,
) -> None:
    def full(*_: Any) -> None:
        raise StoreFull("no space left for x", "Free some space; nothing needs to be restarted.")

    service.committer.waiting_max = 2
    with (
        steering(service.replica.store).doing(submit=full),
        pytest.raises(StoreFull, match="no space left"),
    ):
        service.submit()
    assert 1 == service.submit()
    service.committer.close()
    with pytest.raises(Overloaded):
        service.submit()


@pytest.mark.parametrize("text", ["", "0", "-1", "01", "1_", "_1", "1_2_3", "1.0", "x", "9" * 40, "\u0661"])
def test_a_label_is_a_positive_number_or_two(text: str) -> None:
    with pytest.raises(Unacceptable):
        parse_label(text)


def test_a_month_is_closed_once_after_its_end_by_an_administrator(service: Rig) -> None:
    service.time_ms = 20_789 * DAY_MS
    with pytest.raises(Forbidden, match="ana may not close the books"):
        service.requests.close_month(ANA, "2026-11")
    with pytest.raises(Unacceptable, match="'11/2026' is not a month"):
        service.requests.close_month(ROOT, "11/2026")
    with pytest.raises(Impossible, match="2026-12 has not ended") as early:
        service.requests.close_month(ROOT, "2026-12").result(10)
    assert "The last month that can be closed is 2026-11." == early.value.hint

    lease = service.replica.store.elect("test")
    assert lease is not None
    filler = Filler(service.replica.store, [Ledger()], service.now_ms)
    while filler.step(lease.epoch):
        pass
    for dry_run in (True, False):
        closed = service.requests.close_month(ROOT, "2026-11", dry_run=dry_run).result(10)
        assert ("2026-11", "root") == (closed["month"], closed["by"])
        assert ["2026-10", "2026-11"] == closed["months"][-2:]
    for month in ("2026-11", "2026-10"):
        with pytest.raises(Impossible, match=f"{month} is closed already"):
            service.requests.close_month(ROOT, month).result(10)

    lines, _more = read_audit(service.replica.store, str)
    assert ["2026-11"] == [line["about"] for line in lines if line["what"] == "close month"]
    # Another process knows it from the books.
    while filler.step(lease.epoch):
        pass
    assert 20_788 == closed_day(service.replica.store)
    assert [] != service.replica.store.projections.checkpoints(Ledger.name)
