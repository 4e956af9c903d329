"""The compiled core decides what the interpreted one does, to the GPU. Where there is no C compiler it says so."""

import ast
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMPILE = ROOT / "scripts" / "compile.py"
COMPILED = ROOT / "build" / "compiled"

PROGRAM = """
import sys
import gpuyard, gpuyard.core.state.fold, gpuyard.core.fleet.nodes
assert gpuyard.compiled(), gpuyard.__file__
assert gpuyard.core.state.fold.__file__.endswith(".so"), gpuyard.core.state.fold.__file__
import pytest
sys.exit(pytest.main(["-q", "-n", "0", "-p", "no:cacheprovider", *sys.argv[1:]]))
"""


def test_folders_of_the_core_are_compiled_too() -> None:
    compile_ = runpy.run_path(str(COMPILE))
    found = compile_["core_modules"](ROOT / "src")
    assert compile_["CORE_MIN"] <= len(found)
    assert {"gpuyard/core/state/fold.py", "gpuyard/core/phrases.py"} <= set(found)
    assert [] == [name for name in compile_["ALSO"] if not (ROOT / "src" / "gpuyard" / name).exists()]


def test_no_field_is_an_object() -> None:
    """mypyc compiles a class with such a field, and its module cannot be imported (KeyError: 'object')."""
    compile_ = runpy.run_path(str(COMPILE))
    names = [*compile_["core_modules"](ROOT / "src"), *[f"gpuyard/{name}" for name in compile_["ALSO"]]]
    found = [
        f"{name}:{field.lineno}"
        for name in names
        for made in ast.walk(ast.parse((ROOT / "src" / name).read_text(encoding="utf-8")))
        if isinstance(made, ast.ClassDef)
        for field in made.body
        if isinstance(field, ast.AnnAssign) and ast.unparse(field.annotation) == "object"
    ]
    assert [] == found, "say what it is, more exactly"


@pytest.mark.soak
def test_the_compiled_core_decides_the_same() -> None:
    trouble = runpy.run_path(str(COMPILE))["missing"]()
    if trouble:
        pytest.skip(trouble)
    subprocess.run([sys.executable, COMPILE], check=True, timeout=3600)
    tests = [
        "tests/golden/test_decisions.py",
        "tests/property/test_same_plan.py",
        "tests/architecture/test_own_placement.py",
        "tests/unit/core",
    ]
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, *tests],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(COMPILED)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == ran.returncode, f"{ran.stdout[-3000:]}{ran.stderr[-1000:]}"


def test_what_runs_here_says_that_it_is_interpreted() -> None:
    yard = subprocess.run(
        [sys.executable, "-m", "gpuyard.cli", "--version"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "compiled" not in yard.stdout
