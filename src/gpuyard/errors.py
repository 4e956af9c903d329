"""Errors that a person can do something about.

Each carries what is wrong, where, and what to do; the command line prints it without a traceback and exits with
`exit_code`. Anything else that escapes is a defect of ours and shows its traceback. Below them: how a message quotes a
text, lists names and proposes the word that was probably meant, and how a log has a text of somebody else. Every
command imports this module, so it is light.
"""

import errno
from collections.abc import Iterable

_TEXT_SHOWN_MAX = 60
_NAMES_SHOWN_MAX = 20
_NAMES_COMPARED_MAX = 2000
_NEAR = 0.75
"""How alike two words are that do not even begin alike, to be taken for one another."""
_SHORT, _NEAR_IF_SHORT = 4, 0.65
"""Words of so few letters that begin alike have to be this alike: `gpus` has three letters of `groups`."""


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

    def __reduce__(self) -> tuple[object, ...]:
        # As it is, whatever its class is made from: another process raises it again.
        return _as_it_was, (type(self), self.args), self.__dict__


def _as_it_was(kind: type[YardError], args: tuple[object, ...]) -> YardError:
    return kind.__new__(kind, *args)


class BadInput(YardError):
    """A file, an option or a request that cannot be understood or served."""

    exit_code = 2


class Misuse(BadInput):
    """A command was called in a way that it does not know."""

    def __init__(self, command: str, message: str, hint: str = "") -> None:
        super().__init__(message, hint or f"'{command} --help' lists what it takes.")
        self.command = command
        """As it was typed, with `yard` before it."""


def error_text(error: BaseException, told: object = "") -> str:
    """An error as a message has it: of the system what it refused, and where, unless that is `told` already.

    `engines/node/kernel/processes.py` has the same for what runs on the nodes of a cluster.
    """
    if isinstance(error, OSError):
        inner = getattr(error, "reason", None)
        if isinstance(inner, BaseException):
            return error_text(inner, told)
        if error.strerror:
            place = "" if error.filename in (None, "", told, str(told)) else f": {_text(error.filename)!r}"
            return f"{error.strerror}{place}"
    return " ".join(str(error).split()) or type(error).__name__


_HINTS = {
    errno.ENOSPC: "Free some space, and try again.",
    errno.EDQUOT: "Remove some files of yours, or ask for a larger quota, and try again.",
    errno.EACCES: "Its owner, or root, can give you the right to it.",
    errno.EROFS: "Name a place that can be written, or make it writable.",
    errno.EMFILE: "Raise the limit of open files (`ulimit -n`), and try again.",
}


def find_hint(error: OSError) -> str:
    """What to do about what the system refused; empty: its words say it."""
    return _HINTS.get(error.errno or 0, "")


def _text(name: object) -> str:
    return name.decode(errors="replace") if isinstance(name, bytes) else str(name)


def quote(text: str) -> str:
    """A text as it may stand in a message: on one line, and not endless."""
    if len(text) > _TEXT_SHOWN_MAX:
        text = text[: _TEXT_SHOWN_MAX - 1] + "…"
    return repr(text)


def printable_text(text: str, most: int) -> str:
    """A text as it may stand in a line of a log: of printable characters, the others escaped, and cut in the middle."""
    if len(text) > most:
        text = f"{text[: most // 2]} … {len(text):,} characters … {text[-most // 4 :]}"
    if text.isprintable():
        return text
    return "".join([char if char.isprintable() else _escaped(ord(char)) for char in text])


def _escaped(code: int) -> str:
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def names_text(names: Iterable[str], most: int = _NAMES_SHOWN_MAX) -> str:
    """Names as a sentence lists them, cut where the list gets too long to read."""
    every = list(names)
    shown = ", ".join(every[:most])
    left = len(every) - most
    return f"{shown} and {left} more" if left > 0 else shown


def count_text(number: int | float, what: str) -> str:
    """`1 GPU`, `1,200 GPUs`, `2.5 hours`."""
    said = f"{number:,}" if isinstance(number, int) else f"{number:g}"
    return f"{said} {what}{'' if number == 1 else 's'}"


def suggest(word: str, known: Iterable[str], what: str) -> str:
    """What to write instead of an unknown word: the closest one, or else the choice."""
    names = list(known)[:_NAMES_COMPARED_MAX]
    close = did_you_mean(word, names)
    if close:
        return close
    return f"known {what}: {names_text(names)}" if names else "add it first"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The question for the known word that is closest to an unknown one; empty: none is close."""
    close = find_closest(word, known)
    return "did you mean " + " or ".join(map(quote, close)) + "?" if close else ""


def suggest_end(word: str, known: Iterable[str]) -> str:
    """The same as the end of a sentence that says otherwise what is known."""
    close = did_you_mean(word, known)
    return f"; {close}" if close else ""


def find_closest(word: str, known: Iterable[str]) -> list[str]:
    """Names that differ only in case, else those it abbreviates (`A100`), else the most similar one."""
    names, lower = list(known)[:_NAMES_COMPARED_MAX], word.lower()
    if lower.startswith("--"):
        # Dashes that every option begins with make no two of them alike.
        return [
            f"--{name}" for name in find_closest(word[2:], [name[2:] for name in names if name[:2] == "--"])
        ]
    same = [name for name in names if name.lower() == lower]
    if same:
        return same
    longer = [name for name in names if len(word) > 1 and name.lower().startswith(lower)]
    if 0 < len(longer) <= 3:
        return longer
    import difflib  # noqa: PLC0415 (one message in a thousand needs it)

    by_lower, short = {name.lower(): name for name in reversed(names)}, lower[:100]
    for match in difflib.get_close_matches(short, list(by_lower), n=3):
        # A short word has most of its letters in many a longer one, in their order: `user` in `clusters`.
        needed = _NEAR if match[0] != short[0] else _NEAR_IF_SHORT if len(short) <= _SHORT else 0
        if difflib.SequenceMatcher(None, match, short).ratio() >= needed:
            return [by_lower[match]]
    return []
