"""Parts of a job on the wire that have fields of their own: dependencies, further containers, topology."""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from gpuyard.api.messages.fields import Command, Env, Folder, Id, Name, Reference, Volumes
from gpuyard.control.admission.dependencies import SINGLETON, Dependency
from gpuyard.control.replica.labels import read_label
from gpuyard.engines.contract import Container
from gpuyard.model import AfterKind
from gpuyard.model.units import SECOND_MS
from gpuyard.wire import job_fields as table
from gpuyard.wire.job_fields import DEPENDENCY_KINDS


class DependencyRequest(BaseModel):
    """Another job, and what must happen to it first."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    kind: Annotated[str, Field(pattern="^(" + "|".join(DEPENDENCY_KINDS) + ")$")] = Field(
        "afterok", description=f"One of {', '.join(DEPENDENCY_KINDS)}."
    )
    job: Id | None = Field(None, description="The job's id, as 17 or 12_3. Required, except for singleton.")
    delay_s: int = Field(
        0, ge=0, le=table.DELAY_S_MAX, description="For after: how many seconds after its start."
    )

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if (self.job is None) != (self.kind == SINGLETON):
            raise ValueError("every kind but 'singleton' names a 'job', and that one names none")
        if self.delay_s and self.kind != AfterKind.STARTED.value:
            raise ValueError("a 'delay_s' is counted from a start: it needs the kind 'after'")
        return self

    def dependency(self) -> Dependency:
        """The same in the units of the control plane."""
        job = None if self.job is None else read_label(self.job)
        return Dependency(self.kind, job, self.delay_s * SECOND_MS)


class ContainerRequest(BaseModel):
    """One more container of a job."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    image: Annotated[Reference, Field(min_length=1)]
    name: Name = ""
    init: bool = Field(False, description="Whether it runs to its end before the job's own container starts.")
    entrypoint: Command = Field([], description="Instead of the image's entrypoint.")
    command: Command = Field([], description="Arguments of the entrypoint. Default: the image's.")
    workdir: Folder = ""
    env: Env = Field({}, description="Environment variables besides those of the job.")
    volumes: Volumes = Field([], description="What is mounted in the image, as for a job.")

    def container(self, pull: str) -> Container:
        """The same as engines have it."""
        return Container(
            image=self.image, name=self.name, init=self.init, entrypoint=tuple(self.entrypoint),
            argv=tuple(self.command), workdir=self.workdir, env=self.env, volumes=tuple(self.volumes), pull=pull,
        )  # fmt: skip


class TopologyRequest(BaseModel):
    """How near to each other the nodes of a job are."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    level: Literal["switch", "rack", "fabric"]
    required: bool = Field(
        True, description="Whether to wait for nodes that are that near; otherwise others will do."
    )
    for_s: int = Field(
        0,
        ge=0,
        le=table.LIMIT_S_MAX,
        description="For how many seconds after the submission it is required. 0: for good.",
    )

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if self.for_s and not self.required:
            raise ValueError("'for_s' says for how long the level is required: leave 'required: false' out")
        return self
