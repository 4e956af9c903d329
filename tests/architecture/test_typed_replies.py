"""What the API sends is typed with the forms of `wire/replies`, so that mypy holds it to the description.

A mapping of anything would pass whatever is misspelt or left out in it.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import gpuyard

SOURCE = Path(gpuyard.__file__).parent
FOLDERS = (
    "control/access",
    "control/commands",
    "control/foresight",
    "control/reading",
    "control/views",
    "api/handlers",
    "api/server",
)
NO_REPLIES = {
    "rebuild_request": "the fields of a request",
    "revise_request": "the fields of a request",
    "_resources": "the fields of a request",
    "_images": "the fields of a request",
    "_topology": "a field of a request",
    "_container": "the fields of a request",
    "read_recipe": "a recipe as it is kept",
    "_lift": "one of many lifts, each with fields of its own",
    "read_values": "the parameters of a query",
    "fetched": "what an identity provider answers",
    "_checked": "what an identity provider has signed",
}
"""Functions that return mappings which no form of a reply describes."""


def sources() -> Iterator[tuple[Path, ast.Module]]:
    """The files of these folders."""
    for folder in FOLDERS:
        for path in sorted((SOURCE / folder).glob("*.py")):
            yield path.relative_to(SOURCE), ast.parse(path.read_text())


def is_loose(hint: ast.expr | None) -> bool:
    """Whether a type has a mapping with values of any type in it."""
    return hint is not None and "dict[str, Any]" in ast.unparse(hint).replace("Mapping", "dict")


def test_a_mapping_of_anything_has_no_name_among_the_views() -> None:
    found = [
        f"{path}: {ast.unparse(each)}"
        for path, tree in sources()
        for each in tree.body
        if isinstance(each, ast.Assign | ast.AnnAssign)
        and (is_loose(each.value) or (isinstance(each, ast.AnnAssign) and is_loose(each.annotation)))
    ]

    assert [] == found, "type it with a form of wire/replies"


def test_what_makes_a_reply_returns_its_form() -> None:
    found = {
        each.name: str(path)
        for path, tree in sources()
        for each in ast.walk(tree)
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and is_loose(each.returns)
    }

    assert {} == {name: path for name, path in found.items() if name not in NO_REPLIES}
    assert set() == NO_REPLIES.keys() - found.keys(), "exceptions that nobody needs any more"


def test_a_handler_names_the_form_of_its_answer() -> None:
    """mypy looks at a mapping that is written out only where its type is said."""
    found = [
        f"{path}:{each.lineno}"
        for path, tree in sources()
        for each in ast.walk(tree)
        if isinstance(each, ast.Call)
        and ast.unparse(each.func) == "answer"
        and isinstance(each.args[0], ast.Dict | ast.DictComp)
    ]

    assert [] == found, "told: SomeReply = {...}, then answer(told)"
