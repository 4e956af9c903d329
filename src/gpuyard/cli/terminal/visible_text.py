"""Makes text that another user chose fit for a terminal: control sequences are shown and not sent.

A job's reason, its paths and its command line hold what their owner put there: escape sequences that move the cursor
or rename the window, line breaks that forge a line, marks that turn the direction of what follows. Every command sends
such text through here. A job's own output is passed on as it is, like any program's.
"""

_BLANKS = "\u00a0\u2007\u202f"
"""Non-breaking blanks: not printable for Python, and harmless."""


def visible_text(text: str) -> str:
    """The text as one line in which nothing is hidden: `\\x1b[2J` for the sequence that clears a screen."""
    if text.isprintable():
        return text
    return "".join(
        [
            char if char.isprintable() or char in _BLANKS else char.encode("unicode_escape").decode()
            for char in text
        ]
    )


def visible_lines(text: str) -> str:
    """The same for words of ours over several lines."""
    return text if text.isprintable() else "\n".join([visible_text(line) for line in text.split("\n")])
