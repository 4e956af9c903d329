"""Bodies of requests about nodes and GPUs."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from gpuyard.api.messages.fields import NodeNames, Selections, ShortNames, Word
from gpuyard.control.commands.layouts import WantedLayout
from gpuyard.control.commands.marks import WantedMarks
from gpuyard.errors import quote
from gpuyard.wire.job_fields import TIME_MS_MAX


class DrainRequest(BaseModel):
    """Why a node is drained."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    why: Annotated[Word, Field(max_length=500)] = ""


class MarkRequest(BaseModel):
    """Labels and taints to set on nodes."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    nodes: NodeNames = Field([], description="The nodes, by name or as CLUSTER:NAME.")
    pools: Annotated[ShortNames, Field(max_length=100)] = Field([], description="All nodes of these pools.")
    labels: Annotated[dict[str, str | None], Field(max_length=100)] = Field(
        {}, description="Labels to set, by key; null removes one."
    )
    taints: Selections = Field([], description="Taints to set, KEY[=VALUE]:EFFECT.")
    untaint: Selections = Field([], description="Taints to remove: KEY, or KEY:EFFECT.")
    reset: bool = Field(False, description="Whether to forget first all that was set live on these nodes.")

    def wanted(self) -> WantedMarks:
        """The same in the units of the control plane."""
        return WantedMarks(
            tuple(self.nodes), tuple(self.pools), tuple(sorted(self.labels.items())), tuple(self.taints),
            tuple(self.untaint), self.reset,
        )  # fmt: skip


class CardRequest(BaseModel):
    """The model and identity of one GPU of a node."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    gpu: int = Field(ge=0, le=1023, description="Its place on the node.")
    uuid: Annotated[Word, Field(max_length=100)] = ""
    model: Annotated[Word, Field(max_length=100)] = ""
    pci: Annotated[Word, Field(max_length=100)] = ""
    driver: Annotated[Word, Field(max_length=100)] = ""


class KernelLineRequest(BaseModel):
    """A fault that a node's kernel wrote into its log."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    at_ms: int = Field(ge=0, le=TIME_MS_MAX, description="When, by the node's clock.")
    text: Annotated[Word, Field(max_length=300)]
    attempts: list[Annotated[Word, Field(max_length=200)]] = Field(
        default_factory=list,
        max_length=64,
        description="The attempts that it concerns; empty: the machine itself.",
    )


class SamplesRequest(BaseModel):
    """What a collector measured: moments, and for each series a value at every moment; null: no value."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    sent_ms: int = Field(ge=0, le=TIME_MS_MAX, description="The node's clock when the collector sent this.")
    steady_ms: int = Field(ge=0, le=TIME_MS_MAX, description="A monotonic clock of the node.")
    at_ms: list[Annotated[int, Field(ge=0, le=TIME_MS_MAX)]] = Field(max_length=400)
    series: dict[str, list[int | None]] = Field(
        description="The values by the name of the series: gpu/0/busy, node/cpu, attempt/KEY/memory."
    )
    faults: dict[str, int] = Field(
        default_factory=dict, description="How many values the collector itself dropped, by cause."
    )
    cards: list[CardRequest] = Field(default_factory=list, max_length=1024)
    lines: list[KernelLineRequest] = Field(default_factory=list, max_length=400)

    @model_validator(mode="after")
    def _even(self) -> "SamplesRequest":
        uneven = [name for name, column in self.series.items() if len(column) != len(self.at_ms)]
        if uneven:
            raise ValueError(
                f"{quote(uneven[0])} has not one value for each of the {len(self.at_ms)} moments"
            )
        return self


_GPUS_MAX = 1024
Gpus = Annotated[list[Annotated[int, Field(ge=0, lt=_GPUS_MAX)]], Field(min_length=1, max_length=_GPUS_MAX)]


class LayoutRequest(BaseModel):
    """A layout for some GPUs of a node."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    layout: str = Field(description="7x1g.18gb, 2x2g.35gb+3x1g.18gb, or whole.")
    gpus: Gpus | None = Field(None, description="The numbers of the GPUs. Default: all GPUs of the node.")

    def wanted(self) -> WantedLayout:
        """The request in the control plane's form."""
        return WantedLayout(self.layout, None if self.gpus is None else tuple(self.gpus))


Layouts = Annotated[list[LayoutRequest], Field(max_length=_GPUS_MAX)]


class MigPlanRequest(BaseModel):
    """Layouts to plan for."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    node: str = Field("", max_length=253, description="The node. Required with layouts.")
    layouts: Layouts = Field([], description="The layouts. Default: plan for the queue.")


class PinRequest(BaseModel):
    """The layouts to pin GPUs to."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    layouts: Layouts = Field(min_length=1)


class ReleaseRequest(BaseModel):
    """The GPUs to release, to be cut on demand again."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    gpus: Gpus | None = Field(None, description="The numbers of the GPUs. Default: all GPUs of the node.")
