"""The tenant that a job counts for: which one it is, and whether this person may submit for it."""

from collections.abc import Sequence

from gpuyard.control.access.people import Person
from gpuyard.control.access.rights import below
from gpuyard.control.admission.wanted import Wanted
from gpuyard.control.refusals import Forbidden, Refusal, Unacceptable
from gpuyard.core import State
from gpuyard.errors import quote, suggest
from gpuyard.wire.endpoints import Action

OWN_NAMES_MAX = 100
"""Tenants that yard.yaml does not have, below each name of a user's own."""
_NAMED_MAX = 6
"""How many tenants a message names."""
MAPPED = "The owner of the yard can map names that scripts use, under '{}' in yard.yaml."


def choose_tenant(wanted: Wanted, person: Person, state: State) -> str | Refusal:
    """The tenant of a job: the one that was named, else the user's own, else the user's name if there are none."""
    known = [tenant.path for tenant in state.settings.tenants]
    if not wanted.tenant and person.home:
        return person.home
    if not known:
        return wanted.tenant or person.name
    if wanted.tenant:
        if not person.sight.whole or wanted.tenant.split("/")[0] in {path.split("/")[0] for path in known}:
            # A person with sight of a part of the yard gets the same words whether or not there is such a tenant.
            return wanted.tenant
        named = [path for path in known if person.sight.knows(path)]
        choice = list(dict.fromkeys([*named, *sorted({path.split("/")[0] for path in named})]))
        return Unacceptable(
            f"unknown tenant {quote(wanted.tenant)}; {suggest(wanted.tenant, choice, 'tenants')}",
            f"Tenants are in yard.yaml; below one of them your name is free: '{(choice or known)[0]}/{person.name}'. "
            + MAPPED.format("accounts"),
        )
    found = _own_tenant(known, person)
    if found:
        return found
    if _held_to(person) and not person.places:
        return _no_place(person, known[0])
    seen = [path for path in known if person.sight.knows(path)]
    open_to = [path for path in seen if person.may(Action.SUBMIT, path)] or seen or ["TENANT"]
    several = (
        "several tenants are called like you" if _called_like(known, person) else "this yard has several"
    )
    return Unacceptable(
        f"the job names no tenant, and {several}: {', '.join(open_to[:_NAMED_MAX])}",
        f"Name the tenant it counts for: --tenant {open_to[0]}/{person.name}; for good, set YARD_TENANT or `tenant:` "
        "in ~/.config/gpuyard/defaults.yaml.",
    )


def tenant_refusal(person: Person, tenant: str, state: State) -> Refusal | None:
    """Why someone may not submit for a tenant; None: they may."""
    return (
        _role_refusal(person, tenant)
        or _place_refusal(person, tenant, state)
        or _share_refusal(person, tenant, state)
        or _name_refusal(person, tenant, state)
    )


def _role_refusal(person: Person, tenant: str) -> Forbidden | None:
    """Why someone may not submit for a tenant."""
    if person.may(Action.SUBMIT, tenant):
        return None
    return Forbidden(
        f"{person.name} may not submit for {tenant}: " + ", ".join(map(str, person.rights)),
        f"Leave the tenant out: it is then {person.home}."
        if person.home and person.may(Action.SUBMIT, person.home)
        else "",
    )


def _place_refusal(person: Person, tenant: str, state: State) -> Forbidden | None:
    """Why a user of the machine, without `--auth`, may not submit for a tenant: each one more would be a share more."""
    if not _held_to(person):
        return None
    known = [each.path for each in state.settings.tenants]
    places = person.places or _by_name(known, person)
    if any([below(tenant, place) for place in places]):
        return None
    if not places:
        return _no_place(person, tenant)
    return Forbidden(
        f"{person.name} may not submit for {tenant}: {person.name} has {', '.join(places)} here",
        "Leave the tenant out, or ask an administrator: `auth.users` in yard.yaml says who has which.",
    )


def _share_refusal(person: Person, tenant: str, state: State) -> Forbidden | None:
    """Why a user may not submit for a name that yard.yaml does not have: it has had nothing, and so would come first.

    A user has one such name below each tenant: their own. What is below that divides their own share.
    """
    if (person.given is None and not person.places) or person.admin or person.may(Action.MAKE_TOKEN, tenant):
        return None
    known = [each.path for each in state.settings.tenants]
    own = [person.home, *[f"{path}/{person.own}" for path in known], *([] if known else [person.own])]
    if tenant in known or any([place and below(tenant, place) for place in own]):
        return None
    return Forbidden(
        f"{person.name} may not submit for {tenant}: "
        "yard.yaml has no such tenant, and a new name would add a share",
        (f"Leave the tenant out: it is then {person.home}. " if person.home else "")
        + "An administrator adds more under `tenants` in yard.yaml.",
    )


def _name_refusal(person: Person, tenant: str, state: State) -> Forbidden | None:
    """Why a user may not submit for one more name below their own: every name is a row of all lists of tenants, of
    metrics and of the memory of the server, and stays there."""
    tenants = state.tenants
    if tenant in tenants.number or person.admin or person.may(Action.MAKE_TOKEN, tenant):
        return None
    known = {each.path for each in state.settings.tenants}
    parts = tenant.split("/")
    paths = ["/".join(parts[: length + 1]) for length in range(len(parts))]
    own = next((path for path in paths if path not in known), tenant)
    new = len([path for path in paths if path != own and path not in tenants.number])
    there = tenants.count_below(tenants.number[own]) if own in tenants.number else 0
    if not new or there + new <= OWN_NAMES_MAX:
        return None
    return Forbidden(
        f"{person.name} may not submit for {tenant}: there are {there} names below {own} already, and a user may "
        f"have {OWN_NAMES_MAX}",
        f"Submit for {own} and tell jobs apart by labels: --project NAME, --label KEY=VALUE. "
        "An administrator adds tenants in yard.yaml.",
    )


def _held_to(person: Person) -> bool:
    """Whether someone is held to the tenants that are theirs: with `--auth` their rights say the same."""
    return person.given is None and not person.admin


def _by_name(known: Sequence[str], person: Person) -> list[str]:
    """The tenants of a user that yard.yaml does not name: of the user's name, or below the only tenant there is."""
    if not known:
        return [person.name]
    return _called_like(known, person) or [own for own in (_own_tenant(known, person),) if own]


def _no_place(person: Person, tenant: str) -> Forbidden:
    return Forbidden(
        f"yard.yaml gives {person.name} no tenant",
        f"An administrator adds `{person.name}: {{tenant: {tenant}}}` to `auth.users` in yard.yaml, and applies it.",
    )


def find_home(person: Person, state: State) -> str:
    """The tenant of someone's jobs that name none; empty: there is none, and such jobs are refused."""
    found = choose_tenant(Wanted(), person, state)
    return found if isinstance(found, str) else ""


def _called_like(known: Sequence[str], person: Person) -> list[str]:
    return [path for path in known if path.rpartition("/")[2] == person.name]


def _own_tenant(known: Sequence[str], person: Person) -> str:
    """The one tenant of the user's own name, or below the only tenant that there is; empty: that is not one."""
    own = _called_like(known, person)
    if own:
        return own[0] if len(own) == 1 else ""
    leaves = [path for path in known if not any(other.startswith(f"{path}/") for other in known)]
    return f"{leaves[0]}/{person.name}" if len(leaves) == 1 else ""
