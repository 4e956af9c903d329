"""Replies about nodes and GPUs: what is free, what they do, how they are cut, and what moving jobs would free."""

from typing import TypedDict

PlacedSlice = tuple[int, str, int, str]
"""GPU, profile, first slot, and the job in it; no job: empty."""


class NodeReply(TypedDict):
    """A node, and what is free on it."""

    name: str
    cluster: str
    pool: str
    state: str
    why: str
    gpu_model: str
    gpus: int
    gpus_free: float
    gpus_foreign: int
    foreign: str
    gpus_pinned: int
    cpus: float
    cpus_free: float
    memory_mib: int
    memory_mib_free: int
    features: list[str]
    labels: dict[str, str]
    """Those beyond the ones that every node has by itself."""
    taints: list[str]
    jobs: list[str]
    slices: list[PlacedSlice]
    """Those in use."""


class ScriptNamesReply(TypedDict):
    """The names that scripts use for pools, tenants and classes, as yard.yaml maps them."""

    partitions: dict[str, list[str]]
    accounts: dict[str, str]
    """Those of tenants that the asker may know of."""
    qos: dict[str, str]


class NodesReply(TypedDict):
    """The fleet."""

    nodes: list[NodeReply]
    script_names: ScriptNamesReply


class NodeHead(TypedDict):
    """A node by itself."""

    name: str
    cluster: str
    rack: str
    """Empty: nobody said."""
    state: str
    why: str
    gpu_model: str


class NodeGpusReply(NodeHead):
    """A node, GPU by GPU: how much of it is taken (in thousandths), by which tenant and which job."""

    gpus: list[tuple[int, str, str]]


class TenantUseReply(TypedDict):
    """What a tenant holds and asks for."""

    tenant: str
    weight: int
    running: int
    waiting: int
    gpus: float
    gpus_wanted: float
    guarantee: float
    limit: float | None


class OverviewReply(TypedDict):
    """The whole yard, for a screen."""

    at_ms: int
    running: int
    waiting: int
    set_aside: int
    nodes_in_all: int
    nodes: list[NodeGpusReply]
    tenants: list[TenantUseReply]


NodeLabelReply = TypedDict("NodeLabelReply", {"key": str, "value": str, "from": str})
"""A label of a node, and where it comes from: `every node`, `engine`, `yard.yaml` or `live`."""

NodeTaintReply = TypedDict("NodeTaintReply", {"taint": str, "from": str})
"""A taint of a node as `KEY=VALUE:EFFECT`, and where it comes from."""


class NodeMarksReply(TypedDict):
    """All labels and taints of a node."""

    node: str
    cluster: str
    labels: list[NodeLabelReply]
    taints: list[NodeTaintReply]
    removed: list[str]
    """Labels that somebody removed live."""


class NodeLiveMarks(TypedDict):
    """What is set live on a node, in place of what the configuration says."""

    node: str
    cluster: str
    labels: dict[str, str]
    unlabelled: list[str]
    """Labels that it does not have, whatever the configuration says."""
    taints: list[str]
    untainted: list[str]


class LiveMarksReply(TypedDict):
    """What is set live, by node."""

    nodes: list[NodeLiveMarks]


class MarkedReply(TypedDict):
    """The nodes whose labels and taints are as was asked."""

    nodes: list[str]


class DrainReply(TypedDict):
    """Whether a node takes new work."""

    node: str
    drained: bool


class SamplesReply(TypedDict):
    """How many samples the yard accepted, and how far the node's clock is behind the yard's; negative: ahead."""

    node: str
    taken: int
    clock_off_ms: int


class GpuJobReply(TypedDict):
    """A job on a GPU: its share of the GPU (null: slices), its slices, and the memory that it uses (null: unknown).

    A job that you may not see has its number, but neither user nor tenant.
    """

    label: str
    user: str
    tenant: str
    share: float | None
    slices: list[str]
    memory_used_mib: int | None


class GpuReply(TypedDict):
    """What a GPU does now. Null: unknown; a GPU that is cut does not report how busy it is."""

    node: str
    cluster: str
    gpu: int
    gpu_model: str
    busy_pct: int | None
    memory_used_mib: int | None
    memory_mib: int | None
    power_w: int | None
    temperature_c: int | None
    others_mib: int | None
    """Memory of processes that are no job's."""
    emulated: bool
    age_s: int | None
    """How old these figures are; null: there are none."""
    price_micro_usd_h: int | None
    """What an hour of it costs today, in micro-dollars; null: nobody gave a price."""
    jobs: list[GpuJobReply]


class GpuPlaceReply(TypedDict):
    """Where a GPU is on its node. Null and empty: unknown."""

    node: str
    cluster: str
    gpu: int
    gpu_model: str
    memory_mib: int | None
    links: list[str]
    """To each GPU of the node, in the words of `nvidia-smi topo -m`; NV without a number: NVLink."""
    pcie: str
    """Generation and width."""
    numa: int | None
    cores: str
    """Those of its NUMA domain."""
    emulated: bool
    switch: str
    """Of the node."""
    rack: str
    fabric: str


class TopologyReply(TypedDict):
    """How the GPUs of each node are linked; `trouble` says why that cannot be read."""

    gpus: list[GpuPlaceReply]
    trouble: str


class ProtectionReply(TypedDict):
    """Whether one kind of ask is enforced (`yes`, `partly`, `no`), and how, or why not."""

    kind: str
    enforced: str
    by: str


class DoctorReply(TypedDict):
    """What holds jobs on this machine to what they asked for."""

    rows: list[ProtectionReply]


class GpusReply(TypedDict):
    """Every GPU of the fleet; `trouble` says why their signals cannot be read."""

    gpus: list[GpuReply]
    trouble: str


class PinReply(TypedDict):
    """A GPU that keeps a layout."""

    gpu: int
    layout: str
    made: bool
    why: str
    took_ms: int
    slices: list[tuple[str, int]]
    """Profile and first slot."""


class PinnedReply(TypedDict):
    """The layouts that GPUs of a node are pinned to."""

    node: str
    gpus: list[PinReply]


class ReleasedReply(TypedDict):
    """GPUs that were released."""

    node: str
    released: list[int]


class MigNodeReply(TypedDict):
    """A node whose GPUs can be cut: its slices and the layouts that they are pinned to."""

    node: str
    cluster: str
    gpu_model: str
    gpus: int
    slots: int
    """Of the memory of one GPU."""
    sizes: dict[str, int]
    """Slots that a slice takes, by profile."""
    slices: list[PlacedSlice]
    pins: list[PinReply]


class MigReply(TypedDict):
    """Every node whose GPUs can be cut."""

    whole_gpus: int
    nodes: list[MigNodeReply]


class MigStepReply(TypedDict):
    """What happens to one slice."""

    do: str
    profile: str
    start: int
    why: str


class MigGpuReply(TypedDict):
    """What happens to one GPU."""

    node: str
    gpu: int
    now: str
    layout: str
    refused: bool
    steps: list[MigStepReply]
    why: str


class MigWaitingReply(TypedDict):
    """A slice profile that jobs wait for."""

    profile: str
    jobs: int
    slices: int
    first: str
    why: str


class MigPlanReply(TypedDict):
    """What a layout, or the queue, would do to GPUs."""

    gpus: list[MigGpuReply]
    waiting: list[MigWaitingReply]
    notes: list[str]


class MoveReply(TypedDict):
    """One job: where it runs and where it would continue."""

    job: str
    user: str
    tenant: str
    gpus: float
    from_node: str
    from_gpus: list[int]
    to_node: str
    to_gpus: list[int]
    lost_gpu_s: float


class DefragRow(TypedDict):
    """What a few moves would free."""

    frees: str
    node: str
    gpus: list[int]
    gained_gpus: int
    lost_gpu_s: float
    gpus_per_gpu_hour: float
    moves: list[MoveReply]


class DefragReply(TypedDict):
    """Moves that would free whole GPUs or nodes, best first."""

    at_ms: int
    plan: list[DefragRow]
