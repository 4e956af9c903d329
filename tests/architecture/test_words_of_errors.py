"""What the system refuses is told in words: `[Errno 13]` and `OSError(28, …)` are for programs."""

import ast
import builtins
import errno
from pathlib import Path
from urllib.error import URLError

import pytest

from gpuyard import errors
from gpuyard.engines.node.kernel import processes

SOURCE = Path(__file__).parents[2] / "src"
OF_THE_SYSTEM = {
    name for name, found in vars(builtins).items() if isinstance(found, type) and issubclass(found, OSError)
}
TELLS = {"str", "repr", "format", "debug", "info", "warning", "error"}


def _names(kind: ast.expr | None) -> set[str]:
    return {each.id for each in ast.walk(kind) if isinstance(each, ast.Name)} if kind is not None else set()


def _raw(handler: ast.ExceptHandler) -> list[int]:
    """The lines of a handler that put the error into a text as it is."""
    found = []
    for each in (inner for line in handler.body for inner in ast.walk(line)):
        if isinstance(each, ast.FormattedValue):
            told = [each.value]
        elif isinstance(each, ast.Call) and (
            getattr(each.func, "attr", "") in TELLS or getattr(each.func, "id", "") in TELLS
        ):
            told = each.args
        else:
            continue
        if any([isinstance(value, ast.Name) and value.id == handler.name for value in told]):
            found.append(each.lineno)
    return found


def test_no_error_of_the_system_is_told_as_it_is() -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{line}"
        for path in sorted(SOURCE.rglob("*.py"))
        for handler in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(handler, ast.ExceptHandler) and handler.name and _names(handler.type) & OF_THE_SYSTEM
        for line in _raw(handler)
    ]
    assert [] == found, (
        "gpuyard.errors.error_text says it in words; on nodes: engines.node.kernel.processes.error_text"
    )


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (PermissionError(errno.EACCES, "Permission denied", "/x/y"), "Permission denied: '/x/y'"),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
        (
            FileNotFoundError(errno.ENOENT, "No such file or directory", b"/x"),
            "No such file or directory: '/x'",
        ),
        (OSError("the folder is locked"), "the folder is locked"),
    ],
)
def test_what_the_system_refused_and_where(error: OSError, words: str) -> None:
    assert (words, words) == (errors.error_text(error), processes.error_text(error))


def test_a_place_that_is_told_already_is_not_told_twice() -> None:
    refusal = PermissionError(errno.EACCES, "Permission denied", "/x/y")
    assert "Permission denied" == errors.error_text(refusal, Path("/x/y"))
    assert "Connection refused" == errors.error_text(
        URLError(OSError(errno.ECONNREFUSED, "Connection refused"))
    )
    assert "a b" == errors.error_text(ValueError("a\n\tb"))
    assert "Free some space, and try again." == errors.find_hint(
        OSError(errno.ENOSPC, "No space left on device")
    )
