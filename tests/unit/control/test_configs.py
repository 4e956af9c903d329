"""Versions of the configuration: what a start does to them, apply and rollback, and what stands in the way."""

import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpuyard.config import ConfigError
from gpuyard.config.reading import loads
from gpuyard.control.commands.configs import NO_FILE, Configurations, StartFile, put_start
from gpuyard.control.fleet import Fleet, choose_fleet
from gpuyard.control.refusals import Forbidden, Impossible, NotFound
from gpuyard.control.replica.replica import Replica
from gpuyard.core import decide
from gpuyard.errors import BadInput
from gpuyard.model import AttemptStarted, ConfigSet, Grant, Outcome
from gpuyard.store import VersionCause, hash_text
from gpuyard.store.errors import StoreError
from harness.sqlite import refusing
from rigs.request_service import ANA, ROOT, Rig, rig

FLEET = "version: 1\nclusters: {box: {gpus: 8 x H100, emulate: true}}\n"
ONE = f"{FLEET}tenants:\n  a: {{limit: 1}}\n  b:\nclasses:\n  batch:\n  urgent: {{priority: 9}}\n"
TWO = ONE.replace("limit: 1", "limit: 2")


@dataclass
class Here:
    """A yard with one node of eight GPUs whose configuration is version 1, the file ONE."""

    rig: Rig
    configs: Configurations

    @property
    def replica(self) -> Replica:
        return self.rig.replica

    def start(self, text: str, name: str = "yard.yaml") -> str:
        """A process is started with this file; what it says about it."""
        note = ""

        def make(draft: Any) -> None:
            nonlocal note
            start = StartFile(loads(text).settings, text, name)
            note = put_start(draft, self.replica.store, start, "root", self.rig.now_ms())

        self.replica.commit(None, make)
        return note

    def apply(self, text: str, against: int | None = None) -> dict[str, Any]:
        proposal = self.configs.proposal(text, "new.yaml")
        return self.configs.apply(ROOT, proposal, against).result(10)

    def live(self) -> tuple[int, VersionCause, str]:
        """Number, way and text in force; the log, the state and the versions have to agree on it."""
        found = self.replica.store.configs.version()
        assert found is not None
        text = self.configs.shown()["yaml"]
        assert loads(text).settings == self.replica.state.settings
        sets = [event for _seq, event in self.replica.store.read(0) if isinstance(event, ConfigSet)]
        assert (found.version, found.hash, found.by) == (sets[-1].number, sets[-1].source, sets[-1].by)
        return found.version, found.how, text

    def starts(self) -> list[int]:
        plan = decide(self.replica.state, self.replica.policy, self.rig.now_ms())
        return [start.job_id for start in plan.starts]


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    with rig(tmp_path) as found:
        fleet: Fleet = choose_fleet(loads(ONE), "")
        here = Here(
            found, Configurations(found.replica, found.committer, fleet, "", found.now_ms, found.people)
        )
        assert "" == here.start(ONE)
        yield here


# -- a start ---------------------------------------------------------------------------------------------------------


def test_the_first_start_makes_the_first_version(here: Here) -> None:
    assert (1, VersionCause.START, ONE) == here.live()


def test_the_same_file_again_changes_nothing(here: Here) -> None:
    head = here.replica.store.head()

    assert "" == here.start(ONE)
    assert head == here.replica.store.head()


def test_a_file_that_was_edited_is_in_force_after_a_restart(here: Here) -> None:
    assert "" == here.start(TWO)
    assert (2, VersionCause.START, TWO) == here.live()
    assert "" == here.start(ONE)
    assert (3, VersionCause.START, ONE) == here.live()


def test_a_restart_with_the_old_file_does_not_undo_an_apply(here: Here) -> None:
    here.apply(TWO)
    note = here.start(ONE)

    assert (2, VersionCause.APPLY, TWO) == here.live()
    assert "version 2 of the configuration stays (apply by root)" in note
    assert "yard apply -f yard.yaml" in note


def test_a_restart_with_another_file_does_not_undo_an_apply_either(here: Here) -> None:
    here.apply(TWO)
    note = here.start(ONE.replace("limit: 1", "limit: 7"))

    assert (2, VersionCause.APPLY, TWO) == here.live()
    assert "yard diff -f yard.yaml" in note


def test_a_file_that_says_the_same_as_what_was_applied_is_fine(here: Here) -> None:
    here.apply(TWO)

    assert "" == here.start(f"# written differently\n{TWO}")
    assert (2, VersionCause.APPLY, TWO) == here.live()


def test_a_start_without_a_file_leaves_what_is_in_force(here: Here) -> None:
    note = here.start(NO_FILE, "")

    assert (1, VersionCause.START, ONE) == here.live()
    assert "version 1 of the configuration is in force" in note


def test_a_yard_that_never_had_a_file_has_a_version_too(tmp_path: Path) -> None:
    with rig(tmp_path) as found:
        here = Here(
            found,
            Configurations(
                found.replica, found.committer, choose_fleet(loads(ONE), ""), "", found.now_ms, found.people
            ),
        )
        assert "" == here.start(NO_FILE, "")
        assert (1, VersionCause.START, NO_FILE) == here.live()
        here.apply(ONE)
        assert () == here.configs.earlier(1).fleet


# -- apply -----------------------------------------------------------------------------------------------------------


def test_a_raised_limit_lets_a_waiting_job_start_at_once(here: Here) -> None:
    first, second = here.rig.submit(tenant="a"), here.rig.submit(tenant="a")
    here.rig.start(first)
    assert [] == here.starts()
    done = here.apply(TWO, against=1)

    assert (2, "root", "apply", 1) == (done["version"], done["by"], done["how"], done["changed"])
    assert (2, VersionCause.APPLY, TWO) == here.live()
    assert [second] == here.starts()


def test_a_lowered_limit_stops_nothing_and_holds_what_waits(here: Here) -> None:
    here.apply(TWO)
    first, second, third = (here.rig.submit(tenant="a") for _ in range(3))
    here.rig.start(first)
    beside = Grant(0, 2, 1000, 0, 0, 1)
    here.rig.add(AttemptStarted(here.rig.now_ms(), second, 1, (beside,)))
    proposal = here.configs.proposal(ONE, "one.yaml")
    notes = here.configs.difference(proposal)["notes"]
    here.apply(ONE)

    assert [
        "a uses 2 GPUs, more than its new limit of 1: what runs goes on, nothing new starts until it is below"
    ] == notes
    assert {first, second} == set(here.replica.state.running)
    assert [] == here.starts()
    here.rig.end(first)
    assert [] == here.starts()
    here.rig.end(second)
    assert [third] == here.starts()


def test_another_process_sees_it_when_it_looks(here: Here) -> None:
    other = Replica(here.replica.store)
    here.apply(TWO)
    other.catch_up()

    assert loads(TWO).settings == other.state.settings


def test_what_changed_since_it_was_looked_at_is_not_overwritten(here: Here) -> None:
    here.apply(TWO, against=1)
    with pytest.raises(Impossible, match="version 2 is in force, by root, not 1"):
        here.apply(ONE.replace("limit: 1", "limit: 7"), against=1)

    assert (2, VersionCause.APPLY, TWO) == here.live()


def test_of_two_at_the_same_moment_one_is_told_of_the_other(here: Here) -> None:
    """Requests that wait are written in one transaction: the second must see what the first is about to write."""
    proposals = [here.configs.proposal(ONE.replace("limit: 1", f"limit: {n}"), "f") for n in (2, 3, 4)]
    taken = threading.Event()
    with here.replica.lock:
        blocked = here.rig.committer.write(lambda _draft: taken.set())
        futures = [here.configs.apply(ROOT, each, 1) for each in proposals[:2]]
        late = here.configs.apply(ROOT, proposals[2], None)
    blocked.result(10)

    assert 2 == futures[0].result(10)["version"]
    with pytest.raises(Impossible, match="version 2 is in force, by root, not 1"):
        futures[1].result(10)
    assert 3 == late.result(10)["version"]
    assert (3, VersionCause.APPLY, proposals[2].text) == here.live()


def test_a_file_that_was_read_before_others_came_makes_a_version_without_them(here: Here) -> None:
    people = ONE + "auth:\n  users:\n    ana: {role: admin}\n"
    here.apply(people)
    read = here.configs.proposal(f"# a comment more\n{people}", "f")
    here.apply(people + "    eve: {role: admin}\n")

    assert not here.configs.difference(read)["same"]
    assert 4 == here.configs.apply(ROOT, read, None).result(10)["version"]
    assert (4, VersionCause.APPLY, read.text) == here.live()


def test_what_is_in_force_already_makes_no_version(here: Here) -> None:
    done = here.apply(ONE)

    assert (1, 0) == (done["version"], done["changed"])
    assert (1, VersionCause.START, ONE) == here.live()
    assert (1, 0) == tuple(here.apply(f"# a comment more\n{ONE}")[key] for key in ("version", "changed"))


def test_only_administrators_may(here: Here) -> None:
    with pytest.raises(Forbidden, match="ana may not change the configuration"):
        here.configs.apply(ANA, here.configs.proposal(TWO, "f"), None)


def test_a_tenant_with_live_jobs_cannot_be_removed(here: Here) -> None:
    waiting, running = here.rig.submit(tenant="b/eve"), here.rig.submit(tenant="b")
    here.rig.start(running)
    without = ONE.replace("  b:\n", "")
    text = f"tenant b cannot be removed: jobs {waiting}, {running} are its own and live"
    assert [text] == here.configs.difference(here.configs.proposal(without, "f"))["obstacles"]
    with pytest.raises(Impossible, match=text):
        here.apply(without)
    assert (1, VersionCause.START, ONE) == here.live()

    here.rig.end(running)
    here.rig.start(waiting)
    here.rig.end(waiting, Outcome.FAILED, 1)
    assert 2 == here.apply(without)["version"]


def test_a_class_with_live_jobs_cannot_be_removed(here: Here) -> None:
    job_id = here.rig.submit(tenant="a", klass="urgent")
    with pytest.raises(Impossible, match=f"class urgent cannot be removed: job {job_id} is its own and live"):
        here.apply(ONE.replace("  urgent: {priority: 9}\n", ""))


def test_a_file_that_cannot_be_used_is_refused_with_its_lines(here: Here) -> None:
    with pytest.raises(ConfigError, match=r"new\.yaml:4:14: 'limit' of tenant 'a'"):
        here.apply(ONE.replace("limit: 1", "limit: x"))
    with pytest.raises(BadInput, match="this machine can be in one cluster only"):
        here.apply(ONE.replace("{box:", "{other: {engine: local}, box:"))
    assert (1, VersionCause.START, ONE) == here.live()


def test_another_fleet_is_named_and_takes_a_restart(here: Here) -> None:
    proposal = here.configs.proposal(ONE.replace("8 x H100", "16 x H100"), "f")
    found = here.configs.difference(proposal)

    assert found["same"]
    assert ["the fleet is 8 x H100 emulated here and 16 x H100 emulated in the file: that takes a restart, "
            "`yard up --config FILE`"] == found["notes"]  # fmt: skip


def test_other_people_in_the_file_are_a_change_and_take_no_restart(here: Here) -> None:
    proposal = here.configs.proposal(ONE + "auth: {users: {ana: {role: admin}}}\n", "f")
    found = here.configs.difference(proposal)

    assert ((), False) == (proposal.fleet, found["same"])
    assert [("user", "ana", "added")] == [
        (each["kind"], each["name"], each["what"]) for each in found["changes"]
    ]


def test_guarantees_beyond_the_fleet_that_is_here_are_named(here: Here) -> None:
    text = ONE.replace("8 x H100", "16 x H100").replace("limit: 1", "guarantee: 12")
    notes = here.configs.difference(here.configs.proposal(text, "f"))["notes"]

    assert "guarantees come to 12 GPUs and the fleet has 8: not all can be kept" == notes[-1]


def test_a_write_that_fails_leaves_the_old_version_whole(here: Here) -> None:
    """The event and the version are one transaction: what fails after the first of them undoes both."""
    head = here.replica.store.head()

    with refusing(sqlite3.SQLITE_INSERT, "configs"), pytest.raises(StoreError):
        here.apply(TWO)
    here.replica.catch_up()

    assert head == here.replica.store.head()
    assert (1, VersionCause.START, ONE) == here.live()
    assert here.replica.store.blob(hash_text(TWO)) is None
    assert 2 == here.apply(TWO)["version"]


# -- rollback --------------------------------------------------------------------------------------------------------


def test_a_rollback_is_a_new_version_with_the_old_text(here: Here) -> None:
    here.apply(TWO)
    done = here.configs.apply(ROOT, here.configs.earlier(None), 2).result(10)

    assert (3, "rollback", 1) == (done["version"], done["how"], done["restores"])
    assert (3, VersionCause.ROLLBACK, ONE) == here.live()
    here.configs.apply(ROOT, here.configs.earlier(None), None).result(10)
    assert (4, VersionCause.ROLLBACK, TWO) == here.live()
    assert [4, 3, 2, 1] == [version["version"] for version in here.configs.versions(100)]


def test_there_is_nothing_before_the_first_version(here: Here) -> None:
    with pytest.raises(Impossible, match="no version before the first"):
        here.configs.earlier(None)
    with pytest.raises(NotFound, match="no version 9"):
        here.configs.earlier(9)


def test_the_tree_of_tenants_is_told_without_a_look_at_all_jobs(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    for tenant in ("a/ana", "a/ana", "b"):
        here.rig.submit(tenant=tenant)
    here.rig.replica.catch_up()
    monkeypatch.setattr(here.rig.replica.state, "jobs", None)

    rows = {row["tenant"]: row["waiting"] for row in here.configs.tenants()}

    assert {"a": 2, "a/ana": 2, "b": 1} == {path: rows[path] for path in ("a", "a/ana", "b")}


def test_the_tree_of_tenants_tells_what_they_may_and_do_use(here: Here) -> None:
    job_id = here.rig.submit(tenant="a/ana")
    here.rig.submit(tenant="a/ana")
    here.rig.start(job_id)
    rows = {row["tenant"]: row for row in here.configs.tenants()}

    assert ["a", "a/ana", "b"] == list(rows)
    assert ({"total": 1.0}, 1.0, 1, 1) == tuple(
        rows["a"][key] for key in ("limit", "gpus_used", "running", "waiting")
    )
    assert not rows["a/ana"]["configured"]
