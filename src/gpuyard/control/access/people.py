"""People: the person behind a request, and the account that their jobs run as.

On one machine the kernel says who is at the other end of a Unix socket; the holder of the token acts as its owner.
A server of root runs each job as the user who submitted it; any other server can only run jobs as itself, so
it serves its own user and root.

With `--auth` people are those of `auth.users` in yard.yaml, or of the machine's own list: a name, the user of the
machine as whom their jobs run, and the rights they have (`rights.py`). A name that yard.yaml does not have may come
from an identity provider, where people choose their names: it becomes an ordinary user of the machine or none at all.
"""

import grp
import os
import pwd
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from gpuyard.config.values import UID_MIN, Account
from gpuyard.control.access.rights import (
    EVERYTHING,
    NEIGHBOUR,
    ROLES,
    Right,
    Rights,
    Role,
    Sight,
    find_sight,
    may,
    narrow_rights,
)
from gpuyard.control.refusals import Forbidden
from gpuyard.wire.endpoints import Action

_NO_LOGIN = ("/nologin", "/false", "/sync", "/shutdown", "/halt")
NO_UID = -1
"""The uid of people without an account here: they run no jobs."""
_NSSWITCH = "/etc/nsswitch.conf"
_OWN_SOURCES = frozenset({"files", "compat", "db", "systemd", "altfiles"})
_SSSD = "/var/lib/sss/pipes/nss"
"""There while sssd runs; many systems name it as a source and run none."""
_HUMAN_UIDS = range(1000, 60_000)
_LOOK_EVERY_S = 10
"""How often the list of users is read: not for every job."""


@dataclass(frozen=True)
class Person:
    """The user or program behind a request."""

    uid: int
    gid: int
    name: str
    admin: bool
    """Root, or the owner of the server: may act on all jobs and on nodes."""
    login: str = ""
    """The account of the machine that their jobs run as; empty: it has the person's name."""
    given: Rights | None = None
    """What they may do; None: as it is without `--auth`."""
    token: str = ""
    """The id of the token with which they came."""
    expires_ms: int = 0
    """When that ends; 0: they came without one."""
    default_tenant: str = ""
    """The tenant of their jobs that name none, where yard.yaml says one."""
    places: tuple[str, ...] = ()
    """Without `--auth`: the tenants that yard.yaml gives them, and all below; empty: it does not name them."""
    groups: tuple[str, ...] = ()
    """Their groups, in order, as far as they were asked for (`with_groups`)."""

    @cached_property
    def rights(self) -> Rights:
        """What they may do."""
        if self.given is not None:
            return self.given
        return EVERYTHING if self.admin else NEIGHBOUR

    @cached_property
    def sight(self) -> Sight:
        """Whose jobs are there for them."""
        return find_sight(self.rights)

    @cached_property
    def home(self) -> str:
        """The tenant of their jobs that name none; empty: as it is without `--auth`."""
        if self.default_tenant and self.may(Action.SUBMIT, self.default_tenant):
            return self.default_tenant
        places = [right.tenant for right in self.given or () if right.tenant] or [*filter(None, self.places)]
        if len(places) != 1:
            return ""
        return places[0] if places[0].rpartition("/")[2] == self.own else f"{places[0]}/{self.own}"

    @property
    def own(self) -> str:
        """Their name as a part of a tenant's: an address of e-mail has letters that a tenant may not have."""
        return re.sub(r"[^A-Za-z0-9._-]", "-", self.name)

    @property
    def key(self) -> str:
        """Whose idempotency keys theirs are beside."""
        return str(self.uid) if self.given is None else f"@{self.name}"

    @property
    def signature(self) -> str:
        """As they stand in the log: with the token, so that a stolen one can be followed."""
        return f"{self.name} (token {self.token})" if self.token else self.name

    def may(self, action: Action, tenant: str, owner: str = "") -> bool:
        """Whether they may do this to something of that tenant and owner."""
        return may(self.rights, action, tenant, own=bool(owner) and owner == self.name)


@dataclass(frozen=True, slots=True)
class RunAs:
    """The account that a job runs as; all empty: the server's own."""

    uid: int = 0
    gid: int = 0
    user: str = ""


def find_person(uid: int, gid: int) -> Person:
    """The user of this machine with this number."""
    return Person(uid, gid, _name(uid), uid in (0, os.geteuid()))


def find_person_named(name: str) -> Person | None:
    """The user of this machine with this name, as `find_person` calls it."""
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    return find_person(entry.pw_uid, entry.pw_gid)


def with_groups(person: Person) -> Person:
    """The person with the groups that their account has on this machine. Asked for only where groups matter."""
    if person.uid == NO_UID:
        return person
    login = person.login or person.name
    theirs = _groups_of(login, person.gid, int(time.monotonic() / _LOOK_EVERY_S))
    return replace(person, groups=tuple(sorted({*person.groups, *theirs})))


@lru_cache(maxsize=4096)
def _groups_of(login: str, gid: int, _when: int) -> tuple[str, ...]:
    found = []
    for each in os.getgrouplist(login, gid):
        # A group that has a number and no name is none that a wall could name.
        with suppress(KeyError):
            found.append(grp.getgrgid(each).gr_name)
    return tuple(found)


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid-{uid}"


def has_other_people() -> bool:
    """Whether people other than root may work on this machine: it lists them, or it asks a directory for them."""
    return _has_other_people(int(time.monotonic() / _LOOK_EVERY_S))


@lru_cache(maxsize=1)
def _has_other_people(_when: int) -> bool:
    return asks_for_users() or any(is_person(entry.pw_uid, entry.pw_shell) for entry in pwd.getpwall())


def is_person(uid: int, shell: str) -> bool:
    """Whether an account is one that a person works with."""
    return uid in _HUMAN_UIDS and not shell.endswith(_NO_LOGIN)


def asks_for_users(nsswitch: str = _NSSWITCH, sssd: str = _SSSD) -> bool:
    """Whether users come from a directory (LDAP, Active Directory, NIS), which need not list them."""
    try:
        with open(nsswitch, encoding="utf-8", errors="replace") as file:
            lines = [line.partition("#")[0].split() for line in file]
    except OSError:
        return False
    sources = {word for line in lines if line[:1] == ["passwd:"] for word in line[1:] if word[0] != "["}
    if not os.path.exists(sssd):
        sources.discard("sss")
    return bool(sources - _OWN_SOURCES)


def run_as(person: Person, allow_root: bool) -> RunAs:
    """The account that this person's jobs run as here, or `Forbidden`."""
    server_uid = os.geteuid()
    if person.uid == NO_UID:
        has = ", ".join(map(str, person.rights))
        raise Forbidden(
            f"{person.name} is {has}, and no user of this machine: no job can run as {person.name}"
        )
    if server_uid != 0:
        if person.uid not in (0, server_uid):
            raise Forbidden(
                f"this yard runs as {_name(server_uid)} and cannot run jobs as {person.name}",
                "Start a yard of your own with `yard up -d`, or ask for one that root runs.",
            )
        return RunAs()
    # The kernel says who is root over the socket; with `--auth` a token does, and that is not enough.
    if person.uid == 0 and not allow_root and person.given is not None:
        raise Forbidden(
            "a token does not let jobs run as root",
            "Submit as an ordinary user, or as root on the machine of the yard. Or allow it in "
            "yard.yaml for every cluster that runs jobs:\n"
            "version: 1\n"
            "clusters:\n"
            "  box: {engine: local, allow_root: true}",
        )
    return RunAs(person.uid, person.gid, person.login or person.name)


class UserDirectory:
    """The people of a yard with `--auth`: their accounts here, and the most that they may do."""

    def __init__(self, accounts: Mapping[str, Account] | None = None, uid_min: int = UID_MIN) -> None:
        self._accounts = dict(accounts or {})
        self._uid_min = uid_min
        self._by_login: dict[str, list[str]] = {}
        for name, account in self._accounts.items():
            self._by_login.setdefault(account.unix or name, []).append(name)

    def limit(self, name: str) -> Right | None:
        """The most that someone may do; None: only their token says."""
        account = self._accounts.get(name)
        return None if account is None else Right(ROLES[account.role], account.tenant)

    def bearer(
        self, name: str, right: Right, token: str, expires_ms: int, *, by_kernel: bool = False
    ) -> Person:
        """The person with this token; it never gives more than its user has. `by_kernel`: as for `check`."""
        limit = self.limit(name)
        rights = (right,) if limit is None else narrow_rights([right], limit)
        if not rights:
            raise Forbidden(
                f"the token is for {right.tenant or 'the whole yard'}, but {name} is now {limit}",
                "Ask for a new token.",
            )
        login = self._entry(name, rights, by_kernel=by_kernel, named_here=True)
        account = self._accounts.get(name)
        home = account.default_tenant if account is not None else ""
        if login is None:
            return Person(NO_UID, NO_UID, name, False, "", rights, token, expires_ms, home)
        return Person(login.pw_uid, login.pw_gid, name, False, login.pw_name, rights, token, expires_ms, home)

    def default_tenant(self, login: str) -> str:
        """Where the jobs of a user of the machine go that name no tenant; empty: nothing is said, or not one thing."""
        found = {self._accounts[name].default_tenant for name in self._by_login.get(login, [])}
        return found.pop() if len(found) == 1 else ""

    def placed(self, person: Person) -> Person:
        """A user of the machine, without `--auth`, with the tenants that yard.yaml gives them."""
        names = self._by_login.get(person.name)
        if not names:
            return person
        places = tuple(sorted({self._accounts[name].tenant for name in names}))
        return replace(person, default_tenant=self.default_tenant(person.name), places=places)

    def local(self, uid: int, gid: int) -> Person:
        """The person at the other end of the Unix socket."""
        found = find_person(uid, gid)
        if found.admin:
            return replace(found, default_tenant=self.default_tenant(found.name))
        names = self._by_login.get(found.name, [])
        if len(names) > 1:
            raise Forbidden(
                f"{found.name} is {' and '.join(names)} here, and the socket does not say which of them asks",
                "Use a token: `yard login`, or YARD_URL and YARD_TOKEN.",
            )
        name = names[0] if names else ""
        limit = self.limit(name)
        if limit is None:
            raise Forbidden(
                f"{found.name} is not a user of this yard",
                f"An administrator adds `{found.name}:` to `auth.users` in yard.yaml, or makes you a token.",
            )
        home = self._accounts[name].default_tenant
        return Person(uid, gid, name, False, found.name, (limit,), default_tenant=home)

    def check(self, name: str, right: Right, *, by_kernel: bool = False, named_here: bool = False) -> None:
        """Raise why no user of this name could have this right here.

        `by_kernel`: the kernel has said that it is this account, which the server is of, or root. `named_here`: the
        name was given by an administrator, for a program, and not chosen by somebody elsewhere.
        """
        self._entry(name, (right,), by_kernel=by_kernel, named_here=named_here)

    def _entry(
        self, name: str, rights: Rights, *, by_kernel: bool, named_here: bool
    ) -> pwd.struct_passwd | None:
        """The account of the machine that a person's jobs run as; None: there is none, and they run nothing."""
        account = self._accounts.get(name)
        login = (account.unix if account is not None else "") or name
        looks_only = all([right.role is Role.VIEWER for right in rights])
        try:
            entry = pwd.getpwnam(login)
        except (KeyError, ValueError):
            named = account is not None and account.unix
            if not named and looks_only:
                return None
            raise Forbidden(
                f"{name} is not a user of this machine"
                if login == name
                else f"{name} is {login} here, and this machine has no such user",
                f"Map the name in yard.yaml: `auth: {{users: {{{name}: {{unix: LOGIN}}}}}}`, or add the user.",
            ) from None
        if by_kernel and entry.pw_uid in (0, os.geteuid()):
            return entry
        if account is None and (entry.pw_uid < self._uid_min or entry.pw_shell.endswith(_NO_LOGIN)):
            if named_here and looks_only and entry.pw_uid != 0:
                # A program with an account of its own, such as Prometheus, that looks and runs nothing.
                return None
            raise Forbidden(
                f"{name} is a system account (uid {entry.pw_uid}), which a name alone does not give",
                f"If it is meant, yard.yaml says so: `auth: {{users: {{{name}: {{unix: {login}}}}}}}`.",
            )
        return entry
