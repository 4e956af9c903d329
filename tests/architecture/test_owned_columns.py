"""`Nodes` and `Tenants` are written by themselves alone: whatever else changes their columns calls a method of theirs.

The syntax tree knows no types. A value counts as one of the two by its name (`nodes`, `state.tenants`), by what its
parameter is declared as, or because it was assigned from one; a name that was assigned from one of their columns counts
as that column.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "gpuyard"
OWNERS = {"Nodes": "core/fleet/nodes.py", "Tenants": "core/quota/tenants.py"}
NAMES = {"nodes", "tenants", "_nodes", "_tenants"}
CHANGING = {
    "add", "append", "clear", "difference_update", "discard", "extend", "insert", "intersection_update", "pop",
    "popitem", "remove", "reverse", "setdefault", "sort", "symmetric_difference_update", "update",
}  # fmt: skip
CHANGING_FIRST = {"delattr", "heapify", "heappop", "heappush", "insort", "setattr"}
LOOKING = {"get", "items", "setdefault", "values"}


class Writes:
    """What a function writes to columns of `Nodes` or `Tenants`."""

    def __init__(self, function: ast.AST) -> None:
        self._parts = list(ast.walk(function))
        self._owners = set(NAMES)
        self._columns: set[str] = set()
        for part in self._parts:
            declared = part.annotation if isinstance(part, ast.arg) else None
            if declared is not None and ast.unparse(declared).strip("\"'") in OWNERS:
                self._owners.add(part.arg)  # type: ignore[attr-defined]
        known = -1
        while known != len(self._owners) + len(self._columns):
            known = len(self._owners) + len(self._columns)
            for name, value in self._assigned():
                if self._is_owner(value):
                    self._owners.add(name)
                elif self._in_column(value):
                    self._columns.add(name)

    def _assigned(self) -> Iterator[tuple[str, ast.expr]]:
        """Names, with the expression that each has its value from."""
        for part in self._parts:
            pairs: list[tuple[ast.expr, ast.expr]] = []
            if isinstance(part, ast.Assign):
                pairs = [(target, part.value) for target in part.targets]
            elif isinstance(part, ast.For):
                pairs = [(target, part.iter) for target in flat(part.target)]
            elif isinstance(part, ast.NamedExpr):
                pairs = [(part.target, part.value)]
            for target, value in pairs:
                both = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
                each = zip(target.elts, value.elts, strict=False) if both else [(target, value)]  # type: ignore[attr-defined]
                yield from [(left.id, right) for left, right in each if isinstance(left, ast.Name)]

    def _is_owner(self, value: ast.expr) -> bool:
        if isinstance(value, ast.Attribute):
            return value.attr in NAMES
        return isinstance(value, ast.Name) and value.id in self._owners

    def _in_column(self, value: ast.expr) -> bool:
        """Whether a value is a column, or was taken out of one."""
        while not isinstance(value, ast.Name):
            if isinstance(value, ast.Attribute):
                if self._is_owner(value.value):
                    return True
                value = value.value
            elif isinstance(value, ast.Subscript):
                value = value.value
            elif isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
                if value.func.attr not in LOOKING:
                    return False
                value = value.func.value
            else:
                return False
        return value.id in self._columns

    def found(self) -> Iterator[tuple[int, str]]:
        """The line and the text of every write."""
        for part in self._parts:
            targets: list[ast.expr] = []
            if isinstance(part, ast.Assign):
                targets = [each for target in part.targets for each in flat(target)]
            elif isinstance(part, ast.AugAssign | ast.AnnAssign):
                targets = [part.target]
            elif isinstance(part, ast.Delete):
                targets = part.targets
            elif isinstance(part, ast.Call):
                if isinstance(part.func, ast.Attribute) and part.func.attr in CHANGING:
                    targets = [part.func.value] if self._in_column(part.func.value) else []
                    yield from [(part.lineno, ast.unparse(part)) for _ in targets]
                    continue
                if isinstance(part.func, ast.Name) and part.func.id in CHANGING_FIRST and part.args:
                    first = part.args[0]
                    if self._is_owner(first) or self._in_column(first):
                        yield part.lineno, ast.unparse(part)
            for target in targets:
                # `row += […]` changes the list in the column; `milli += 1` only a number that came from there.
                grown = isinstance(part, ast.AugAssign) and isinstance(part.value, ast.List | ast.ListComp)
                if (isinstance(target, ast.Attribute | ast.Subscript) or grown) and self._in_column(target):
                    yield target.lineno, ast.unparse(target)


def flat(target: ast.expr) -> Iterator[ast.expr]:
    """The targets of an assignment to several names."""
    if isinstance(target, ast.Tuple | ast.List):
        for each in target.elts:
            yield from flat(each)
    else:
        yield target.value if isinstance(target, ast.Starred) else target


def writes(source: str) -> list[tuple[int, str]]:
    """Every write to columns of `Nodes` and `Tenants` in a file."""
    functions = [
        part
        for part in ast.walk(ast.parse(source))
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return sorted({write for function in functions for write in Writes(function).found()})


def test_columns_of_nodes_and_tenants_are_written_by_themselves_alone() -> None:
    owners = {PACKAGE / file for file in OWNERS.values()}
    found = []
    read = 0
    for path in sorted(PACKAGE.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        # A file that has nothing of the core has no `Nodes` of the core either.
        if path in owners or "gpuyard.core" not in source:
            continue
        read += 1
        found += [f"{path.relative_to(PACKAGE)}:{line}: {text}" for line, text in writes(source)]

    assert 100 < read
    assert [] == found


@pytest.mark.parametrize(
    "body",
    [
        "state.nodes.room_generation += 1",
        "self.tenants.period_start_ms = 0",
        "state.nodes.touched.append(3)",
        "state.nodes.touched += [3]",
        "a, state.nodes.whole_reserve = 1, 2",
        "columns = state.nodes; columns.lacks['a'] = 1",
        "free = state.nodes.cpu_free; free[3] -= 1",
        "row = state.nodes.pins.get(3, {}); row.pop(4)",
        "state.nodes.pins.setdefault(3, {})[4] = 5",
        "del state.nodes.foreign[3]",
        "for spend in state.tenants.spend: spend.committed = 0",
        "spend, x = state.tenants.spend[3], 0; spend.spent = 4",
        "touched = state.nodes.touched; touched += [3]",
        "setattr(state.nodes, 'epoch', 3)",
        "all_of_them.touched.clear()",
    ],
)
def test_a_write_is_found(body: str) -> None:
    source = f"def step(self, state, all_of_them: 'Nodes'):\n    {body}\n"

    assert [2] == sorted({line for line, _ in writes(source)})


@pytest.mark.parametrize(
    "body",
    [
        "state.nodes.take(grants)",
        "free = list(state.nodes.cpu_free); milli = state.nodes.cpu_free[3]; milli += 1",
        "state.nodes = fresh",
        "state.nodes.demand.caches.put(SLOT, index)",
        "state.moved.append(3)",
    ],
)
def test_reads_and_calls_are_not_taken_for_writes(body: str) -> None:
    assert [] == writes(f"def step(state, grants, fresh, index):\n    {body}\n")
