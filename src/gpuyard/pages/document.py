"""One HTML file that can be mailed, archived, printed and opened without a network: what all our pages have in common.

The file loads nothing. A content security policy forbids it to, and names its one script, if it has one, by its hash,
so that even a name that slipped through the escaping could not run.
"""

import base64
import hashlib
from collections.abc import Sequence
from importlib import resources

from gpuyard import __version__
from gpuyard.pages.markup import Markup, element, join

Facts = Sequence[tuple[str, str]]
"""What a page is about, as (name, value): trace, jobs, GPUs, time."""


def render_document(title: str, body: Markup, script: Markup | None = None) -> str:
    """The whole file."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_content_policy(script)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{title} – gpuyard"),
        element("style", read_asset("report.css")),
    )
    parts = element("body", body, element("script", script) if script else None)
    return "<!doctype html>\n" + element("html", head, parts, lang="en") + "\n"


def read_asset(name: str) -> Markup:
    """A file that becomes part of a page."""
    return Markup(resources.files(__package__).joinpath("assets", name).read_text(encoding="utf-8"))


def _content_policy(script: str | None) -> str:
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    if not script:
        return policy
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"{policy}; script-src 'sha256-{digest}'"


def render_head(kind: str, title: str, facts: Facts) -> Markup:
    """The beginning of a page: what kind it is, its title, and what it is about."""
    return element(
        "header",
        element("p", element("b", "gpuyard"), f" {kind}", class_="brand"),
        element("h1", title),
        element(
            "dl",
            *(element("div", element("dt", name), element("dd", value)) for name, value in facts),
            class_="facts",
        ),
    )


def wrap_wide_table(table: Markup) -> Markup:
    """A table that may be wider than a narrow screen, with a line that says so."""
    return join(
        element("p", "Swipe sideways: there are more columns →", class_="more"),
        element("div", table, class_="scroll", tabindex="0"),
    )


def draw_table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, total: bool = False) -> Markup:
    """A table whose first column is texts and the others figures; `total`: its last line is the sum."""
    first = element(
        "tr",
        *[
            element("th", head, scope="col", class_=None if place else "left")
            for place, head in enumerate(heads)
        ],
    )
    lines = []
    for number, row in enumerate(rows):
        cells = [element("td", cell) for cell in row[1:]]
        last = total and number == len(rows) - 1
        lines.append(
            element("tr", element("th", row[0], scope="row"), *cells, class_="total" if last else None)
        )
    return wrap_wide_table(element("table", element("thead", first), element("tbody", *lines)))


def draw_figure(key: str, heading: str, drawn: str, *content: Markup | None, wide: bool = True) -> Markup:
    """A plot with its heading; without content, a line that says so."""
    body = [each for each in content if each]
    return element(
        "figure",
        element("figcaption", element("h2", heading), element("p", drawn)),
        *(body or [element("p", "Nothing to draw.", class_="none")]),
        id=key,
        class_="wide" if wide else None,
    )


def render_foot(version: str = __version__) -> Markup:
    """The last line of a page."""
    said = f"Made by gpuyard {version}. Nothing in this file comes from or goes to a network."
    return element("p", said, class_="made")
