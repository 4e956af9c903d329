"""Jobs on the wire: every field with its bounds, and nothing besides them.

Types are strict (`"8"` is no number, `true` is not 1), unknown fields are refused with the name that was meant,
and texts that will become names are held to characters that mean nothing to a shell, a path or a terminal.
"""

import re
from typing import Annotated, Any, Literal, Self, TypeVar

from fastapi import Request
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from gpuyard.api.bodies import bytes_of, object_of
from gpuyard.api.fields import (
    NAME_MAX,
    PATH_MAX,
    TIME_MS_MAX,
    Command,
    Env,
    Folder,
    Id,
    Klass,
    Name,
    NodeNames,
    Path,
    Script,
    Tenant,
    Word,
    features,
    indices,
    script_of,
    tenant_path,
)
from gpuyard.api.problems import Problem
from gpuyard.config.access import ROLE_WORDS
from gpuyard.control.dependencies import KINDS, SINGLETON, Dependency
from gpuyard.control.labels import label_of
from gpuyard.control.newjobs import NewJob
from gpuyard.control.partitions import Wanted
from gpuyard.errors import remedy
from gpuyard.model import AfterKind, Isolation
from gpuyard.model.units import MILLI, NO_LIMIT_MS, SECOND_MS

_ERRORS_SHOWN_MAX = 10
_FIELDS_MAX = 100
"""Unknown fields beyond this number are not looked at one by one."""
CONFIG_MAX = 1 << 20
PREVIEW_DAYS = 7
PREVIEW_DAYS_MAX = 365
DAYS_MAX = 3660
"""Of a token."""
_USER = r"^[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,63}$"


_NOTHING: Any = ()
"""The default of a list: the description shows an empty one, and it need not be copied for each job."""


class DependencyRequest(BaseModel):
    """Another job, and what has to become of it first."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    kind: Annotated[str, Field(pattern="^(" + "|".join(KINDS) + ")$")] = Field(
        "afterok", description=f"One of {', '.join(KINDS)}."
    )
    job: Id | None = Field(None, description="Its id, as 17 or 12_3. Left out only for singleton.")
    delay_s: int = Field(0, ge=0, le=366 * 86_400, description="For after: how long after its start.")

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if (self.job is None) != (self.kind == SINGLETON):
            raise ValueError("every kind but 'singleton' names a 'job', and that one names none")
        if self.delay_s and self.kind != AfterKind.STARTED.value:
            raise ValueError("a 'delay_s' is counted from a start: it needs the kind 'after'")
        return self


class JobRequest(BaseModel):
    """A job to run: a command or a script, what it needs, and how it is to be treated."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    command: Command = Field(
        _NOTHING,
        description="Program and arguments. With a script: the script's arguments.",
        examples=[["nvidia-smi"]],
    )
    script: Script = Field("", description="A script, which begins with #!. Up to 1 MiB.")
    name: Name = Field("", description="For people. Left out: made from the command.")
    tenant: Tenant = Field(
        "",
        description="The tenant that the job counts for, as in research/ana. Left out: the default tenant of the user.",
    )
    klass: Klass = Field("", alias="class", description="How it is treated. Left out: the default class.")
    gpus: int = Field(0, ge=0, le=100_000, description="GPUs of each task.")
    gpu_milli: int = Field(
        0, ge=0, le=MILLI - 1, description="A share of one GPU, in thousandths, instead of whole ones."
    )
    mig: Annotated[str, Field(max_length=63)] = Field(
        "", description="MIG profile of the slices that 'gpus' counts.", examples=["1g.18gb"]
    )
    gpu_memory_mib: int = Field(
        0, ge=0, le=1 << 24, description="GPU memory instead of a number: the cheapest that has it is taken."
    )
    isolation: Literal["", "strict", "shared", "any"] = Field(
        "", description="With gpu_memory_mib: strict is a MIG slice or a whole GPU, shared is a share."
    )
    gpu_models: Annotated[list[Annotated[str, Field(min_length=1, max_length=63)]], Field(max_length=20)] = (
        Field(_NOTHING, description="GPU models that will do. Left out: any.", examples=[["H100"]])
    )
    tasks: int = Field(1, ge=1, le=10_000, description="Tasks that start together or not at all.")
    cpus: float | None = Field(
        None,
        ge=0,
        le=100_000,
        allow_inf_nan=False,
        description="Cores of each task, to a thousandth. Left out: 1 where it has no GPU, else none.",
    )
    memory_mib: int = Field(0, ge=0, le=1 << 30, description="Main memory of each task, in MiB.")
    time_limit_s: int | None = Field(
        None,
        ge=1,
        le=NO_LIMIT_MS // SECOND_MS,
        description="When an attempt is stopped. Left out: as its class says.",
    )
    begin_ms: int = Field(
        0, ge=0, le=TIME_MS_MAX, description="The job does not start before, in ms since 1970."
    )
    deadline_ms: int = Field(
        0, ge=0, le=TIME_MS_MAX, description="When the job should be done, in ms since 1970."
    )
    array: Annotated[str, Field(max_length=1000)] | None = Field(
        None, description="Make it an array of tasks that start one by one: 0-9, 1,3,5 or 0-100:10."
    )
    env: Env = Field({}, description="Variables of its environment. Up to 256 KiB.")
    cwd: Folder = Field("", description="Folder to run in. Left out: one of its own.")
    umask: int = Field(
        0o022,
        ge=0,
        le=0o777,
        description="Permissions that files of the job do not get. 18 is 022, the default.",
    )
    stdout: Path = Field("", description="File for its output. Left out: kept for `logs`.")
    stderr: Path = Field("", description="File for its errors. Left out: together with its output.")
    open_mode: Literal["", "append", "truncate"] = Field(
        "",
        description="What becomes of these files if they are there. Left out: kept only when it runs again.",
    )
    warn_signal: int = Field(0, ge=0, le=64, description="Signal sent ahead of TERM. 0: none.")
    warn_s: int = Field(0, ge=0, le=86_400, description="How long ahead of the time limit it is sent.")
    warn_shell: bool = Field(
        False, description="Send that signal to the job's first process alone, not to what it started."
    )
    checkpoint_s: int = Field(0, ge=0, le=30 * 86_400, description="How often it saves its work. 0: never.")
    retries: int = Field(
        0, ge=0, le=100, description="How often it is tried again after it failed by itself."
    )
    requeue: bool = Field(True, description="Whether it waits again when its node is lost.")
    hold: bool = Field(False, description="Do not start it before it is released.")
    pools: Annotated[list[Annotated[str, Field(min_length=1, max_length=63)]], Field(max_length=100)] = Field(
        _NOTHING, description="Pools that will do. Left out: any."
    )
    nodes_max: int = Field(
        0, ge=0, le=100_000, description="Nodes it may be spread over. 0: as few as possible."
    )
    nodes_min: int = Field(0, ge=0, le=100_000, description="Nodes it is spread over at least.")
    on_nodes: NodeNames = Field(_NOTHING, description="Nodes that will do. Left out: any.")
    not_nodes: NodeNames = Field(_NOTHING, description="Nodes that will not.")
    constraint: Annotated[str, Field(max_length=1000)] = Field(
        "", description="Features its nodes must have: nvme, 'nvme&ib' or 'rack1|rack2'.", examples=["nvme"]
    )
    exclusive: bool = Field(False, description="Whole nodes, shared with no other job.")
    batch: bool = Field(
        False, description="Run it once, in the first task; the others hold room for what it starts there."
    )
    ranks: int = Field(
        0, ge=0, le=1_000_000, description="Processes it means to start in all. 0: as many as tasks."
    )
    dependencies: Annotated[list[DependencyRequest], Field(max_length=1000)] = Field(
        _NOTHING, description="Jobs it waits for."
    )
    dependencies_any: bool = Field(False, description="One of them is enough.")
    slurm_commands: bool = Field(
        False, description="Put Slurm's commands on its PATH (srun, scontrol, …), as the yard answers them."
    )
    array_limit: int = Field(
        0, ge=0, le=1_000_000, description="How many tasks of the array may run at a time. 0: all."
    )

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if not self.script and (not self.command or not self.command[0]):
            raise ValueError("there is nothing to run: give a 'command' or a 'script'")
        if self.cpus and abs(self.cpus * MILLI - round(self.cpus * MILLI)) > 1e-6:
            raise ValueError("'cpus' is finer than a thousandth of a core")
        if self.warn_s and not self.warn_signal:
            raise ValueError("'warn_s' needs a 'warn_signal'")
        if self.warn_shell and not self.warn_signal:
            raise ValueError("'warn_shell' needs a 'warn_signal'")
        if self.tasks < self.nodes_min:
            tasks = "1 task" if self.tasks == 1 else f"{self.tasks} tasks"
            raise ValueError(f"{self.nodes_min} nodes need as many tasks, and it has {tasks}")
        if self.nodes_max and self.nodes_max < self.nodes_min:
            raise ValueError("'nodes_max' is less than 'nodes_min'")
        kinds = [self.gpu_milli, self.mig, self.gpu_memory_mib]
        if sum(map(bool, kinds)) > 1:
            raise ValueError("'gpu_milli', 'mig' and 'gpu_memory_mib' exclude each other")
        if (self.gpu_milli or self.gpu_memory_mib) and self.gpus > 1:
            raise ValueError("a part of a GPU is of one GPU: leave 'gpus' out")
        if any(kinds) and (self.tasks > 1 or self.exclusive):
            raise ValueError("a part of a GPU is for one task on a shared node")
        if self.isolation and not self.gpu_memory_mib:
            raise ValueError("'isolation' needs 'gpu_memory_mib'")
        if self.exclusive and self.tasks > max(1, self.nodes_min) and not self.batch:
            raise ValueError("'exclusive' gives a task a whole node: set 'nodes_min' to 'tasks', or 'batch'")
        return self

    def new_job(self) -> NewJob:
        """The job, in the units of the control plane."""
        return NewJob(
            command=tuple(self.command),
            script=self.script,
            name=self.name or self._made_name(),
            tenant=self.tenant,
            klass=self.klass,
            gpus=self.gpus,
            gpu_milli=self.gpu_milli,
            mig=self.mig,
            gpu_memory_mib=self.gpu_memory_mib,
            isolation=Isolation(self.isolation or "any"),
            gpu_models=tuple(self.gpu_models),
            tasks=self.tasks,
            cpu_milli=None if self.cpus is None else round(self.cpus * MILLI),
            memory_mib=self.memory_mib,
            limit_ms=(self.time_limit_s or 0) * SECOND_MS,
            begin_ms=self.begin_ms,
            deadline_ms=self.deadline_ms,
            array=None if self.array is None else _array(self.array),
            env=self.env,
            cwd=self.cwd,
            umask=self.umask,
            stdout=self.stdout,
            stderr=self.stderr,
            warn_signal=self.warn_signal,
            warn_s=self.warn_s,
            open_mode=self.open_mode,
            warn_shell=self.warn_shell,
            slurm_commands=self.slurm_commands,
            checkpoint_s=self.checkpoint_s,
            retries=self.retries,
            requeue=self.requeue,
            hold=self.hold,
            pools=tuple(self.pools),
            nodes_max=self.nodes_max,
            nodes_min=self.nodes_min,
            on_nodes=tuple(self.on_nodes),
            not_nodes=tuple(self.not_nodes),
            features=_features(self.constraint),
            exclusive=self.exclusive,
            batch=self.batch,
            ranks=self.ranks,
            dependencies=tuple(
                [
                    Dependency(
                        each.kind,
                        None if each.job is None else label_of(str(each.job)),
                        each.delay_s * SECOND_MS,
                    )
                    for each in self.dependencies
                ]
            ),
            dependencies_any=self.dependencies_any,
            array_limit=self.array_limit,
        )

    def _made_name(self) -> str:
        """From the script that a program is to run, else from the program's own name, as far as it can be one."""
        word = "script" if self.script else script_of(self.command) or self.command[0].rpartition("/")[2]
        return (
            "".join([char for char in word if char.isalnum() or char in "._-"]).lstrip("._-")[:NAME_MAX]
            or "job"
        )


def _array(text: str) -> tuple[int, ...]:
    try:
        return indices(text)
    except ValueError as error:
        raise Problem(422, f"'array' {error}", kind="unacceptable") from None


def _features(text: str) -> tuple[tuple[str, ...], ...]:
    try:
        return features(text)
    except ValueError as error:
        raise Problem(422, f"'constraint' {error}", kind="unacceptable") from None


class DrainRequest(BaseModel):
    """Why a node is taken out of use."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    why: Annotated[Word, Field(max_length=500)] = ""


class CheckpointRequest(BaseModel):
    """A job has saved its work."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    saved_at_ms: int | None = Field(None, ge=0, le=TIME_MS_MAX, description="When. Left out: now.")


class ManyRequest(BaseModel):
    """Jobs of which the same is asked."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    ids: Annotated[
        list[Id],
        Field(min_length=1, max_length=20_000),
    ]


T = TypeVar("T", bound=BaseModel)


def checked(kind: type[T], value: dict[str, Any]) -> T:
    """The value as this model, or a problem that names every field that is wrong."""
    unread = 0
    if len(value) > _FIELDS_MAX:
        # Far more fields than a request has: to find a fault in each of them takes time.
        known = set(_fields(kind))
        strange = [name for name in value if name not in known]
        unread = len(strange[_FIELDS_MAX:])
        value = {name: value[name] for name in value if name in known} | dict.fromkeys(strange[:_FIELDS_MAX])
    try:
        return kind.model_validate(value)
    except ValidationError as invalid:
        found = invalid.errors(include_url=False, include_input=False)
        errors = [_error(kind, error) for error in found[:_ERRORS_SHOWN_MAX]]
        detail = "; ".join([f"{e['field']}: {e['detail']}" if e["field"] else e["detail"] for e in errors])
        if len(found) > _ERRORS_SHOWN_MAX:
            detail += f"; and {len(found) + unread - _ERRORS_SHOWN_MAX} more"
        unknown = any(error["type"] == "extra_forbidden" for error in found)
        hint = f"Known fields: {', '.join(_fields(kind))}." if unknown else ""
        raise Problem(422, detail, hint, kind="unacceptable", errors=errors) from None


async def sent(kind: type[T], request: Request, *, required: bool = False) -> T:
    """The body of a request as this model; an empty one is an empty object, unless one is required."""
    body = await bytes_of(request)
    return checked(kind, object_of(body) if body or required else {})


def _fields(kind: type[BaseModel]) -> list[str]:
    return [each.alias or name for name, each in kind.model_fields.items()]


_CHOICE = re.compile(r"\^\(([a-z|]+)\)\$")
"""A pattern that is only a choice of words."""
_WORDING = (
    ("Value error, ", ""),
    ("should be '', ", "should be "),
    ("Input should", "it should"),
    ("String should", "it should"),
    ("List should", "it should"),
    ("Dictionary should", "it should"),
    ("Value should", "it should"),
    ("after validation, not", "and has"),
)
"""The words of a library, and ours for them."""


def _error(kind: type[BaseModel], error: Any) -> dict[str, str]:
    place = [str(part) for part in error["loc"]]
    field = ".".join(place)
    if len(field) > 80:
        field = field[:79] + "…"
    detail = str(error["msg"])
    if error["type"] == "extra_forbidden":
        meant = remedy(place[-1], _fields(kind), "fields")
        detail = f"unknown field; {meant}" if meant.startswith("did you mean") else "unknown field"
    elif error["type"] == "string_pattern_mismatch":
        choice = _CHOICE.fullmatch(error["ctx"]["pattern"])
        detail = f"it should be one of {choice[1].replace('|', ', ')}" if choice else detail
    elif error["type"] == "too_long" and error["ctx"]["field_type"] == "Value":
        # A text that went through a check of ours first.
        most, has = error["ctx"]["max_length"], error["ctx"]["actual_length"]
        detail = f"it should have at most {most} characters and has {has}"
    for theirs, ours in _WORDING:
        detail = detail.replace(theirs, ours)
    return {"field": field.encode("utf-8", "replace").decode(), "detail": detail}


class ConfigRequest(BaseModel):
    """A configuration: the text of a yard.yaml, or the number of an earlier version."""

    model_config = ConfigDict(extra="forbid", strict=True)

    yaml: str | None = Field(None, max_length=CONFIG_MAX, description="The text of a yard.yaml.")
    name: str = Field("yard.yaml", max_length=PATH_MAX, description="The file's name, for messages.")
    version: int | None = Field(None, ge=1, lt=1 << 53, description="Instead of a text: an earlier version.")
    against: int | None = Field(
        None, ge=0, lt=1 << 53, description="The version that was looked at; refused if another is in force."
    )
    days: int = Field(
        PREVIEW_DAYS, ge=1, le=PREVIEW_DAYS_MAX, description="Preview: how many days of history."
    )


class TokenRequest(BaseModel):
    """A token to be made."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    user: Annotated[str, Field(pattern=_USER)] = Field(description="The user that the token is for.")
    role: Annotated[str, Field(json_schema_extra={"enum": ROLE_WORDS})] | None = Field(
        None, description="Left out: what the user has in yard.yaml, else user."
    )
    tenant: Annotated[str, Field(max_length=512), AfterValidator(tenant_path)] | None = Field(
        None, description="Where the role holds; empty: the whole yard. Left out: where the user's own does."
    )
    days: int | None = Field(None, ge=1, le=DAYS_MAX, description="Left out: as yard.yaml says.")
    note: Annotated[Word, Field(max_length=200)] = Field("", description="What it is for.")


class OidcLogin(BaseModel):
    """What the identity provider says about a person."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    id_token: Annotated[str, Field(min_length=1, max_length=64_000)]
    nonce: Annotated[str, Field(min_length=16, max_length=200)]


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
