"""Requests and replies about MIG layouts and defragmentation."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from gpuyard.control.partitions import Wanted

_GPUS_MAX = 1024
Gpus = Annotated[list[Annotated[int, Field(ge=0, lt=_GPUS_MAX)]], Field(min_length=1, max_length=_GPUS_MAX)]


class LayoutRequest(BaseModel):
    """A layout for some GPUs of a node."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    layout: str = Field(description="7x1g.18gb, 2x2g.35gb+3x1g.18gb, or whole.")
    gpus: Gpus | None = Field(None, description="Their numbers. Left out: all of the node.")

    def wanted(self) -> Wanted:
        """The request in the control plane's form."""
        return Wanted(self.layout, None if self.gpus is None else tuple(self.gpus))


Layouts = Annotated[list[LayoutRequest], Field(max_length=_GPUS_MAX)]


class MigPlanRequest(BaseModel):
    """Layouts to be judged."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    node: str = Field("", max_length=253, description="Needed with layouts.")
    layouts: Layouts = Field([], description="None: what the queue leads to.")


class PinRequest(BaseModel):
    """Layouts that GPUs are to keep."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    layouts: Layouts = Field(min_length=1)


class ReleaseRequest(BaseModel):
    """GPUs that are to be cut by demand again."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    gpus: Gpus | None = Field(None, description="Left out: all of the node.")


class PinReply(BaseModel):
    """A GPU that keeps a layout."""

    gpu: int
    layout: str
    made: bool
    why: str
    took_ms: int
    slices: list[list[Any]]


class PinnedReply(BaseModel):
    """What GPUs of a node are pinned to."""

    node: str
    gpus: list[PinReply]


class ReleasedReply(BaseModel):
    """GPUs that were released."""

    node: str
    released: list[int]


class MigNodeReply(BaseModel):
    """A node that can be cut: its slices (GPU, profile, first slot, job or nothing) and what it is pinned to."""

    node: str
    gpu_model: str
    gpus: int
    slices: list[list[Any]]
    pins: list[PinReply]


class MigReply(BaseModel):
    """Every node that can be cut."""

    whole_gpus: int
    nodes: list[MigNodeReply]


class GpuJobReply(BaseModel):
    """A job on a GPU: its share of it (null: slices), its slices, and the memory that it uses (null: not known)."""

    label: str
    share: float | None
    slices: list[str]
    memory_used_mib: int | None


class GpuReply(BaseModel):
    """What a GPU does now. Null: not known; a GPU that is cut does not say how busy it is."""

    node: str
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
    jobs: list[GpuJobReply]


class GpusReply(BaseModel):
    """Every GPU of the fleet; `trouble` says why their signals cannot be read."""

    gpus: list[GpuReply]
    trouble: str


class MigStepReply(BaseModel):
    """What happens to one slice."""

    do: str
    profile: str
    start: int
    why: str


class MigGpuReply(BaseModel):
    """What happens to one GPU."""

    node: str
    gpu: int
    now: str
    layout: str
    refused: bool
    steps: list[MigStepReply]
    why: str


class MigWaitingReply(BaseModel):
    """A size of slice that is waited for."""

    profile: str
    jobs: int
    slices: int
    first: str
    why: str


class MigPlanReply(BaseModel):
    """What a layout, or the queue, leads to."""

    gpus: list[MigGpuReply]
    waiting: list[MigWaitingReply]
    notes: list[str]


class MoveReply(BaseModel):
    """One job, from where it is to where it would go on."""

    job: str
    user: str
    tenant: str
    gpus: float
    from_node: str
    from_gpus: list[int]
    to_node: str
    to_gpus: list[int]
    lost_gpu_s: float


class DefragRow(BaseModel):
    """What a few moves make free."""

    frees: str
    node: str
    gpus: list[int]
    gained_gpus: int
    lost_gpu_s: float
    gpus_per_gpu_hour: float
    moves: list[MoveReply]


class DefragReply(BaseModel):
    """Moves that would free whole GPUs or nodes, the best first."""

    at_ms: int
    plan: list[DefragRow]
