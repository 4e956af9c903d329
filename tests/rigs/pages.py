"""Pages of docs/how-to as they are read and typed: commands with what the page says that they print."""

import re
from collections.abc import Mapping
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "how-to"
GAP = "…"


def steps(page: str, section: str = "") -> list[tuple[str, list[str]]]:
    """Commands of a page, or of one section of it, with the lines that follow them."""
    text = (FOLDER / page).read_text(encoding="utf-8")
    if section:
        text = re.split(r"^## ", text.split(f"\n## {section}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]
    found: list[tuple[str, list[str]]] = []
    for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            elif line.strip() not in ("", GAP):
                found[-1][1].append(line)
    assert found, f"{page} has no commands in {section or 'it'}"
    return found


def filled(line: str, places: Mapping[str, str]) -> str:
    """A line with the places of this machine instead of those of the page, the longest first."""
    for name in sorted(places, key=len, reverse=True):
        line = line.replace(name, places[name])
    return line


def shape(line: str) -> str:
    """A line without what differs from day to day: figures, and whether there is one of something or are several."""
    line = re.sub(r"\d[\d,.:]*", "#", line)
    line = re.sub(r"\b(event|job|text|version|token)s\b", r"\1", line)
    return re.sub(r"\s+", " ", line).strip()
