"""How often tests put something else in the place of one of our own names: less and less.

A test that patches a name of gpuyard knows how the code is made inside, and holds it there. What a test needs to be
another comes in as an argument or as a field: a clock, a limit, a folder, a launcher. Patching what is not ours (`os`,
`time`, `sys.stdin`) stays a way to make a machine ill.

Counted by the syntax tree: every `setattr` of a `MonkeyPatch`, whatever its variable is called, every `patch` of
`unittest.mock`, and every value that is set on something imported, unless the target comes from the standard library
or another package. A target of `setattr` that is a fixture or a local variable counts as ours.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

OUR_NAMES_PATCHED_MAX = 51
"""It goes down only. At 85ca79a6, counted the same way, there were 207."""

OUR_ROOTS = ("src", "tests", "benchmarks", "scripts", "tests/unit", "tests/e2e")
"""Folders that imports of ours start from."""


def patched_names(root: Path) -> list[str]:
    """Where tests patch a name of ours, as `path:line target`."""
    return [
        f"{path.relative_to(root).as_posix()}:{line} {target}"
        for path in sorted((root / "tests").rglob("*.py"))
        for line, target in _patched_in(root, path)
    ]


def _patched_in(root: Path, path: Path) -> Iterator[tuple[int, str]]:
    tree = _tree(path)
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.Call) and _patches(node) and _is_ours(root, path, node.args[0]):
            yield node.lineno, ast.unparse(node)[:120]
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Attribute) and _is_imported(root, path, target.value):
                    yield node.lineno, ast.unparse(node)[:120]


def _patches(call: ast.Call) -> bool:
    """Whether it is `x.setattr(…)`, `patch(…)` or `patch.object(…)`."""
    called = ast.unparse(call.func)
    return bool(call.args) and (
        called.endswith((".setattr", "patch.object")) or called in ("patch", "mock.patch")
    )


def _is_imported(root: Path, path: Path, target: ast.expr) -> bool:
    """Whether it is a name that the file imports, or in one, and of ours."""
    return ast.unparse(target).partition(".")[0] in _imports(path) and _is_ours(root, path, target)


def _is_ours(root: Path, path: Path, target: ast.expr) -> bool:
    if isinstance(target, ast.Constant) and isinstance(target.value, str):
        return _owner_is_ours(root, target.value.rpartition(".")[0])
    if isinstance(target, ast.Call):  # type(x), getattr(x, name)
        target = target.args[0]
    names = ast.unparse(target).split(".")
    origin = _imports(path).get(names[0])
    return origin is None or _owner_is_ours(root, ".".join([origin, *names[1:]]))


def _owner_is_ours(root: Path, dotted: str) -> bool:
    """Follows a name through the modules of ours that it is imported by, to where it comes from."""
    names = dotted.split(".")
    for length in range(len(names), 0, -1):
        module = _module(root, names[:length])
        if module is not None:
            rest = names[length:]
            origin = _imports(module).get(rest[0]) if rest else None
            return origin is None or _owner_is_ours(root, ".".join([origin, *rest[1:]]))
    return (_module(root, names[:1]) or next(_folders(root, names[:1]), None)) is not None


def _folders(root: Path, names: list[str]) -> Iterator[Path]:
    return (found for each in OUR_ROOTS if (found := root.joinpath(each, *names)).is_dir())


def _module(root: Path, names: list[str]) -> Path | None:
    for each in OUR_ROOTS:
        base = root.joinpath(each, *names)
        for found in (base.with_suffix(".py"), base / "__init__.py"):
            if found.is_file():
                return found
    return None


@cache
def _imports(path: Path) -> dict[str, str]:
    """Names that a file imports, at its top or within functions, and what each stands for."""
    found: dict[str, str] = {}
    tree = _tree(path)
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.Import):
            for each in node.names:
                found[each.asname or each.name.partition(".")[0]] = (
                    each.name if each.asname else each.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
    return found


@cache
def _tree(path: Path) -> ast.Module | None:
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    except SyntaxError:
        return None


def test_no_more_names_of_ours_are_patched_than_before() -> None:
    patched = patched_names(ROOT)
    assert len(patched) <= OUR_NAMES_PATCHED_MAX, "\n".join(patched)


SAMPLE = """
import os
import time as clock
from gpuyard import inner
from gpuyard.inner import Thing, os as theirs
from unittest.mock import patch

def test(monkeypatch, server):
    monkeypatch.setattr(inner, "LIMIT", 1)
    monkeypatch.setattr("gpuyard.inner.LIMIT", 1)
    monkeypatch.setattr(Thing, "method", None)
    monkeypatch.setattr(type(server), "method", None)
    monkeypatch.setattr(server, "method", None)
    inner.LIMIT = 1
    Thing.method = None
    patch.object(inner, "LIMIT", 1)
    monkeypatch.setattr(inner.os, "getpid", int)
    monkeypatch.setattr("gpuyard.inner.os.getpid", int)
    monkeypatch.setattr(theirs, "getpid", int)
    monkeypatch.setattr(clock, "time", int)
    monkeypatch.setattr("os.getpid", int)
    server.field = 1
    os.environ = {}
"""


def test_what_is_ours_is_told_from_what_is_not(tmp_path: Path) -> None:
    for name, text in (
        ("src/gpuyard/__init__.py", ""),
        ("src/gpuyard/inner.py", "import os\nLIMIT = 2\nclass Thing: ...\n"),
        ("tests/test_it.py", SAMPLE),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")

    lines = [int(each.split(":")[1].split()[0]) for each in patched_names(tmp_path)]
    assert list(range(9, 17)) == sorted(lines)
