"""The shape of the source, held by a machine: sizes, names, docstrings, circles, purity, no traces of a machine.

import-linter holds the layers and is the first net for purity; the check here is the second. It reads
the syntax tree, so it also sees an import inside a function and a clock read through `datetime`.
"""

import ast
import gc
import re
import subprocess
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "gpuyard"

FILE_LINES_MAX = 700
FUNCTION_LINES_MAX = 70
FOLDER_FILES_MAX = 20

NAMES_THAT_SAY_NOTHING = {"common", "helper", "helpers", "misc", "util", "utils"}

PURE_PACKAGES = ("model", "core", "packing", "policies", "ledger")
IMPURE_MODULES = ("time", "random", "secrets", "uuid", "numpy.random")
IMPURE_BUILTINS = {"input", "open"}
CLOCK_READS = {"now", "today", "utcnow"}

# Written in pieces, so that this file does not name what it forbids.
REGISTRY_HOSTS = (
    "pypi" + ".org",
    "python" + "hosted.org",
    "npm" + "js.org",
    "anaconda" + ".org",
    "deb.debian" + ".org",
)
TRACES = re.compile(
    "|".join(re.escape(host) for host in REGISTRY_HOSTS)
    + "|index" + "-url"
    + r"|(?<![\w.~$}*-])/" + "work/"
)  # fmt: skip


def modules() -> list[Path]:
    """Every Python file of the package, sorted."""
    found = sorted(PACKAGE.rglob("*.py"))
    assert found, f"no modules under {PACKAGE}"
    return found


_LOOKED_AT = (
    ast.FunctionDef, ast.AsyncFunctionDef, ast.If, ast.Import, ast.ImportFrom, ast.Call, ast.Attribute, ast.Constant,
    ast.Expr,
)  # fmt: skip


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """The nodes of a file that some test here looks at: to walk all trees for each of them takes long."""
    return tuple([node for node in ast.walk(tree_of(path)) if isinstance(node, _LOOKED_AT)])


@pytest.fixture(autouse=True, scope="module")
def uncollected() -> Iterator[None]:
    """A million nodes are made and kept: the garbage collector would look at all of them again and again."""
    gc.disable()
    yield
    gc.enable()
    tree_of.cache_clear()
    nodes_of.cache_clear()


def at(path: Path, line: int | None = None) -> str:
    place = path.relative_to(ROOT).as_posix()
    return place if line is None else f"{place}:{line}"


def project_files() -> list[Path]:
    """Files that git tracks or would on the next `git add`; without git, all but the hidden ones."""
    if (ROOT / ".git").exists():
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listing = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout
        paths = [ROOT / name for name in listing.split("\0") if name]
    else:
        paths = [
            path
            for path in ROOT.rglob("*")
            if not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
        ]
    return sorted(path for path in paths if path.is_file() and not path.is_symlink())


def imported_names(path: Path) -> Iterator[tuple[int, str]]:
    """Every absolute import as a dotted name; `from a import b` gives `a.b`."""
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def builtin_calls(path: Path, names: set[str]) -> Iterator[tuple[int, str]]:
    for node in nodes_of(path):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
            yield node.lineno, f"{node.func.id}()"


def clock_reads(path: Path) -> Iterator[tuple[int, str]]:
    """`datetime.now`, `date.today` and the like; datetime itself may be used for arithmetic."""
    for node in nodes_of(path):
        if isinstance(node, ast.Attribute) and node.attr in CLOCK_READS:
            owner = ast.unparse(node.value)
            if owner.rpartition(".")[2] in {"date", "datetime"}:
                yield node.lineno, f"{owner}.{node.attr}"


def circle(package: Path) -> list[str]:
    """Files that import each other, also within functions, as a way round from one of them; empty: there are none."""
    paths = {
        ".".join(path.relative_to(package.parent).with_suffix("").parts).removesuffix(".__init__"): path
        for path in sorted(package.rglob("*.py"))
    }

    def below(name: str, path: Path) -> Iterator[str]:
        for_types = {
            id(each)
            for guard in nodes_of(path)
            if isinstance(guard, ast.If) and "TYPE_CHECKING" in ast.unparse(guard.test)
            for statement in guard.body
            for each in ast.walk(statement)
        }
        room = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
        for each in nodes_of(path):
            if id(each) in for_types:
                continue
            if isinstance(each, ast.Import):
                yield from [alias.name for alias in each.names]
            elif isinstance(each, ast.ImportFrom):
                above = room[: len(room) - each.level + 1] if each.level else []
                module = ".".join([*above, *([each.module] if each.module else [])])
                for alias in each.names:
                    yield f"{module}.{alias.name}" if f"{module}.{alias.name}" in paths else module

    graph = {name: set(below(name, path)) & {*paths} for name, path in paths.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as found:
        return list(found.args[1])
    return []


def test_no_files_import_each_other() -> None:
    assert [] == circle(PACKAGE), "what both need belongs below both"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("from made import a", ["made.a", "made.b.c", "made.a"]),
        ("def late():\n    from .. import a", ["made.a", "made.b.c", "made.a"]),
        ("from . import c", ["made.b.c", "made.b.c"]),
        ("if TYPE_CHECKING:\n    from made import a", []),
    ],
)
def test_a_circle_is_seen(tmp_path: Path, text: str, found: list[str]) -> None:
    for name, content in {"a": "import os\nfrom made.b import c", "b/c": text, "b/__init__": ""}.items():
        (tmp_path / "made" / "b").mkdir(parents=True, exist_ok=True)
        (tmp_path / "made" / f"{name}.py").write_text(content)

    assert sorted(found) == sorted(circle(tmp_path / "made"))


def test_files_are_short() -> None:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in modules()}

    assert [] == [f"{at(path)}: {n} lines" for path, n in lengths.items() if n > FILE_LINES_MAX]


def test_functions_are_short() -> None:
    functions = [
        (path, node, (node.end_lineno or node.lineno) - node.lineno + 1)
        for path in modules()
        for node in nodes_of(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]

    assert [] == [
        f"{at(path, node.lineno)} {node.name}: {n} lines"
        for path, node, n in functions
        if n > FUNCTION_LINES_MAX
    ]


def test_no_package_imports_itself_for_types_alone() -> None:
    """Such an import hides a circle from the import linter, and from whoever reads."""
    guards = [
        (path, guard)
        for path in modules()
        for guard in nodes_of(path)
        if isinstance(guard, ast.If) and "TYPE_CHECKING" in ast.unparse(guard.test)
    ]
    assert guards

    assert [] == [
        f"{at(path, each.lineno)} {each.module}"
        for path, guard in guards
        for each in ast.walk(guard)
        if isinstance(each, ast.ImportFrom)
        and f"{each.module}.".startswith(f"gpuyard.{path.relative_to(PACKAGE).parts[0]}.")
    ]


def test_folders_are_small_enough_to_know_them() -> None:
    files = [
        *modules(),
        *(ROOT / "tests" / "harness").rglob("*.py"),
        *(ROOT / "tests" / "rigs").rglob("*.py"),
    ]
    counts = Counter(path.parent for path in files)

    assert [] == [f"{at(folder)}: {n} files" for folder, n in sorted(counts.items()) if n > FOLDER_FILES_MAX]


def test_module_names_say_what_is_inside() -> None:
    def vague(path: Path) -> bool:
        return bool({part.strip("_") for part in (*path.parts[:-1], path.stem)} & NAMES_THAT_SAY_NOTHING)

    assert [] == [at(path) for path in modules() if vague(path.relative_to(PACKAGE))]


def test_every_module_says_why_it_exists() -> None:
    assert [] == [at(path) for path in modules() if not ast.get_docstring(tree_of(path))]


def test_pure_packages_read_no_clock_no_randomness_and_no_files() -> None:
    def impure(name: str) -> bool:
        return any(name == module or name.startswith(f"{module}.") for module in IMPURE_MODULES)

    pure = [path for path in modules() if path.relative_to(PACKAGE).parts[0] in PURE_PACKAGES]
    found = [
        f"{at(path, line)} {what}"
        for path in pure
        for line, what in (
            *((line, name) for line, name in imported_names(path) if impure(name)),
            *builtin_calls(path, IMPURE_BUILTINS),
            *clock_reads(path),
        )
    ]

    assert [] == found


def test_pure_packages_name_no_command_and_no_option() -> None:
    """A remedy leaves the core as a value; `yard release 4` and `--gpus 2` are worded by the face."""
    command = re.compile(r"(?:^|[`(])yard [a-z]|(?:^|[ (`])--?[a-z][a-z-]*(?=[ ,)`]|$)")

    def texts(path: Path) -> Iterator[ast.Constant]:
        said = {id(node.value) for node in nodes_of(path) if isinstance(node, ast.Expr)}
        for node in nodes_of(path):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
                yield node

    assert [] == [
        f"{at(path, text.lineno)}: {text.value!r}"
        for path in modules()
        if path.relative_to(PACKAGE).parts[0] in PURE_PACKAGES
        for text in texts(path)
        if command.search(str(text.value))
    ]


def test_the_purity_contract_names_every_pure_package() -> None:
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    (contract,) = [each for each in linter["contracts"] if each["type"] == "forbidden"]
    present = [f"gpuyard.{name}" for name in PURE_PACKAGES if (PACKAGE / name).is_dir()]

    assert set(present) <= set(contract["source_modules"])


def test_only_the_command_line_prints() -> None:
    def may_print(path: Path) -> bool:
        return path.relative_to(PACKAGE).parts[0] in {"cli", "cli.py"}

    assert [] == [
        at(path, line)
        for path in modules()
        if not may_print(path)
        for line, _ in builtin_calls(path, {"print"})
    ]


def test_no_file_names_a_registry_or_one_machine() -> None:
    found = []
    for path in project_files():
        content = path.read_bytes()
        if b"\0" in content:
            continue
        text = content.decode("utf-8", errors="replace")
        found += [
            f"{at(path, text.count(chr(10), 0, match.start()) + 1)} {match.group()}"
            for match in TRACES.finditer(text)
        ]

    assert [] == found


def test_every_promise_of_security_names_a_test_that_is_there() -> None:
    promises = [
        line
        for line in (ROOT / "docs" / "security.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("| ") and not line.startswith(("| promise", "|---"))
    ]
    assert len(promises) >= 20
    lost = []
    for line in promises:
        named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", line)
        there = [f"def {test}(" in (ROOT / path).read_text(encoding="utf-8") for path, test in named]
        if not there or not all(there):
            lost.append(line)
    assert [] == lost
