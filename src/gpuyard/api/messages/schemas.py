"""Jobs on the wire: every field with its bounds, and nothing besides them.

Types are strict (`"8"` is no number, `true` is not 1), unknown fields are refused with the name that was meant,
and texts that will become names are held to characters that mean nothing to a shell, a path or a terminal.
"""

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal, Self, TypeVar

from fastapi import Request
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from gpuyard.api.messages.bodies import parse_object, read_bytes
from gpuyard.api.messages.fields import (
    PATH_MAX,
    Command,
    Env,
    Folder,
    Id,
    Klass,
    Labels,
    Name,
    NodeNames,
    Path,
    Project,
    Reference,
    Script,
    Secrets,
    Selections,
    ShortNames,
    Tenant,
    Volumes,
    Word,
    find_script,
    parse_indices,
    parse_tenant_path,
)
from gpuyard.api.messages.job_parts import ContainerRequest, DependencyRequest, TopologyRequest
from gpuyard.api.messages.problems import Problem
from gpuyard.config.access import ROLE_WORDS
from gpuyard.control.admission.wanted import NewJob, make_job
from gpuyard.control.commands.changes import Change
from gpuyard.engines.contract import Container
from gpuyard.errors import quote, suggest_end
from gpuyard.job_sizes import SIZES_TEXT
from gpuyard.model import Isolation, Level, Verb
from gpuyard.model.placement import (
    Features,
    join_selections,
    parse_features,
    parse_preferences,
    parse_tolerations,
)
from gpuyard.model.units import MILLI, NO_LIMIT_MS, SECOND_MS
from gpuyard.wire import job_fields as table
from gpuyard.wire.job_fields import JOB_FIELDS, PROJECT, TEXT_MAX, TIME_MS_MAX
from gpuyard.wire.replies.jobs import Fault

_ERRORS_SHOWN_MAX = 10
_FIELDS_MAX = 100
"""Unknown fields beyond this number are not looked at one by one."""
CONFIG_MAX = 1 << 20
READ_MAX = 1 << 20
PREVIEW_DAYS = 7
PREVIEW_DAYS_MAX = 365
DAYS_MAX = 3660
"""Of a token."""
_USER = r"^[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,63}$"


def _of(name: str, **more: Any) -> Any:
    """A field of a job as the table has it."""
    says = JOB_FIELDS[name]
    examples = list(says.examples) or None
    if says.default == {}:
        # A default that could be changed is copied for every job, by the longest way.
        shown: dict[str, Any] = {"default": {}}
        return Field(
            default_factory=dict, description=says.text, examples=examples, json_schema_extra=shown, **more
        )
    return Field(says.default, ge=says.least, le=says.most, description=says.text, examples=examples, **more)


_OF_IMAGES = ("image", "entrypoint", "workdir", "volumes", "secrets", "pull", "containers")
"""Fields that become the containers of a job."""


class JobRequest(BaseModel):
    """A job to run: a command or a script, what it needs, and how the yard treats it."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    command: Command = _of("command")
    script: Script = _of("script")
    image: Reference = _of("image")
    entrypoint: Command = _of("entrypoint")
    workdir: Folder = _of("workdir")
    volumes: Volumes = _of("volumes")
    secrets: Secrets = _of("secrets")
    pull: Literal["", "missing", "always", "never"] = _of("pull")
    containers: Annotated[list[ContainerRequest], Field(max_length=20)] = _of("containers")
    name: Name = _of("name")
    tenant: Tenant = _of("tenant")
    project: Project = _of("project")
    labels: Labels = _of("labels")
    klass: Klass = _of("class", alias="class")
    gpus: int = _of("gpus")
    gpu_milli: int = _of("gpu_milli")
    mig: str = _of("mig", max_length=63)
    gpu_memory_mib: int = _of("gpu_memory_mib")
    isolation: Literal["", "strict", "shared", "any"] = _of("isolation")
    gpu_models: Annotated[ShortNames, Field(max_length=20)] = _of("gpu_models")
    tasks: int = _of("tasks")
    cpus: float | None = _of("cpus", allow_inf_nan=False)
    memory_mib: int = _of("memory_mib")
    time_limit_s: int | None = _of("time_limit_s")
    begin_ms: int = _of("begin_ms")
    deadline_ms: int = _of("deadline_ms")
    array: Annotated[str, Field(max_length=TEXT_MAX)] | None = _of("array")
    env: Env = _of("env")
    cwd: Folder = _of("cwd")
    umask: int = _of("umask")
    stdout: Path = _of("stdout")
    stderr: Path = _of("stderr")
    open_mode: Literal["", "append", "truncate"] = _of("open_mode")
    warn_signal: int = _of("warn_signal")
    warn_s: int = _of("warn_s")
    warn_shell: bool = _of("warn_shell")
    checkpoint_s: int = _of("checkpoint_s")
    retries: int = _of("retries")
    requeue: bool = _of("requeue")
    hold: bool = _of("hold")
    pools: Annotated[ShortNames, Field(max_length=100)] = _of("pools")
    clusters: Annotated[ShortNames, Field(max_length=100)] = _of("clusters")
    nodes_max: int = _of("nodes_max")
    nodes_min: int = _of("nodes_min")
    on_nodes: NodeNames = _of("on_nodes")
    not_nodes: NodeNames = _of("not_nodes")
    constraint: str = _of("constraint", max_length=TEXT_MAX)
    select: Selections = _of("select")
    prefer: Selections = _of("prefer")
    tolerate: Selections = _of("tolerate")
    topology: TopologyRequest | None = _of("topology")
    numa: Literal["", "single"] = _of("numa")
    exclusive: bool = _of("exclusive")
    batch: bool = _of("batch")
    ranks: int = _of("ranks")
    dependencies: Annotated[list[DependencyRequest], Field(max_length=table.DEPENDENCIES_MAX)] = _of(
        "dependencies"
    )
    dependencies_any: bool = _of("dependencies_any")
    slurm_commands: bool = _of("slurm_commands")
    terminal: bool = _of("terminal")
    array_limit: int = _of("array_limit")

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if not self.script and not self.image and (not self.command or not self.command[0]):
            raise ValueError("there is nothing to run: give a 'command', a 'script' or an 'image'")
        if not self.image:
            for name in ("entrypoint", "workdir", "volumes", "secrets", "pull", "containers"):
                if getattr(self, name):
                    raise ValueError(f"'{name}' is for jobs in an image: give an 'image'")
        elif self.script and self.entrypoint:
            raise ValueError("a 'script' is run in place of the image's entrypoint: leave 'entrypoint' out")
        said = self.labels.get(PROJECT)
        if self.project and said and said != self.project:
            raise ValueError(
                f"'project' is {quote(self.project)}, and the label 'project' is {quote(said)}: keep one of them"
            )
        if self.cpus and abs(self.cpus * MILLI - round(self.cpus * MILLI)) > 1e-6:
            raise ValueError("'cpus' is finer than a thousandth of a core")
        if self.warn_s and not self.warn_signal:
            raise ValueError("'warn_s' needs a 'warn_signal'")
        if self.warn_shell and not self.warn_signal:
            raise ValueError("'warn_shell' needs a 'warn_signal'")
        if self.terminal and (self.tasks > 1 and not self.batch):
            raise ValueError("a terminal is for one task: leave 'tasks' or 'terminal' out")
        if self.terminal and (self.stdout or self.stderr):
            raise ValueError(
                "what goes to a terminal goes to no file: leave 'stdout' and 'stderr' or 'terminal' out"
            )
        if self.terminal and self.array is not None:
            raise ValueError("the tasks of an array have no terminals: leave 'array' or 'terminal' out")
        if self.tasks < self.nodes_min:
            tasks = "1 task" if self.tasks == 1 else f"{self.tasks} tasks"
            raise ValueError(f"{self.nodes_min} nodes need as many tasks, and it has {tasks}")
        if self.topology and self.tasks == 1:
            raise ValueError("'topology' is for the nodes of several tasks, and it has 1 task")
        if self.nodes_max and self.nodes_max < self.nodes_min:
            raise ValueError("'nodes_max' is less than 'nodes_min'")
        kinds = [self.gpu_milli, self.mig, self.gpu_memory_mib]
        if sum(map(bool, kinds)) > 1:
            raise ValueError("'gpu_milli', 'mig' and 'gpu_memory_mib' exclude each other")
        if (self.gpu_milli or self.gpu_memory_mib) and self.gpus > 1:
            raise ValueError("a part of a GPU is of one GPU: leave 'gpus' out")
        if any(kinds) and (self.tasks > 1 or self.exclusive):
            raise ValueError("a part of a GPU is for one task on a shared node")
        if self.numa and (any(kinds) or not self.gpus):
            raise ValueError("'numa' is about whole GPUs of a task: give 'gpus', and no part of one")
        if self.isolation and not self.gpu_memory_mib:
            raise ValueError("'isolation' needs 'gpu_memory_mib'")
        if self.exclusive and self.tasks > max(1, self.nodes_min) and not self.batch:
            raise ValueError("'exclusive' gives a task a whole node: set 'nodes_min' to 'tasks', or 'batch'")
        return self

    def new_job(self) -> NewJob:
        """The job, in the units of the control plane."""
        # All at once: most of the fields are the same there.
        found = dict(self.__dict__)
        cpus, limit_s, array, constraint = map(found.pop, ("cpus", "time_limit_s", "array", "constraint"))
        image, *_ = map(found.pop, _OF_IMAGES)
        project, topology = found.pop("project"), found.pop("topology")
        for name in ("command", "gpu_models", "pools", "clusters", "on_nodes", "not_nodes"):
            found[name] = tuple(found[name])
        found |= {
            "name": self.name or self._made_name(),
            "isolation": Isolation(self.isolation or "any"),
            "labels": tuple(sorted((self.labels | ({PROJECT: project} if project else {})).items())),
            "cpu_milli": None if cpus is None else round(cpus * MILLI),
            "limit_ms": (limit_s or 0) * SECOND_MS,
            "array": None if array is None else _array(array),
            "features": self._features(constraint),
            "selects": _parsed("select", join_selections, found.pop("select")),
            "prefers": _parsed("prefer", parse_preferences, found.pop("prefer")),
            "tolerates": _parsed("tolerate", parse_tolerations, found.pop("tolerate")),
            "one_domain": found.pop("numa") == "single",
            "level": Level(topology.level) if topology else None,
            "level_required": topology is not None and topology.required,
            "level_ms": topology.for_s * SECOND_MS if topology else 0,
            "dependencies": tuple([each.dependency() for each in self.dependencies]),
            "containers": self._containers() if image else (),
        }
        return make_job(**found)

    def _features(self, text: str) -> Features:
        try:
            return parse_features(text, apart=self.tasks > 1 and self.nodes_max != 1)
        except ValueError as error:
            raise Problem(422, f"'constraint' {error}", kind="unacceptable") from None

    def _containers(self) -> tuple[Container, ...]:
        """Its own container, then the others."""
        pull = "" if self.pull == "missing" else self.pull
        secrets = [f"{path}:/run/secrets/{name}:ro" for name, path in sorted(self.secrets.items())]
        own = Container(
            self.image,
            entrypoint=tuple(self.entrypoint),
            workdir=self.workdir,
            volumes=(*self.volumes, *secrets),
            pull=pull,
        )
        return (own, *[each.container(pull) for each in self.containers])

    def _made_name(self) -> str:
        """From the script that a program is to run, else from the name of the program or the image."""
        if self.script:
            word = "script"
        elif self.command:
            word = find_script(self.command) or self.command[0].rpartition("/")[2]
        else:
            word = self.image.rpartition("/")[2].partition(":")[0].partition("@")[0]
        return (
            "".join([char for char in word if char.isalnum() or char in "._-"]).lstrip("._-")[
                : table.NAME_MAX
            ]
            or "job"
        )


def _parsed(name: str, parse: Callable[[list[str]], tuple[Any, ...]], texts: list[str]) -> tuple[Any, ...]:
    if not texts:
        return ()
    try:
        return parse(texts)
    except ValueError as error:
        raise Problem(422, f"'{name}' {error}", kind="unacceptable") from None


def _array(text: str) -> tuple[int, ...]:
    try:
        return parse_indices(text)
    except ValueError as error:
        raise Problem(422, f"'array' {error}", kind="unacceptable") from None


def _new(name: str, **more: Any) -> Any:
    """The new value of a field of a job; None: the job keeps its own."""
    says = JOB_FIELDS[name]
    return Field(None, ge=says.least, le=says.most, description=says.text.partition(" Default:")[0], **more)


class ChangeRequest(BaseModel):
    """What is to be another about a job. A field that is left out stays as it is."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    name: Name | None = _new("name")
    tenant: Tenant | None = _new("tenant")
    project: Project | None = _new("project")
    labels: Annotated[dict[str, str], Field(max_length=table.LABELS_MAX)] | None = Field(
        None, description="Labels to add or replace, by key; one with an empty value is removed."
    )
    klass: Klass | None = _new("class", alias="class")
    gpus: int | None = _new("gpus")
    gpu_milli: int | None = _new("gpu_milli")
    mig: str | None = _new("mig", max_length=63)
    gpu_memory_mib: int | None = _new("gpu_memory_mib")
    isolation: Literal["", "strict", "shared", "any"] | None = _new("isolation")
    gpu_models: Annotated[ShortNames, Field(max_length=20)] | None = _new("gpu_models")
    cpus: float | None = _new("cpus", allow_inf_nan=False)
    memory_mib: int | None = _new("memory_mib")
    time_limit_s: int | None = _new("time_limit_s")
    begin_ms: int | None = _new("begin_ms")
    deadline_ms: int | None = _new("deadline_ms")
    checkpoint_s: int | None = _new("checkpoint_s")
    retries: int | None = _new("retries")
    requeue: bool | None = _new("requeue")
    pools: Annotated[ShortNames, Field(max_length=100)] | None = _new("pools")
    clusters: Annotated[ShortNames, Field(max_length=100)] | None = _new("clusters")
    on_nodes: NodeNames | None = _new("on_nodes")
    not_nodes: NodeNames | None = _new("not_nodes")
    constraint: str | None = _new("constraint", max_length=TEXT_MAX)
    dependencies: Annotated[list[DependencyRequest], Field(max_length=table.DEPENDENCIES_MAX)] | None = _new(
        "dependencies"
    )
    dependencies_any: bool | None = _new("dependencies_any")
    array_limit: int | None = _new("array_limit")
    nice_s: int | None = Field(
        None,
        ge=-table.NICE_S_MAX,
        le=table.NICE_S_MAX,
        description="The job waits as one that was submitted so much later; below 0 is for administrators.",
    )
    place: Literal["top", "back"] | None = Field(
        None, description="top: before all other waiting jobs; back: where the policy's order has it."
    )

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if not self.model_fields_set:
            raise ValueError("nothing is to be changed: name a field with its new value")
        if self.place == "top" and self.nice_s is not None:
            raise ValueError("'place' and 'nice_s' both say where the job waits: leave one of them out")
        return self

    def change(self) -> Change:
        """The same as the control plane has it."""
        said = self.model_dump(by_alias=True, exclude_none=True)
        nice_s, place = said.pop("nice_s", None), said.pop("place", None)
        return Change(said, nice_s, Verb(place) if place else None)


class ManyRequest(BaseModel):
    """The jobs that a request is about."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    ids: Annotated[
        list[Id],
        Field(min_length=1, max_length=20_000),
    ]


class UpdateRequest(ManyRequest):
    """The jobs that are to be changed, and how."""

    change: ChangeRequest


class CheckpointRequest(BaseModel):
    """The news that a job has saved its work."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    saved_at_ms: int | None = Field(
        None,
        ge=0,
        le=TIME_MS_MAX,
        description="When it saved its work, in milliseconds since 1970. Default: now.",
    )


T = TypeVar("T", bound=BaseModel)


def check_value(kind: type[T], value: dict[str, Any]) -> T:
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


async def read_body(kind: type[T], request: Request, *, required: bool = False) -> T:
    """The body of a request as this model; an empty one is an empty object, unless one is required."""
    body = await read_bytes(request)
    return check_value(kind, parse_object(body) if body or required else {})


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


def _error(kind: type[BaseModel], error: Any) -> Fault:
    place = [str(part) for part in error["loc"]]
    field = ".".join(place)
    if len(field) > 80:
        field = field[:79] + "…"
    detail = str(error["msg"])
    if error["type"] == "extra_forbidden":
        detail = f"unknown field{suggest_end(place[-1], _fields(kind))}"
    elif error["type"] == "missing":
        detail = "it is required"
    elif error["type"] == "string_pattern_mismatch":
        choice = _CHOICE.fullmatch(error["ctx"]["pattern"])
        detail = f"it should be one of {choice[1].replace('|', ', ')}" if choice else detail
    elif error["type"] == "too_long" and error["ctx"]["field_type"] == "Value":
        # A text that went through a check of ours first.
        most, has = error["ctx"]["max_length"], error["ctx"]["actual_length"]
        detail = f"it should have at most {most} characters and has {has}"
    elif error["type"] == "string_unicode" or "surrogates not allowed" in detail:
        detail = "it holds a byte that is not text in UTF-8"
    for theirs, ours in _WORDING:
        detail = detail.replace(theirs, ours)
    return {"field": field.encode("utf-8", "replace").decode(), "detail": detail}


class ReadRequest(BaseModel):
    """A file with jobs: a batch script, Kubernetes manifests, or native YAML."""

    model_config = ConfigDict(extra="forbid", strict=True)

    text: str = Field(max_length=READ_MAX, description="The text of the file.")
    name: str = Field("pasted", max_length=PATH_MAX, description="The file's name, for messages.")
    cwd: str = Field("", max_length=PATH_MAX, description="The folder that relative paths start from.")
    host_process: bool = Field(
        False, description="Run a container's command on the node itself, without its image."
    )


class ConfigRequest(BaseModel):
    """A configuration: the text of a yard.yaml, or the number of an earlier version."""

    model_config = ConfigDict(extra="forbid", strict=True)

    yaml: str | None = Field(None, max_length=CONFIG_MAX, description="The text of a yard.yaml.")
    name: str = Field("yard.yaml", max_length=PATH_MAX, description="The file's name, for messages.")
    version: int | None = Field(None, ge=1, lt=1 << 53, description="Instead of a text: an earlier version.")
    against: int | None = Field(
        None,
        ge=0,
        lt=1 << 53,
        description="The version that the change was made from; the request is "
        "refused if another one is in force.",
    )
    days: int = Field(
        PREVIEW_DAYS,
        ge=1,
        le=PREVIEW_DAYS_MAX,
        description="For a preview: how many days of history to simulate.",
    )
    sizes: str = Field(
        SIZES_TEXT,
        max_length=200,
        description="For a preview: where jobs are parted by size, the most GPUs of each range but the last.",
    )


class TokenRequest(BaseModel):
    """The token to make."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    user: Annotated[str, Field(pattern=_USER)] = Field(
        description="The user that the token is for; for a collector, the node."
    )
    role: Annotated[str, Field(json_schema_extra={"enum": [*ROLE_WORDS, "collector"]})] | None = Field(
        None, description="The role. Default: the user's role in yard.yaml, else user."
    )
    tenant: Annotated[str, Field(max_length=512), AfterValidator(parse_tenant_path)] | None = Field(
        None,
        description="The tenant where the role holds; empty: the whole yard. Default: the user's own tenant.",
    )
    days: int | None = Field(
        None, ge=1, le=DAYS_MAX, description="How many days the token lasts. Default: as yard.yaml says."
    )
    note: Annotated[Word, Field(max_length=200)] = Field("", description="What the token is for.")


class OidcLogin(BaseModel):
    """The ID token that the identity provider gave a person."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    id_token: Annotated[str, Field(min_length=1, max_length=64_000)]
    nonce: Annotated[str, Field(min_length=16, max_length=200)]


class OidcCode(BaseModel):
    """The code that the identity provider gave a browser for the console, and the proofs that go with it."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    code: Annotated[str, Field(min_length=1, max_length=4000)]
    verifier: Annotated[
        str, Field(pattern=r"^[A-Za-z0-9._~-]{43,128}$", description="The verifier of PKCE (RFC 7636).")
    ]
    nonce: Annotated[str, Field(min_length=16, max_length=200)]
    redirect_uri: Annotated[str, Field(pattern=r"^https?://[^\s#]+$", max_length=2000)] = Field(
        description="The page that the provider redirected the browser to."
    )


class BrowserLogin(BaseModel):
    """A code, and where the console is."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    code: Annotated[str, Field(min_length=1, max_length=200)]
    path: Annotated[str, Field(pattern=r"^/([A-Za-z0-9._~-]+/)*$", max_length=200)] = Field(
        "/", description="The path of the console, which the cookie is valid for."
    )


class PruneRequest(BaseModel):
    """What to remove."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    older_than_s: int | None = Field(
        None,
        ge=0,
        le=NO_LIMIT_MS // SECOND_MS,
        description="Only of jobs that ended at least this many seconds ago. Default: as `retention` in "
        "yard.yaml says.",
    )
    dry_run: bool = Field(False, description="Only count what would be removed.")
    next: str | None = Field(
        None, max_length=100, description="`next` of the previous reply. Default: start at the beginning."
    )
