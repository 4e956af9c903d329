"""What may stand at a place of a command line: the answer to a shell's Tab.

Whatever goes wrong, a Tab must not hang, print or fail: the server is asked with a short timeout, and without an
answer there is nothing to offer.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from gpuyard.cli.line.commands import ENTRIES, list_sections, resolve_alias

if TYPE_CHECKING:
    from gpuyard.api.client import Client

FILES = ":files"
"""Tells the script to offer files."""
_ASK_S = 1.0
_MOST = 1000
_STATES = {
    "live": ("PENDING", "RUNNING", "SUSPENDED"),
    "ended": ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"),
}
_ALSO_ENDED = ("show", "logs", "why")
"""Commands that are as often about jobs that have ended."""


class Offer(NamedTuple):
    """A word that may stand there, and what it is."""

    word: str
    help: str = ""


class Piece(NamedTuple):
    """An option or an argument of a command."""

    names: tuple[str, ...]
    """Empty: an argument."""
    value: bool
    """Whether a value follows."""
    metavar: str
    choices: tuple[str, ...]
    help: str


def run(words: Sequence[str]) -> int:
    """`yard _complete SHELL PLACE WORDS…`: print what may stand at that place, one per line."""
    shell, place, *line = words if len(words) >= 2 else ("", "0")
    before, current = _cut(line, int(place) if place.isdecimal() else 0)
    offers = [
        each for each in offered(before, current) if each.word == FILES or each.word.startswith(current)
    ]
    for offer in offers[:_MOST]:
        print(_line(offer, shell))
    return 0


def _cut(line: Sequence[str], place: int) -> tuple[list[str], str]:
    """The words before the place, without `yard` itself, and the text there so far. Bash cuts words at `=`."""
    before = list(line[1:place])
    current = line[place] if 0 < place < len(line) else ""
    if current == "=":
        current = ""
    elif len(before) > 1 and before[-1] == "=":
        before.pop()
    return before, current


def _line(offer: Offer, shell: str) -> str:
    word, text = offer
    if word == FILES or not text or shell == "bash":
        return word if shell != "zsh" or word == FILES else word.replace(":", "\\:")
    if shell == "zsh":
        return word.replace(":", "\\:") + ":" + text.replace(":", "\\:")
    return f"{word}\t{text}"


def offered(before: Sequence[str], current: str) -> list[Offer]:
    """Words that may follow those before; files where the word may be a file."""
    if not before:
        more = [Offer("--help"), Offer("--version")] if current.startswith("-") else []
        return more or [
            Offer(name, each.help) for part in list_sections().values() for name, each in part.items()
        ]
    name, *rest = resolve_alias(before)
    if name not in ENTRIES:
        return []
    found = _pieces(name, rest)
    if isinstance(found, list):
        return found
    pieces, rest = found
    return _at(name, pieces, rest, current)


def _at(name: str, pieces: Sequence[Piece], rest: Sequence[str], current: str) -> list[Offer]:
    options = {word: piece for piece in pieces for word in piece.names}
    argument = next((piece for piece in pieces if not piece.names), None)
    waits: Piece | None = None
    loose = 0
    for word in rest:
        if waits is not None:
            waits = None
        elif word == "--" or (ENTRIES[name].words and not word.startswith("-")):
            # From here on it is the command line of the job.
            return [Offer(FILES)]
        elif word.startswith("-"):
            piece = options.get(word)
            waits = piece if piece is not None and piece.value else None
        else:
            loose += 1
    if waits is not None:
        return _values(name, waits)
    option, sign, _part = current.partition("=")
    if sign and option in options:
        return [Offer(f"{option}={each.word}", each.help) for each in _values(name, options[option])]
    if current.startswith("-"):
        return [Offer(word, piece.help) for word, piece in options.items()] + [Offer("--help")]
    if argument is None or (loose and not argument.metavar.endswith("...")):
        return []
    return _values(name, argument)


def _pieces(name: str, rest: list[str]) -> tuple[list[Piece], list[str]] | list[Offer]:
    """What a command takes, and the words that are left for it; offers, where a command of a group is yet to come."""
    entry = ENTRIES[name]
    if name == "slurm":
        from gpuyard.cli.slurm.face import COMMANDS
        from gpuyard.engines.machine.job_commands import PROGRAMS

        return [Offer(FILES)] if rest else [Offer(each) for each in (*PROGRAMS, *COMMANDS)]
    while entry.below:
        word = next((each for each in rest if not each.startswith("-")), None)
        if word is None:
            return [Offer(each, below.help) for each, below in entry.below.items()]
        if word not in entry.below:
            return []
        rest = rest[rest.index(word) + 1 :]
        name, entry = word, entry.below[word]
    from gpuyard.cli.line.options import Parameter, list_parameters

    found = []
    for each in list_parameters(entry.function(name)):
        if isinstance(each, Parameter):
            on, off = each.on_off
            piece = (each.kind is not bool, each.says.metavar or "", each.choices, each.says.help)
            found.append(Piece((*on, *off), *piece))
    return found, rest


def _values(name: str, piece: Piece) -> list[Offer]:
    """What may be the value of an option, or an argument."""
    if piece.choices:
        return [Offer(each) for each in piece.choices]
    metavar = piece.metavar.strip("[].|").upper()
    if metavar.endswith("JOB"):
        return _asked(_ended_too if name in _ALSO_ENDED else _live)
    if metavar == "NODE":
        return _asked(lambda yard: [Offer(node["name"], node["state"]) for node in yard.nodes()])
    if metavar == "PROJECTION":
        return _asked(lambda yard: _names(each["name"] for each in yard.projections()))
    if metavar == "STATE":
        states = _STATES["live"] if name in ("queue", "cancel") else _STATES["ended"]
        return [Offer(each) for each in states]
    if metavar == "MODEL":
        return _asked(lambda yard: _names(node["gpu_model"] for node in yard.nodes()))
    if "--tenant" in piece.names:
        return _asked(lambda yard: _names(each["tenant"] for each in yard.overview()["tenants"]))
    if "--class" in piece.names or "--user" in piece.names:
        column = 5 if "--class" in piece.names else 4
        return _asked(lambda yard: _names(row[column] for row in yard.queue(limit=_MOST)["rows"]))
    files = not piece.names or metavar in ("FILE", "DIR", "PATH")
    return [Offer(FILES)] if files else []


def _names(found: Iterable[str]) -> list[Offer]:
    return [Offer(each) for each in dict.fromkeys(found) if each]


def _live(yard: "Client") -> list[Offer]:
    return [Offer(row[1], f"{row[2]}, {row[6]}") for row in yard.queue(limit=_MOST)["rows"]]


def _ended_too(yard: "Client") -> list[Offer]:
    return [Offer(job["label"], f"{job['name']}, {job['state']}") for job in yard.jobs(limit=200).jobs]


def _asked(ask: "Callable[[Client], list[Offer]]") -> list[Offer]:
    """An answer of the server, if it comes soon."""
    from gpuyard.api.client import Client
    from gpuyard.errors import YardError

    try:
        with Client(timeout_s=_ASK_S, patience_s=0) as yard:
            return ask(yard)
    except (OSError, YardError):
        return []
