"""The YAML documents of one file, each as a tree that knows its lines: one file may hold many jobs.

The tree is the configuration's own, which holds one document. So the file is split between documents, and the lines of
each are counted from where it begins in the file.
"""

from collections.abc import Iterator

import yaml

from gpuyard.config import document
from gpuyard.config.syntax import syntax_problem
from gpuyard.errors import BadInput, quote
from gpuyard.keys.problems import ConfigError, Position, Problem
from gpuyard.keys.tree import Document, Mapping, Node, Scalar, Sequence

__all__ = ["Document", "Mapping", "Node", "Scalar", "Sequence", "parse_documents", "parse_each_document"]

DOCUMENTS_MAX = 10_000
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_OPENS = (yaml.SequenceStartEvent, yaml.MappingStartEvent)
_CLOSES = (yaml.SequenceEndEvent, yaml.MappingEndEvent)
_ROOTS = (yaml.ScalarEvent, yaml.SequenceStartEvent, yaml.MappingStartEvent, yaml.AliasEvent)


def parse_documents(text: str, file: str) -> list[Document]:
    """Every document that is not empty; `ConfigError` or `BadInput` with the place of what is wrong."""
    return list(parse_each_document(text, file))


def parse_each_document(text: str, file: str) -> Iterator[Document]:
    """The same one by one, each read when it is asked for."""
    text = text.removeprefix("\ufeff")
    if len(text) > document.BYTES_MAX:
        raise BadInput(
            f"{file}: larger than {document.BYTES_MAX // 1024**2} MiB, the limit; is it the right file?"
        )
    starts = _starts(text, file)
    if all([empty for _start, empty in starts]):
        raise BadInput(f"{file}: there is no job in it")
    # Only these are line breaks to YAML and to an editor alike; other line breaks are refused with their place.
    lines = text.split("\n")
    ends = [*[start for start, _ in starts[1:]], len(lines)]
    for (start, empty), end in zip(starts, ends, strict=True):
        if not empty:
            # The last line of a document ends before the next one begins; texts in it may rely on that.
            end_of_line = "\n" if end < len(lines) else ""
            yield document.parse("\n".join(lines[start:end]) + end_of_line, file, above=start)


def _starts(text: str, file: str) -> list[tuple[int, bool]]:
    """The line, from 0, on which each document begins, and whether it is empty."""
    found: list[tuple[int, bool]] = []
    root, depth = False, 0
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            if isinstance(event, _OPENS):
                depth += 1
                if depth > document.DEPTH_MAX:
                    # A parser takes longer for each token the more is open: for half a million brackets, minutes.
                    raise ConfigError(file, [Problem(_place(event), document.TOO_DEEP)])
            elif isinstance(event, _CLOSES):
                depth -= 1
            if isinstance(event, yaml.DocumentStartEvent):
                root = True
                found.append((_place(event).line - 1 if found else 0, True))
                if len(found) > DOCUMENTS_MAX:
                    raise BadInput(f"{file}: holds more than {DOCUMENTS_MAX} documents")
            elif root and isinstance(event, _ROOTS):
                root = False
                found[-1] = (found[-1][0], not _is_job(event, file))
    except yaml.YAMLError as error:
        raise ConfigError(file, [syntax_problem(error, text)]) from None
    return found


def _is_job(event: yaml.Event, file: str) -> bool:
    if isinstance(event, yaml.MappingStartEvent):
        return True
    place = _place(event)
    if isinstance(event, yaml.ScalarEvent):
        if not event.style and event.value in ("", "~", "null"):
            return False
        raise ConfigError(
            file, [Problem(place, f"a job must be written as 'key: value', not {quote(event.value)}")]
        )
    raise ConfigError(
        file, [Problem(place, "a job must be written as 'key: value'; separate several by '---'")]
    )


def _place(event: yaml.Event) -> Position:
    assert event.start_mark is not None
    return Position(event.start_mark.line + 1, event.start_mark.column + 1)
