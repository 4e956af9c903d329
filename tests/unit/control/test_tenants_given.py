"""Without `--auth`: users of the machine have the tenants that yard.yaml gives them, or one of their own name."""

from dataclasses import replace
from pathlib import Path

import pytest

from gpuyard.config.values import Account
from gpuyard.control.access import people
from gpuyard.control.access.people import Person, UserDirectory
from gpuyard.control.access.rights import ROLES, Right
from gpuyard.control.refusals import Forbidden
from gpuyard.model import Settings, Tenant
from gpuyard.policies.registry import PRESETS
from rigs.request_service import ANA, ROOT, Rig, rig


@pytest.fixture(autouse=True)
def server_of_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(people.os, "geteuid", lambda: 0)


def settings(*tenants: str) -> Settings:
    return Settings(tenants=tuple(map(Tenant, tenants)), policy=PRESETS["default"])


def took(service: Rig, who: Person, tenant: str = "") -> str:
    """The tenant for which a job was taken."""
    job_id = service.submit(who, tenant=tenant)
    service.replica.catch_up()
    return service.replica.state.jobs[job_id].job.spec.tenant


def test_where_there_are_no_tenants_everybody_has_their_own(tmp_path: Path) -> None:
    with rig(tmp_path) as service:
        assert ["ana", "ana", "ana/sweep"] == [
            took(service, ANA, tenant) for tenant in ("", "ana", "ana/sweep")
        ]
        for tenant in ("bob", "invented-1", "anabel", "invented/ana"):
            with pytest.raises(Forbidden, match=f"ana may not submit for {tenant}: ana has ana here"):
                took(service, ANA, tenant)
        assert "invented-1" == took(service, ROOT, "invented-1"), "an administrator decides"


def test_the_file_says_whose_tenants_are_whose(tmp_path: Path) -> None:
    with rig(tmp_path, settings("research", "research/vision", "product", "product/bob")) as service:
        with pytest.raises(Forbidden, match="gives ana no tenant") as refusal:
            took(service, ANA)
        assert "`ana: {tenant: research}` to `auth.users`" in refusal.value.hint
        for tenant in ("research", "research/ana", "product/ana", "research/new"):
            with pytest.raises(Forbidden, match="gives ana no tenant"):
                took(service, ANA, tenant)

        bob = Person(1002, 1002, "bob", False)
        assert ["product/bob", "product/bob/x"] == [
            took(service, bob, tenant) for tenant in ("", "product/bob/x")
        ]
        with pytest.raises(Forbidden, match="bob may not submit for research: bob has product/bob here"):
            took(service, bob, "research")

        named = UserDirectory(
            {"ana": Account("", "user", "research"), "boss": Account("ana", "user", "product")}
        )
        both = named.placed(ANA)
        assert ["research", "research/vision", "product/ana/x"] == [
            took(service, both, tenant) for tenant in ("research", "research/vision", "product/ana/x")
        ]
        one = UserDirectory({"ana": Account("", "user", "research")}).placed(ANA)
        assert ["research/ana", "research/vision"] == [
            took(service, one, tenant) for tenant in ("", "research/vision")
        ]
        with pytest.raises(Forbidden, match="ana may not submit for product: ana has research here"):
            took(service, one, "product")


def test_everybody_is_below_the_only_tenant(tmp_path: Path) -> None:
    with rig(tmp_path, settings("research")) as service:
        assert "research/ana" == took(service, ANA)
        with pytest.raises(Forbidden, match="ana may not submit for research/bob"):
            took(service, ANA, "research/bob")


def test_a_user_gets_no_share_more_by_a_name_that_the_file_does_not_have(tmp_path: Path) -> None:
    """A fresh name has had nothing and so comes first; another user's name charges that user."""
    given = {"ana": Account("", "user", "research"), "eve": Account("", "tenant-admin", "research")}
    with rig(tmp_path, settings("research", "research/vision", "product")) as service:
        people = UserDirectory(given)
        rights = {name: (Right(ROLES[account.role], account.tenant),) for name, account in given.items()}
        for ana in (people.placed(ANA), replace(ANA, given=rights["ana"])):
            mine = ("", "research", "research/vision", "research/ana/a", "research/vision/ana")
            assert ["research/ana", *mine[1:]] == [took(service, ana, tenant) for tenant in mine]
            for tenant in ("research/x1", "research/eve", "research/anabel", "research/vision/x1"):
                with pytest.raises(
                    Forbidden, match=f"ana may not submit for {tenant}: .* add a share"
                ) as refusal:
                    took(service, ana, tenant)
                assert "Leave the tenant out: it is then research/ana." in refusal.value.hint
        eve = Person(1003, 1003, "eve", False, given=rights["eve"])
        assert "research/x1" == took(service, eve, "research/x1"), "an administrator of the tenant decides"


def test_a_user_makes_no_more_names_than_everybody_can_read(tmp_path: Path) -> None:
    """Two thousand jobs made twelve thousand tenants, and nobody's `yard share` was answered any more."""
    with rig(tmp_path) as service:
        for number in range(48):
            took(service, ANA, f"ana/sweep{number}/part")
        for tenant in ("ana/a/b/c/d/e/f", "ana/sweep1/other/one/two/three/four"):
            with pytest.raises(
                Forbidden, match=f"ana may not submit for {tenant}: there are 96 names below ana"
            ) as refusal:
                took(service, ANA, tenant)
            assert "--project NAME" in refusal.value.hint
        assert ["ana", "ana/sweep1/part", "ana/a/b/c"] == [
            took(service, ANA, tenant) for tenant in ("ana", "ana/sweep1/part", "ana/a/b/c")
        ]
        bob = Person(1002, 1002, "bob", False)
        assert "bob/sweep" == took(service, bob, "bob/sweep"), "others have names of their own"
        assert "ana/by/root" == took(service, ROOT, "ana/by/root"), "an administrator decides"
