"""The table of rights by itself, and limits on how often one may ask."""

import os
import pwd

import pytest

from gpuyard.api.edge.rates import Buckets, Rates
from gpuyard.config.values import Account, Limits
from gpuyard.control.access.people import Person, RunAs, UserDirectory, run_as
from gpuyard.control.access.rights import (
    ALL,
    EVERYTHING,
    NEIGHBOUR,
    Right,
    Rights,
    Role,
    Sight,
    below,
    check_ever,
    find_sight,
    may,
    may_ever,
    may_give,
)
from gpuyard.control.refusals import Forbidden
from gpuyard.wire.endpoints import Action

RESEARCH = "research"


@pytest.mark.parametrize(
    ("tenant", "place", "is_below"),
    [
        ("a", "", True),
        ("a", "a", True),
        ("a/b", "a", True),
        ("a/b/c", "a/b", True),
        ("ab", "a", False),
        ("a", "a/b", False),
        ("A/b", "a", False),
        ("b/a", "a", False),
        ("", "a", False),
    ],
)
def test_places_of_the_tree(tenant: str, place: str, is_below: bool) -> None:
    assert is_below == below(tenant, place)


def test_every_action_has_its_need_and_roles_only_add() -> None:
    for action in Action:
        for tenant in ("research", "research/vision", "product", ""):
            for own in (True, False):
                allowed = [may((Right(role, RESEARCH),), action, tenant, own=own) for role in Role]
                assert allowed == sorted(allowed), "a higher role never loses a right"
                whole = [may((Right(role),), action, tenant, own=own) for role in Role]
                assert all(w >= a for w, a in zip(whole, allowed, strict=True)), "nor a higher place"
                if any(allowed):
                    assert may_ever((Right(Role.ADMIN, RESEARCH),), action)
        assert may(EVERYTHING, action, "anything")


def test_an_admin_of_a_tenant_is_none_of_the_yard() -> None:
    admin = (Right(Role.ADMIN, RESEARCH),)

    assert not may_ever(admin, Action.MANAGE_NODES)
    assert not may(admin, Action.SEE_ALL, RESEARCH)
    assert may(admin, Action.ACT_ON_JOB, "research/vision")


def test_without_rights_there_is_nothing() -> None:
    assert [] == [action for action in Action if action is not Action.ANYBODY and may_ever((), action)]
    assert not find_sight(()).sees("anything")
    assert not Sight(()).whole


def test_neighbours_on_one_machine_see_each_other_and_read_only_their_own() -> None:
    assert may(NEIGHBOUR, Action.SEE_JOB, "x")
    assert may(NEIGHBOUR, Action.READ_JOB, "x", own=True)
    assert not may(NEIGHBOUR, Action.READ_JOB, "x")
    assert not may(NEIGHBOUR, Action.ACT_ON_JOB, "x")
    assert ALL == find_sight(NEIGHBOUR)


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (Right(Role.ADMIN), Right(Role.USER, "a"), Right(Role.USER, "a")),
        (Right(Role.VIEWER, "a/b"), Right(Role.ADMIN, "a"), Right(Role.VIEWER, "a/b")),
        (Right(Role.USER, "a"), Right(Role.USER, "b"), None),
        (Right(Role.USER, "a"), Right(Role.USER, "ab"), None),
    ],
)
def test_two_rights_give_what_both_give(one: Right, other: Right, both: Right | None) -> None:
    assert (both, both) == (one.narrowed(other), other.narrowed(one))


def test_only_who_has_a_right_gives_it_away() -> None:
    tara = (Right(Role.TENANT_ADMIN, RESEARCH),)

    assert may_give(tara, Right(Role.TENANT_ADMIN, "research/vision"))
    assert not may_give(tara, Right(Role.ADMIN, RESEARCH))
    assert not may_give(tara, Right(Role.USER, ""))
    assert not may_give(tara, Right(Role.VIEWER, "product"))
    assert not may_give((Right(Role.USER, RESEARCH),), Right(Role.VIEWER, RESEARCH))
    # Admin here and viewer there does not add up to a viewer's token for there.
    mixed = (Right(Role.ADMIN, RESEARCH), Right(Role.VIEWER, "product"))
    assert not may_give(mixed, Right(Role.VIEWER, "product"))


class Clock:
    """Seconds, moved by hand."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_a_bucket_runs_dry_and_fills_again() -> None:
    clock = Clock()
    buckets = Buckets(2, 4, clock)

    assert [0, 0, 0, 0, 0.5] == [buckets.wait_s("ana") for _ in range(5)]
    assert 0 == buckets.wait_s("bob"), "each has their own"
    clock.now_s = 0.5
    assert [0, 0.5] == [buckets.wait_s("ana") for _ in range(2)]
    clock.now_s = 1000
    assert [0, 0, 0, 0, 0.5] == [buckets.wait_s("ana") for _ in range(5)], "never more than the most"


def test_reads_writes_and_requests_under_way_are_counted_apart() -> None:
    clock = Clock()
    rates = Rates(Limits(submits_per_s=1, reads_per_s=2, burst_s=1, at_once=2), clock)

    def status(method: str, leave: bool = True) -> int:
        problem = rates.enter("ana", method)
        if problem is not None:
            assert int(problem.headers["Retry-After"]) >= 1
            return problem.status
        if leave:
            rates.leave("ana")
        return 200

    assert [200, 429] == [status("POST"), status("DELETE")]
    assert [200, 200, 429] == [status("GET") for _ in range(3)]
    clock.now_s = 10
    assert [200, 200, 429] == [status("GET", leave=False) for _ in range(3)]
    rates.leave("ana")
    clock.now_s = 20
    assert 200 == status("GET")


def test_the_socket_knows_a_user_by_their_login_if_it_is_one_persons() -> None:
    directory = UserDirectory(
        {"ana": Account("daemon", "viewer", "research"), "bob": Account("bin"), "eve": Account("bin")}
    )
    uid, gid = pwd.getpwnam("daemon")[2:4]
    ana = directory.local(uid, gid)
    assert ("ana", "daemon", (Right(Role.VIEWER, "research"),)) == (ana.name, ana.login, ana.rights)
    assert "research/ana" == ana.home

    with pytest.raises(Forbidden, match="bin is bob and eve here, and the socket does not say which"):
        directory.local(*pwd.getpwnam("bin")[2:4])
    with pytest.raises(Forbidden, match="uid-54321 is not a user of this yard"):
        directory.local(54_321, 54_321)


def test_jobs_run_as_the_login_that_a_name_is_mapped_to() -> None:
    directory = UserDirectory(
        {"ana@example.org": Account("daemon", "user", "research"), "gone": Account("no-such-login")}
    )
    ana = directory.bearer("ana@example.org", Right(Role.ADMIN), "t", 1)
    assert (Right(Role.USER, "research"),) == ana.rights, "no more than they have in yard.yaml"
    assert "research/ana-example.org" == ana.home
    assert RunAs(*pwd.getpwnam("daemon")[2:4], "daemon") == run_as_root(ana)
    with pytest.raises(Forbidden, match="gone is no-such-login here, and this machine has no such user"):
        directory.bearer("gone", Right(Role.USER), "t", 1)


def run_as_root(who: Person) -> RunAs:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: 0)
        return run_as(who, allow_root=False)


def test_one_knows_of_tenants_above_ones_own_and_sees_only_into_ones_own() -> None:
    here = Sight(("a/b",))
    paths = ["", "a", "a/b", "a/b/c", "a/c", "ab", "b"]
    assert ["", "a", "a/b", "a/b/c"] == [path for path in paths if here.knows(path)]
    assert ["a/b", "a/b/c"] == [path for path in paths if here.sees(path)]
    assert paths == [path for path in paths if ALL.knows(path)]


def test_the_configuration_is_for_admins_of_the_whole_yard() -> None:
    assert may_ever(EVERYTHING, Action.MANAGE_CONFIG)
    assert not may_ever(NEIGHBOUR, Action.MANAGE_CONFIG)
    assert not may_ever((Right(Role.ADMIN, RESEARCH),), Action.MANAGE_CONFIG)


@pytest.mark.parametrize(
    ("rights", "has"),
    [(NEIGHBOUR, "alice is user of the whole yard"), ((), "alice has no role here")],
)
def test_a_refusal_says_who_has_which_role(rights: Rights, has: str) -> None:
    with pytest.raises(Forbidden, match=f"alice may not move jobs to the top of the queue: {has}"):
        check_ever("alice", rights, Action.MOVE_JOB)
