"""A new job as someone asks for it, apart from how it was asked: what becomes of it in the log and the blobs."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from typing import Any

from pydantic_core import to_json

from gpuyard.control.access.people import Person, RunAs
from gpuyard.control.access.rights import below, not_their_class
from gpuyard.control.commands.dependencies import Dependency
from gpuyard.control.refusals import CouldNever, Forbidden, Refusal, Unacceptable
from gpuyard.control.replica.labels import numbers_named
from gpuyard.control.wording import remedies_text
from gpuyard.core import State
from gpuyard.core.explain.admission import never, never_paid
from gpuyard.core.phrases import span
from gpuyard.durations import duration_text
from gpuyard.engines.contract import UMASK, Container, Recipe
from gpuyard.errors import closest, quoted, remedy
from gpuyard.model import (
    CATALOGUE,
    After,
    Ask,
    Capability,
    Event,
    GpuRequest,
    Isolation,
    Job,
    JobHeld,
    JobSpec,
    JobState,
    JobSubmitted,
    Mig,
    Milli,
    Settings,
    TasksSubmitted,
    Whole,
)
from gpuyard.model.serialise import Plain, to_plain
from gpuyard.model.units import MILLI, SECOND_MS
from gpuyard.wire.endpoints import Action


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """What someone wants to run. Checked for sense by itself already; whether the yard can serve it is judged here."""

    command: tuple[str, ...] = ()
    """The program and its arguments, or with a script its arguments alone."""
    script: str = ""
    name: str = ""
    tenant: str = ""
    klass: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    """By key; the project is one of them."""
    gpus: int = 0
    """Of each task."""
    gpu_milli: int = 0
    """Thousandths of one GPU, instead of whole ones."""
    mig: str = ""
    """A MIG profile: `gpus` then counts slices."""
    gpu_memory_mib: int = 0
    """GPU memory, instead of a number of GPUs."""
    isolation: Isolation = Isolation.ANY
    request: GpuRequest | None = None
    """What it comes to, once that is settled."""
    gpu_models: tuple[str, ...] = ()
    tasks: int = 1
    cpu_milli: int | None = None
    """Of each task, like the memory; None: it names no cores."""
    memory_mib: int = 0
    limit_ms: int = 0
    begin_ms: int = 0
    deadline_ms: int = 0
    array: tuple[int, ...] | None = None
    """Indices of an array's tasks; None: it is no array."""
    env: dict[str, str] = field(default_factory=dict)
    cwd: str = ""
    umask: int = UMASK
    stdout: str = ""
    stderr: str = ""
    warn_signal: int = 0
    warn_s: int = 0
    open_mode: str = ""
    warn_shell: bool = False
    slurm_commands: bool = False
    containers: tuple[Container, ...] = ()
    """Its own container and the others; none: it is a process of the node."""
    terminal: bool = False
    """Whether it has a terminal for its input and output."""
    checkpoint_s: int = 0
    retries: int = 0
    requeue: bool = True
    hold: bool = False
    clusters: tuple[str, ...] = ()
    """Clusters that will do, the preferred one first."""
    pools: tuple[str, ...] = ()
    partition: str = ""
    """The names that it has for its pools, where they are not the pools' own."""
    nodes_max: int = 0
    nodes_min: int = 0
    on_nodes: tuple[str, ...] = ()
    not_nodes: tuple[str, ...] = ()
    features: tuple[tuple[str, ...], ...] = ()
    exclusive: bool = False
    """Whole nodes, shared with no other job."""
    batch: bool = False
    """The command runs once, in the first task."""
    ranks: int = 0
    dependencies: tuple[Dependency, ...] = ()
    dependencies_any: bool = False
    """One of them is enough."""
    array_limit: int = 0
    """How many tasks of an array may run at a time; 0: all."""

    @property
    def ask(self) -> Ask:
        """Its resources."""
        return Ask(
            self.gpu_request,
            self.tasks,
            self.counted_milli,
            self.memory_mib,
            self.gpu_models,
            self.pools,
            self.nodes_max,
            self.nodes_min,
            self.on_nodes,
            self.not_nodes,
            self.features,
            self.clusters,
        )

    @property
    def counted_milli(self) -> int:
        """What each task counts of the cores: as much as it names. One that names none and has no GPU counts one.

        A task with a GPU that names none counts none: how many there are is bounded by the GPUs, and on a machine with
        fewer cores than GPUs, no GPU should stay idle for want of a core that the job did not ask for.
        """
        if self.cpu_milli is not None:
            return self.cpu_milli
        return 0 if self.gpus or self.gpu_milli or self.mig or self.gpu_memory_mib or self.request else MILLI

    @property
    def gpu_request(self) -> GpuRequest:
        """What each task asks of GPUs."""
        if self.request is not None:
            return self.request
        if self.mig:
            return Mig(max(1, self.gpus), self.mig)
        return Milli(1, self.gpu_milli) if self.gpu_milli else Whole(self.gpus)

    @property
    def ids(self) -> int:
        """How many ids it takes: an array has one of its own and one for each task."""
        return 1 if self.array is None else 1 + len(self.array)


_OF_RECIPES = {each.name for each in fields(Recipe)} & {each.name for each in fields(NewJob)}
"""Fields that a recipe has under the same name."""


def recipe_of(new: NewJob, runs_as: RunAs) -> bytes:
    """How to run it, as the blob that is kept."""
    same = {name: getattr(new, name) for name in _OF_RECIPES}
    changed: dict[str, Any] = {
        "argv": new.command,
        "env": new.env | _array_variables(new.array),
        "uid": runs_as.uid,
        "gid": runs_as.gid,
        "user": runs_as.user,
        "warn_ms": new.warn_s * SECOND_MS,
        "ranks": new.ranks or (new.tasks if new.batch else 0),
        "asked": _vaguely(new),
    }
    return _encoded(Recipe(**{**same, **changed}))


def _encoded(recipe: Recipe) -> bytes:
    """As `json.dumps` writes it, so that the same recipe has the same hash in every release.

    Of a long script that is the longest step in which no other request is served. The faster encoder escapes neither
    DEL nor what is not ASCII; without these it writes the same.
    """
    plain = to_plain(recipe)
    if recipe.script.isascii():
        with suppress(ValueError):  # Half of a surrogate pair in another text.
            body: bytes = to_json(plain)
            if body.isascii() and b"\x7f" not in body:
                return body
    return json.dumps(plain, separators=(",", ":")).encode()


def _vaguely(new: NewJob) -> str:
    """What of a request the fleet will make concrete, so that it can be asked for again as it was; else nothing."""
    asked: dict[str, Any] = {}
    if new.containers:
        asked["clusters"] = new.clusters
    if new.exclusive or new.gpu_memory_mib:
        asked |= {
            "gpus": new.gpus,
            "gpu_milli": new.gpu_milli,
            "mig": new.mig,
            "gpu_memory_mib": new.gpu_memory_mib,
            "isolation": "" if new.isolation is Isolation.ANY else new.isolation.value,
            "gpu_models": new.gpu_models,
            "tasks": new.tasks,
            "cpus": None if new.cpu_milli is None else new.cpu_milli / MILLI,
            "memory_mib": new.memory_mib,
            "pools": new.pools,
            "nodes_max": new.nodes_max,
            "nodes_min": new.nodes_min,
            "exclusive": new.exclusive,
        }
    return json.dumps(asked, separators=(",", ":")) if asked else ""


def _array_variables(indices: tuple[int, ...] | None) -> dict[str, str]:
    """What Slurm tells each task of an array about all of them. (Of a list at even distances, 1,4,7, Slurm calls the
    step 1; here it is like the range 1-7:3, whose tasks are the same.)"""
    if not indices:
        return {}
    found = sorted(indices)
    steps = {after - before for before, after in pairwise(found)}
    return {
        "SLURM_ARRAY_TASK_COUNT": str(len(found)),
        "SLURM_ARRAY_TASK_MIN": str(found[0]),
        "SLURM_ARRAY_TASK_MAX": str(found[-1]),
        "SLURM_ARRAY_TASK_STEP": str(steps.pop() if len(steps) == 1 else 1),
    }


def spec_of(
    new: NewJob, person: Person, tenant: str, recipe: str, recipe_bytes: int, after: tuple[After, ...] = ()
) -> JobSpec:
    """What the scheduler needs to know of it."""
    return JobSpec(
        tenant=tenant,
        ask=new.ask,
        klass=new.klass,
        name=new.name,
        checkpoint_ms=new.checkpoint_s * SECOND_MS,
        user=person.name,
        recipe=recipe,
        retries=new.retries,
        requeue=new.requeue,
        after=after,
        after_one=new.dependencies_any,
        partition=new.partition,
        labels=new.labels,
        recipe_bytes=recipe_bytes,
    )


def owned(spec: JobSpec, account: RunAs, settings: Settings) -> JobSpec:
    """The spec with the owner of its share, where the shares of a GPU belong to one user: the one it runs as."""
    request = spec.ask.gpus
    if settings.mps_users != "one" or not isinstance(request, Milli) or not account.user:
        # A yard of an ordinary user runs everything as that one.
        return spec
    return replace(spec, ask=replace(spec.ask, gpus=replace(request, user=account.user)))


def events_of(
    new: NewJob, spec: JobSpec, first_id: int, now_ms: int, own: Mapping[int, tuple[After, ...]]
) -> Sequence[Event]:
    """The lines of the log that accept it. `own` are dependencies of single tasks of an array, by index."""
    times = (now_ms, new.limit_ms, new.deadline_ms, new.begin_ms)
    if new.array is None:
        submitted = JobSubmitted(now_ms, Job(first_id, spec, *times))
        return [submitted, JobHeld(now_ms, first_id)] if new.hold else [submitted]
    events, start = [], 0
    while start < len(new.array):
        indices = new.array[start : start + TASKS_TOGETHER]
        waits = tuple([own.get(index, ()) for index in indices]) if own else ()
        beside = _in_step(waits)
        if beside:
            waits = ()
        elif waits:
            indices, waits = indices[:TASKS_WITH_OWN], waits[:TASKS_WITH_OWN]
        job = Job(first_id + 1 + start, spec, *times, array_id=first_id, array_index=indices[0])
        events.append(TasksSubmitted(now_ms, job, indices, waits, beside, new.array_limit, new.hold))
        start += len(indices)
    return events


def _in_step(waits: tuple[tuple[After, ...], ...]) -> tuple[After, ...]:
    """What the first task waits for, where each task waits for the job beside: of `aftercorr`, nearly always."""
    first = waits[0] if waits else ()
    for place, each in enumerate(waits):
        if len(each) != len(first):
            return ()
        for one, other in zip(first, each, strict=True):
            if (
                other.job_id != one.job_id + place
                or other.kind is not one.kind
                or other.delay_ms
                or other.tasks
            ):
                return ()
    return first


def reply_of(new: NewJob, tenant: str, person: Person, first_id: int, now_ms: int) -> Plain:
    """What is answered, and answered again to a repetition."""
    reply = {
        "id": first_id,
        "label": str(first_id),
        "name": new.name,
        "tenant": tenant,
        "user": person.name,
        "state": JobState.PENDING.value,
        "submitted_ms": now_ms,
    }
    if new.array is not None:
        reply |= {"array": True, "tasks": len(new.array), "first_task_id": first_id + 1}
    return reply


def in_our_words(new: NewJob, settings: Settings) -> NewJob:
    """The job with pools, tenant and class by their own names, where it has those that scripts have for them."""
    if not (settings.partitions or settings.accounts or settings.qos):
        return new
    pools = [pool for name in new.pools for pool in settings.partitions.get(name, (name,))]
    return replace(
        new,
        pools=tuple(dict.fromkeys(pools)),
        partition=",".join(new.pools) if any([name in settings.partitions for name in new.pools]) else "",
        tenant=settings.accounts.get(new.tenant, new.tenant),
        klass=settings.qos.get(new.klass, new.klass),
    )


def tenant_of(new: NewJob, person: Person, state: State) -> str | Refusal:
    """The tenant of a job: the one that was named, else the user's own, else the user's name if there are none."""
    known = [tenant.path for tenant in state.settings.tenants]
    if not new.tenant and person.home:
        return person.home
    if not known:
        return new.tenant or person.name
    if new.tenant:
        if not person.sight.whole or new.tenant.split("/")[0] in {path.split("/")[0] for path in known}:
            # A person with sight of a part of the yard gets the same words whether or not there is such a tenant.
            return new.tenant
        named = [path for path in known if person.sight.knows(path)]
        choice = list(dict.fromkeys([*named, *sorted({path.split("/")[0] for path in named})]))
        return Unacceptable(
            f"unknown tenant {quoted(new.tenant)}; {remedy(new.tenant, choice, 'tenants')}",
            f"Tenants are in yard.yaml; below one of them your name is free: '{(choice or known)[0]}/{person.name}'. "
            + _MAPPED.format("accounts"),
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


def not_theirs(person: Person, tenant: str, state: State) -> Forbidden | None:
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


def not_one_share_more(person: Person, tenant: str, state: State) -> Forbidden | None:
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
        "yard.yaml has no such tenant, and a new name would be a share more",
        (f"Leave the tenant out: it is then {person.home}. " if person.home else "")
        + "An administrator adds more under `tenants` in yard.yaml.",
    )


def not_one_name_more(person: Person, tenant: str, state: State) -> Forbidden | None:
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


def home_of(person: Person, state: State) -> str:
    """The tenant of someone's jobs that name none; empty: there is none, and such jobs are refused."""
    found = tenant_of(NewJob(), person, state)
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


def where_images_run(new: NewJob, state: State) -> NewJob | Refusal:
    """A job in images goes where images run: a cluster without them is none that will do."""
    if not new.containers:
        return new
    clusters = sorted({node.cluster for node in state.nodes.node})
    wanted = [name for name in new.clusters or clusters if name in clusters]
    able = [name for name in wanted if Capability.IMAGES not in state.nodes.lacks.get(name, ())]
    if len(able) == len(wanted):
        return new
    if not able:
        named = f"cluster {wanted[0]}" if len(wanted) == 1 else f"none of the clusters {', '.join(wanted)}"
        return CouldNever(
            f"it could never start: it asks for the image {quoted(new.containers[0].image)}, and {named} runs "
            f"{'no images' if len(wanted) == 1 else 'images'}",
            "On a machine of the local engine, root installs what runs them: apt-get install podman crun uidmap "
            "(runc, where `yard up` asks for it: docs/how-to/containers.md). Without 'image' the command runs with the "
            "node's own programs.",
        )
    return replace(new, clusters=tuple(able))


def why_not(new: NewJob, person: Person, tenant: str, state: State) -> Refusal | None:
    """Why this yard could never run it; None if it could."""
    if new.klass and new.klass not in state.classes:
        names = [*state.classes, *state.settings.qos]
        return Unacceptable(
            f"unknown class {quoted(new.klass)}; {remedy(new.klass, names, 'classes')}", _MAPPED.format("qos")
        )
    there = [name for name in state.models if name]
    named = [*CATALOGUE, *[model.name for model in state.settings.gpu_models], *there]
    for model in new.gpu_models:
        if model not in named:
            choice = remedy(model, there or named, "GPU models here")
            return Unacceptable(f"unknown GPU model {quoted(model)}; {choice}")
    clusters = sorted({node.cluster for node in state.nodes.node})
    for cluster in new.clusters:
        if cluster not in clusters:
            return Unacceptable(f"unknown cluster {quoted(cluster)}; {remedy(cluster, clusters, 'clusters')}")
    pools = sorted({node.pool for node in state.nodes.node})
    for pool in new.pools:
        if pool not in pools:
            return _no_pool(pool, pools, state)
    unknown = _unknown_names(new, state)
    if unknown is not None:
        return unknown
    klass = state.klass_of(new.klass)
    closed = not_their_class(klass, tenant, person.name, state.settings)
    if closed is not None:
        return closed
    if new.limit_ms > klass.limit_ms:
        return Unacceptable(
            f"asks for {span(new.limit_ms)}; a job of class {klass.name} may run for {span(klass.limit_ms)}",
            f"Ask for less time (--time {duration_text(klass.limit_ms)}), or for another class.",
        )
    spec = spec_of(new, person, tenant, "", 0)
    reason = never(state, spec) or never_paid(state, spec, new.limit_ms or klass.limit_ms)
    if reason is None:
        return None
    change = f"What would change it: {remedies_text(reason.lifted_by)}."
    return CouldNever(f"it could never start: {reason.text}", change)


def _no_pool(pool: str, pools: Sequence[str], state: State) -> Unacceptable:
    """A pool that is not there; a script of another cluster has its partition."""
    names = [*pools, *state.settings.partitions]
    known = remedy(pool, names, "pools")
    one = next(iter([*closest(pool, names), *names]), "")
    typed = (
        f"Write --pool {one}, or sbatch -p {one}: that overrides a script's own #SBATCH --partition. "
        if one
        else ""
    )
    return Unacceptable(f"unknown pool {quoted(pool)}; {known}", typed + _MAPPED.format("partitions"))


def _unknown_names(new: NewJob, state: State) -> Unacceptable | None:
    """A node or a feature that is not there."""
    for name in (*new.on_nodes, *new.not_nodes):
        if not numbers_named(state, name):
            known = [name for _cluster, name in state.node_number]
            return Unacceptable(f"unknown node {quoted(name)}; {remedy(name, known, 'nodes')}")
    if not new.features:
        return None
    there = sorted({feature for node in state.nodes.node for feature in node.features})
    for group in new.features:
        if not set(group) & set(there):
            text = " or ".join([quoted(feature) for feature in group])
            return Unacceptable(
                f"no node has the feature {text}; {remedy(group[0], there, 'features')}",
                "Features are in yard.yaml, under 'features' of a pool or a cluster.",
            )
    return None


TASKS_TOGETHER = 500
"""Tasks of an array in one line of the log: a line is folded at one go."""
TASKS_WITH_OWN = 100
"""The same where tasks have dependencies of their own: these are read and folded one by one."""
OWN_NAMES_MAX = 100
"""Tenants that yard.yaml does not have, below each name of a user's own."""
_NAMED_MAX = 6
"""How many tenants a message names."""
_MAPPED = "The owner of the yard can map names that scripts use, under '{}' in yard.yaml."
