"""People change while the yard runs: an apply adds, narrows and removes them, in every server, and the audit tells."""

from collections.abc import Iterator
from typing import Any

import pytest

from gpuyard.api.edge.peers import PEER, LocalAuthenticator
from gpuyard.config import ConfigError
from gpuyard.config.reading import loads
from gpuyard.config.values import Account
from gpuyard.control.access.people import Person, UserDirectory
from gpuyard.control.access.people_in_force import SHORT_BYTES, PeopleInForce
from gpuyard.control.duties import people
from gpuyard.control.duties.duty import Duties
from gpuyard.control.refusals import Overloaded
from harness.steered import Steered, steered
from rigs.teams import ADMIN, CONFIG, ME, Team, team

ADDED = CONFIG.replace(
    "  limits:",
    f"    nina: {{unix: {ME}, tenant: research, default_tenant: research/vision}}\n"
    "    lucy: {tenant: product, role: viewer}\n"
    "  limits:",
)


@pytest.fixture
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    with team(tmp_path_factory.mktemp("renewed")) as made:
        # Nothing can be applied before the yard has a configuration.
        made.until(lambda: made.yard.store.configs.version() is not None)
        yield made


def applied(yard: Team, text: str) -> dict[str, object]:
    answer = yard.call("PUT", "/api/v1/config", yard.tokens["adam"], {"yaml": text})
    assert 200 == answer.status, answer.json
    found: dict[str, object] = answer.json
    return found


def test_a_person_who_is_added_comes_in_at_once_and_the_audit_says_who_did_it(yard: Team) -> None:
    token = yard.tokens["adam"]
    assert 422 == yard.call("POST", "/api/v1/tokens", token, {"user": "lucy", "role": "user"}).status
    shown = yard.call("POST", "/api/v1/config/diff", token, {"yaml": ADDED}).json
    assert [("user", "lucy", "added"), ("user", "nina", "added")] == [
        (each["kind"], each["name"], each["what"]) for each in shown["changes"]
    ]
    assert not shown["same"]

    assert 2 == applied(yard, ADDED)["changed"]

    nina = yard.call("POST", "/api/v1/tokens", token, {"user": "nina"}).json["secret"]
    made = yard.call("POST", "/api/v1/jobs", nina, {"command": ["true"], "hold": True})
    assert (201, "research/vision") == (made.status, made.json["tenant"])
    lines = yard.call("GET", "/api/v1/audit", token).json["lines"]
    assert any(line["what"] == "configure" and line["who"].startswith("adam (token") for line in lines), lines


def test_a_viewer_need_not_be_a_user_of_the_machine_and_runs_nothing(yard: Team) -> None:
    applied(yard, ADDED)
    made = yard.call("POST", "/api/v1/tokens", yard.tokens["adam"], {"user": "lucy"})
    assert (201, "viewer") == (made.status, made.json["role"])
    lucy = made.json["secret"]

    assert 200 == yard.call("GET", "/api/v1/queue", lucy).status
    me = yard.call("GET", "/api/v1/me", lucy).json
    assert ("lucy", None) == (me["user"], me["runs_as"])
    assert 403 == yard.call("POST", "/api/v1/jobs", lucy, {"command": ["true"]}).status
    # Whoever may submit has to be somebody on the machine.
    more = yard.call(
        "POST", "/api/v1/tokens", yard.tokens["adam"], {"user": "lukas", "role": "user", "tenant": "product"}
    )
    assert (422, True) == (more.status, "is not a user of this machine" in more.json["detail"])


def test_a_person_who_is_removed_or_narrowed_has_less_at_once(yard: Team) -> None:
    ulla, carl = yard.tokens["ulla"], yard.tokens["carl"]
    assert 201 == yard.call("POST", "/api/v1/jobs", ulla, {"command": ["true"], "hold": True}).status
    less = "ulla: {tenant: research, role: viewer}"
    applied(yard, CONFIG.replace(f"ulla: {{unix: {ME}, tenant: research, role: user}}", less))

    assert 403 == yard.call("POST", "/api/v1/jobs", ulla, {"command": ["true"], "hold": True}).status
    assert 201 == yard.call("POST", "/api/v1/jobs", carl, {"command": ["true"], "hold": True}).status
    back = yard.call("POST", "/api/v1/config/rollback", yard.tokens["adam"], {})
    assert 200 == back.status
    assert 201 == yard.call("POST", "/api/v1/jobs", ulla, {"command": ["true"], "hold": True}).status


def test_another_server_and_a_restart_have_the_people_that_were_applied(yard: Team) -> None:
    real = yard.yard
    other = PeopleInForce(real.replica, real.committer, real.now_ms, real.fleet.access, auth=True)
    assert other.directory.limit("lucy") is None
    renewing = Duties(people.duties(other, shared=True), real.leader.epoch)
    renewing.start()
    applied(yard, ADDED)
    yard.until(lambda: other.directory.limit("lucy") is not None)
    renewing.close()
    # A file without them does not undo what was applied.
    restarted = PeopleInForce(real.replica, real.committer, real.now_ms, real.fleet.access, auth=True)
    assert "viewer of product" == str(restarted.directory.limit("lucy"))


def test_a_version_that_is_older_than_the_last_one_changes_nothing(
    yard: Team,
) -> None:
    real = yard.yard
    yard.until(lambda: real.store.configs.version() is not None)
    older = real.store.configs.version()
    applied(yard, ADDED)
    store = Steered(real.store)
    other = PeopleInForce(
        steered(real.replica, store=store), real.committer, real.now_ms, real.fleet.access, auth=True
    )
    with store.doing(configs=Steered(real.store.configs, version=lambda: older)):
        other.look()
    assert "viewer of product" == str(other.directory.limit("lucy"))


@pytest.mark.parametrize(
    "error", [Overloaded("the text was not read in time"), OSError(24, "Too many open files"), RuntimeError()]
)
def test_long_versions_of_others_are_read_beside_the_server_and_again_where_that_failed(
    yard: Team, error: Exception
) -> None:
    real, read = yard.yard, []
    long = ADDED + "# a comment\n" * (SHORT_BYTES // 10)

    def parse(work: Any, *args: Any, **named: Any) -> Any:
        read.append(args)
        if len(read) == 1:
            raise error
        return real.parse(work, *args, **named)

    other = PeopleInForce(
        real.replica, real.committer, real.now_ms, real.fleet.access, auth=True, parse=parse
    )
    renewing = Duties(people.duties(other, shared=True), real.leader.epoch)
    renewing.start()
    applied(yard, long)
    yard.until(lambda: other.directory.limit("lucy") is not None)
    renewing.close()
    assert [(long, "version 2")] * 2 == read


def test_people_of_another_server_are_taken_away_before_this_one_has_seen_them(yard: Team) -> None:
    real, token = yard.yard, yard.tokens["adam"]

    def applied_elsewhere() -> None:
        # This server looks by itself where it shares its store, and alone never.
        real.configs.apply(ADMIN, real.configs.proposal(ADDED, "yard.yaml"), None).result(120)
        assert real.people.directory.limit("lucy") is None

    applied_elsewhere()
    without = {"yaml": f"# a comment\n{CONFIG}"}
    shown = yard.call("POST", "/api/v1/config/diff", token, without).json
    assert (2, False) == (shown["version"], shown["same"])
    done = applied(yard, without["yaml"])
    assert (3, 2, None) == (done["version"], done["changed"], real.people.directory.limit("lucy"))

    applied_elsewhere()
    back = yard.call("POST", "/api/v1/config/rollback", token, {"version": 1, "against": 4}).json
    assert (5, 2, None) == (back["version"], back["changed"], real.people.directory.limit("lucy"))


def test_a_file_that_says_nothing_of_people_leaves_them_as_they_are(yard: Team) -> None:
    without = CONFIG.partition("auth:")[0]
    shown = yard.call("POST", "/api/v1/config/diff", yard.tokens["adam"], {"yaml": without}).json
    assert "the file says nothing of `auth`: people stay as they are" in shown["notes"]
    applied(yard, without)
    assert 200 == yard.call("GET", "/api/v1/me", yard.tokens["ulla"]).status
    assert ADMIN.name == yard.yard.people.directory.local(ADMIN.uid, ADMIN.gid).name


def test_without_auth_the_default_tenant_of_a_user_of_the_machine_counts_too() -> None:
    directory = UserDirectory({"nina": Account(ME, "user", "research", "research/vision")})
    door = LocalAuthenticator("x" * 64, (ADMIN.uid, ADMIN.gid), directory.placed)
    who = door.known({PEER: (ADMIN.uid, ADMIN.gid), "headers": []})
    assert isinstance(who, Person)
    assert "research/vision" == who.home


def test_a_default_tenant_outside_of_the_role_is_named_with_its_line() -> None:
    wrong = ADDED.replace("default_tenant: research/vision", "default_tenant: product")
    with pytest.raises(ConfigError, match=r"'default_tenant' 'product' is not at or below 'research'"):
        loads(wrong, "yard.yaml")
