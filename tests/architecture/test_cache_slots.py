"""A cache has one owner: the file that declares its slot fills it, and no two slots have the same name."""

import ast
from collections import Counter
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "gpuyard"


class Found:
    """The slots that a file declares, by the name of the variable, and what it fills."""

    def __init__(self, source: str) -> None:
        tree = ast.parse(source)
        self.slots: dict[str, str] = {}
        self.untyped: list[str] = []
        for part in tree.body:
            value = getattr(part, "value", None)
            if isinstance(value, ast.Call) and ast.unparse(value.func).partition("[")[0] == "CacheSlot":
                if isinstance(part, ast.AnnAssign):
                    self.slots[ast.unparse(part.target)] = ast.unparse(value.args[0])
                else:
                    self.untyped.append(ast.unparse(part))
        calls = [part for part in ast.walk(tree) if isinstance(part, ast.Call)]
        self.filled = [
            ast.unparse(call.args[0])
            for call in calls
            if isinstance(call.func, ast.Attribute)
            and call.func.attr == "put"
            and ast.unparse(call.func.value).endswith("caches")
        ]
        self.made = len([call for call in calls if ast.unparse(call.func).partition("[")[0] == "CacheSlot"])


def test_a_cache_is_filled_by_the_file_that_declares_its_slot() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
    found = {
        path.relative_to(PACKAGE).as_posix(): Found(text)
        for path, text in texts.items()
        if "gpuyard.core.caches" in text or "caches.put(" in text
    }

    assert {"core/schedule/reserve.py", "core/schedule/running_jobs.py", "core/schedule/victims.py"} <= {
        name for name, file in found.items() if file.slots
    }
    assert [] == [
        f"{name}: {slot}" for name, file in found.items() for slot in file.filled if slot not in file.slots
    ]
    assert [] == [
        f"{name}: {slot} is not filled"
        for name, file in found.items()
        for slot in file.slots
        if slot not in file.filled
    ]
    names = Counter([each for file in found.values() for each in file.slots.values()])
    assert [] == [name for name, count in names.items() if count > 1]
    assert [] == [f"{name}: {each}" for name, file in found.items() for each in file.untyped]
    assert [] == [name for name, file in found.items() if file.made != len(file.slots)], (
        "a slot is declared once, beside its file's other constants"
    )


def test_what_is_looked_for_is_found() -> None:
    file = Found(
        'A: CacheSlot[int] = CacheSlot("a")\nB = CacheSlot("b")\ndef f(state):\n    state.caches.put(C, 1)\n'
    )

    assert ({"A": "'a'"}, ["B = CacheSlot('b')"], ["C"], 2) == (
        file.slots,
        file.untyped,
        file.filled,
        file.made,
    )
