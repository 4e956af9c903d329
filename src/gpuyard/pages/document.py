"""One HTML file that can be mailed, archived, printed and opened without a network: what all our pages have in common.

The file loads nothing. A content security policy forbids it to, and names its one script, if it has one, by its hash,
so that even a name that slipped through the escaping could not run.
"""

import base64
import hashlib
from collections.abc import Sequence
from importlib import resources

from gpuyard import __version__
from gpuyard.pages.markup import Markup, el, join

Facts = Sequence[tuple[str, str]]
"""What a page is about, as (name, value): trace, jobs, GPUs, time."""


def document(title: str, body: Markup, script: Markup | None = None) -> str:
    """The whole file."""
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=_content_policy(script)),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("title", f"{title} – gpuyard"),
        el("style", asset("report.css")),
    )
    parts = el("body", body, el("script", script) if script else None)
    return "<!doctype html>\n" + el("html", head, parts, lang="en") + "\n"


def asset(name: str) -> Markup:
    """A file that becomes part of a page."""
    return Markup(resources.files(__package__).joinpath("assets", name).read_text(encoding="utf-8"))


def _content_policy(script: str | None) -> str:
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    if not script:
        return policy
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"{policy}; script-src 'sha256-{digest}'"


def head(kind: str, title: str, facts: Facts) -> Markup:
    """The beginning of a page: what kind it is, its title, and what it is about."""
    return el(
        "header",
        el("p", el("b", "gpuyard"), f" {kind}", class_="brand"),
        el("h1", title),
        el("dl", *(el("div", el("dt", name), el("dd", value)) for name, value in facts), class_="facts"),
    )


def scrolling(table: Markup) -> Markup:
    """A table that may be wider than a narrow screen, with a line that says so."""
    return join(
        el("p", "Swipe sideways: there are more columns →", class_="more"),
        el("div", table, class_="scroll", tabindex="0"),
    )


def table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1, total: bool = False
) -> Markup:
    """A table whose first columns are texts and the others figures; `total`: its last line is the sum."""
    first = el(
        "tr",
        *[
            el("th", head, scope="col", class_="left" if place < left else None)
            for place, head in enumerate(heads)
        ],
    )
    lines = []
    for number, row in enumerate(rows):
        cells = [
            el("td", cell, class_="left" if 0 < place < left else None)
            for place, cell in enumerate(row)
            if place
        ]
        last = total and number == len(rows) - 1
        lines.append(el("tr", el("th", row[0], scope="row"), *cells, class_="total" if last else None))
    return scrolling(el("table", el("thead", first), el("tbody", *lines)))


def figure(key: str, heading: str, drawn: str, *content: Markup | None, wide: bool = True) -> Markup:
    """A plot with its heading; without content, a line that says so."""
    body = [each for each in content if each]
    return el(
        "figure",
        el("figcaption", el("h2", heading), el("p", drawn)),
        *(body or [el("p", "Nothing to draw.", class_="none")]),
        id=key,
        class_="wide" if wide else None,
    )


def made(version: str = __version__) -> Markup:
    """The last line of a page."""
    said = f"Made by gpuyard {version}. Nothing in this file comes from or goes to a network."
    return el("p", said, class_="made")
