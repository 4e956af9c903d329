"""A request that says what it needs instead of what it wants becomes a definite ask on the fleet as it is.

`exclusive` means all that a node has, whatever was named. An amount of GPU memory means the cheapest part of a GPU that
has enough: a share, a MIG slice or a whole one, as isolated from others as asked.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from gpuyard.control.admission.wanted import Wanted
from gpuyard.control.refusals import Unacceptable
from gpuyard.core import State
from gpuyard.core.explain.admission import is_beyond_engines
from gpuyard.core.fleet.marks import PRODUCT
from gpuyard.core.fleet.mig_geometry import gpu_milli
from gpuyard.core.fleet.nodes import Nodes
from gpuyard.errors import quote
from gpuyard.model import (
    CATALOGUE,
    Ask,
    Capability,
    GpuModel,
    GpuRequest,
    Isolation,
    Mig,
    Milli,
    Node,
    Term,
    Whole,
)
from gpuyard.model.gpu_names import choose_models
from gpuyard.model.mig import MIG_MODELS, Profile
from gpuyard.model.units import MILLI
from gpuyard.quantities import memory_words

Closed = tuple[str, ...]
"""Pools that take no jobs of the asker, by `CLUSTER/POOL`."""


def resolve_request(wanted: Wanted, state: State, closed: Closed = ()) -> Ask | Unacceptable:
    """What a request comes to here, on nodes of pools that are open to the asker, or why it comes to nothing."""
    found = _resolve(wanted, state, closed)
    # Where only closed pools would do, the judge of all jobs names their walls.
    return _resolve(wanted, state, ()) if closed and isinstance(found, Unacceptable) else found


def _resolve(wanted: Wanted, state: State, closed: Closed) -> Ask | Unacceptable:
    wanted = _with_our_models(wanted, state)
    if wanted.mig and (refusal := _no_such_slice(wanted, state, closed)):
        return refusal
    if wanted.gpu_memory_mib:
        return _by_memory(wanted, state, closed)
    found = _on_small_nodes(_on_whole_nodes(wanted, state, closed), state)
    return found.ask_for(found.gpu_request)


def _with_our_models(wanted: Wanted, state: State) -> Wanted:
    """The request with models by the names that they have here: `A100` means both sizes, `a100-80gb` one of them."""
    if not (wanted.gpu_models or wanted.selects or wanted.prefers):
        return wanted
    there = [*state.models, *[model.name for model in state.settings.gpu_models]]

    def meant(names: Sequence[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys([model for name in names for model in choose_models(name, there)]))

    def named(term: Term) -> Term:
        return tuple(
            [each._replace(values=meant(each.values)) if each.key == PRODUCT else each for each in term]
        )

    return wanted.but(
        gpu_models=meant(wanted.gpu_models),
        selects=tuple([named(term) for term in wanted.selects]),
        prefers=tuple([(weight, named(term)) for weight, term in wanted.prefers]),
    )


def _on_small_nodes(wanted: Wanted, state: State) -> Wanted:
    """Where no node has a whole core, a job that names none counts all that a node has of one."""
    if wanted.cpu_milli is None:
        most = max([kind.cpu_milli for kind in state.nodes.kinds if kind.members], default=MILLI)
        if most < wanted.counted_milli:
            return wanted.but(cpu_milli=most)
    return wanted


def _models_here(wanted: Wanted, state: State, closed: Closed) -> list[GpuModel]:
    """The GPU models of the fleet that will do, as far as something is known of them."""
    known = {**CATALOGUE, **{model.name: model for model in state.settings.gpu_models}}
    any_size, nodes = wanted.but(gpus=0), state.nodes
    there = {node.gpu_model for _number, node in _find_suitable(any_size, nodes, closed) if node.gpus}
    return [known[name] for name in sorted(there) if name in known]


def _prices_here(wanted: Wanted, state: State, closed: Closed) -> dict[str, int]:
    """What an hour of a GPU costs today by model: on the cheapest node that will do."""
    day, found = state.today, dict[str, int]()
    any_size, nodes = wanted.but(gpus=0), state.nodes
    for number, node in _find_suitable(any_size, nodes, closed):
        if node.gpus:
            price = state.gpu_price(number, day)
            found[node.gpu_model] = min(found.get(node.gpu_model, price), price)
    return found


def _no_such_slice(wanted: Wanted, state: State, closed: Closed) -> Unacceptable | None:
    """A profile that no GPU here can be cut to, and which there are."""
    models = [model.name for model in _models_here(wanted, state, closed)]
    if any([name in MIG_MODELS and MIG_MODELS[name].profile(wanted.mig) for name in models]):
        return _not_cut(wanted, state, closed)
    sizes = [
        f"{name} has {', '.join([profile.name for profile in MIG_MODELS[name].profiles])}"
        if name in MIG_MODELS
        else f"{name} cannot be cut"
        for name in models
    ]
    return Unacceptable(
        f"no GPU here can be cut to {quote(wanted.mig)}: {'; '.join(sizes) or 'there are no GPUs'}",
        "Name one of these, or an amount of memory with --gpu-memory.",
    )


def _not_cut(wanted: Wanted, state: State, closed: Closed) -> Unacceptable | None:
    """Slices that no node has, where the yard may cut no more."""
    each, most, total, there = max(1, wanted.gpus), 0, 0, set()
    any_size, nodes = wanted.but(gpus=0), state.nodes
    for number, node in _find_suitable(any_size, nodes, closed):
        pins = nodes.pins.get(number, {})
        if not all([gpu in pins and pins[gpu].found for gpu in range(node.gpus)]):
            geometry = MIG_MODELS.get(node.gpu_model)
            if geometry is not None and geometry.profile(wanted.mig):
                return None
        names = [place.profile for pin in pins.values() if pin.found for place in pin.held]
        there.update(names)
        most, total = max(most, names.count(wanted.mig)), total + names.count(wanted.mig) // each
    if wanted.tasks <= total:
        return None
    have = (
        f"{most} x {wanted.mig}"
        if most
        else f"slices of {', '.join(sorted(there))}"
        if there
        else "no slices"
    )
    return Unacceptable(
        f"asks for {each * wanted.tasks} x {wanted.mig}, and the GPUs of a node here have {have}: "
        "yard.yaml says `card_settings: leave`, so that the yard cuts none",
        "Ask for what is there, or let the owner of the machine cut a GPU (nvidia-smi mig) or take that line out.",
    )


def _by_memory(wanted: Wanted, state: State, closed: Closed) -> Ask | Unacceptable:
    """The cheapest part of a GPU with enough memory. 1. price; 2. the smaller part; 3. the model's name."""
    choices: list[tuple[int, int, str, Ask]] = []
    unable: list[Ask] = []
    models, prices = _models_here(wanted, state, closed), _prices_here(wanted, state, closed)
    for model in models:
        of_model = wanted.but(gpu_models=(model.name,))
        slices = _slices(of_model.but(gpus=1), model.name, state, closed)
        for milli, request in _parts(model, wanted.gpu_memory_mib, wanted.isolation, slices):
            ask = of_model.ask_for(request)
            if is_beyond_engines(ask, state):
                unable.append(wanted.ask_for(request))
                continue
            choices.append((milli * prices[model.name], milli, model.name, ask))
    if not choices and unable:
        # The judge of all jobs says which cluster cannot do it, and what to ask for instead.
        return unable[0]
    if not choices:
        most = max([model.memory_mib for model in models], default=0)
        kind = " kept strictly apart" if wanted.isolation is Isolation.STRICT else ""
        return Unacceptable(
            f"no GPU here has {memory_words(wanted.gpu_memory_mib)} of memory{kind}; "
            f"the largest has {memory_words(most)}",
            "Ask for less memory.",
        )
    return min(choices, key=lambda choice: choice[:3])[3]


def _slices(wanted: Wanted, model: str, state: State, closed: Closed) -> list[Profile]:
    """The profiles of a GPU model that the job may be given: where none is cut, those that are there."""
    geometry = MIG_MODELS.get(model)
    sizes = geometry.profiles if geometry is not None else ()
    return [
        size
        for size in sizes
        if "+" not in size.name and not _not_cut(wanted.but(mig=size.name), state, closed)
    ]


def _parts(
    model: GpuModel, need_mib: int, isolation: Isolation, slices: Sequence[Profile]
) -> list[tuple[int, GpuRequest]]:
    """What of a model would do, with what it counts as. A share is never strict; a slice always is."""
    found: list[tuple[int, GpuRequest]] = []
    if need_mib <= model.memory_mib and isolation is not Isolation.SHARED:
        found.append((MILLI, Whole(1)))
    share = -(-need_mib * MILLI // model.memory_mib)
    if share < MILLI and isolation is not Isolation.STRICT:
        # Shares are cut to the hundredth, as MPS counts multiprocessors.
        milli = -(-share // 10) * 10
        if milli < MILLI:
            found.append((milli, Milli(1, milli)))
    geometry = MIG_MODELS.get(model.name)
    if geometry is not None and isolation is not Isolation.SHARED:
        sizes = [(gpu_milli(geometry, p), p) for p in slices if p.memory_mib >= need_mib]
        if sizes:
            milli, profile = min(sizes, key=lambda size: (size[0], size[1].name))
            if milli < MILLI:
                found.append((milli, Mig(1, profile.name)))
    return found


def _on_whole_nodes(wanted: Wanted, state: State, closed: Closed) -> Wanted:
    """The job, if it is exclusive, asking for every GPU, core and byte of as many nodes as it needs."""
    if not wanted.exclusive:
        return wanted
    alike: dict[_Size, list[Node]] = {}
    idle: Counter[_Size] = Counter()
    nodes = state.nodes
    for number, node in _find_suitable(wanted, nodes, closed):
        size = (node.gpu_model, node.gpus, node.cpu_milli, node.memory_mib)
        alike.setdefault(size, []).append(node)
        idle[size] += _is_idle(nodes, number)
    counts = {size: _nodes_for(wanted, size) for size in alike}
    fitting = [size for size in alike if counts[size]]
    if not fitting:
        # A node is too small even for one task; it is said so when the job is judged. So are walls.
        return _on_whole_nodes(wanted, state, ()) if closed else wanted
    # The nodes of a job are alike: 1. of a size of which there are enough; 2. of which enough are idle now; 3. that
    # wastes the fewest GPUs; 4. and the fewest cores; 5. of which there are most; 6. the size itself.
    size = min(
        fitting,
        key=lambda size: (
            counts[size] > len(alike[size]),
            counts[size] > idle[size],
            size[1] * counts[size],
            size[2] * counts[size],
            -len(alike[size]),
            size,
        ),
    )
    count = counts[size]
    model, gpus, cpu_milli, memory_mib = size
    # Where others would do too, it is held to these: pools are of one size each.
    others = len(alike) > 1
    held = {"pools": tuple(sorted({node.pool for node in alike[size]}))} if others else {}
    held |= {"gpu_models": (model,)} if others and model else {}
    return wanted.but(
        **held,
        gpus=gpus,
        cpu_milli=cpu_milli,
        memory_mib=memory_mib,
        tasks=count,
        nodes_min=count,
        nodes_max=count,
    )


def _is_idle(nodes: Nodes, number: int) -> bool:
    node = nodes.node[number]
    whole = nodes.free_mask[number].bit_count() == node.gpus and nodes.cpu_free[number] == node.cpu_milli
    return (
        whole
        and nodes.memory_free[number] == node.memory_mib
        and not (nodes.down[number] or nodes.cordoned[number])
    )


_Size = tuple[str, int, int, int]
"""What tells nodes apart: model and number of GPUs, cores and memory."""


def _nodes_for(wanted: Wanted, size: _Size) -> int:
    """How many whole nodes of a size the job takes; 0: one is too small for a task."""
    fit = wanted.tasks
    for want, have in zip((wanted.gpus, wanted.counted_milli, wanted.memory_mib), size[1:], strict=True):
        if want:
            fit = min(fit, have // want)
    return max(wanted.nodes_min, -(-wanted.tasks // fit)) if fit else 0


def _find_suitable(wanted: Wanted, nodes: Nodes, closed: Closed) -> Iterator[tuple[int, Node]]:
    """The nodes on which the job could be served, whatever is free there."""
    open_to = nodes.marks.open_to(wanted.features, wanted.selects, wanted.tolerates)
    for number, node in enumerate(nodes.node):
        if open_to >> number & 1 and _will_do(wanted, node, nodes, closed):
            yield number, node


def _will_do(wanted: Wanted, node: Node, nodes: Nodes, closed: Closed) -> bool:
    names = {node.name, f"{node.cluster}:{node.name}"}
    return (
        (not wanted.pools or node.pool in wanted.pools)
        and (not wanted.clusters or node.cluster in wanted.clusters)
        and (not wanted.gpu_models or node.gpu_model in wanted.gpu_models)
        and (not wanted.on_nodes or not names.isdisjoint(wanted.on_nodes))
        and names.isdisjoint(wanted.not_nodes)
        and node.gpus >= wanted.gpus
        and (not closed or f"{node.cluster}/{node.pool}" not in closed)
        and not (wanted.image and Capability.IMAGES in nodes.lacks.get(node.cluster, ()))
    )
