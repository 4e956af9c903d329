"""Jobs that could never start, refused at submission instead of waiting for ever."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gpuyard.core.explain.placement_reasons import marked_reason
from gpuyard.core.explain.wall_reasons import wall_reason
from gpuyard.core.fleet.bits import each
from gpuyard.core.fleet.kinds import Kind
from gpuyard.core.fleet.mig_geometry import gpus_on
from gpuyard.core.fleet.shapes import Shape
from gpuyard.core.fleet.ways import Shapes
from gpuyard.core.phrases import cores_text, count_text, hours_counted, hours_text
from gpuyard.core.quota.budgets import MONEY, Spend, is_about
from gpuyard.core.quota.tenants import UNLIMITED
from gpuyard.core.state.state import State
from gpuyard.model import Ask, Capability, Cure, JobSpec, Level, Mig, Milli, Reason, ReasonCode, Remedy, Whole
from gpuyard.model.gpu_names import parse_mig_profile
from gpuyard.model.mig import MIG_MODELS
from gpuyard.model.units import DAY_MS, HOUR_MS, MILLI, NO_LIMIT_MS, SECOND_MS
from gpuyard.quantities import count_digits, memory_words, usd_text

_CANNOT = {
    Capability.GANG: "cluster {} cannot start several tasks as one job",
    Capability.SHARES: "cluster {} gives whole GPUs only, no shares of them",
    Capability.SLICES: "cluster {} gives whole GPUs only, and cuts none into slices",
}
_NO_IMAGES = "asks for an image, and {} runs {}"
_NO_FENCE = (
    "jobs on shares of one GPU are not kept apart, and cluster {} says `fence: strict`, so it gives whole GPUs and "
    "slices only"
)


_INSTEAD = {Capability.GANG: Cure.ONE_TASK, Capability.IMAGES: Cure.RUN_IMAGES}


def gpus_text(milli: int) -> str:
    """Milli-GPU as text: `8`, `0.25`."""
    whole, part = divmod(milli, MILLI)
    return str(whole) if part == 0 else f"{milli / MILLI:g}"


def gpus_counted(milli: int) -> str:
    """The same with its unit: `8 GPUs`, `1 GPU`."""
    return f"{gpus_text(milli)} GPU{'' if milli == MILLI else 's'}"


def ask_text(shape: Shape) -> str:
    """What a job asks for, in words: `2 x 8 H100 GPUs, each 8 on one node`."""
    ask = shape.ask
    request = ask.gpus
    models = " or ".join(ask.models) + " " if ask.models else ""
    if isinstance(request, Mig):
        each = f"{request.count} {request.profile} slices"
    elif isinstance(request, Milli):
        each = f"{request.count} x {request.milli / MILLI:g} {models}GPU"
    elif request.count == 0:
        each = "CPU only"
    else:
        each = f"{request.count} {models}GPU{'s' if request.count != 1 else ''}"
    return f"{ask.tasks} x ({each})" if ask.tasks > 1 else each


def _no_way_reason(state: State, spec: JobSpec, shape: Shape, limit_ms: int) -> Reason:
    """Why no node of the fleet serves a job, even empty."""
    if not shape.supported:
        return Reason(
            ReasonCode.UNSUPPORTED,
            "engine",
            f"asks for {ask_text(shape)}: this kind of GPU sharing cannot be served yet",
            False,
            (Remedy(Cure.WHOLE_OR_SHARE),),
        )
    if shape.walled:
        return wall_reason(state, spec, shape, limit_ms)
    instead = (_instead(state, shape),)
    return Reason(ReasonCode.NEVER_FITS, "fleet", _why_no_way(state, shape), False, instead)


def impossible_reason(state: State, spec: JobSpec, limit_ms: int = 0) -> Reason | None:
    """Why a job could never start on this fleet under these settings; None if it could.

    `limit_ms` is its time limit; 0: it names none.
    """
    limit_ms = limit_ms or state.limit_for(spec, 0)
    shape = state.shape_for(spec, limit_ms)
    if not shape.ways:
        return _no_way_reason(state, spec, shape, limit_ms)
    tenants = state.tenants
    nearest = tenants.nearest(spec.tenant)
    chain = tenants.chain[nearest]
    is_leaf = tenants.path[nearest] == spec.tenant and not tenants.children[nearest]
    own = tenants.user_limit(chain[1:] if is_leaf and not spec.user else chain)
    if shape.gpu_milli > own:
        return Reason(
            ReasonCode.PER_USER,
            spec.tenant,
            f"asks for {gpus_counted(shape.gpu_milli)}; {spec.user or spec.tenant} may use {gpus_text(own)} there, as "
            "may each user",
            False,
            (Remedy(Cure.FEWER_GPUS), Remedy(Cure.MORE_PER_USER)),
        )
    for number in chain:
        name = tenants.path[number]
        if shape.gpu_milli > tenants.max_job[number]:
            most = gpus_text(tenants.max_job[number])
            return Reason(
                ReasonCode.JOB_TOO_LARGE,
                name,
                f"asks for {gpus_counted(shape.gpu_milli)}; a job of {name} may have {most}",
                False,
                (Remedy(Cure.FEWER_GPUS), Remedy(Cure.MORE_PER_JOB)),
            )
        rule = tenants.per_class.get(number, {}).get(state.klass_of(spec.klass).name)
        if rule is not None and rule.milli is not None and shape.gpu_milli > rule.milli:
            klass = state.klass_of(spec.klass).name
            return Reason(
                ReasonCode.LIMIT,
                name,
                f"asks for {gpus_counted(shape.gpu_milli)}; jobs of class {klass} of {name} may never use more than "
                f"{gpus_text(rule.milli)}",
                False,
                (Remedy(Cure.FEWER_GPUS), Remedy(Cure.MORE_OF_CLASS, (name,))),
            )
        if over := _beyond_measure(state, number, shape):
            return over
        ways_out = []
        for way in shape.ways:
            most_milli = min(
                min(tenants.limit[number][c], tenants.ceiling[number][c]) for c in (0, 1 + way.model)
            )
            ways_out.append(most_milli)
        if max(ways_out) < shape.gpu_milli:
            return Reason(
                ReasonCode.LIMIT,
                name,
                f"asks for {gpus_counted(shape.gpu_milli)}; {name} may never use more than "
                f"{gpus_text(max(ways_out)) if max(ways_out) < UNLIMITED else 'unlimited'}",
                False,
                (Remedy(Cure.FEWER_GPUS), Remedy(Cure.HIGHER_LIMIT, (name,))),
            )
    return None


def _beyond_measure(state: State, number: int, shape: Shape) -> Reason | None:
    """Why a tenant could never run it, with all its cores and memory."""
    (cpus, memory), (most_cpus, most_memory) = shape.measure, state.tenants.most[number]
    name = state.tenants.path[number]
    if cpus > most_cpus:
        text = f"asks for {cores_text(cpus)}; {name} may never use more than {cores_text(most_cpus)}"
        lifted_by = (Remedy(Cure.FEWER_CORES), Remedy(Cure.MORE_CORES, (name,)))
        return Reason(ReasonCode.LIMIT, name, text, False, lifted_by)
    if memory > most_memory:
        text = f"asks for {memory_words(memory)} of memory; {name} may never use more than {memory_words(most_memory)}"
        lifted_by = (Remedy(Cure.LESS_MEMORY), Remedy(Cure.MORE_MEMORY, (name,)))
        return Reason(ReasonCode.LIMIT, name, text, False, lifted_by)
    return None


def unpayable_reason(state: State, spec: JobSpec, limit_ms: int) -> Reason | None:
    """Why no window of a budget could pay for a job with this time limit; None if all could."""
    tenants = state.tenants
    if not (tenants.budgeted and state.settings.policy.quotas):
        return None
    shape, klass = state.shape_of(spec.ask), state.klass_of(spec.klass).name
    micro = state.micro_least(shape, state.today * DAY_MS)
    named = [
        tenants.budget_row[rule.name]
        for rule in state.settings.budgets
        if is_about(rule, spec.tenant, klass, spec.user, spec.labels)
    ]
    for number in (*named, *tenants.chain[tenants.nearest(spec.tenant)]):
        spend = tenants.spend[number]
        name = tenants.path[number] or "the whole yard"
        if spend is not None and (
            reason := over_budget_reason(name, spend, shape.gpu_milli, micro, limit_ms)
        ):
            return reason
    return None


def over_budget_reason(name: str, spend: Spend, gpu_milli: int, micro: int, limit_ms: int) -> Reason | None:
    """The reason if a single job may take more than the whole budget of a tenant, or than a named one."""
    rate = spend.rate(gpu_milli, micro)
    asked = rate * limit_ms
    if asked <= spend.amount or spend.soft:
        return None
    owner = f"{name} has a budget" if spend.rule is None else f"the budget {name}"
    if limit_ms >= NO_LIMIT_MS:
        counts = f"{owner}, and" if spend.rule is None else f"{owner} counts this job, and"
        text = f"{counts} a job without a time limit cannot be counted against it"
        return Reason(ReasonCode.NO_TIME_LIMIT, name, text, False, (Remedy(Cure.TIME_LIMIT),))
    is_of = "of" if spend.rule is None else "is"
    has = amount_counted(spend, spend.amount, (asked,))
    takes = amount_text(spend, asked, (spend.amount,), up=True)
    text = f"{owner} {is_of} {has}, and this job may take {takes}"
    longest_ms = spend.amount // rate
    shorter = (Remedy(Cure.LESS_TIME, (), longest_ms),) if longest_ms >= SECOND_MS else ()
    fewer = (Remedy(Cure.FEWER_GPUS),) if gpu_milli else (Remedy(Cure.LESS),)
    lifted_by = (*shorter, *fewer, raise_budget(spend))
    return Reason(ReasonCode.BUDGET, name, text, False, lifted_by)


def raise_budget(spend: Spend) -> Remedy:
    """A budget that is raised."""
    return Remedy(Cure.HIGHER_BUDGET, () if spend.rule is None else (spend.rule.name,))


def amount_text(spend: Spend, amount: int, beside: Sequence[int] = (), *, up: bool = False) -> str:
    """An amount of a budget: `12.5` GPU-hours, `$12.50`, or rounded `up`; `beside`: others in the same sentence."""
    if spend.of_money:
        return usd_text(
            -(-amount // MONEY), count_digits([each // MONEY for each in (amount, *beside)]), up=up
        )
    return hours_text(amount + (MILLI * HOUR_MS // 100 - 1) * up)


def amount_counted(spend: Spend, amount: int, beside: Sequence[int] = ()) -> str:
    """The same with its unit: `12.5 GPU-hours`, `$12.50`."""
    return amount_text(spend, amount, beside) if spend.of_money else hours_counted(amount)


def _instead(state: State, shape: Shape) -> Remedy:
    """What else to ask for: the same on other nodes of the fleet that could hold it; else less."""
    ask = shape.ask
    if _without_gpus(state, shape):
        return Remedy(Cure.NO_GPUS)
    if lacking := _lacking(state, shape):
        slices = [name for name in state.models if shape.profile and parse_mig_profile(name) == shape.profile]
        if slices:
            return Remedy(Cure.SLICE_MODEL, (slices[0],))
        return Remedy(_INSTEAD.get(lacking[1], Cure.WHOLE_GPUS))

    def fits(**fields: Any) -> bool:
        other = Shapes(state.settings.walls).behind(
            replace(ask, **fields), shape.closed, state.nodes, state.weights
        )
        return bool(other.ways)

    if ask.models:
        others = [name for name in state.models if name and name not in ask.models and fits(models=(name,))]
        if others:
            return Remedy(Cure.OTHER_MODEL, tuple(others))
    if ask.pools:
        pools = [
            pool for pool in sorted(state.nodes.by_pool) if pool not in ask.pools and fits(pools=(pool,))
        ]
        if pools:
            return Remedy(Cure.OTHER_POOL, tuple(pools))
    if ask.clusters:
        names = sorted({kind.cluster for kind in state.nodes.kinds} - {*ask.clusters})
        clusters = [name for name in names if fits(clusters=(name,))]
        if clusters:
            return Remedy(Cure.OTHER_CLUSTER, tuple(clusters))
    if marked := marked_reason(state, ask):
        return marked[1]
    if (ask.on_nodes or ask.not_nodes) and fits(on_nodes=(), not_nodes=()):
        return Remedy(Cure.OTHER_NODES)
    if ask.one_domain and fits(one_domain=False):
        return Remedy(Cure.SEVERAL_DOMAINS)
    if ask.level_required and fits(level_required=False):
        return Remedy(Cure.FURTHER_APART)
    if ask.cpu_milli and fits(cpu_milli=0):
        return Remedy(Cure.FEWER_CORES)
    sizes = [MIG_MODELS[name].profile(shape.profile) for name in state.models if name in MIG_MODELS]
    if shape.profile and not any(sizes):
        return Remedy(Cure.SLICE_SIZE)
    most = max([kind.gpus for kind in state.nodes.kinds], default=0)
    if isinstance(ask.gpus, Whole) and ask.gpus.count > most > 0:
        largest = next((size for size in range(most, 0, -1) if fits(gpus=Whole(size))), 0)
        if largest:
            return Remedy(Cure.GPUS_A_NODE, (str(largest),))
    return Remedy(Cure.LESS)


def _without_gpus(state: State, shape: Shape) -> bool:
    """Whether a job asks for GPUs, and there is none in the whole fleet."""
    kinds = state.nodes.kinds
    return bool(kinds) and shape.ask.gpus != Whole(0) and not any([kind.gpus for kind in kinds])


def _why_no_way(state: State, shape: Shape) -> str:
    """In which respect even an empty node is too small."""
    ask, kinds = shape.ask, state.nodes.kinds
    wants = ask_text(shape)
    if not kinds:
        return f"asks for {wants}; the fleet has no nodes"
    if _without_gpus(state, shape):
        return f"asks for {wants}; the yard has no GPUs"
    if lacking := _lacking(state, shape):
        cluster, what = lacking
        if what is Capability.IMAGES:
            names = _clusters(state, shape)
            one = len(names) == 1
            named = f"cluster {names[0]}" if one else f"none of the clusters {', '.join(names)}"
            return _NO_IMAGES.format(named, "no images" if one else "images")
        # A cluster that cuts GPUs and shares none could, and does not want to.
        strict = what is Capability.SHARES and Capability.SLICES not in state.nodes.lacks[cluster]
        return f"asks for {wants}; {(_NO_FENCE if strict else _CANNOT[what]).format(cluster)}"
    names = [name for name, number in state.models.items() if any(k.model == number for k in kinds)]
    if ask.models and not set(ask.models) & set(names):
        return f"asks for {' or '.join(ask.models)}; the fleet has {', '.join(n for n in names if n)}"
    if marked := marked_reason(state, ask):
        return f"asks for {wants}; {marked[0]}"
    fitting = [
        k
        for k in kinds
        if (not ask.models or _name(state, k.model) in ask.models)
        and (not ask.clusters or k.cluster in ask.clusters)
    ]
    most_gpus = max((k.gpus for k in fitting), default=0)
    if shape.profile and (text := _too_many_slices(state, shape, wants)):
        return text
    if shape.gpus > most_gpus:
        return f"asks for {wants} on one node; the largest node has {most_gpus}"
    if shape.in_domain and (text := _domain_text(state, shape, fitting)):
        return text
    if not shape.gpus and (text := _reserved_text(state, shape)):
        return text
    most_cpu = max((k.cpu_milli for k in fitting), default=0)
    if ask.cpu_milli > most_cpu:
        return (
            f"asks for {ask.cpu_milli / MILLI:g} cores on one node; the largest node has {most_cpu / MILLI:g}"
        )
    most_memory = max((k.memory_mib for k in fitting), default=0)
    if ask.memory_mib > most_memory:
        return f"asks for {memory_words(ask.memory_mib)} on one node; the largest node has {memory_words(most_memory)}"
    if shape.tasks > 1 and (text := _too_small_a_place(state, shape, fitting)):
        return text
    nodes = count_text(sum([k.members.bit_count() for k in fitting]), "node")
    cores = sum([k.cpu_milli * k.members.bit_count() for k in fitting])
    if ask.tasks * ask.cpu_milli > cores:
        return f"asks for {ask.tasks} x {cores_text(ask.cpu_milli)}; there are {cores_text(cores)} on {nodes}"
    total = sum([k.gpus * k.members.bit_count() for k in fitting])
    return f"asks for {wants}; {gpus_counted(total * MILLI)} on {nodes} cannot hold it"


def _too_small_a_place(state: State, shape: Shape, fitting: Sequence[Kind]) -> str:
    """Which level of the fabric has no place that could hold a gang, if the whole fleet could; empty: none."""
    level = shape.ask.level if shape.ask.level_required and shape.ask.level else Level.FABRIC
    places = [there for kind in fitting for there in kind.domains[level].values() if there]
    apart = Shapes().of(replace(shape.ask, level_required=False), state.nodes, state.weights)
    if not (apart.ways if level is not Level.FABRIC else len(places) > 1):
        return ""
    most = max(places, key=lambda there: sum([state.nodes.node[number].gpus for number in each(there)]))
    gpus = sum([state.nodes.node[number].gpus for number in each(most)])
    nodes = count_text(most.bit_count(), "node")
    has = f"{gpus_counted(gpus * MILLI)} on {nodes}" if shape.gpus else nodes
    return f"asks for {ask_text(shape)} on one {level}; the largest {level} has {has}"


def _domain_text(state: State, shape: Shape, fitting: Sequence[Kind]) -> str:
    """In which respect the NUMA domains of all nodes are too small for a task, if the nodes are not; empty: in none."""
    apart = Shapes().of(replace(shape.ask, one_domain=False), state.nodes, state.weights)
    if not apart.ways:
        return ""
    most = max([kind.domain_size for kind in fitting if kind.gpus], default=0)
    asked = f"asks for {ask_text(shape)} in one NUMA domain"
    if shape.gpus > most:
        return f"{asked}; the largest domain of a node has {most}"
    return f"{asked}; no domain has the cores and the memory of a task too"


def _reserved_text(state: State, shape: Shape) -> str:
    """Whether what pools reserve for their GPUs is all that is in the way of a job without GPUs; empty: it is not."""
    nodes, ask = state.nodes, shape.ask
    plain = [
        number
        for number, node in enumerate(nodes.node)
        if node.cpu_milli >= ask.cpu_milli and node.memory_mib >= ask.memory_mib
    ]
    if not plain or any([number not in nodes.beside_most for number in plain]):
        return ""
    cores = max([nodes.beside_most[number][0] for number in plain])
    memory = max([nodes.beside_most[number][1] for number in plain])
    asked = " and ".join([cores_text(ask.cpu_milli), *[memory_words(ask.memory_mib)] * bool(ask.memory_mib)])
    left = f"{cores_text(cores)} and {memory_words(memory)}"
    return f"asks for {asked} on one node and no GPUs; beside what pools reserve for GPUs, a node has at most {left}"


def is_beyond_engines(ask: Ask, state: State) -> bool:
    """Whether no cluster's engine can do what an ask needs, whatever room there is."""
    return bool(state.nodes.lacks) and _lacking(state, state.shape_of(ask)) is not None


def _lacking(state: State, shape: Shape) -> tuple[str, Capability] | None:
    """If no cluster can serve a job: a cluster, and what its engine cannot do."""
    lacks = state.nodes.lacks
    clusters = _clusters(state, shape)
    missing = [shape.needs & lacks.get(cluster, frozenset()) for cluster in clusters]
    if not clusters or not all(missing):
        return None
    return clusters[0], min(missing[0], key=lambda each: each.value)


def _clusters(state: State, shape: Shape) -> list[str]:
    """The clusters that a job may go to, as far as they have GPUs for one that wants some."""
    chosen = shape.ask.clusters
    return sorted(
        {
            k.cluster
            for k in state.nodes.kinds
            if k.members and (k.gpus or not shape.gpus) and (not chosen or k.cluster in chosen)
        }
    )


def _too_many_slices(state: State, shape: Shape, wants: str) -> str:
    """Slices go on GPUs in equal numbers, so some counts take more GPUs than expected; empty: another cause."""
    rows = []
    for kind in state.nodes.kinds:
        name = _name(state, kind.model)
        size = MIG_MODELS[name].profile(shape.profile) if name in MIG_MODELS else None
        if size is not None and (not shape.ask.models or name in shape.ask.models):
            rows.append((kind.gpus, gpus_on(size, shape.slices)))
    if not rows or any([need <= gpus for gpus, need in rows]):
        return ""
    need, most = min([need for _gpus, need in rows]), max([gpus for gpus, _need in rows])
    takes = f"the same number on each GPU, which takes {count_text(need, 'GPU')}"
    return f"asks for {wants} on one node, {takes}; the largest node has {most}"


def _name(state: State, model: int) -> str:
    return next(name for name, number in state.models.items() if number == model)
