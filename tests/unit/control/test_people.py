"""Whom a name makes of somebody: an identity provider lets people choose theirs."""

import pwd
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuyard.config.reading import loads
from gpuyard.config.values import Account
from gpuyard.control.access import people
from gpuyard.control.access.people import NO_UID, Person, UserDirectory, run_as
from gpuyard.control.access.rights import Right, Role
from gpuyard.control.refusals import Forbidden
from rigs.teams import CONFIG, ME, Answer, Team, team

USER, VIEWER = Right(Role.USER, "research"), Right(Role.VIEWER, "research")
ENTRIES = {
    "root": (0, "/bin/bash"),
    "slurm": (64_030, "/usr/sbin/nologin"),
    "mysql": (112, "/bin/false"),
    "munge": (999, "/bin/bash"),
    "ana": (1000, "/bin/bash"),
}


@pytest.fixture
def accounts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with these users, run by root."""

    def named(name: str) -> pwd.struct_passwd:
        uid, shell = ENTRIES[name]
        return pwd.struct_passwd((name, "x", uid, uid, "", f"/home/{name}", shell))

    monkeypatch.setattr(people.pwd, "getpwnam", named)
    monkeypatch.setattr(people.os, "geteuid", lambda: 0)
    monkeypatch.setattr(people.pwd, "getpwall", lambda: [named("ana")])
    people._has_other_people.cache_clear()


@pytest.mark.usefixtures("accounts")
@pytest.mark.parametrize("name", ["root", "slurm", "mysql", "munge"])
def test_a_name_alone_makes_nobody_the_system(name: str) -> None:
    says = f"{name} is a system account"
    with pytest.raises(Forbidden, match=says):
        UserDirectory().bearer(name, USER, "t", 1)
    for right in (USER, VIEWER):
        with pytest.raises(Forbidden, match=says):
            UserDirectory().check(name, right)
    with pytest.raises(Forbidden, match=says):
        UserDirectory().check(name, USER, named_here=True)
    assert 1000 == run_as(UserDirectory().bearer("ana", USER, "t", 1), allow_root=False).uid
    with pytest.raises(Forbidden, match="ana is a system account"):
        UserDirectory(uid_min=2000).bearer("ana", USER, "t", 1)


@pytest.mark.usefixtures("accounts")
def test_a_program_with_an_account_of_the_system_may_look_and_runs_nothing() -> None:
    UserDirectory().check("munge", VIEWER, named_here=True)
    assert NO_UID == UserDirectory().bearer("munge", VIEWER, "t", 1).uid
    with pytest.raises(Forbidden, match="root is a system account"):
        UserDirectory().check("root", VIEWER, named_here=True)
    with pytest.raises(Forbidden, match="root is a system account"):
        UserDirectory().bearer("root", VIEWER, "t", 1)


@pytest.mark.usefixtures("accounts")
def test_what_the_kernel_says_of_root_and_of_the_server_holds_and_of_nobody_else() -> None:
    everything = Right(Role.ADMIN)
    UserDirectory().check("root", everything, by_kernel=True)
    root = UserDirectory().bearer("root", everything, "t", 1, by_kernel=True)
    assert (0, False) == (root.uid, root.admin)
    with pytest.raises(Forbidden, match="a token does not let jobs run as root"):
        run_as(root, allow_root=False)
    with pytest.raises(Forbidden, match="slurm is a system account"):
        UserDirectory().check("slurm", everything, by_kernel=True)


@pytest.mark.usefixtures("accounts")
def test_yard_yaml_can_say_so_and_root_needs_two_words() -> None:
    directory = UserDirectory({"ops": Account("root"), "slurm": Account()})
    assert 64_030 == run_as(directory.bearer("slurm", USER, "t", 1), allow_root=False).uid
    ops = directory.bearer("ops", USER, "t", 1)
    with pytest.raises(Forbidden, match="a token does not let jobs run as root") as refused:
        run_as(ops, allow_root=False)
    file = refused.value.hint.partition("for every cluster that runs jobs:\n")[2]
    assert loads(file, "yard.yaml").clusters["box"].allow_root, "the file that it shows"
    assert 0 == run_as(ops, allow_root=True).uid
    assert 0 == run_as(Person(0, 0, "root", True), allow_root=False).uid, (
        "by the kernel's word, beside others"
    )


@pytest.mark.usefixtures("accounts")
def test_who_only_looks_needs_no_account_and_runs_nothing() -> None:
    wanda = UserDirectory().bearer("wanda", VIEWER, "t", 1)
    assert NO_UID == wanda.uid
    with pytest.raises(Forbidden, match="wanda is viewer of research, and no user of this machine"):
        run_as(wanda, allow_root=True)
    with pytest.raises(Forbidden, match="wanda is not a user of this machine"):
        UserDirectory().bearer("wanda", USER, "t", 1)


@pytest.mark.parametrize(
    ("line", "asks"),
    [
        ("passwd: files systemd", False),
        ("passwd:  files  ldap [NOTFOUND=return] # all of us", True),
        ("passwd: files winbind", True),
        ("passwd: files sss systemd", False),
        ("group: files ldap", False),
    ],
)
def test_users_of_a_directory_are_people_too(tmp_path: Path, line: str, asks: bool) -> None:
    (tmp_path / "nsswitch.conf").write_text(f"# sources\n\n{line}\n")
    files = str(tmp_path / "nsswitch.conf"), str(tmp_path / "nss")
    assert asks == people.asks_for_users(*files)
    if "sss" in line:
        (tmp_path / "nss").touch()
        assert people.asks_for_users(*files)


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    with team(tmp_path_factory.mktemp("names"), CONFIG) as made:
        yield made


def test_a_name_is_the_first_ones_who_logged_in_with_it(yard: Team) -> None:
    def log_in(name: str, subject: str, proof: str) -> str:
        limit = yard.token_service.directory.limit(name)
        assert limit is not None
        return yard.token_service.login(name, limit, subject, proof * 20, 60_000).result(10)[1]

    first = log_in("ulla", "https://id.example 1", "a")
    assert 200 == yard.call("GET", "/api/v1/me", first).status
    with pytest.raises(Forbidden, match="ulla belongs here to another person"):
        log_in("ulla", "https://id.example 2", "b")
    with pytest.raises(Forbidden, match="you are ulla here, and cannot be adam as well"):
        log_in("adam", "https://id.example 1", "c")
    assert log_in("ulla", "https://id.example 1", "d")
    assert log_in("ulla", "https://new.example 7", "e"), "another provider, whom yard.yaml trusts now"
    assert ME == yard.call("GET", "/api/v1/me", first).json["runs_as"]


def test_an_administrator_unbinds_a_name_and_the_next_login_binds_it(yard: Team) -> None:
    def log_in(name: str, number: int, proof: str) -> str:
        limit = yard.token_service.directory.limit(name)
        assert limit is not None
        return yard.token_service.login(
            name, limit, f"https://id.example {number}", proof * 20, 60_000
        ).result(10)[1]

    def unbind(by: str, name: str) -> Answer:
        return yard.call("DELETE", f"/api/v1/logins/{name}", yard.tokens[by])

    before = log_in("carl", 11, "f")
    again = log_in("carl", 11, "g")
    made = yard.token("carl")
    assert 403 == unbind("tara", "carl").status
    done = unbind("adam", "carl")
    assert (200, "carl") == (done.status, done.json["user"])
    assert {before.split("_")[1], again.split("_")[1]} == set(done.json["revoked"])

    after = log_in("carl", 12, "h")
    # Whoever had the name is out; a token that an administrator made for it is not the provider's business.
    assert [401, 401, 200, 200] == [
        yard.call("GET", "/api/v1/me", token).status for token in (before, again, made, after)
    ]
    with pytest.raises(Forbidden, match="carl belongs here to another person") as refusal:
        log_in("carl", 11, "i")
    assert "yard token unbind carl" in refusal.value.hint
    assert log_in("dora", 11, "j"), "whoever had the name may have another one"
    nobody = unbind("adam", "nobody@example.org")
    assert (404, True) == (nobody.status, "'nobody@example.org'" in nobody.json["detail"])
    lines = yard.call("GET", "/api/v1/audit?limit=50", yard.tokens["adam"]).json["lines"]
    unbound = [(line["who"].split()[0], line["about"]) for line in lines if line["what"] == "unbind name"]
    assert [("adam", "carl")] == unbound
