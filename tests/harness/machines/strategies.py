"""Fleets, tenants, classes and jobs for Hypothesis: small numbers, so that things collide."""

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from gpuyard.model import (
    Ask,
    Budget,
    BudgetAction,
    ClassLimit,
    Effect,
    Expression,
    GpuRequest,
    GpuReserve,
    Isolation,
    JobClass,
    JobSpec,
    Level,
    Memory,
    Mig,
    Milli,
    NamedBudget,
    Node,
    NodeMarks,
    Operator,
    Percentage,
    Quota,
    Settings,
    Taint,
    Tenant,
    Toleration,
    Whole,
    Window,
)
from gpuyard.model.units import NO_LIMIT_MS
from gpuyard.model.walls import NOBODY, Askers, Wall

MODELS = ("H100", "A100-80GB", "bespoke")
PATHS = ("a", "a/x", "a/y", "b", "b/z", "c")
"""Tenants that may be configured."""
LEAVES = ("a", "a/x", "a/y", "a/y/u", "b", "b/z", "c", "new")
"""Tenants that may submit: some of them are not configured, some have members."""
SECOND_MS = 1000
PERIOD_MS = 10 * SECOND_MS


def _one_of(key: str, *values: str) -> Expression:
    return Expression(key, Operator.IN, values)


TERMS = (
    (_one_of("zone", "a"),),
    (_one_of("zone", "a", "b"),),
    (Expression("zone", Operator.NOT_IN, ("a",)),),
    (Expression("nvme", Operator.EXISTS),),
    (Expression("nvme", Operator.DOES_NOT_EXIST), _one_of("zone", "b")),
    (Expression("disks", Operator.GT, ("1",)),),
    (Expression("disks", Operator.LT, ("2",)), Expression("zone", Operator.EXISTS)),
    (_one_of("gpuyard/pool", "q"),),
    (_one_of("kubernetes.io/hostname", "n1", "n2"),),
    (Expression("nvidia.com/gpu.count", Operator.GT, ("3",)),),
    (_one_of("zone", "nowhere"),),
)
TAINTS = (
    Taint("closed", Effect.NO_SCHEDULE),
    Taint("last", Effect.PREFER_NO_SCHEDULE, "yes"),
    Taint("closed", Effect.PREFER_NO_SCHEDULE, "soon"),
    Taint("gone", Effect.NO_EXECUTE),
)
TOLERATIONS = (
    Toleration("closed"),
    Toleration("last", "yes"),
    Toleration("closed", "no", Effect.NO_SCHEDULE),
    Toleration(effect=Effect.PREFER_NO_SCHEDULE),
    Toleration("gone", stays_ms=3 * SECOND_MS),
    Toleration(),
)
label_pairs = st.lists(
    st.tuples(st.sampled_from(("zone", "zone", "disks", "nvme")), st.sampled_from(("a", "b", "1", "3", ""))),
    max_size=2,
    unique_by=lambda pair: pair[0],
).map(lambda pairs: tuple(sorted(pairs)))
taint_sets = st.lists(
    st.sampled_from(TAINTS), max_size=1, unique_by=lambda taint: (taint.key, taint.effect)
).map(tuple)
node_marks = st.builds(
    NodeMarks,
    cluster=st.sampled_from(("main", "main", "other")),
    pool=st.sampled_from(("", "p", "q")),
    nodes=st.sampled_from(((), (), ("n0",), ("n1", "n3"))),
    labels=label_pairs,
    taints=taint_sets,
)


@st.composite
def node_shapes(draw: st.DrawFn) -> Node:
    """A kind of node; its name is given later."""
    gpus = draw(st.sampled_from((4, 8, 4, 2, 4, 4, 0)))
    return Node(
        name="",
        cluster=draw(st.sampled_from(("main", "main", "main", "other"))),
        pool=draw(st.sampled_from(("p", "p", "q"))),
        gpu_model=draw(st.sampled_from((*MODELS, "H100", "H100"))) if gpus else "",
        gpus=gpus,
        cpu_milli=draw(st.sampled_from((16_000, 8000))),
        memory_mib=draw(st.sampled_from((65_536, 8192))),
        nvlink_group_size=draw(st.sampled_from((0, 2, 4))) if gpus >= 4 else 0,
        numa_domains=draw(st.sampled_from((1, 1, 2))),
        switch=draw(st.sampled_from(("s1", "s2", "s3"))),
        labels=draw(label_pairs),
        taints=draw(st.one_of(st.just(()), st.just(()), taint_sets)),
        fabric=draw(st.sampled_from(("", "", "f"))),
    )


@st.composite
def fleets(draw: st.DrawFn) -> list[Node]:
    """Two to five nodes of one or two kinds, on one or two switches."""
    kinds = draw(st.lists(node_shapes(), min_size=1, max_size=2))
    count = draw(st.integers(2, 5))
    return [named(kinds[draw(st.integers(0, len(kinds) - 1))], number) for number in range(count)]


def named(node: Node, number: int) -> Node:
    """A node of a kind. The switches s1 and s2 are in one rack; what is on another fabric is in the other."""
    switch = node.switch if number % 2 else "s1"
    rack = "r2" if switch == "s3" else "r1"
    return Node(
        f"n{number}",
        node.cluster,
        node.pool,
        node.gpu_model,
        node.gpus,
        node.cpu_milli,
        node.memory_mib,
        node.nvlink_group_size,
        node.numa_domains,
        switch,
        rack,
        ("even",) if number % 2 == 0 else ("odd", "nvme"),
        node.labels,
        node.taints,
        node.fabric if rack == "r2" else "",
    )


@st.composite
def amounts(draw: st.DrawFn, most: int) -> dict[str, int]:
    """GPUs in total, or of one model."""
    name = draw(st.sampled_from(("total", "total", "total", *MODELS[:2])))
    return {name: draw(st.integers(most // 4, most)) * 1000}


class_limits = st.dictionaries(
    st.sampled_from(("batch", "batch", "high")),
    st.builds(ClassLimit, milli=st.sampled_from((None, 2000, 6000)), running=st.sampled_from((None, 1, 2))),
    min_size=1,
)


@st.composite
def quotas(draw: st.DrawFn) -> Quota:
    """A quota with few of its parts set."""
    names = ("guarantee", "limit", "borrow", "lend", "job", "user", "running", "cores", "memory", "class")
    parts = draw(st.sets(st.sampled_from(names), max_size=3))
    quota = Quota(
        guarantee=draw(amounts(8)) if parts & {"guarantee", "borrow", "lend"} else {},
        limit=draw(amounts(16)) if "limit" in parts else {},
        borrow=draw(amounts(8)) if "borrow" in parts else {},
        lend=draw(amounts(4)) if "lend" in parts else {},
        max_gpus_per_job=draw(st.sampled_from((2000, 4000, 8000))) if "job" in parts else None,
        max_gpus_per_user=draw(st.sampled_from((1000, 4000, 8000))) if "user" in parts else None,
        max_running_jobs=draw(st.integers(1, 4)) if "running" in parts else None,
        classes=draw(class_limits) if "class" in parts else {},
        max_cpu_milli=draw(st.sampled_from((1000, 6000, 12_000))) if "cores" in parts else None,
        max_memory_mib=draw(st.sampled_from((2048, 5000))) if "memory" in parts else None,
    )
    return draw(st.sampled_from((quota, quota, quota, in_percent(quota))))


def in_percent(quota: Quota) -> Quota:
    """The same with percentages for GPUs: of the fleet, of a model, and limits and guarantees by pool."""
    parts = {}
    for kind, pool in (("guarantee", ""), ("limit", "p"), ("borrow", ""), ("lend", "")):
        given = getattr(quota, kind)
        if given:
            parts[kind] = {key: Percentage(milli * 6, pool) for key, milli in given.items()}
    return replace(quota, guarantee={}, limit={}, borrow={}, lend={}, percentages=parts)


budgets = st.builds(
    Budget,
    gpu_ms=st.sampled_from((10_000, 60_000, 400_000)),
    window_ms=st.sampled_from((20_000, 60_000)),
)
tenants = st.builds(
    Tenant,
    path=st.sampled_from(PATHS),
    weight=st.integers(1, 3),
    quota=quotas(),
    budget=st.one_of(st.none(), st.none(), st.none(), budgets),
)

NAMED_BUDGETS = (
    NamedBudget("all", 1, window=Window.QUARTER),
    NamedBudget("team", 1, tenant="a", window=Window.WEEK),
    NamedBudget("idle", 1, klass="idle"),
)
"""Of GPU time: the reference books know no prices. What they count stays, their amounts and actions change."""

CLASSES = (
    JobClass("batch", 0, True, 60 * SECOND_MS, 2 * SECOND_MS, 2 * SECOND_MS),
    JobClass("urgent", 10, False, 30 * SECOND_MS, 0, SECOND_MS),
    JobClass("high", 5, True, NO_LIMIT_MS, 0, 0),
    JobClass("idle", -5, True, 300 * SECOND_MS, 0, 3 * SECOND_MS),
)
OTHER_CLASSES = (*CLASSES[:2], JobClass("high", -1, False, 20 * SECOND_MS, 5 * SECOND_MS, SECOND_MS))


RESERVES = ({"main/p": GpuReserve(1000, 2048)}, {"main/p": GpuReserve(3000), "main/q": GpuReserve(0, 4096)})
"""What jobs without GPUs leave to each GPU."""
askers = st.builds(
    Askers,
    tenants=st.sampled_from(((), (), ("a",), ("a/x", "b"), ("c",))),
    users=st.sampled_from(((), (), (), ("ana",), ("ana", "bob"))),
    groups=st.sampled_from(((), (), (), ("red",))),
    classes=st.sampled_from(((), (), ("batch",), ("urgent", "high"))),
)
wall = st.builds(
    Wall,
    allow=st.one_of(st.just(NOBODY), st.just(NOBODY), askers),
    deny=st.one_of(st.just(NOBODY), st.just(NOBODY), askers),
    time_limit_ms=st.sampled_from((0, 0, 3 * SECOND_MS, 40 * SECOND_MS)),
    default_time_ms=st.sampled_from((0, 0, SECOND_MS)),
    max_nodes_per_job=st.sampled_from((0, 0, 1, 2)),
    min_gpu_milli=st.sampled_from((0, 0, 1000, 2500)),
    priority=st.sampled_from((0, 0, 1, 7)),
    preemptible=st.sampled_from((True, True, False)),
)
walls = st.one_of(
    st.just({}),
    st.dictionaries(st.sampled_from(("main/p", "main/q", "other/p", "gone/p")), wall, max_size=2),
)
"""What keeps jobs out of pools; half of the yards have no walls."""


@st.composite
def budgeted_settings(draw: st.DrawFn) -> Settings:
    """The same with some named budgets that warn, soften or stop."""
    amounts, actions = st.sampled_from((10_000, 60_000, 400_000)), st.sampled_from(BudgetAction)
    chosen = draw(st.sets(st.sampled_from(range(len(NAMED_BUDGETS))), min_size=1))
    rules = [replace(NAMED_BUDGETS[i], gpu_ms=draw(amounts), action=draw(actions)) for i in sorted(chosen)]
    return replace(draw(settings()), budgets=tuple(rules))


@st.composite
def settings(draw: st.DrawFn) -> Settings:
    """Up to four tenants with quotas, and classes."""
    chosen = draw(st.lists(tenants, max_size=4, unique_by=lambda t: t.path))
    return Settings(
        tenants=tuple(chosen),
        classes=draw(st.sampled_from((CLASSES, CLASSES, OTHER_CLASSES))),
        default_class="batch",
        share_weights=draw(st.sampled_from(({}, {}, {"H100": 1}, {"A100-80GB": 9000}))),
        half_life_ms=60 * SECOND_MS,
        period_ms=PERIOD_MS,
        earmark_ms=5 * SECOND_MS,
        attempts_per_user=draw(st.sampled_from((0, 0, 1, 3))),
        attempts_per_node=draw(st.sampled_from((0, 0, 1, 2, 4))),
        marks=tuple(draw(st.lists(node_marks, max_size=2))),
        reserves=draw(st.sampled_from(({}, {}, {}, *RESERVES))),
        walls=draw(walls),
    )


requests: st.SearchStrategy[GpuRequest] = st.one_of(
    st.builds(Whole, st.sampled_from((1, 2, 4, 1, 3, 0))),
    st.builds(Whole, st.sampled_from((2, 1, 4, 1, 2, 8))),
    st.builds(Milli, st.sampled_from((1, 1, 2)), st.sampled_from((250, 500, 700))),
)
odd_requests: st.SearchStrategy[GpuRequest] = st.sampled_from(
    (Mig(1, "9g.99gb"), Memory(1, 1000, Isolation.ANY))
)


marks: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "labels": label_pairs,
        "unlabelled": st.sampled_from(((), (), ("zone",), ("nvme", "even"))),
        "taints": st.one_of(st.just(()), taint_sets),
        "untainted": st.one_of(st.just(()), taint_sets),
        "reset": st.booleans(),
    }
)
"""What people set on a node."""


marked_places: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.lists(st.sampled_from(TERMS), min_size=1, max_size=2, unique=True).map(
        lambda terms: {"selects": tuple(terms)}
    ),
    st.lists(st.tuples(st.sampled_from((1, 5)), st.sampled_from(TERMS)), min_size=1, max_size=2).map(
        lambda rows: {"prefers": tuple(rows)}
    ),
    st.lists(st.sampled_from(TOLERATIONS), min_size=1, max_size=2, unique=True).map(
        lambda rows: {"tolerates": tuple(rows)}
    ),
)
"""What a job says of labels and taints."""


LEVELS = (
    {"level": Level.SWITCH, "level_required": True},
    {"level": Level.RACK, "level_required": True, "nodes_max": 4},
    {"level": Level.SWITCH, "level_required": True, "level_ms": 2 * PERIOD_MS},
    {"level": Level.SWITCH},
    {"level": Level.RACK, "nodes_min": 2},
)
"""How near to each other the nodes of a gang are."""

places: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.sampled_from(((("odd",),), (("even", "nvme"),), (("odd",), ("nvme",)), (("none",),))).map(
        lambda groups: {"features": groups}
    ),
    st.sampled_from((("n0",), ("n1", "n2"), ("n0", "n3"))).map(lambda names: {"on_nodes": names}),
    st.sampled_from((("n0",), ("n1", "n2"))).map(lambda names: {"not_nodes": names}),
    st.sampled_from((("other",), ("main", "other"), ("other", "main"))).map(
        lambda names: {"clusters": names}
    ),
    st.sampled_from((("main:n0",), ("other:n1", "n2"))).map(lambda names: {"on_nodes": names}),
    st.integers(1, 3).map(lambda count: {"nodes_min": count}),
    st.sampled_from(LEVELS),
    st.just({"one_domain": True}),
    st.integers(1, 3).map(lambda count: {"nodes_min": count, "nodes_max": count}),
)
"""Which nodes a job takes, and over how many it is spread."""


def _where(draw: st.DrawFn, fussy: int) -> dict[str, Any]:
    if fussy == 6:
        return draw(places)
    if fussy in (4, 5):
        return draw(marked_places)
    return {"nodes_max": draw(st.sampled_from((1, 2, 4)))} if fussy >= 7 else {}


@st.composite
def asks(draw: st.DrawFn) -> Ask:
    """What a job asks for; now and then something that cannot be served."""
    request = draw(odd_requests if draw(st.integers(0, 30)) == 30 else requests)
    tasks = draw(st.sampled_from((1, 1, 1, 2, 2, 3, 4))) if isinstance(request, Whole) else 1
    fussy = draw(st.integers(0, 9))
    return Ask(
        request,
        tasks,
        cpu_milli=draw(st.sampled_from((0, 0, 1000, 5000))),
        memory_mib=draw(st.sampled_from((0, 0, 2048))),
        models=draw(st.sampled_from(((), ("H100",), ("A100-80GB", "H100")))) if fussy == 9 else (),
        pools=draw(st.sampled_from((("p",), ("q",), ("q", "p")))) if fussy == 8 else (),
        **_where(draw, fussy),
    )


@st.composite
def specs(draw: st.DrawFn, wanted: st.SearchStrategy[Ask] | None = None) -> JobSpec:
    """What is submitted."""
    checkpoint_ms = draw(st.sampled_from((0, 0, 4 * SECOND_MS)))
    return JobSpec(
        draw(st.sampled_from(LEAVES)),
        draw(asks() if wanted is None else wanted),
        draw(st.sampled_from(("", "batch", "urgent", "high", "idle"))),
        checkpoint_ms=checkpoint_ms,
        restart_cost_ms=draw(st.sampled_from((0, SECOND_MS))) if checkpoint_ms else 0,
        user=draw(st.sampled_from(("", "ana", "bob"))),
        groups=draw(st.sampled_from(((), (), ("red",), ("blue", "red")))),
    )


limits_ms = st.sampled_from((0, SECOND_MS, 3 * SECOND_MS, 10 * SECOND_MS, 40 * SECOND_MS, 200 * SECOND_MS))
gaps_ms = st.sampled_from((1, SECOND_MS, 2 * SECOND_MS, 5 * SECOND_MS, 17 * SECOND_MS))
