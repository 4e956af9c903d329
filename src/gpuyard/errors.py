"""Errors that a person can do something about.

Each carries what is wrong, where, and what to do; the command line prints it without a traceback and exits with
`exit_code`. Anything else that escapes is a defect of ours and shows its traceback. Below them: how a message quotes a
text, lists names and proposes the word that was probably meant. Every command imports this module, so it is light.
"""

from collections.abc import Iterable

_TEXT_SHOWN_MAX = 60
_NAMES_SHOWN_MAX = 20
_NAMES_COMPARED_MAX = 2000


class YardError(Exception):
    """Something outside the program is not as it should be."""

    exit_code = 1

    def __init__(self, message: str, hint: str = "", *, problem_count: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        """What to do about it, as a sentence."""
        self.problem_count = problem_count
        """How many there are, where the message has not a line for each of them."""


class BadInput(YardError):
    """A file, an option or a request that cannot be understood or served."""

    exit_code = 2


class Misuse(BadInput):
    """A command was called in a way that it does not know."""

    def __init__(self, command: str, message: str, hint: str = "") -> None:
        super().__init__(message, hint or f"'{command} --help' lists what it takes.")
        self.command = command
        """As it was typed, with `yard` before it."""


def quoted(text: str) -> str:
    """A text as it may stand in a message: on one line, and not endless."""
    if len(text) > _TEXT_SHOWN_MAX:
        text = text[: _TEXT_SHOWN_MAX - 1] + "…"
    return repr(text)


def listed(names: Iterable[str]) -> str:
    """Names as a sentence lists them, cut where the list gets too long to read."""
    every = list(names)
    shown = ", ".join(every[:_NAMES_SHOWN_MAX])
    left = len(every) - _NAMES_SHOWN_MAX
    return f"{shown} and {left} more" if left > 0 else shown


def counted(number: int | float, what: str) -> str:
    """`1 GPU`, `1,200 GPUs`, `2.5 hours`."""
    said = f"{number:,}" if isinstance(number, int) else f"{number:g}"
    return f"{said} {what}{'' if number == 1 else 's'}"


def remedy(word: str, known: Iterable[str], what: str) -> str:
    """What to write instead of an unknown word: the closest one, or else the choice."""
    names = list(known)[:_NAMES_COMPARED_MAX]
    close = _closest(word, names)
    if close:
        return "did you mean " + " or ".join(map(quoted, close)) + "?"
    return f"known {what}: {listed(names)}" if names else "add it first"


def _closest(word: str, names: list[str]) -> list[str]:
    """Names that differ only in case, else those it abbreviates (`A100`), else the most similar one."""
    lower = word.lower()
    same = [name for name in names if name.lower() == lower]
    if same:
        return same
    longer = [name for name in names if len(word) > 1 and name.lower().startswith(lower)]
    if 0 < len(longer) <= 3:
        return longer
    import difflib  # noqa: PLC0415 (one message in a thousand needs it)

    by_lower = {name.lower(): name for name in reversed(names)}
    return [by_lower[match] for match in difflib.get_close_matches(lower[:100], list(by_lower), n=1)]
