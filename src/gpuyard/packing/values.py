"""What the idle part of a node is worth to the expected tasks.

A GPU with `r` idle is worth the best filling of `r` under the prices of the sizes (see `price_sizes`). Cores limit
that: if a core costs c, a task is worth its price less c for each of its cores. A node is worth

    V = min over c of   c x idle cores / headroom  +  sum over its GPUs of K[c][idle on the GPU]

with K the best filling when a core costs c. This is the Lagrange dual of filling the node, so V is what its GPUs
could still hold where cores are plenty, and bends down, GPU by GPU, where they run short. A placement costs what V
loses by it: what it wastes, beyond its own fair price, of GPUs or of the cores that those GPUs would have needed.

The best filling of a node with few cores is tasks that want few. Some of them can be sent there, but not all nodes can
get them, and a task that requires a model cannot be sent elsewhere. So `Weighing.chance` percent of a task's cores are
taken as
the average of tasks of its worth: to that extent the arrivals are not ours to choose.

Where tasks require a model, its GPUs get a premium that keeps all other tasks off them as long as there is room
elsewhere: up to `PREMIUM` for a model that is wanted by name for all its GPUs.
"""

from collections.abc import Sequence
from typing import NamedTuple

from gpuyard.model.units import MILLI
from gpuyard.packing.knapsack import fill_exactly
from gpuyard.packing.prices import GPU, price_sizes
from gpuyard.packing.tasks import Expected, NodeShape, SizeDemand, group_by_size, unit_milli

HEADROOM = 94
"""Percent. Idle cores are counted as if the fleet had hardly more than its GPUs will want; the rest is kept for chance.
Tasks come one by one and some want many more cores than others, so a node with just enough cores on average turns out
to run short about every other time."""

PREMIUM = 3 * GPU // 10
"""Per GPU. Small compared with a wasted GPU, large compared with the difference between two good places."""

_ROUNDS_MAX = 12

QUANTUM = GPU // 1000
"""Costs that differ by less are equal: the rest is noise of the linear program."""

CORE_BITS = 10
"""Fraction bits of the cost of a milli-core."""

CORE_COSTS = (0, 1, 2, 3, 4, 6, 8, 10, 12, 16, 24)
"""The values of c that are tried, in sixteenths of a GPU for as many cores as a GPU wants on average."""

KEY_BITS = 20
"""Bits for what is idle on the node afterwards, below the cost."""

NO_ROOM = 1 << 62
"""The key of a node without the room: larger than any other."""


class Weighing(NamedTuple):
    """How chance, cores and names are weighed against each other."""

    headroom_max: int = 200
    """Percent: idle cores count at least half, however many there are."""
    chance: int = 40
    """Percent of a task's cores that are taken as the average. At 0, a node short of cores is as good as any, as long
    as one size of task wants few; at 100, it makes no difference what goes there."""
    named_max: int = 900
    """Thousandths of a model's GPUs: at most this much counts as asked for by name when sizes are priced."""


WEIGHING = Weighing()


class Values(NamedTuple):
    """Tables of the value of idle GPUs, by kind of node."""

    unit: int
    """Milli of a GPU per column."""
    columns: int
    core_costs: tuple[int, ...]
    """By row: the value of an idle milli-core, in 1/`GPU` with `CORE_BITS` of fraction."""
    tables: tuple[tuple[int, ...], ...]
    """By kind of node: row after row, the value of a GPU by how much of it is idle."""


def compute_values(
    expected: Expected, kinds: Sequence[tuple[NodeShape, int]], weighing: Weighing = WEIGHING
) -> Values:
    """The tables for a fleet with these numbers of nodes of each kind, and the expected tasks."""
    runs = [
        (task, weight) for task, weight in expected if any([n and kind.could_run(task) for kind, n in kinds])
    ]
    demand = group_by_size(runs)
    gpus: dict[str, int] = {}
    for kind, count in kinds:
        gpus[kind.model] = gpus.get(kind.model, 0) + kind.gpus * count
    named = _named(demand, gpus)
    price = price_sizes(_servable(demand, gpus, weighing.named_max), gpus)
    unit = unit_milli([each.size for each in demand])
    room = MILLI // unit
    costs = _core_costs(demand)
    headroom = _headroom(demand, kinds, weighing.headroom_max)
    known: dict[tuple[int, ...], list[int]] = {}
    tables = []
    for kind, _count in kinds:
        fitting = tuple([i for i, each in enumerate(demand) if _fits(kind, each)])
        plain = known.get(fitting)
        if plain is None:
            sizes = [(demand[i], price[i]) for i in fitting]
            plain = known[fitting] = _table(sizes, costs, unit, room, weighing.chance)
        more = PREMIUM * min(1000, named[kind.model]) // 1000
        tables.append(tuple([value + more * (i % (room + 1)) // room for i, value in enumerate(plain)]))
    return Values(unit, room + 1, tuple([cost * 100 // headroom for cost in costs]), tuple(tables))


def _fits(kind: NodeShape, demand: SizeDemand) -> bool:
    return kind.gpus >= demand.size.gpus and (not demand.size.models or kind.model in demand.size.models)


def _core_costs(demand: Sequence[SizeDemand]) -> list[int]:
    """What a milli-core may cost, so that the average task is still worth something at least at the lower costs."""
    cpu_milli = sum([each.cpu_milli for each in demand])
    asked = sum([each.weight * each.size.gpus * each.size.gpu_milli for each in demand])
    if not cpu_milli:
        return [0]
    return [(sixteenths * asked * GPU << CORE_BITS) // (16 * MILLI * cpu_milli) for sixteenths in CORE_COSTS]


def _headroom(demand: Sequence[SizeDemand], kinds: Sequence[tuple[NodeShape, int]], most: int) -> int:
    """The divisor of idle cores, in percent: what the fleet has over what its GPUs will want."""
    asked = sum([each.weight * each.size.gpus * each.size.gpu_milli for each in demand])
    wanted = sum([each.cpu_milli for each in demand]) * sum([kind.gpus * count for kind, count in kinds])
    if not wanted:
        return 100
    there = sum([kind.cpu_milli * count for kind, count in kinds if kind.gpus])
    return min(most, max(100, HEADROOM * there * asked // (wanted * MILLI)))


def _named(demand: Sequence[SizeDemand], gpus: dict[str, int]) -> dict[str, int]:
    """By model: how much of its GPUs is asked for by name, in thousandths.

    As if exactly as much were asked for in all as there are GPUs, spread evenly over the suitable models.
    """
    asked = sum([each.weight * each.size.gpus * each.size.gpu_milli for each in demand])
    total = sum(gpus.values())
    found = dict.fromkeys(gpus, 0)
    for each in demand:
        names = [model for model in each.size.models if gpus.get(model)]
        there = sum([gpus[model] for model in names])
        for model in names:
            found[model] += (
                1000 * each.weight * each.size.gpus * each.size.gpu_milli * total // (asked * there)
            )
    return found


def _servable(demand: Sequence[SizeDemand], gpus: dict[str, int], most: int) -> list[SizeDemand]:
    """The demand, without what is asked of a model by name beyond what it has.

    That much goes unserved anyway. Left in, this one model would be the only limit of the program, and every other GPU
    would seem to be worth nothing.
    """
    found = [each._replace(weight=each.weight * 1_000_000) for each in demand]
    for _ in range(_ROUNDS_MAX):
        # Less of one size is a larger part for the others, so it takes a few rounds.
        named = _named(found, gpus)
        if max(named.values(), default=0) <= most:
            break
        for i, each in enumerate(found):
            least = min([named[model] for model in each.size.models if gpus.get(model)], default=0)
            if least > most:
                found[i] = each._replace(weight=max(1, each.weight * most // least))
    return found


def _table(
    sizes: Sequence[tuple[SizeDemand, int]], costs: Sequence[int], unit: int, room: int, chance: int
) -> list[int]:
    """For each cost of a core, the best filling of every part of a GPU. Tasks of one size count as their average."""
    by_steps: dict[int, list[tuple[SizeDemand, int]]] = {}
    for demand, price in sizes:
        by_steps.setdefault(-(-demand.size.gpu_milli // unit), []).append((demand, price))
    steps = sorted(by_steps)
    asked = sum([each.weight * each.size.gpus * each.size.gpu_milli for each, _price in sizes])
    wanted = sum([each.cpu_milli for each, _price in sizes])
    found: list[int] = []
    for cost in costs:
        values = []
        for step in steps:
            alike = by_steps[step]
            # Each GPU of a task with several GPUs carries its part of the price and of the cores.
            weight = sum([each.weight * each.size.gpus for each, _price in alike])
            gross = sum([each.weight * price for each, price in alike])
            own = sum([each.cpu_milli for each, _price in alike])
            usual = gross * MILLI * wanted // (GPU * asked)
            cores = ((100 - chance) * own + chance * usual) // 100
            values.append((gross - (cost * cores >> CORE_BITS)) // weight)
        found.extend(fill_exactly(values, steps, room))
    return found
