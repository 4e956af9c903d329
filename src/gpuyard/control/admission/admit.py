"""One judgement of every new job: the same for a submission, a dry run and a rehearsal.

`admit` is a function of the request, the person and the state, and what it says is final: nothing after it resolves the
request again. It settles the tenant that a job counts for, whether this person may submit for it, what the request asks
of this fleet (`resolving`), and whether that could ever start. What depends on other jobs alone (dependencies, and how
many jobs of a user wait) is looked up when the job is entered.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from threading import RLock

from gpuyard.control.access.people import Person, with_groups
from gpuyard.control.access.rights import below, class_refusal
from gpuyard.control.admission.judgement_cache import Remembered
from gpuyard.control.admission.resolving import resolve_request
from gpuyard.control.admission.tenant_rules import out_of_bounds, with_defaults
from gpuyard.control.admission.wanted import Wanted
from gpuyard.control.refusals import CouldNever, Forbidden, NotYet, Refusal, Unacceptable
from gpuyard.control.replica.labels import find_nodes
from gpuyard.control.wording import remedies_text
from gpuyard.core import State
from gpuyard.core.explain.admission import impossible_reason, is_beyond_engines, unpayable_reason
from gpuyard.errors import find_closest, quote, suggest
from gpuyard.model import CATALOGUE, Ask, JobSpec, Settings, Whole
from gpuyard.quantities import duration_text, span_words
from gpuyard.wire.endpoints import Action

OWN_NAMES_MAX = 100
"""Tenants that yard.yaml does not have, below each name of a user's own."""
_NAMED_MAX = 6
"""How many tenants a message names."""
_ANY = Ask(Whole(0))
MAPPED = "The owner of the yard can map names that scripts use, under '{}' in yard.yaml."


@dataclass(frozen=True, slots=True)
class Admitted:
    """A request that the yard takes, and what it comes to here."""

    tenant: str
    klass: str
    ask: Ask
    partition: str
    """The names that it has for its pools, where they are not the pools' own."""
    groups: tuple[str, ...] = ()
    """The groups of its user that walls of pools name."""


def admit(state: State, wanted: Wanted, person: Person) -> Admitted | Refusal:
    """What a request comes to, or why it is not taken."""
    ours, partition = _with_yard_names(wanted, state.settings)
    tenant = choose_tenant(ours, person, state)
    if isinstance(tenant, Refusal):
        return tenant
    if refusal := tenant_refusal(person, tenant, state):
        return refusal
    if not state.nodes.node:
        return NotYet(
            "the yard knows of no node yet, and jobs are judged by the nodes",
            "Try again in a moment; yard status says whether the yard is ready, and what keeps it from that.",
        )
    ours = with_defaults(ours, tenant, state)
    walls = state.walls
    groups = walls.list_counting(person.groups) if walls is not None and walls.groups else ()
    closed: tuple[str, ...] = ()
    if walls is not None:
        asker = state.asker_of(JobSpec(tenant, _ANY, ours.klass, user=person.name, groups=groups))
        closed = walls.closed_to(asker, ours.limit_ms)
    ask = _imageless(ours, state) or resolve_request(ours, state, closed)
    if isinstance(ask, Refusal):
        return ask
    if beyond := out_of_bounds(ask, tenant, state):
        return beyond
    labels = ours.labels if state.settings.budgets else ()
    spec = JobSpec(tenant, ask, ours.klass, user=person.name, labels=labels, groups=groups)
    return _impossible(ours, spec, state) or Admitted(tenant, ours.klass, ask, partition, groups)


class Admission:
    """`admit` with its answers remembered: a client sends the same kind of job again and again."""

    def __init__(self, lock: RLock) -> None:
        """`lock` is that of the state."""
        self._lock = lock
        self.remembered = Remembered(admit)

    def admit(self, state: State, wanted: Wanted, person: Person) -> Admitted:
        """What a request comes to; raises why it is not taken."""
        if state.walls is not None and state.walls.groups:
            person = with_groups(person)
        known = self.remembered.known(state, wanted, person)
        if known is not None:
            found = known.answer
        else:
            with self._lock:
                found = self.remembered.answer(state, wanted, person)
        if isinstance(found, Refusal):
            # A new one for each request: an exception that is raised again and again grows.
            raise type(found)(found.message, found.hint)
        return found


def _imageless(wanted: Wanted, state: State) -> Ask | None:
    """The ask of a job in an image where none runs: that is said of it, whatever else it asks for."""
    if not wanted.image:
        return None
    ask = Ask(Whole(0), clusters=wanted.clusters, images=True)
    return ask if is_beyond_engines(ask, state) else None


def _with_yard_names(wanted: Wanted, settings: Settings) -> tuple[Wanted, str]:
    """The request with pools, tenant and class by their own names, where it has those that scripts have for them; and
    the names that it has for its pools, if they are such."""
    if not (settings.partitions or settings.accounts or settings.qos):
        return wanted, ""
    pools = [pool for name in wanted.pools for pool in settings.partitions.get(name, (name,))]
    ours = wanted.but(
        pools=tuple(dict.fromkeys(pools)),
        tenant=settings.accounts.get(wanted.tenant, wanted.tenant),
        klass=settings.qos.get(wanted.klass, wanted.klass),
    )
    return ours, ",".join(wanted.pools) if any([name in settings.partitions for name in wanted.pools]) else ""


def _impossible(wanted: Wanted, spec: JobSpec, state: State) -> Refusal | None:
    """Why this yard could never run it; None if it could."""
    ask = spec.ask
    if wanted.klass and wanted.klass not in state.classes:
        names = [*state.classes, *state.settings.qos]
        return Unacceptable(
            f"unknown class {quote(wanted.klass)}; {suggest(wanted.klass, names, 'classes')}",
            MAPPED.format("qos"),
        )
    there = [name for name in state.models if name]
    named = [*CATALOGUE, *[model.name for model in state.settings.gpu_models], *there]
    for model in ask.models:
        if model not in named:
            choice = suggest(model, there or named, "GPU models here")
            return Unacceptable(f"unknown GPU model {quote(model)}; {choice}")
    clusters = sorted({node.cluster for node in state.nodes.node})
    for cluster in ask.clusters:
        if cluster not in clusters:
            return Unacceptable(f"unknown cluster {quote(cluster)}; {suggest(cluster, clusters, 'clusters')}")
    pools = sorted({node.pool for node in state.nodes.node})
    for pool in ask.pools:
        if pool not in pools:
            return _no_pool(pool, pools, state)
    unknown = _unknown_names(ask, state)
    if unknown is not None:
        return unknown
    klass = state.klass_of(wanted.klass)
    closed = class_refusal(klass, spec.tenant, spec.user, state.settings)
    if closed is not None:
        return closed
    if wanted.limit_ms > klass.limit_ms:
        return Unacceptable(
            f"asks for {span_words(wanted.limit_ms)}; "
            f"a job of class {klass.name} may run for {span_words(klass.limit_ms)}",
            f"Ask for less time (--time {duration_text(klass.limit_ms)}), or for another class.",
        )
    limit_ms = state.limit_for(spec, wanted.limit_ms)
    reason = impossible_reason(state, spec, limit_ms) or unpayable_reason(state, spec, limit_ms)
    if reason is None:
        return None
    change = f"What would change it: {remedies_text(reason.lifted_by)}."
    return CouldNever(f"it could never start: {reason.text}", change)


def _no_pool(pool: str, pools: Sequence[str], state: State) -> Unacceptable:
    """A pool that is not there; a script of another cluster has its partition."""
    names = [*pools, *state.settings.partitions]
    known = suggest(pool, names, "pools")
    one = next(iter([*find_closest(pool, names), *names]), "")
    typed = (
        f"Write --pool {one}, or sbatch -p {one}: that overrides a script's own #SBATCH --partition. "
        if one
        else ""
    )
    return Unacceptable(f"unknown pool {quote(pool)}; {known}", typed + MAPPED.format("partitions"))


def _unknown_names(ask: Ask, state: State) -> Unacceptable | None:
    """A node or a feature that is not there."""
    for name in (*ask.on_nodes, *ask.not_nodes):
        if not find_nodes(state, name):
            known = [name for _cluster, name in state.node_number]
            return Unacceptable(f"unknown node {quote(name)}; {suggest(name, known, 'nodes')}")
    marks = state.nodes.marks
    for group in ask.features:
        if not marks.selected((group,), ()):
            text = " or ".join([quote(feature) for feature in group])
            return Unacceptable(
                f"no node has the feature {text}; {suggest(group[0], marks.own_keys(), 'features')}",
                "Features are labels of nodes: in yard.yaml under 'features' or 'labels' of a pool or a cluster, or "
                "set by an admin with `yard label`.",
            )
    keys = [expression.key for term in ask.selects for expression in term if not marks.meeting(expression)]
    unknown = [key for key in keys if not marks.having(key)]
    if unknown and not marks.selected((), ask.selects):
        return Unacceptable(
            f"no node has a label {quote(unknown[0])}; {suggest(unknown[0], marks.keys(), 'labels')}",
            "Labels of nodes are in yard.yaml, or an admin sets them with `yard label`; `yard nodes` shows them.",
        )
    return None


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
