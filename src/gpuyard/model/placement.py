"""Where a job may run: labels and taints of nodes, and what jobs say of them.

Labels, taints and tolerations mean what they mean in Kubernetes, and are written alike: `zone=a`, `zone in (a, b)`,
`!spot`, `maintenance=yes:NoExecute`. A job that selects names alternatives, and of one of them everything must hold.
"""

import re
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import NamedTuple

from gpuyard.errors import quote
from gpuyard.quantities import duration_text, parse_duration_ms

WEIGHT_MAX = 100
"""Of a preference."""
ALTERNATIVES_MAX = 64
"""Of what a job selects, after all its selections are joined."""

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
KEY_PATTERN = rf"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]{{0,251}}[A-Za-z0-9])?/)?{_NAME}"
_KEY, _VALUE = re.compile(KEY_PATTERN), re.compile(rf"(?:{_NAME})?")
_SET = re.compile(r"(\S+)\s+(in|notin)\s*\(([^()]*)\)")
_COMPARED = re.compile(r"([^\s=!<>]+)\s*(!=|==|=|<|>)\s*(\S*)")
_WEIGHT = re.compile(r"([0-9]{1,9})\s*:\s*(.*)", re.DOTALL)
_FEATURE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_FEATURE_TOKEN = re.compile(rf"{_FEATURE.pattern}|[&|,()\[\]]")
_SPAN = re.compile(r"(.*\S)\s+for\s+(\S+)", re.DOTALL)


class Operator(Enum):
    """How an expression looks at a label. A label that is missing meets `NotIn` and `DoesNotExist` alone."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    """The label is a whole number above the value."""
    LT = "Lt"
    """The label is a whole number below the value."""


class Expression(NamedTuple):
    """What one label of a node must be."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def holds(self, value: str | None) -> bool:
        """Whether a label of this value meets it; None: the node has no such label."""
        match self.operator:
            case Operator.IN:
                return value in self.values
            case Operator.NOT_IN:
                return value not in self.values
            case Operator.EXISTS:
                return value is not None
            case Operator.DOES_NOT_EXIST:
                return value is None
        if value is None or not _is_whole(value):
            return False
        here, there = int(value), int(self.values[0])
        return here > there if self.operator is Operator.GT else here < there

    def __str__(self) -> str:
        key, values = self.key, self.values
        match self.operator:
            case Operator.EXISTS:
                return key
            case Operator.DOES_NOT_EXIST:
                return f"!{key}"
            case Operator.GT:
                return f"{key}>{values[0]}"
            case Operator.LT:
                return f"{key}<{values[0]}"
        negated = self.operator is Operator.NOT_IN
        if len(values) == 1:
            return f"{key}{'!=' if negated else '='}{values[0]}"
        return f"{key} {'notin' if negated else 'in'} ({', '.join(values)})"


Term = tuple[Expression, ...]
"""All of them must hold."""


class Effect(Enum):
    """What a taint does to jobs that do not tolerate it."""

    NO_SCHEDULE = "NoSchedule"
    """They do not start there."""
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    """They start there only if nothing else has room."""
    NO_EXECUTE = "NoExecute"
    """They do not start there, and those that run there are stopped and wait again."""


class Taint(NamedTuple):
    """A mark of a node that keeps jobs away. A node has at most one of each key and effect."""

    key: str
    effect: Effect
    value: str = ""

    def __str__(self) -> str:
        return f"{self.key}{f'={self.value}' if self.value else ''}:{self.effect.value}"


FOR_GOOD = -1


class Toleration(NamedTuple):
    """Which taints a job puts up with."""

    key: str = ""
    """Empty: any taint."""
    value: str | None = None
    """None: whichever value the taint has."""
    effect: Effect | None = None
    """None: any effect."""
    stays_ms: int = FOR_GOOD
    """Of `NoExecute`: how long an attempt stays after the taint was set. With a time, no attempt starts there."""

    def covers(self, taint: Taint) -> bool:
        """Whether it is about this taint."""
        return (
            (not self.key or self.key == taint.key)
            and (self.value is None or self.value == taint.value)
            and (self.effect is None or self.effect is taint.effect)
        )

    def __str__(self) -> str:
        value = "" if self.value is None else f"={self.value}"
        effect = f":{self.effect.value}" if self.effect else ""
        span = "" if self.stays_ms == FOR_GOOD else f" for {duration_text(self.stays_ms)}"
        return f"{self.key or '*'}{value}{effect}{span}"


class NodeMarks(NamedTuple):
    """Labels and taints that the configuration gives to nodes of a cluster."""

    cluster: str
    pool: str = ""
    """Empty: of any pool."""
    nodes: tuple[str, ...] = ()
    """Empty: all of them."""
    labels: tuple[tuple[str, str], ...] = ()
    taints: tuple[Taint, ...] = ()


def stays_ms(tolerates: Iterable[Toleration], taint: Taint) -> int:
    """How long an attempt with these tolerations stays under a taint; 0: it does not; `FOR_GOOD`: no limit.

    As in Kubernetes, the shortest of several times counts.
    """
    spans = [each.stays_ms for each in tolerates if each.covers(taint)]
    if not spans:
        return 0
    limited = [span for span in spans if span != FOR_GOOD]
    return min(limited) if limited else FOR_GOOD


def is_tolerated(tolerates: Iterable[Toleration], taint: Taint) -> bool:
    """Whether attempts with these tolerations may start under a taint."""
    return stays_ms(tolerates, taint) == FOR_GOOD


# -- as text -----------------------------------------------------------------------------------------------------------


def term_text(term: Term) -> str:
    """`zone=a, nvme`."""
    return ", ".join([str(each) for each in term])


def terms_text(terms: Iterable[Term]) -> str:
    """`zone=a, nvme | zone=b`."""
    return " | ".join([term_text(term) for term in terms])


def preference_text(weight: int, term: Term) -> str:
    """`80: zone=a`."""
    return f"{weight}: {term_text(term)}"


def parse_terms(text: str) -> tuple[Term, ...]:
    """Alternatives, each with all that must hold: `zone=a, nvme | zone in (b, c)`; `ValueError` otherwise."""
    return tuple([_parse_term(part, text) for part in text.split("|")])


def _parse_term(text: str, whole: str) -> Term:
    parts = re.split(r",(?![^()]*\))", text)
    if not all([part.strip() for part in parts]):
        raise ValueError(f"has an empty part: {quote(whole)}")
    return tuple([parse_expression(part.strip()) for part in parts])


def parse_expression(text: str) -> Expression:
    """`zone=a`, `zone!=a`, `zone in (a, b)`, `zone notin (a, b)`, `nvme`, `!nvme`, `disks>4`, `disks<4`."""
    if found := _SET.fullmatch(text):
        values = tuple([value.strip() for value in found[3].split(",")]) if found[3].strip() else ()
        return make_expression(found[1], Operator.IN if found[2] == "in" else Operator.NOT_IN, values)
    if found := _COMPARED.fullmatch(text):
        operator = {"!=": Operator.NOT_IN, "<": Operator.LT, ">": Operator.GT}.get(found[2], Operator.IN)
        return make_expression(found[1], operator, (found[3],))
    if text.startswith("!"):
        return make_expression(text[1:].strip(), Operator.DOES_NOT_EXIST)
    return make_expression(text, Operator.EXISTS)


def make_expression(key: str, operator: Operator, values: tuple[str, ...] = ()) -> Expression:
    """An expression that can be met; `ValueError` otherwise."""
    check_label(key)
    if operator in (Operator.EXISTS, Operator.DOES_NOT_EXIST):
        if values:
            raise ValueError(f"takes no values with {operator.value}: {quote(key)}")
    elif operator in (Operator.GT, Operator.LT):
        if len(values) != 1 or not _is_whole(values[0]):
            given = ", ".join(values) or "none"
            raise ValueError(f"compares {quote(key)} with one whole number, not {quote(given)}")
    elif not values:
        raise ValueError(f"needs values for {quote(key)} with {operator.value}")
    for value in values:
        check_label(key, value)
    return Expression(key, operator, tuple(dict.fromkeys(values)))


def check_label(key: str, value: str = "") -> None:
    """Raise `ValueError` if this cannot be a label."""
    if not _KEY.fullmatch(key):
        raise ValueError(
            f"names a label by letters, digits and . _ - with an optional prefix, as in nvme or example.com/disk, "
            f"not {quote(key)}"
        )
    if not _VALUE.fullmatch(value):
        raise ValueError(
            f"gives a label up to 63 letters, digits and . _ - that begin and end with a letter or a digit, "
            f"not {quote(value)}"
        )


def join_selections(texts: Iterable[str]) -> tuple[Term, ...]:
    """What several selections come to together: all of them must hold."""
    terms: tuple[Term, ...] = ()
    for text in texts:
        more = parse_terms(text)
        terms = tuple([(*one, *other) for one in terms for other in more]) if terms else more
        if len(terms) > ALTERNATIVES_MAX:
            raise ValueError(f"comes to more than {ALTERNATIVES_MAX} alternatives")
    return tuple(dict.fromkeys([tuple(dict.fromkeys(term)) for term in terms]))


def parse_preference(text: str) -> tuple[int, Term]:
    """`zone=a`, or with a weight from 1 to 100 `80: zone=a`."""
    found = _WEIGHT.fullmatch(text.strip())
    weight, rest = (int(found[1]), found[2]) if found else (1, text)
    if not 1 <= weight <= WEIGHT_MAX:
        raise ValueError(f"has a weight from 1 to {WEIGHT_MAX}, not {weight}")
    if "|" in rest:
        raise ValueError(f"prefers one thing; write another preference for the other: {quote(text)}")
    return weight, _parse_term(rest, text)


def parse_taint(text: str) -> Taint:
    """`key=value:Effect` or `key:Effect`."""
    mark, _, effect = text.rpartition(":")
    key, _, value = mark.partition("=")
    if not mark:
        raise ValueError(f"is written as key=value:{Effect.NO_SCHEDULE.value}, not {quote(text)}")
    found = _effect(effect)
    check_label(key, value)
    return Taint(key, found, value)


def parse_toleration(text: str) -> Toleration:
    """`key`, `key=value`, `key:Effect`, `key=value:Effect`; `*` is any key; `for 5m` at the end: only so long."""
    words, span = text.strip(), FOR_GOOD
    if found := _SPAN.fullmatch(words):
        words, span = found[1], parse_duration_ms(found[2])
    mark, colon, effect = words.partition(":")
    key, equals, value = mark.partition("=")
    if mark != "*":
        check_label(key, value)
    made = Toleration(
        "" if mark == "*" else key, value if equals else None, _effect(effect) if colon else None, span
    )
    return check_toleration(made)


def check_toleration(made: Toleration) -> Toleration:
    """The same; `ValueError` if it has a time and is not about running attempts."""
    if made.stays_ms != FOR_GOOD and made.effect not in (None, Effect.NO_EXECUTE):
        raise ValueError(f"has a time, which is for {Effect.NO_EXECUTE.value} alone: {quote(str(made))}")
    return made


Features = tuple[tuple[str, ...], ...]
"""Features of nodes: of each group, one will do."""


def parse_features(text: str, *, apart: bool = False) -> Features:
    """Features in Slurm's words: `nvme`, `nvme&ib`, `rack1|rack2`, `(a&b)|c`, `[rack1|rack2]`; `ValueError` otherwise.

    As in Slurm, `&` and `|` go from left to right where no parentheses say otherwise. `[a|b]` is one feature for all
    nodes of a job: the same as `a|b`, unless the job may be on several nodes (`apart`).
    """
    words = text.strip()
    if not words:
        return ()
    if "*" in words:
        raise ValueError(
            f"counts nodes by feature, which cannot be kept: {quote(text)}; submit a job for each feature"
        )
    if apart and "|" in words and "[" in words:
        raise ValueError(
            f"wants one feature for all nodes, which a job on several cannot have: {quote(text)}; name one of them"
        )
    tokens = _FEATURE_TOKEN.findall(words)
    if "".join(tokens) != words.replace(" ", ""):
        raise ValueError(f"is written as nvme, 'nvme&ib', 'rack1|rack2' or '(a&b)|c', not {quote(text)}")
    found = _read_features(tokens, text, "")
    if tokens:
        raise ValueError(f"has parentheses that do not match: {quote(text)}")
    return tuple([tuple(group) for group in found])


def features_text(features: Features) -> str:
    """The features as they are read: `nvme&(rack1|rack2)`."""
    several = len(features) > 1
    return "&".join(
        [f"({'|'.join(group)})" if several and len(group) > 1 else "|".join(group) for group in features]
    )


def _read_features(tokens: list[str], text: str, end: str) -> list[tuple[str, ...]]:
    """Groups up to the closing sign; the tokens that were read are taken away."""
    found = _read_feature(tokens, text)
    while tokens and tokens[0] != end and tokens[0] in "&,|":
        sign, other = tokens.pop(0), _read_feature(tokens, text)
        if sign == "|":
            found = [tuple(dict.fromkeys((*one, *two))) for one in found for two in other]
        else:
            found = [*found, *other]
        found = list(dict.fromkeys(found))
        if len(found) > ALTERNATIVES_MAX:
            raise ValueError(f"comes to more than {ALTERNATIVES_MAX} groups of features: {quote(text)}")
    return found


def _read_feature(tokens: list[str], text: str) -> list[tuple[str, ...]]:
    word = tokens.pop(0) if tokens else ""
    end = {"(": ")", "[": "]"}.get(word, "")
    if end:
        found = _read_features(tokens, text, end)
        if not tokens or tokens.pop(0) != end:
            raise ValueError(f"has parentheses that do not match: {quote(text)}")
        return found
    if not _FEATURE.fullmatch(word):
        raise ValueError(f"lacks a feature: {quote(text)}")
    return [(word,)]


def parse_preferences(texts: Iterable[str]) -> tuple[tuple[int, Term], ...]:
    """Several preferences."""
    return tuple([parse_preference(text) for text in texts])


def parse_tolerations(texts: Iterable[str]) -> tuple[Toleration, ...]:
    """Several tolerations, each once."""
    return tuple(dict.fromkeys([parse_toleration(text) for text in texts]))


def _effect(text: str) -> Effect:
    effects: Mapping[str, Effect] = {each.value: each for each in Effect}
    if text not in effects:
        raise ValueError(f"has one of the effects {', '.join(effects)}, not {quote(text)}")
    return effects[text]


def _is_whole(text: str) -> bool:
    return text.removeprefix("-").isdecimal() and text.isascii() and len(text) <= 18
