"""Jobs that say what they need instead of what they want: made concrete on the fleet as it is.

`exclusive` means all that a node has, whatever was named. An amount of GPU memory means the cheapest part of a GPU that
has enough: a share, a MIG slice or a whole one, as isolated from others as asked.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from gpuyard.control.commands.newjobs import NewJob
from gpuyard.control.refusals import Unacceptable
from gpuyard.core import State
from gpuyard.core.explain.admission import never_able
from gpuyard.core.fleet.mig_geometry import gpu_milli
from gpuyard.core.phrases import memory_text
from gpuyard.errors import quoted
from gpuyard.model import CATALOGUE, GpuModel, GpuRequest, Isolation, Mig, Milli, Node, Whole
from gpuyard.model.gpu_names import models_meant
from gpuyard.model.mig import MIG_MODELS, Profile
from gpuyard.model.units import DAY_MS, MILLI


def concrete(new: NewJob, state: State) -> NewJob | Unacceptable:
    """The job with a definite ask, or why there is none."""
    new = _with_our_models(new, state)
    if new.mig and (refusal := _no_such_slice(new, state)):
        return refusal
    if new.gpu_memory_mib:
        return _by_memory(new, state)
    return _on_small_nodes(on_whole_nodes(new, state), state)


def _with_our_models(new: NewJob, state: State) -> NewJob:
    """The job with models by the names that they have here: `A100` means both sizes, `a100-80gb` one of them."""
    if not new.gpu_models:
        return new
    there = [*state.models, *[model.name for model in state.settings.gpu_models]]
    meant = [model for name in new.gpu_models for model in models_meant(name, there)]
    return replace(new, gpu_models=tuple(dict.fromkeys(meant)))


def _on_small_nodes(new: NewJob, state: State) -> NewJob:
    """Where no node has a whole core, a job that names none counts all that a node has of one."""
    if new.cpu_milli is None:
        most = max([kind.cpu_milli for kind in state.nodes.kinds if kind.members], default=MILLI)
        if most < new.counted_milli:
            return replace(new, cpu_milli=most)
    return new


def _models_here(new: NewJob, state: State) -> list[GpuModel]:
    """The GPU models of the fleet that will do, as far as something is known of them."""
    known = {**CATALOGUE, **{model.name: model for model in state.settings.gpu_models}}
    there = {
        node.gpu_model for node in state.nodes.node if node.gpus and _will_do(replace(new, gpus=0), node)
    }
    return [known[name] for name in sorted(there) if name in known]


def _prices_here(new: NewJob, state: State) -> dict[str, int]:
    """What an hour of a GPU costs today by model: on the cheapest node that will do."""
    day, found = state.now_ms // DAY_MS, dict[str, int]()
    for number, node in enumerate(state.nodes.node):
        if node.gpus and _will_do(replace(new, gpus=0), node):
            price = state.gpu_price(number, day)
            found[node.gpu_model] = min(found.get(node.gpu_model, price), price)
    return found


def _no_such_slice(new: NewJob, state: State) -> Unacceptable | None:
    """A profile that no GPU here can be cut to, and which there are."""
    models = [model.name for model in _models_here(new, state)]
    if any([name in MIG_MODELS and MIG_MODELS[name].profile(new.mig) for name in models]):
        return _not_cut(new, state)
    sizes = [
        f"{name} has {', '.join([profile.name for profile in MIG_MODELS[name].profiles])}"
        if name in MIG_MODELS
        else f"{name} cannot be cut"
        for name in models
    ]
    return Unacceptable(
        f"no GPU here can be cut to {quoted(new.mig)}: {'; '.join(sizes) or 'there are no GPUs'}",
        "Name one of these, or an amount of memory with --gpu-memory.",
    )


def _not_cut(new: NewJob, state: State) -> Unacceptable | None:
    """Slices that no node has, where the yard may cut no more."""
    each, most, total, there = max(1, new.gpus), 0, 0, set()
    for number, node in enumerate(state.nodes.node):
        if not _will_do(replace(new, gpus=0), node):
            continue
        pins = state.nodes.pins.get(number, {})
        if not all([gpu in pins and pins[gpu].found for gpu in range(node.gpus)]):
            geometry = MIG_MODELS.get(node.gpu_model)
            if geometry is not None and geometry.profile(new.mig):
                return None
        names = [place.profile for pin in pins.values() if pin.found for place in pin.held]
        there.update(names)
        most, total = max(most, names.count(new.mig)), total + names.count(new.mig) // each
    if new.tasks <= total:
        return None
    have = (
        f"{most} x {new.mig}" if most else f"slices of {', '.join(sorted(there))}" if there else "no slices"
    )
    return Unacceptable(
        f"asks for {each * new.tasks} x {new.mig}, and the GPUs of a node here have {have}: "
        "yard.yaml says `card_settings: leave`, so that the yard cuts none",
        "Ask for what is there, or let the owner of the machine cut a GPU (nvidia-smi mig) or take that line out.",
    )


def _by_memory(new: NewJob, state: State) -> NewJob | Unacceptable:
    """The cheapest part of a GPU with enough memory. 1. price; 2. the smaller part; 3. the model's name."""
    choices: list[tuple[int, int, str, GpuRequest]] = []
    unable: list[GpuRequest] = []
    models, prices = _models_here(new, state), _prices_here(new, state)
    for model in models:
        slices = _slices(replace(new, gpus=1, gpu_models=(model.name,)), state)
        for milli, request in _parts(model, new.gpu_memory_mib, new.isolation, slices):
            if never_able(replace(new, request=request, gpu_models=(model.name,)).ask, state):
                unable.append(request)
                continue
            choices.append((milli * prices[model.name], milli, model.name, request))
    if not choices and unable:
        # The judge of all jobs says which cluster cannot do it, and what to ask for instead.
        return replace(new, request=unable[0], gpu_memory_mib=0)
    if not choices:
        most = max([model.memory_mib for model in models], default=0)
        kind = " kept strictly apart" if new.isolation is Isolation.STRICT else ""
        return Unacceptable(
            f"no GPU here has {memory_text(new.gpu_memory_mib)} of memory{kind}; the largest has {memory_text(most)}",
            "Ask for less memory.",
        )
    _price, _milli, name, request = min(choices, key=lambda choice: choice[:3])
    return replace(new, request=request, gpu_models=(name,), gpu_memory_mib=0)


def _slices(new: NewJob, state: State) -> list[Profile]:
    """The profiles of the job's GPU model that it may be given: where none is cut, those that are there."""
    geometry = MIG_MODELS.get(new.gpu_models[0])
    sizes = geometry.profiles if geometry is not None else ()
    return [
        size for size in sizes if "+" not in size.name and not _not_cut(replace(new, mig=size.name), state)
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


def on_whole_nodes(new: NewJob, state: State) -> NewJob:
    """The job, if it is exclusive, asking for every GPU, core and byte of as many nodes as it needs."""
    if not new.exclusive:
        return new
    alike: dict[_Size, list[Node]] = {}
    idle: Counter[_Size] = Counter()
    for number, node in enumerate(state.nodes.node):
        if _will_do(new, node):
            size = (node.gpu_model, node.gpus, node.cpu_milli, node.memory_mib)
            alike.setdefault(size, []).append(node)
            idle[size] += _is_idle(state, number)
    counts = {size: _nodes_for(new, size) for size in alike}
    fitting = [size for size in alike if counts[size]]
    if not fitting:
        # A node is too small even for one task; it is said so when the job is judged.
        return new
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
    return replace(
        new,
        pools=tuple(sorted({node.pool for node in alike[size]})) if others else new.pools,
        gpu_models=(model,) if others and model else new.gpu_models,
        gpus=gpus,
        cpu_milli=cpu_milli,
        memory_mib=memory_mib,
        tasks=count,
        nodes_min=count,
        nodes_max=count,
        ranks=new.ranks or (new.tasks if new.batch else 0),
    )


def _is_idle(state: State, number: int) -> bool:
    nodes = state.nodes
    node = nodes.node[number]
    whole = nodes.free_mask[number].bit_count() == node.gpus and nodes.cpu_free[number] == node.cpu_milli
    return (
        whole
        and nodes.memory_free[number] == node.memory_mib
        and not (nodes.down[number] or nodes.cordoned[number])
    )


_Size = tuple[str, int, int, int]
"""What tells nodes apart: model and number of GPUs, cores and memory."""


def _nodes_for(new: NewJob, size: _Size) -> int:
    """How many whole nodes of a size the job takes; 0: one is too small for a task."""
    fit = new.tasks
    for want, have in zip((new.gpus, new.counted_milli, new.memory_mib), size[1:], strict=True):
        if want:
            fit = min(fit, have // want)
    return max(new.nodes_min, -(-new.tasks // fit)) if fit else 0


def _will_do(new: NewJob, node: Node) -> bool:
    names = {node.name, f"{node.cluster}:{node.name}"}
    return (
        (not new.pools or node.pool in new.pools)
        and (not new.clusters or node.cluster in new.clusters)
        and (not new.gpu_models or node.gpu_model in new.gpu_models)
        and (not new.on_nodes or not names.isdisjoint(new.on_nodes))
        and names.isdisjoint(new.not_nodes)
        and all([not set(group).isdisjoint(node.features) for group in new.features])
        and node.gpus >= new.gpus
    )
