"""HTML that cannot be broken by the names in it.

Tenants, policies and titles come from files that others wrote. Text becomes part of the page only through `element`,
which escapes everything that is not already `Markup`; forgetting to escape is thus impossible, not just forbidden.
"""

from html import escape

VOID = {"meta", "br"}


class Markup(str):
    """Finished HTML. Everything else is text."""

    __slots__ = ()


def escape_text(value: str) -> Markup:
    """Text as HTML. Control characters have no place in a page and are replaced."""
    if isinstance(value, Markup):
        return value
    clean = "".join(char if char.isprintable() or char in "\n\t\u00a0" else "\ufffd" for char in value)
    return Markup(escape(clean, quote=True))


def element(tag: str, *children: str | None, **attrs: str | float | None) -> Markup:
    """An element. `class_` is written as class, `data_x` as data-x; attributes that are None are left out."""
    written = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape_text(str(value))}"'
        for name, value in attrs.items()
        if value is not None
    )
    if tag in VOID:
        return Markup(f"<{tag}{written}>")
    inner = "".join(escape_text(child) for child in children if child is not None)
    return Markup(f"<{tag}{written}>{inner}</{tag}>")


def join(*parts: str | None, between: str = "") -> Markup:
    """Parts one after the other."""
    return Markup(escape_text(between).join(escape_text(part) for part in parts if part is not None))
