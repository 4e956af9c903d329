"""Jobs on the wire: every field with its bounds, and nothing besides them.

Types are strict (`"8"` is no number, `true` is not 1), unknown fields are refused with the name that was meant,
and texts that will become names are held to characters that mean nothing to a shell, a path or a terminal.
"""

import re
from typing import Annotated, Any, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from gpuyard.api.problems import Problem
from gpuyard.config.problems import quoted, remedy
from gpuyard.control.dependencies import KINDS, SINGLETON, Dependency
from gpuyard.control.labels import ARRAY_TASKS_MAX, label_of
from gpuyard.control.newjobs import NewJob
from gpuyard.model.units import MILLI, NO_LIMIT_MS, SECOND_MS

SCRIPT_BYTES_MAX = 1024 * 1024
ENV_BYTES_MAX = 256 * 1024
COMMAND_BYTES_MAX = 256 * 1024
WORD_BYTES_MAX = 128 * 1024 - 1
"""Linux takes no longer argument or variable."""
ENV_NAMES_MAX = 10_000
PATH_MAX = 4096
NAME_MAX = 128
INDEX_MAX = 999_999_999
TIME_MS_MAX = 1 << 52
_ERRORS_SHOWN_MAX = 10

_NAME = re.compile(r"[^\W_][\w .:+=@,-]*")
_SEGMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_INDICES = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9}))?)?")


def _name(text: str) -> str:
    if text and not _NAME.fullmatch(text):
        raise ValueError(
            "may hold letters, digits, spaces and . _ : + = @ , - and begins with a letter or a digit"
        )
    return text


def tenant_path(text: str) -> str:
    """A path of the tree of tenants."""
    if text and not all(_SEGMENT.fullmatch(part) for part in text.split("/")):
        raise ValueError("is a path such as org/team/user, each part of letters, digits, '.', '_' and '-'")
    return text


def _word(text: str) -> str:
    if "\0" in text:
        raise ValueError("holds a NUL character")
    if len(text.encode()) > WORD_BYTES_MAX:
        raise ValueError(f"is longer than {WORD_BYTES_MAX} bytes")
    return text


def _folder(text: str) -> str:
    if text and not text.startswith("/"):
        raise ValueError("must be an absolute path")
    return _word(text)


def _script(text: str) -> str:
    if len(text.encode()) > SCRIPT_BYTES_MAX:
        raise ValueError(f"is longer than {SCRIPT_BYTES_MAX // 1024} KiB; put it into a file and run that")
    if "\0" in text:
        raise ValueError("holds a NUL character: it is no text")
    if text and not text.startswith("#!"):
        raise ValueError("must begin with a line such as #!/bin/bash that says what runs it")
    return text


def _env(env: dict[str, str]) -> dict[str, str]:
    total = 0
    for name, value in env.items():
        if not name or "=" in name or "\0" in name or "\0" in value:
            raise ValueError(f"{quoted(name)} cannot be a variable: empty, or with '=' or NUL in it")
        total += len(name.encode()) + len(value.encode()) + 2
    if total > ENV_BYTES_MAX:
        raise ValueError(f"is larger than {ENV_BYTES_MAX // 1024} KiB")
    return env


def _command(words: list[str]) -> list[str]:
    if sum(len(word.encode()) + 1 for word in words) > COMMAND_BYTES_MAX:
        raise ValueError(f"is longer than {COMMAND_BYTES_MAX // 1024} KiB")
    return words


def indices(text: str) -> tuple[int, ...]:
    """The indices of an array: `0-9`, `1,3,5`, `0-100:10`."""
    found: dict[int, None] = {}
    for part in text.split(","):
        match = _INDICES.fullmatch(part.strip())
        if match is None:
            raise ValueError(f"is written as 0-9, 1,3,5 or 0-100:10, not {quoted(text)}")
        first, last = int(match[1]), int(match[2] or match[1])
        step = int(match[3] or 1)
        if last < first or step == 0:
            raise ValueError(f"has a range that goes nowhere: {quoted(part)}")
        if (last - first) // step + 1 + len(found) > ARRAY_TASKS_MAX:
            raise ValueError(f"has more than {ARRAY_TASKS_MAX} tasks")
        found.update(dict.fromkeys(range(first, last + 1, step)))
    return tuple(sorted(found))


Name = Annotated[str, Field(max_length=NAME_MAX), AfterValidator(_name)]
Word = Annotated[str, AfterValidator(_word)]
Path = Annotated[str, Field(max_length=PATH_MAX), AfterValidator(_word)]


class DependencyRequest(BaseModel):
    """Another job, and what has to become of it first."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    kind: Annotated[str, Field(pattern="^(" + "|".join(KINDS) + ")$")] = Field(
        "afterok", description=f"One of {', '.join(KINDS)}."
    )
    job: Annotated[str, Field(max_length=40)] | Annotated[int, Field(ge=1, lt=1 << 63)] | None = Field(
        None, description="Its id, as 17 or 12_3. Left out only for singleton."
    )

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if (self.job is None) != (self.kind == SINGLETON):
            raise ValueError("every kind but 'singleton' names a 'job', and that one names none")
        return self


class JobRequest(BaseModel):
    """A job to run: a command or a script, what it needs, and how it is to be treated."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    command: Annotated[list[Word], Field(max_length=10_000), AfterValidator(_command)] = Field(
        [],
        description="Program and arguments. With a script: the script's arguments.",
        examples=[["nvidia-smi"]],
    )
    script: Annotated[str, AfterValidator(_script)] = Field(
        "", description="A script, which begins with #!. Up to 1 MiB."
    )
    name: Name = Field("", description="For people. Left out: made from the command.")
    tenant: Annotated[str, Field(max_length=512), AfterValidator(tenant_path)] = Field(
        "",
        description="For whom it counts, as in research/ana. Left out: the user, where there are no tenants.",
    )
    klass: Annotated[str, Field(max_length=63), AfterValidator(tenant_path)] = Field(
        "", alias="class", description="How it is treated. Left out: the default class."
    )
    gpus: int = Field(0, ge=0, le=100_000, description="GPUs of each task.")
    gpu_models: Annotated[list[Annotated[str, Field(min_length=1, max_length=63)]], Field(max_length=20)] = (
        Field([], description="GPU models that will do. Left out: any.", examples=[["H100"]])
    )
    tasks: int = Field(1, ge=1, le=10_000, description="Tasks that start together or not at all.")
    cpus: float = Field(
        0, ge=0, le=100_000, allow_inf_nan=False, description="Cores of each task, to a thousandth."
    )
    memory_mib: int = Field(0, ge=0, le=1 << 30, description="Main memory of each task, in MiB.")
    time_limit_s: int | None = Field(
        None,
        ge=1,
        le=NO_LIMIT_MS // SECOND_MS,
        description="When an attempt is stopped. Left out: as its class says.",
    )
    begin_ms: int = Field(0, ge=0, le=TIME_MS_MAX, description="Not to start before, in ms since 1970.")
    deadline_ms: int = Field(0, ge=0, le=TIME_MS_MAX, description="When it should be done, in ms since 1970.")
    array: Annotated[str, Field(max_length=1000)] | None = Field(
        None, description="Make it an array of tasks that start one by one: 0-9, 1,3,5 or 0-100:10."
    )
    env: Annotated[dict[str, Word], Field(max_length=ENV_NAMES_MAX), AfterValidator(_env)] = Field(
        {}, description="Variables of its environment. Up to 256 KiB."
    )
    cwd: Annotated[Path, AfterValidator(_folder)] = Field(
        "", description="Folder to run in. Left out: one of its own."
    )
    stdout: Path = Field("", description="File for its output. Left out: kept for `logs`.")
    stderr: Path = Field("", description="File for its errors. Left out: together with its output.")
    warn_signal: int = Field(0, ge=0, le=64, description="Signal sent ahead of TERM. 0: none.")
    warn_s: int = Field(0, ge=0, le=86_400, description="How long ahead of the time limit it is sent.")
    checkpoint_s: int = Field(0, ge=0, le=30 * 86_400, description="How often it saves its work. 0: never.")
    retries: int = Field(
        0, ge=0, le=100, description="How often it is tried again after it failed by itself."
    )
    requeue: bool = Field(True, description="Whether it waits again when its node is lost.")
    hold: bool = Field(False, description="Do not start it before it is released.")
    pools: Annotated[list[Annotated[str, Field(min_length=1, max_length=63)]], Field(max_length=100)] = Field(
        [], description="Pools that will do. Left out: any."
    )
    nodes_max: int = Field(
        0, ge=0, le=100_000, description="Nodes it may be spread over. 0: as few as possible."
    )
    dependencies: Annotated[list[DependencyRequest], Field(max_length=1000)] = Field(
        [], description="Jobs it waits for."
    )
    dependencies_any: bool = Field(False, description="One of them is enough.")
    array_limit: int = Field(
        0, ge=0, le=1_000_000, description="How many tasks of the array may run at a time. 0: all."
    )

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if not self.script and (not self.command or not self.command[0]):
            raise ValueError("there is nothing to run: give a 'command' or a 'script'")
        if abs(self.cpus * MILLI - round(self.cpus * MILLI)) > 1e-6:
            raise ValueError("'cpus' is finer than a thousandth of a core")
        if self.warn_s and not self.warn_signal:
            raise ValueError("'warn_s' needs a 'warn_signal'")
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
            gpu_models=tuple(self.gpu_models),
            tasks=self.tasks,
            cpu_milli=round(self.cpus * MILLI),
            memory_mib=self.memory_mib,
            limit_ms=(self.time_limit_s or 0) * SECOND_MS,
            begin_ms=self.begin_ms,
            deadline_ms=self.deadline_ms,
            array=None if self.array is None else _array(self.array),
            env=self.env,
            cwd=self.cwd,
            stdout=self.stdout,
            stderr=self.stderr,
            warn_signal=self.warn_signal,
            warn_s=self.warn_s,
            checkpoint_s=self.checkpoint_s,
            retries=self.retries,
            requeue=self.requeue,
            hold=self.hold,
            pools=tuple(self.pools),
            nodes_max=self.nodes_max,
            dependencies=tuple(
                [
                    Dependency(each.kind, None if each.job is None else label_of(str(each.job)))
                    for each in self.dependencies
                ]
            ),
            dependencies_any=self.dependencies_any,
            array_limit=self.array_limit,
        )

    def _made_name(self) -> str:
        """From the program's own name, as far as it can be one."""
        word = "script" if self.script else self.command[0].rpartition("/")[2]
        return (
            "".join([char for char in word if char.isalnum() or char in "._-"]).lstrip("._-")[:NAME_MAX]
            or "job"
        )


def _array(text: str) -> tuple[int, ...]:
    try:
        return indices(text)
    except ValueError as error:
        raise Problem(422, f"'array' {error}", kind="unacceptable") from None


class JobReply(BaseModel):
    """What is answered to a submission."""

    id: int
    label: str
    name: str
    tenant: str
    user: str
    state: str
    submitted_ms: int
    array: bool = False
    tasks: int | None = None
    first_task_id: int | None = None


class DrainRequest(BaseModel):
    """Why a node is taken out of use."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    why: Annotated[str, Field(max_length=500), AfterValidator(_word)] = ""


class ManyRequest(BaseModel):
    """Jobs of which the same is asked."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    ids: Annotated[
        list[Annotated[str, Field(max_length=40)] | Annotated[int, Field(ge=1, lt=1 << 63)]],
        Field(min_length=1, max_length=20_000),
    ]


T = TypeVar("T", bound=BaseModel)


def checked(kind: type[T], value: dict[str, Any]) -> T:
    """The value as this model, or a problem that names every field that is wrong."""
    try:
        return kind.model_validate(value)
    except ValidationError as invalid:
        found = invalid.errors(include_url=False, include_input=False)
        errors = [_error(kind, error) for error in found[:_ERRORS_SHOWN_MAX]]
        detail = "; ".join([f"{e['field']}: {e['detail']}" if e["field"] else e["detail"] for e in errors])
        if len(found) > _ERRORS_SHOWN_MAX:
            detail += f"; and {len(found) - _ERRORS_SHOWN_MAX} more"
        unknown = any(error["type"] == "extra_forbidden" for error in found)
        hint = f"Known fields: {', '.join(_fields(kind))}." if unknown else ""
        raise Problem(422, detail, hint, kind="unacceptable", errors=errors) from None


def _fields(kind: type[BaseModel]) -> list[str]:
    return [each.alias or name for name, each in kind.model_fields.items()]


def _error(kind: type[BaseModel], error: Any) -> dict[str, str]:
    place = [str(part) for part in error["loc"]]
    field = ".".join(place)
    if len(field) > 80:
        field = field[:79] + "…"
    detail = str(error["msg"])
    if error["type"] == "extra_forbidden":
        meant = remedy(place[-1], _fields(kind), "fields")
        detail = f"unknown field; {meant}" if meant.startswith("did you mean") else "unknown field"
    for theirs, ours in (("Value error, ", ""), ("Input should", "it should")):
        detail = detail.replace(theirs, ours)
    return {"field": field.encode("utf-8", "replace").decode(), "detail": detail}
