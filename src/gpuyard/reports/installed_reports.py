"""Which reports installed packages have, read from their metadata without loading any of them.

`importlib.metadata` does the same and takes longer to import than most commands run.
"""

import os
import sys

ENTRY_POINTS = "gpuyard.reports"


def find_installed() -> dict[str, str]:
    """By name, the place of each as `module:attribute`."""
    found: dict[str, str] = {}
    for folder in dict.fromkeys(sys.path):
        if folder.startswith(sys.base_prefix) and not folder.endswith("-packages"):
            # Python's own.
            continue
        try:
            names = os.listdir(folder or ".")
        except OSError:
            continue
        for name in sorted(names):
            if name.endswith((".dist-info", ".egg-info")):
                found = {**_said_in(os.path.join(folder, name, "entry_points.txt")), **found}
    return found


def _said_in(file: str) -> dict[str, str]:
    within, found = False, {}
    try:
        with open(file, "rb", buffering=0) as raw:
            data = raw.read()
    except OSError:
        # Most packages have none.
        return {}
    if ENTRY_POINTS.encode() not in data:
        return {}
    lines = data.decode("utf-8", "replace").splitlines()
    for line in map(str.strip, lines):
        if line.startswith("["):
            within = line == f"[{ENTRY_POINTS}]"
        elif within and "=" in line:
            name, _, where = line.partition("=")
            found[name.strip()] = where.strip()
    return found
