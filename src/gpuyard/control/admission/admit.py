"""One judgement of every new job: the same for a submission, a dry run and a rehearsal.

`admit` is a function of the request, the person and the state, and what it says is final: nothing after it resolves the
request again. What depends on other jobs alone (dependencies, and how many jobs of a user wait) is looked up when the
job is entered.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from threading import RLock

from gpuyard.control.access.people import Person
from gpuyard.control.access.rights import class_refusal
from gpuyard.control.admission.judgement_cache import Remembered
from gpuyard.control.admission.resolving import resolve_request
from gpuyard.control.admission.tenants import MAPPED, choose_tenant, tenant_refusal
from gpuyard.control.admission.wanted import Wanted
from gpuyard.control.refusals import CouldNever, NotYet, Refusal, Unacceptable
from gpuyard.control.replica.labels import find_nodes
from gpuyard.control.wording import remedies_text
from gpuyard.core import State
from gpuyard.core.explain.admission import impossible_reason, is_beyond_engines, unpayable_reason
from gpuyard.errors import find_closest, quote, suggest
from gpuyard.model import CATALOGUE, Ask, JobSpec, Settings, Whole
from gpuyard.quantities import duration_text, span_words


@dataclass(frozen=True, slots=True)
class Admitted:
    """A request that the yard takes, and what it comes to here."""

    tenant: str
    klass: str
    ask: Ask
    partition: str
    """The names that it has for its pools, where they are not the pools' own."""


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
    ask = _imageless(ours, state) or resolve_request(ours, state)
    if isinstance(ask, Refusal):
        return ask
    return _impossible(ours, ask, person, tenant, state) or Admitted(tenant, ours.klass, ask, partition)


class Admission:
    """`admit` with its answers remembered: a client sends the same kind of job again and again."""

    def __init__(self, lock: RLock) -> None:
        """`lock` is that of the state."""
        self._lock = lock
        self.remembered = Remembered(admit)

    def admit(self, state: State, wanted: Wanted, person: Person) -> Admitted:
        """What a request comes to; raises why it is not taken."""
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


def _impossible(wanted: Wanted, ask: Ask, person: Person, tenant: str, state: State) -> Refusal | None:
    """Why this yard could never run it; None if it could."""
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
    closed = class_refusal(klass, tenant, person.name, state.settings)
    if closed is not None:
        return closed
    if wanted.limit_ms > klass.limit_ms:
        return Unacceptable(
            f"asks for {span_words(wanted.limit_ms)}; "
            f"a job of class {klass.name} may run for {span_words(klass.limit_ms)}",
            f"Ask for less time (--time {duration_text(klass.limit_ms)}), or for another class.",
        )
    labels = wanted.labels if state.settings.budgets else ()
    spec = JobSpec(tenant, ask, wanted.klass, user=person.name, labels=labels)
    reason = impossible_reason(state, spec) or unpayable_reason(
        state, spec, wanted.limit_ms or klass.limit_ms
    )
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
    if not ask.features:
        return None
    there = sorted({feature for node in state.nodes.node for feature in node.features})
    for group in ask.features:
        if not set(group) & set(there):
            text = " or ".join([quote(feature) for feature in group])
            return Unacceptable(
                f"no node has the feature {text}; {suggest(group[0], there, 'features')}",
                "Features are in yard.yaml, under 'features' of a pool or a cluster.",
            )
    return None
