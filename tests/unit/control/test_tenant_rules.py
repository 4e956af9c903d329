"""What a tenant says of a job when it is submitted: the bounds of one job, and whether there may be one more."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gpuyard.config.reading import loads
from gpuyard.control.access import people
from gpuyard.control.access.people import Person
from gpuyard.control.admission.wanted import make_job
from gpuyard.control.refusals import CouldNever, Impossible, Unacceptable
from gpuyard.model import Bounds, Outcome, Quota, Settings, Tenant, Whole
from gpuyard.policies.registry import PRESETS
from rigs.request_service import Rig, rig

ANA = Person(1001, 1001, "ana", False, places=("team",))
BOB = Person(1002, 1002, "bob", False, places=("team",))


@pytest.fixture(autouse=True)
def server_of_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(people.os, "geteuid", lambda: 0)


def of_team(**quota: object) -> Settings:
    return Settings(
        tenants=(Tenant("team", quota=Quota(**quota)),),  # type: ignore[arg-type]
        policy=PRESETS["default"],
    )


def ask_of(service: Rig, job_id: int) -> tuple[object, int, int]:
    service.replica.catch_up()
    ask = service.replica.state.jobs[job_id].job.spec.ask
    return ask.gpus, ask.cpu_milli, ask.memory_mib


def test_a_limit_range_of_one_to_two_gpus(tmp_path: Path) -> None:
    """Document 003: least 1, most 2 GPUs, and 1 for a job that names none."""
    yard = """\
version: 1
clusters: {c: {pools: {p: {nodes: 1, gpus: 8 x H100, cpus: 16, memory: 64G}}}}
tenants: {team: {per_job: {gpus: {min: 1, default: 1, max: 2}}}}
"""
    with rig(tmp_path, loads(yard).settings) as service:
        with pytest.raises(CouldNever, match="asks for 3 GPUs; a job of team may have 2"):
            service.submit(ANA, gpus=3, tenant="team")
        assert Whole(1) == ask_of(service, service.submit(ANA, gpus=0, tenant="team"))[0]
        assert Whole(2) == ask_of(service, service.submit(ANA, gpus=2, tenant="team"))[0]
        with pytest.raises(Unacceptable) as refusal:
            service.submit(ANA, gpus=0, gpu_milli=500, tenant="team")
    assert "asks for 0.5 GPUs; a job of team has at least 1 GPU" == refusal.value.message
    assert "--gpus 1" in refusal.value.hint


def test_the_nearest_tenant_gives_the_defaults_and_all_of_them_the_bounds(tmp_path: Path) -> None:
    team = Tenant("team", quota=Quota(per_job={"cpus": Bounds(0, 4000, 8000), "memory": Bounds(0, 2048)}))
    own = Tenant("team/x", quota=Quota(per_job={"cpus": Bounds(default=2000)}))
    settings = Settings(tenants=(team, own), policy=PRESETS["default"])
    with rig(tmp_path, settings) as service:
        assert (Whole(1), 2000, 2048) == ask_of(service, service.submit(gpus=1, tenant="team/x"))
        assert (Whole(1), 4000, 512) == ask_of(service, service.submit(gpus=1, tenant="team", memory_mib=512))
        with pytest.raises(Unacceptable, match="asks for 9 cores; a job of team may have at most 8 cores"):
            service.submit(gpus=1, tasks=3, cpu_milli=3000, tenant="team/x")
        with pytest.raises(Unacceptable, match="at most 8 cores"):
            service.submit(tasks=3, gpus=1, tenant="team", cpu_milli=4000)


def test_quota_10_and_asks_of_4_and_7(tmp_path: Path) -> None:
    """Document 003: the second is denied, with the limit, what is used and by whom; otherwise it would wait."""
    with rig(tmp_path, of_team(limit={"total": 10_000}, refuses=True)) as service:
        first = service.submit(ANA, gpus=4, tenant="team")
        with pytest.raises(Impossible) as refusal:
            service.submit(BOB, gpus=7, tenant="team")
        assert (
            "asks for 7 GPUs; team may have 10 GPUs, and jobs that wait or run ask for 4 GPUs (ana)"
            == refusal.value.message
        )
        assert "Ask for 6 GPUs or less" in refusal.value.hint
        with pytest.raises(Impossible, match="asks for 7 GPUs"):
            service.requests.rehearse(BOB, make_job(command=("true",), gpus=7, tenant="team"))

        service.submit(BOB, gpus=6, tenant="team")
        service.start(first)
        service.end(first, Outcome.COMPLETED)
        service.submit(BOB, gpus=4, tenant="team")
    (tmp_path / "waits").mkdir()
    with rig(tmp_path / "waits", of_team(limit={"total": 10_000})) as service:
        service.submit(ANA, gpus=4, tenant="team")
        assert 2 == service.submit(BOB, gpus=7, tenant="team")


@pytest.mark.parametrize(
    ("quota", "job", "message"),
    [
        ({"max_cpu_milli": 10_000}, {"cpu_milli": 6000}, "asks for 6 cores; team may have 10 cores"),
        ({"max_memory_mib": 1024}, {"memory_mib": 600}, "asks for 600 MiB of memory; team may have 1 GiB"),
        ({"limit": {"H100": 6000}}, {"gpus": 4}, "asks for 4 H100; team may have 6 H100"),
    ],
)
def test_every_limit_can_refuse(
    tmp_path: Path, quota: dict[str, object], job: dict[str, object], message: str
) -> None:
    with rig(tmp_path, of_team(**quota, refuses=True)) as service:
        service.submit(ANA, tenant="team", **job)
        with pytest.raises(Impossible) as refusal:
            service.submit(ANA, tenant="team", **job)
    assert message in refusal.value.message


def test_jobs_that_wait_or_run_are_counted_with_the_tasks_of_arrays(tmp_path: Path) -> None:
    with rig(tmp_path, of_team(max_jobs=5)) as service:
        first = service.submit(ANA, gpus=8, tenant="team")
        service.start(first)
        service.submit(ANA, tenant="team/ana", array=(1, 2, 3))
        with pytest.raises(Impossible, match=r"4 jobs of team wait or run \(ana\), and it may have 5"):
            service.submit(BOB, tenant="team", array=(1, 2))
        service.submit(BOB, tenant="team")
        with pytest.raises(Impossible, match="5 jobs of team wait or run"):
            service.submit(BOB, tenant="team")


def test_what_was_accepted_counts_before_the_replica_has_read_it(tmp_path: Path) -> None:
    """Many submissions at one moment get no further than one after the other."""
    from concurrent.futures import Future  # noqa: PLC0415

    with rig(tmp_path, of_team(max_jobs=3)) as service:
        job: Callable[[], object] = lambda: make_job(command=("true",), tenant="team")  # noqa: E731
        futures = [service.requests.submit(ANA, job(), Future()) for _ in range(8)]  # type: ignore[arg-type]
        refused = [future for future in futures if future.exception(10) is not None]
    assert 5 == len(refused)
