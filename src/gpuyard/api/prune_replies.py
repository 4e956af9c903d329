"""Requests and replies about the upkeep of the store."""

from pydantic import BaseModel, ConfigDict, Field

from gpuyard.model.units import NO_LIMIT_MS, SECOND_MS


class PruneRequest(BaseModel):
    """What is to go."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    older_than_s: int | None = Field(
        None,
        ge=0,
        le=NO_LIMIT_MS // SECOND_MS,
        description="Of jobs that ended so long ago. Left out: as long ago as `retention` in yard.yaml says.",
    )
    dry_run: bool = Field(False, description="Only count what would go.")
    next: str | None = Field(None, max_length=100, description="From the reply before; left out: begin.")


class PrunedReply(BaseModel):
    """How much has gone, or would."""

    count: int
    bytes: int = Field(description="Room that it took: on disk, or in the store.")


class PruneReply(BaseModel):
    """What this request removed, or would, by kind: `environments`, `scripts`, `logs`, `folders`."""

    removed: dict[str, PrunedReply]
    dry_run: bool
    next: str | None = Field(description="Ask again with this to go on; null: that was all.")


class ProjectionReply(BaseModel):
    """How far a projection has come."""

    name: str
    version: int
    began_seq: int = Field(description="Its rows tell of the events after this one; 0: of all.")
    seq: int = Field(description="The last event that is in its rows; 0: it is about to be filled.")
    head: int = Field(description="The last event of the log.")
    filled: bool = Field(description="Whether it has come to the end of the log.")
    error: str = Field(description="What keeps it from going on; empty: nothing.")


class ProjectionsReply(BaseModel):
    """All projections that follow the log, by name."""

    projections: list[ProjectionReply]
