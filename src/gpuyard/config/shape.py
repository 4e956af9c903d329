"""Checks a file against the schema: pydantic finds the faults, this words them and adds the place."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from gpuyard.config.schema import ClusterEntry, YardFile, make_cluster_model, models_beside
from gpuyard.errors import quote, suggest
from gpuyard.keys.problems import FOUND_MAX, Path, Problem, described
from gpuyard.keys.tree import Document
from gpuyard.model.settings import TOTAL
from gpuyard.model.stand_in import value_text

_KEY = "[key]"
"""What pydantic puts at the end of a path to say that the key itself is wrong."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the file, as one model describes it."""

    model: type[BaseModel]
    path: Path = ()
    """Where it stands."""
    described: Callable[[Path], str] = described
    """How a message names the value at a path of the file."""


def check(rest: Document, document: Document) -> tuple[YardFile | None, list[Problem]]:
    """The file without keys of engines in the schema's form, or the faults in it; `document` has the places."""
    try:
        return YardFile.model_validate(rest.plain()), []
    except ValidationError as invalid:
        return None, find_problems(document, invalid, Part(YardFile))


def find_problems(document: Document, invalid: ValidationError, part: Part) -> list[Problem]:
    """What is wrong with a part of a file, each fault with its place."""
    errors = invalid.errors(include_url=False, include_input=True)
    return [_problem(document, error, part) for error in errors[:FOUND_MAX]]


def _problem(document: Document, error: Any, part: Part) -> Problem:
    path: Path = (*part.path, *error["loc"])
    if path and path[-1] == TOTAL and not document.has(path):
        # A quota that is a bare number: the schema has put it under `total`, the file has not.
        path = path[:-1]
    if path and path[-1] == _KEY and not document.has(path):
        return Problem(document.place(path[:-1], key=True), str(error["ctx"]["error"]))
    match error["type"]:
        case "extra_forbidden":
            return _unknown_key(document, path, part)
        case "missing":
            return _missing_key(document, path, part)
        case "value_error":
            return Problem(document.place(path), f"{part.described(path)} {error['ctx']['error']}")
        case "dict_type" | "model_type":
            text = f"must be a mapping of keys to values, not {_kind(error['input'])}"
        case "list_type":
            text = f"must be a list such as [a, b], not {_kind(error['input'])}"
        case _:
            text = f"is not valid: {error['msg']}"
    return Problem(document.place(path), f"{part.described(path)} {text}")


def _kind(value: object) -> str:
    match value:
        case dict():
            return "a mapping"
        case list():
            return "a list"
        case str():
            return quote(value)
    return "nothing"


def _model_at(path: Path, part: Part) -> type[BaseModel]:
    """The model that describes the mapping at a path."""
    kind: Any = part.model
    for key in path[len(part.path) :]:
        kind = _kind_below(kind, key)
    return next((each for each in _alternatives(kind) if _is_model(each)), part.model)


def _kind_below(kind: Any, key: str | int) -> Any:
    """What the schema has for a key of a mapping, or for an item of a list; None: nothing."""
    for each in _alternatives(kind):
        if _is_model(each):
            return next(
                (field.annotation for name, field in each.model_fields.items() if key in (name, field.alias)),
                None,
            )
        if get_origin(each) in (dict, list):
            return get_args(each)[-1]
    return None


def _alternatives(kind: Any) -> Iterator[Any]:
    """What a value may be: the members of a union, without what is noted beside them."""
    if get_origin(kind) is Annotated:
        yield from _alternatives(get_args(kind)[0])
    elif get_origin(kind) in (Union, UnionType):
        for each in get_args(kind):
            yield from _alternatives(each)
    else:
        yield kind


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _unknown_key(document: Document, path: Path, part: Part) -> Problem:
    *above, key = path
    model = _model_at(tuple(above), part)
    known = _cluster_names() if model is ClusterEntry else _names(model)
    where = f"in {part.described(tuple(above))}" if above else "at the top level"
    text = f"unknown key {quote(str(key))} {where}; {suggest(str(key), known, 'keys')}"
    return Problem(document.place(path, key=True), text)


def _names(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def _cluster_names() -> list[str]:
    """The keys of a cluster, those of engines among them."""
    return [name for model in (make_cluster_model(), *models_beside()) for name in _names(model)]


def _missing_key(document: Document, path: Path, part: Part) -> Problem:
    *above, key = path
    owner = tuple(above)
    field = _model_at(owner, part).model_fields[str(key)]
    shown = f"'{key}: {value_text(field.examples[0])}'" if field.examples else "it"
    text = f"{part.described(owner)} has no {quote(str(key))}; add {shown}"
    return Problem(document.place(owner, key=True), text)
