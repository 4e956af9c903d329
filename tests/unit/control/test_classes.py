"""Classes that are not everybody's."""

from dataclasses import replace
from pathlib import Path

import pytest

from gpuyard.control.access import people
from gpuyard.control.access.people import Person
from gpuyard.control.access.rights import list_kept_classes
from gpuyard.control.admission.wanted import make_job
from gpuyard.control.refusals import Forbidden
from gpuyard.model import JobClass, Settings, Tenant
from gpuyard.policies.registry import PRESETS
from rigs.request_service import ANA, ROOT, rig

CLASSES = (
    JobClass("batch"),
    JobClass("ml", priority=5, tenants=("product/ml",)),
    JobClass("top", priority=9, preemptible=False, tenants=("research", "product/ml"), users=("ops",)),
)
SETTINGS = Settings(
    tenants=tuple(map(Tenant, ("research", "product", "product/ml", "productive"))),
    classes=CLASSES,
    qos={"premium": "top"},
    policy=PRESETS["default"],
)
VISION = replace(ANA, places=("research",))
APPS = replace(ANA, name="bob", places=("product", "productive"))
OPS = Person(1004, 1004, "ops", False, places=("product",))


@pytest.fixture(autouse=True)
def server_of_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(people.os, "geteuid", lambda: 0)


def test_a_class_is_for_the_tenants_and_users_that_the_file_names(tmp_path: Path) -> None:
    with rig(tmp_path, SETTINGS) as service:
        taken = [
            (VISION, "research", "top"), (VISION, "research/ana", "premium"), (APPS, "product/ml", "top"),
            (APPS, "product/ml/bob", "ml"), (OPS, "product/ops", "top"), (APPS, "product", ""),
        ]  # fmt: skip
        ids = [service.submit(who, tenant=tenant, klass=name) for who, tenant, name in taken]
        service.replica.catch_up()
        assert ["top", "top", "top", "ml", "top", "batch"] == [
            service.replica.state.jobs[job_id].klass.name for job_id in ids
        ]

        for who, tenant, name in (
            (APPS, "product", "top"), (APPS, "product/bob", "premium"), (APPS, "productive", "top"),
            (ROOT, "product", "top"),
        ):  # fmt: skip
            with pytest.raises(Forbidden) as refusal:
                service.submit(who, tenant=tenant, klass=name)
            assert (
                f"class top is not for jobs of {who.name} for {tenant}: these may be batch"
                == refusal.value.message
            )
            assert "`classes.top.tenants` in yard.yaml" in refusal.value.hint
        with pytest.raises(Forbidden, match=r"class ml is not for jobs of ops .*: these may be batch or top"):
            service.submit(OPS, tenant="product", klass="ml")
        with service.replica.lock, pytest.raises(Forbidden, match="class top"):
            service.requests.rehearse(
                APPS, make_job(command=("true",), gpus=1, tenant="product", klass="top")
            )
        assert len(ids) == len(service.replica.state.jobs)


def test_jobs_keep_a_class_that_an_apply_takes_from_their_tenant(tmp_path: Path) -> None:
    with rig(
        tmp_path, replace(SETTINGS, classes=tuple([replace(k, tenants=(), users=()) for k in CLASSES]))
    ) as service:
        for tenant, name in (("product", "top"), ("product", "top"), ("research", "ml"), ("research", "top")):
            service.submit(ROOT, tenant=tenant, klass=name)
        service.replica.catch_up()

        assert [
            "1 live job of research keeps class ml, which is no longer theirs: new ones are refused",
            "2 live jobs of product keep class top, which is no longer theirs: new ones are refused",
        ] == list(list_kept_classes(service.replica.state, SETTINGS))
        assert [] == list(list_kept_classes(service.replica.state, service.replica.state.settings))
