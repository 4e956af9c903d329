"""Count the files of the source that one job enters, from `yard submit` to its end as `yard show` tells it.

    python scripts/walk.py [--most 65]

A yard of its own runs one job on emulated GPUs, with every process watched: the command, the server, the process that
starts attempts and the attempt itself. A file counts when one of its functions is called between the submission and
the look at the ended job; what is only imported, or called while the yard starts, does not. A yard also looks after
itself meanwhile: files that it enters without any job, in a few seconds before the submission, are marked with `*`.
With `--most`, more files than that are exit code 1.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import gpuyard

PACKAGE = Path(gpuyard.__file__).parent
WATCH = """
def _watch():
    import os, sys, threading, time
    package, folder, now, pid_of = PACKAGE, FOLDER, time.time, os.getpid
    last, state = {}, [0]
    def entered(frame, event, _argument):
        if event != "call":
            return
        code = frame.f_code
        file = code.co_filename
        if not file.startswith(package) or not code.co_flags & 1:
            # The body of a module or of a class, which an import runs: only functions have fast locals.
            return
        at, pid = now(), pid_of()
        if state[0] != pid:
            # A fork begins anew.
            state[0] = pid
            last.clear()
        if at - last.get(file, 0) > 0.05:
            last[file] = at
            with open(f"{folder}/{pid}", "a") as lines:
                lines.write(f"{at} {file}\\n")
    threading.setprofile(entered)
    sys.setprofile(entered)
_watch()
"""
PYTHON = """#!/bin/bash
words=()
while [ $# -gt 0 ]; do
  if [ "$1" = -c ]; then words+=(-c "exec(open('WATCH').read())"$'\\n'"$2"); shift 2; break; fi
  words+=("$1"); shift
done
exec PYTHON "${words[@]}" "$@"
"""
IDLE_S = 4.0
"""Long enough for a round of most of what a yard does beside its jobs."""
_CONFIG = "version: 1\nclusters: {here: {gpus: 8 x H100, emulate: true, allow_root: true}}\n"


@contextmanager
def watched(folder: Path) -> Iterator[dict[str, str]]:
    """The environment in which every process of Python says what it enters."""
    trail = folder / "trail"
    trail.mkdir()
    watch = folder / "sitecustomize.py"
    code = WATCH.replace("PACKAGE", repr(f"{PACKAGE}/")).replace("FOLDER", repr(str(trail)))
    # Processes that the server starts do without site-packages: they are told by their code.
    shell = folder / "python"
    shell.write_text(PYTHON.replace("WATCH", str(folder / "watch.py")).replace("PYTHON", sys.executable))
    shell.chmod(0o755)
    (folder / "watch.py").write_text(code)
    watch.write_text(f"{code}\nimport sys\nsys.executable = {str(shell)!r}\n")
    yield {
        **{name: value for name, value in os.environ.items() if not name.startswith("YARD_")},
        "PYTHONPATH": str(folder),
        "YARD_DATA": str(folder / "yard"),
    }


def entered(folder: Path, since_s: float, until_s: float = math.inf) -> set[str]:
    """The files that some process entered between two moments."""
    found = set()
    for each in (folder / "trail").iterdir():
        for line in each.read_text().splitlines():
            at, _, file = line.partition(" ")
            if since_s <= float(at) < until_s:
                found.add(Path(file).relative_to(PACKAGE).as_posix())
    return found


def walk() -> tuple[list[str], set[str]]:
    """The files, sorted, and those that a yard without a job enters too."""
    with tempfile.TemporaryDirectory(prefix="yard-walk-") as name, watched(Path(name)) as environment:
        folder = Path(name)

        def yard(*words: str) -> str:
            line = [sys.executable, "-m", "gpuyard.cli", *words]
            return subprocess.run(line, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout

        config = folder / "yard.yaml"
        config.write_text(_CONFIG)
        yard("up", "-d", "--port", "0", "--config", str(config))
        try:
            up_s = time.time()
            time.sleep(IDLE_S)
            began_s = time.time()
            job = yard("submit", "-g", "2", "--", "touch", str(folder / "ran")).strip()
            for _ in range(100):
                if (folder / "ran").exists():
                    break
                time.sleep(0.1)
            # Its end is in the log a moment after.
            time.sleep(1)
            state = json.loads(yard("show", job, "-o", "json"))["state"]
            assert state == "COMPLETED", state
            return sorted(entered(folder, began_s)), entered(folder, up_s, began_s)
        finally:
            yard("down", "--jobs")


def main() -> int:
    """Walk, print, compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--most", type=int)
    options = parser.parse_args()
    found, idle = walk()
    print("\n".join([f"{'*' if file in idle else ' '} {file}" for file in found]))
    print(f"{len(found)} files, of which {len(idle & set(found))} are entered without a job too")
    return 1 if options.most is not None and len(found) > options.most else 0


if __name__ == "__main__":
    sys.exit(main())
