"""Engines take one road (ADR 42): nothing but the registry knows one by its name, and Slurm's answers are read once.

Both rules have exceptions, in numbers that may only go down: what is one too many is refused, and what is one too few
is to be lowered here.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from gpuyard.engines.registry import _OWN_KINDS
from gpuyard.engines.slurm.site.accounting import JOB_FIELDS
from gpuyard.engines.slurm.site.accounting import QUEUE_FIELDS as SEEN_FIELDS
from gpuyard.engines.slurm.words.queue import PAST_FIELDS, QUEUE_FIELDS

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "gpuyard"
OWN = ("local", "slurm")
FOLDERS = tuple(f"engines/{name}/" for name in OWN)
REGISTRY = "engines/registry.py"
LANGUAGE = ("cli/slurm/", "config/slurm/", "intake/")
"""What people type in Slurm's words, and a site's file in them: names of the language, not of the engine. Imports of
an engine's folder count there as anywhere."""

EXCEPTIONS = {
    # A site of Slurm is read into a file and a trace, and written from a file.
    "cli/slurm/admin/exporting.py": 4,
    "cli/slurm/admin/importing.py": 10,
    "config/servers.py": 1,
    "config/slurm/exporting.py": 2,
    "config/slurm/exporting_accounts.py": 2,
    "config/slurm/importing.py": 7,
    "config/slurm/importing_policy.py": 4,
    "config/slurm/importing_tenants.py": 6,
    "config/slurm/joining.py": 1,
    "sim/slurm_history.py": 3,
    "sim/traces/sacct.py": 2,
    # Commands for people who look after a Slurm, and what people type in its words.
    "cli/__init__.py": 3,
    "cli/commands/submit/convert.py": 2,
    "cli/commands/yard/collect.py": 10,
    "cli/completing.py": 1,
    "cli/line/commands.py": 1,
    "cli/slurm/admin/doctor.py": 5,
    "cli/slurm/admin/site_options.py": 3,
    # `srun` within a job of this machine.
    "cli/slurm/commands/stepping.py": 4,
    "cli/slurm/language/step_asks.py": 1,
    # A job may have Slurm's commands on its PATH.
    "api/messages/schemas.py": 1,
    "engines/contract.py": 1,
    "model/stand_in.py": 1,
    # What only the engine of this machine has: witness, collector, a process of its own.
    "control/fleet.py": 12,
    "control/notes.py": 2,
    "control/open_engines.py": 3,
    "control/upkeep/watching.py": 3,
    # The runner inside a job of Slurm.
    "engines/node/slurm/allotted.py": 2,
    "engines/node/slurm/head.py": 2,
}
"""Names of engines by file."""

READERS = {"config/slurm/importing_tenants.py": 1}
"""Words of Slurm's answers, looked up outside its engine, by file."""


@cache
def trees() -> dict[str, ast.Module]:
    return {
        path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(PACKAGE.rglob("*.py"))
    }


_MODULE = re.compile(rf"gpuyard\.engines\.({'|'.join(OWN)})(\.|$)")
_NAME = re.compile(r"(^|_)slurm(_|$)|Slurm|SLURM|(^|_)LOCAL(_|$)|Local(Engine|Cluster)")
"""`slurm` as a word of a name; `local` only where a class or a constant has it: sockets and times are local too."""


def names_of_engines(path: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Names of engines whose folder the file is not in."""
    others = [name for name in OWN if not path.startswith(f"engines/{name}/")]
    pieces = _of_sentences(tree)
    for node in ast.walk(tree):
        for line, name, is_import in _named(node) if id(node) not in pieces else ():
            found = _MODULE.match(name)
            if found is not None:
                if found[1] in others:
                    yield line, name
            elif not is_import and not path.startswith((*FOLDERS, *LANGUAGE)):
                yield line, name


def _of_sentences(tree: ast.Module) -> set[int]:
    """Pieces of texts that are put together: `local{number}` names nothing."""
    return {id(each) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for each in node.values}


def _named(node: ast.AST) -> Iterator[tuple[int, str, bool]]:
    if isinstance(node, ast.ImportFrom):
        modules = {f"{node.module}.{alias.name}" for alias in node.names} | {node.module or ""}
        yield from [(node.lineno, each, True) for each in sorted(modules) if _MODULE.match(each)][:1]
    elif isinstance(node, ast.Import):
        yield from [(node.lineno, alias.name, True) for alias in node.names if _MODULE.match(alias.name)]
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        if node.value in OWN or _MODULE.match(node.value):
            yield node.lineno, node.value, False
    elif isinstance(node, ast.Attribute | ast.Name | ast.FunctionDef | ast.ClassDef | ast.arg):
        name = (
            node.attr
            if isinstance(node, ast.Attribute)
            else node.id
            if isinstance(node, ast.Name)
            else node.arg
            if isinstance(node, ast.arg)
            else node.name
        )
        if _NAME.search(name):
            yield node.lineno, name, False


_SHARED = {
    "Name", "State", "User", "Account", "Reason", "Start", "End", "Submit", "Comment", "Partition", "QOS", "exit_code",
}  # fmt: skip
"""Words that other programs have too."""
_SCONTROL = (
    "NodeName", "PartitionName", "ReservationName", "ClusterName", "CfgTRES", "RealMemory", "CPUTot", "CPUEfctv",
    "Gres", "ActiveFeatures", "AvailableFeatures", "PriorityTier", "gres/gpu",
)  # fmt: skip
_COLUMNS = {*JOB_FIELDS, *SEEN_FIELDS, *QUEUE_FIELDS, *PAST_FIELDS} - _SHARED
WORDS = {*_SCONTROL, *_COLUMNS, "jobidraw", "alloctres", "reqtres", "timelimitraw", "elapsedraw"}
"""Words of what Slurm's commands print; some of sacct's columns in lower case too, as a header may have them."""
_LOOKS = {
    "get",
    "startswith",
    "endswith",
    "partition",
    "removeprefix",
    "split",
    "index",
    "find",
    "compile",
    "findall",
}


def readers_of_answers(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Where a word of Slurm's answers is looked up in something."""
    for node in ast.walk(tree):
        asked: list[ast.expr] = []
        if isinstance(node, ast.Subscript):
            asked = [node.slice]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _LOOKS:
            asked = node.args
        for each in asked:
            text = each.value if isinstance(each, ast.Constant) else None
            if isinstance(text, str) and text.rstrip("=:") in WORDS:
                yield node.lineno, text


def _counted(found: dict[str, list[tuple[int, str]]], allowed: dict[str, int], what: str) -> list[str]:
    told = []
    for path in sorted({*found, *allowed}):
        lines, most = found.get(path, []), allowed.get(path, 0)
        if len(lines) > most:
            named = ", ".join([f"{line} {name}" for line, name in lines])
            told.append(f"{path}: {len(lines)} {what}, and {most} are allowed: {named}")
        elif len(lines) < most:
            told.append(f"{path}: only {len(lines)} {what}: lower its number to that")
    return told


def test_only_the_registry_knows_engines_by_their_names() -> None:
    found = {
        path: each
        for path, tree in trees().items()
        if path != REGISTRY and (each := list(names_of_engines(path, tree)))
    }
    assert [] == _counted(found, EXCEPTIONS, "names of engines")


def test_slurms_answers_are_read_below_its_engine() -> None:
    found = {
        path: each
        for path, tree in trees().items()
        if not path.startswith("engines/slurm/") and (each := list(readers_of_answers(tree)))
    }
    assert [] == _counted(found, READERS, "words of Slurm's answers")


def test_the_rules_see_what_they_forbid() -> None:
    wrong = ast.parse(
        "from gpuyard.engines.slurm.observed import ObservedSlurm\n"
        "if cluster.engine == 'slurm' or isinstance(engine, LocalEngine):\n"
        "    cluster.slurm.mode\n"
    )
    told = [name for _, name in names_of_engines("control/loop/x.py", wrong)]
    assert ["gpuyard.engines.slurm.observed", "LocalEngine", "slurm", "slurm"] == sorted(told, key=str.lower)
    assert [] == [*names_of_engines("engines/local/x.py", ast.parse("local_socket = place.local\n"))]
    second = ast.parse("def nodes(row):\n    return row['NodeName'], row.get('gres/gpu'), row['state']\n")
    assert ["NodeName", "gres/gpu"] == [word for _, word in readers_of_answers(second)]


def test_the_two_folders_are_those_of_the_registry() -> None:
    assert set(OWN) == _OWN_KINDS.keys()
    assert Counter(OWN) == Counter(
        path.name for path in (PACKAGE / "engines").iterdir() if (path / "kind.py").is_file()
    )
