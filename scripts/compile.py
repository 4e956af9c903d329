"""Compile the core with mypyc into build/compiled: the same source files, the same scheduler, in machine code.

    make compiled
    PYTHONPATH=build/compiled .venv/bin/yard --version

Nothing in src/ changes, and without PYTHONPATH everything runs interpreted, as ever. It wants a C compiler and
the headers of Python. What is made is for this machine and this Python alone.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "build" / "compiled"

LEFT_OUT = {"__init__.py"}
CORE_MIN = 40
"""With fewer modules, folders of the core were not looked into, and the scheduler would run interpreted."""
ALSO = (
    "packing/fgd/index.py",
    "packing/fgd/measure.py",
    "policies/backfill/easy.py",
    "policies/placement/best_fit.py",
    "sim/ends.py",
    "sim/meter.py",
    "sim/simulate.py",
)
"""Beside the core, what every job goes through. An interpreted class may not extend one of these."""

BUILD = """
import sys
from mypyc.build import mypycify
from setuptools import setup
modules = sys.argv[1:]
setup(
    name="gpuyard",
    packages=[],
    script_args=["build_ext", "--inplace"],
    ext_modules=mypycify(modules, opt_level="2", debug_level="0"),
)
"""


def missing() -> str:
    """What is needed and not there; empty: nothing."""
    compiler = os.environ.get("CC") or (sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        return (
            f"There is no C compiler ({compiler}). Install one (Debian: apt-get install gcc), or do without."
        )
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if not header.exists():
        return f"There is no {header}. Install Python's headers (Debian: apt-get install python3-dev)."
    return ""


def core_modules(root: Path) -> list[str]:
    """Every module of the core below a folder, in whatever folder of it."""
    found = sorted((root / "gpuyard" / "core").rglob("*.py"))
    return [path.relative_to(root).as_posix() for path in found if path.name not in LEFT_OUT]


def main() -> int:
    """Copy the package, compile the copy in place."""
    trouble = missing()
    if trouble:
        print(f"compile: {trouble}", file=sys.stderr)
        return 1
    shutil.rmtree(TARGET, ignore_errors=True)
    shutil.copytree(
        ROOT / "src" / "gpuyard", TARGET / "gpuyard", ignore=shutil.ignore_patterns("__pycache__")
    )
    core = core_modules(TARGET)
    if len(core) < CORE_MIN:
        print(f"compile: the core has {len(core)} modules, not {CORE_MIN}: it is elsewhere", file=sys.stderr)
        return 1
    names = [*core, *[f"gpuyard/{name}" for name in ALSO]]
    command = [sys.executable, "-c", BUILD, *names]
    print(f"compile: {len(names)} modules; this takes a few minutes", flush=True)
    ran = subprocess.run(command, cwd=TARGET, capture_output=True, text=True, check=False)
    if ran.returncode:
        print(ran.stdout[-4000:] + ran.stderr[-4000:], file=sys.stderr)
        return 1
    shutil.rmtree(TARGET / "build", ignore_errors=True)
    print("compile: done. Run it with PYTHONPATH=build/compiled .venv/bin/yard …")
    return 0


if __name__ == "__main__":
    sys.exit(main())
