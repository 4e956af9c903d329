"""Prints the part of the lock that some extras of gpuyard need, with its hashes: `python3 scripts/locked.py ui`.

There is one lock, requirements/constraints.txt. What depends on what stands in its own comments ("via"), and the first
names in pyproject.toml: so a part of it is never older than the whole. With
`--and NAME...` these, too; with `--only NAME...` these alone.
"""

import argparse
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements" / "constraints.txt"
US = "gpuyard"


def named(requirement: str) -> str:
    """The name in a requirement, as the lock spells it: `psycopg[binary]>=3.2` is psycopg."""
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found is not None, requirement
    return re.sub(r"[-_.]+", "-", found[0]).lower()


def blocks(text: str) -> dict[str, str]:
    """Each package of the lock with its lines; some have a release for each Python."""
    found: dict[str, str] = {}
    for block in re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE)[1:]:
        found[named(block)] = found.get(named(block), "") + block
    return found


def wanted_by(block: str) -> list[str]:
    """The packages that need this one, by the comment below it."""
    comments = [line.strip(" #").removeprefix("via") for line in block.splitlines() if "#" in line]
    return [named(line) for each in comments if (line := each.strip())]


def part(text: str, names: set[str]) -> str:
    """These packages and all that they need."""
    lock = blocks(text)
    missing = names - set(lock)
    if missing:
        raise SystemExit(f"{LOCK.name} lacks {', '.join(sorted(missing))}: run `make lock`")
    taken = set(names)
    while True:
        more = {
            name
            for name, block in lock.items()
            if name not in taken and not taken.isdisjoint(set(wanted_by(block)) - {US})
        }
        if not more:
            return "".join([block for name, block in lock.items() if name in taken])
        taken |= more


def main() -> None:
    parser = argparse.ArgumentParser(description="The part of the lock that extras of gpuyard need.")
    parser.add_argument("extras", nargs="*", metavar="EXTRA")
    parser.add_argument("--only", nargs="*", metavar="NAME", help="only these packages and what they need")
    parser.add_argument("--and", nargs="*", default=[], metavar="NAME", dest="also", help="these, too")
    given = parser.parse_args()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = given.only
    if names is None:
        extras = [each for extra in given.extras for each in project["optional-dependencies"][extra]]
        names = [*project["dependencies"], *extras, *given.also]
    sys.stdout.write(part(LOCK.read_text(encoding="utf-8"), {named(each) for each in names}))


if __name__ == "__main__":
    main()
