"""Rights: one table of what each role may do, and one question that every route asks.

A person has rights: a role at a place in the tree of tenants, which holds for everything below it. An action needs a
role there; for some a lower one will do where the job is the person's own. Nothing here knows HTTP, files or time.

What lies outside all rights of a person is not there for them (`Sight`): asked for, it is not found, and in the queue
it is a row without names, because people have to see what they wait behind.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum

from gpuyard.control.refusals import Forbidden
from gpuyard.core import State
from gpuyard.model import JobClass, Settings, Verb
from gpuyard.wire.endpoints import DOES, Action
from gpuyard.wire.replies.people import AllowedReply


class Role(IntEnum):
    """What someone may do at a place, each more than the one before it."""

    COLLECTOR = 0
    """No person: hands in the samples of the one node whose name its token has, and sees nothing."""
    VIEWER = 1
    """Sees jobs, and nothing of what is in them."""
    USER = 2
    """Submits, acts on jobs of their own and reads what those wrote."""
    TENANT_ADMIN = 3
    """Does the same for everybody's jobs there, and makes tokens."""
    ADMIN = 4
    """Everything. Nodes and the log belong to no tenant: for these the role has to hold for the whole yard."""

    @property
    def word(self) -> str:
        """As people write it."""
        return self.name.lower().replace("_", "-")


MOVES = frozenset({Verb.TOP, Verb.BACK})
"""What is asked for about a job that puts others behind it."""

ROLES = {role.word: role for role in Role}


@dataclass(frozen=True, slots=True)
class _Need:
    """The least role that will do."""

    others: Role
    own: Role
    """For a job of one's own; for samples, the node of one's own."""
    whole: bool = False
    """Whether it has to hold for the whole yard."""


_NEEDS = {
    Action.SELF: _Need(Role.VIEWER, Role.VIEWER),
    Action.SEE_QUEUE: _Need(Role.VIEWER, Role.VIEWER),
    Action.SEE_NODES: _Need(Role.VIEWER, Role.VIEWER),
    Action.SEE_JOB: _Need(Role.VIEWER, Role.VIEWER),
    Action.SUBMIT: _Need(Role.USER, Role.USER),
    Action.ACT_ON_JOB: _Need(Role.TENANT_ADMIN, Role.USER),
    Action.MOVE_JOB: _Need(Role.ADMIN, Role.ADMIN, whole=True),
    Action.READ_JOB: _Need(Role.TENANT_ADMIN, Role.USER),
    # What is done inside a job is done as its owner, with all that the owner's account has.
    Action.ENTER_JOB: _Need(Role.ADMIN, Role.USER),
    Action.SEE_TENANTS: _Need(Role.VIEWER, Role.VIEWER),
    Action.MAKE_TOKEN: _Need(Role.TENANT_ADMIN, Role.TENANT_ADMIN),
    Action.UNBIND_NAME: _Need(Role.ADMIN, Role.ADMIN, whole=True),
    Action.MANAGE_NODES: _Need(Role.ADMIN, Role.ADMIN, whole=True),
    Action.WRITE_SAMPLES: _Need(Role.ADMIN, Role.COLLECTOR, whole=True),
    Action.MANAGE_CONFIG: _Need(Role.ADMIN, Role.ADMIN, whole=True),
    Action.PRUNE: _Need(Role.ADMIN, Role.ADMIN, whole=True),
    Action.REBUILD: _Need(Role.ADMIN, Role.ADMIN, whole=True),
    Action.CLOSE_MONTH: _Need(Role.ADMIN, Role.ADMIN, whole=True),
    Action.SEE_ALL: _Need(Role.ADMIN, Role.ADMIN, whole=True),
}


def below(tenant: str, place: str) -> bool:
    """Whether a tenant is at a place of the tree or below it; the empty place is the whole tree."""
    return not place or tenant == place or tenant.startswith(f"{place}/")


@dataclass(frozen=True, slots=True)
class Right:
    """A role at a place of the tree of tenants and everywhere below it."""

    role: Role
    tenant: str = ""
    """Empty: the whole yard."""

    def __str__(self) -> str:
        return f"{self.role.word} of {self.tenant or 'the whole yard'}"

    def narrowed(self, by: "Right") -> "Right | None":
        """What both give: the lower role at the deeper place; nothing where neither place is above the other."""
        if below(self.tenant, by.tenant):
            return Right(min(self.role, by.role), self.tenant)
        return Right(min(self.role, by.role), by.tenant) if below(by.tenant, self.tenant) else None


Rights = tuple[Right, ...]
EVERYTHING: Rights = (Right(Role.ADMIN),)
NEIGHBOUR: Rights = (Right(Role.USER),)
"""Users of one machine without `--auth`: they see each other's jobs, and act on and read only their own."""


def _reaches(role: Role, least: Role) -> bool:
    """Whether a role will do. Being a collector is no step on the ladder: people of other roles are none."""
    return role is least if least is Role.COLLECTOR else role >= least


def check_ever(name: str, rights: Rights, action: Action) -> None:
    """Raise if there is nothing at all for which this person may do this, with what the person is here."""
    if not may_ever(rights, action):
        has = f"{name} is {', '.join(map(str, rights))}" if rights else f"{name} has no role here"
        raise Forbidden(f"{name} may not {DOES[action]}: {has}", "Ask an admin of the yard.")


def may_ever(rights: Rights, action: Action) -> bool:
    """Whether there is anything at all for which this person may do this: checked before a route looks further."""
    if action is Action.ANYBODY:
        return True
    need = _NEEDS[action]
    return any(
        (_reaches(r.role, need.own) or _reaches(r.role, need.others)) and not (need.whole and r.tenant)
        for r in rights
    )


def may(rights: Rights, action: Action, tenant: str, *, own: bool = False) -> bool:
    """Whether this person may do this to something of that tenant; `own`: it is a job of theirs."""
    if action is Action.ANYBODY:
        return True
    need = _NEEDS[action]
    role = need.own if own else need.others
    return any(
        (_reaches(r.role, role) or _reaches(r.role, need.others))
        and below(tenant, r.tenant)
        and not (need.whole and r.tenant)
        for r in rights
    )


def list_allowed(right: Right) -> AllowedReply:
    """What a right lets someone do, for a page that shows no button in vain."""
    return {
        "tenant": right.tenant,
        "actions": [each.value for each in _NEEDS if may((right,), each, right.tenant)],
        "own_actions": [each.value for each in _NEEDS if may((right,), each, right.tenant, own=True)],
    }


def may_give(rights: Rights, given: Right) -> bool:
    """Whether this person may make a token with that right: never more than they have there themselves."""
    return may(rights, Action.MAKE_TOKEN, given.tenant) and any(
        r.role >= given.role and below(given.tenant, r.tenant) for r in rights
    )


def narrow_rights(rights: Iterable[Right], by: Right) -> Rights:
    """What is left of some rights under a limit."""
    found = [r.narrowed(by) for r in rights]
    return tuple([r for r in found if r is not None])


@dataclass(frozen=True, slots=True)
class Sight:
    """Whose jobs someone sees; those of other tenants are not there for them."""

    tenants: tuple[str, ...] = ("",)

    @property
    def whole(self) -> bool:
        """Whether they see everything."""
        return "" in self.tenants

    def sees(self, tenant: str) -> bool:
        """Whether jobs of a tenant are there for them."""
        return any([below(tenant, place) for place in self.tenants])

    def knows(self, tenant: str) -> bool:
        """Whether they may know of a tenant: one they see, or one above it, whose name is in theirs and whose quota is
        theirs too."""
        return self.sees(tenant) or any([below(place, tenant) for place in self.tenants])


ALL = Sight()


def find_sight(rights: Rights) -> Sight:
    """What someone with these rights sees."""
    return Sight(tuple(sorted({r.tenant for r in rights if r.role is not Role.COLLECTOR})))


# A class is judged once, where a job is accepted: nothing changes the class of a job later.


def is_theirs(klass: JobClass, tenant: str, user: str) -> bool:
    """Whether a user's jobs for a tenant may be of a class."""
    if not klass.tenants and not klass.users:
        return True
    return user in klass.users or any([below(tenant, place) for place in klass.tenants])


def class_refusal(klass: JobClass, tenant: str, user: str, settings: Settings) -> Forbidden | None:
    """Why a job is not taken into a class. The refusal names the classes that this user may use, and no others."""
    if is_theirs(klass, tenant, user):
        return None
    open_to = [each.name for each in settings.classes if is_theirs(each, tenant, user)]
    return Forbidden(
        f"class {klass.name} is not for jobs of {user} for {tenant}: these may be {_either(open_to)}",
        f"Name one of them, or none for {settings.default_class}. "
        f"An administrator says whose a class is: `classes.{klass.name}.tenants` in yard.yaml.",
    )


def list_kept_classes(state: State, settings: Settings) -> Iterator[str]:
    """Live jobs that would not be accepted into their class again, in sentences: an apply takes it from none."""
    closed = {klass.name: klass for klass in settings.classes if klass.tenants or klass.users}
    if not closed:
        return
    counts: dict[tuple[str, str], int] = {}
    for record in state.jobs.values():
        spec = record.job.spec
        klass = closed.get(spec.klass)
        if klass is not None and not is_theirs(klass, spec.tenant, spec.user):
            counts[spec.klass, spec.tenant] = counts.get((spec.klass, spec.tenant), 0) + 1
    for (name, tenant), count in sorted(counts.items()):
        jobs, keep = ("1 live job", "keeps") if count == 1 else (f"{count:,} live jobs", "keep")
        yield f"{jobs} of {tenant} {keep} class {name}, which is no longer theirs: new ones are refused"


def _either(names: list[str]) -> str:
    return " or ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
