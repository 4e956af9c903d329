"""What is asked and answered about removing what is kept of ended jobs."""

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
