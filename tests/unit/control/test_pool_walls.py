"""Walls of pools at submission: a job that may enter no pool it could use is refused at once, with one message."""

import grp
import os
from dataclasses import replace
from pathlib import Path

import pytest

from gpuyard.control.access import people
from gpuyard.control.access.people import NO_UID, Person, with_groups
from gpuyard.control.refusals import CouldNever
from gpuyard.model import ConfigSet, Settings, Tenant
from gpuyard.model.units import HOUR_MS
from gpuyard.model.walls import Askers, Wall
from gpuyard.policies.registry import PRESETS
from rigs.request_service import ANA, rig

BOB = replace(ANA, uid=ANA.uid + 1, name="bob")
SETTINGS = Settings(policy=PRESETS["default"])


@pytest.fixture(autouse=True)
def server_of_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(people.os, "geteuid", lambda: 0)


def walled(wall: Wall, settings: Settings = SETTINGS) -> ConfigSet:
    """The only pool of a rig gets a wall."""
    return ConfigSet(2_000_000, replace(settings, walls={"c/p": wall}))


def test_a_job_that_no_pool_takes_is_refused_at_once(tmp_path: Path) -> None:
    with rig(tmp_path, SETTINGS) as service:
        state = service.replica.state
        service.add(walled(Wall(allow=Askers(users=("ana",)))))
        taken = service.submit(ANA)
        with pytest.raises(CouldNever) as refusal:
            service.submit(BOB)
        assert "pool p takes only jobs of user ana" in refusal.value.message
        assert refusal.value.message.startswith("it could never start: ")
        assert "yard apply" in refusal.value.hint
        service.replica.catch_up()
        assert [taken] == list(state.jobs)


def test_a_time_limit_of_all_pools_is_told_and_given(tmp_path: Path) -> None:
    with rig(tmp_path, SETTINGS) as service:
        state = service.replica.state
        service.add(walled(Wall(time_limit_ms=HOUR_MS)))
        with pytest.raises(CouldNever) as refusal:
            service.submit(ANA, limit_ms=2 * HOUR_MS)
        assert "takes only jobs of at most 1 h (this one may run for 2 h)" in refusal.value.message
        assert "a time limit of at most 1 h" in refusal.value.hint
        job_id = service.submit(ANA)
        service.replica.catch_up()
        assert HOUR_MS == state.jobs[job_id].limit_ms


def test_groups_are_recorded_where_walls_name_them(tmp_path: Path) -> None:
    own = grp.getgrgid(os.getgid()).gr_name
    me = Person(os.getuid(), os.getgid(), "root" if os.getuid() == 0 else ANA.name, True)
    with rig(tmp_path, SETTINGS) as service:
        state = service.replica.state
        before = service.submit(me)
        service.add(walled(Wall(allow=Askers(groups=(own, "nobodys-group")))))
        after = service.submit(me)
        service.replica.catch_up()
        assert [(), (own,)] == [state.jobs[job].job.spec.groups for job in (before, after)]
        stranger = replace(BOB, gid=999_999, name="no-such-user")
        with pytest.raises(CouldNever, match=r"takes only jobs of people in groups .*nobodys-group"):
            service.submit(stranger)


def test_groups_of_people() -> None:
    root = with_groups(Person(0, 0, "root", True))
    assert "root" in root.groups
    nobody_here = Person(NO_UID, NO_UID, "eve", False, groups=("from-the-token",))
    assert ("from-the-token",) == with_groups(nobody_here).groups
    assert ("from-the-token", "root") == tuple(
        each
        for each in with_groups(Person(0, 0, "root", True, groups=("from-the-token",))).groups
        if each in ("from-the-token", "root")
    )


def test_a_tenant_is_let_in_with_all_below_it(tmp_path: Path) -> None:
    settings = replace(SETTINGS, tenants=(Tenant("research"), Tenant("product")))
    with rig(tmp_path, settings) as service:
        service.add(walled(Wall(allow=Askers(tenants=("research",))), settings))
        service.submit(replace(ANA, places=("research",)), tenant="research/ana")
        with pytest.raises(CouldNever, match="takes only jobs of tenant research"):
            service.submit(replace(ANA, places=("product",)), tenant="product/ana")
