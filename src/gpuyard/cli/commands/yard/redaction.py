"""Text without secrets, for `yard support`: what is known to be one, and what looks like one.

Secrets that lie on this machine are known: they go wherever they stand. For others a value is judged by the name
beside it (`password`, `token`, `Authorization`), and by forms that only secrets have: our own tokens, signed tokens,
private keys, the password of a URL.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote, unquote

REMOVED = "(removed)"
_KNOWN_LENGTH_MIN = 4
"""A shorter one would be found in half of all words."""
_PLAIN = frozenset({"true", "false", "none", "null", "auto"})
"""Values of variables and keys that are no secret, whatever the name beside them."""
_WORDS = (
    r"passw(?:or[dt])?|passphrase|secret|token(?!iz)|credential|cookie|authorization|signature"
    r"|(?:api|access|account|private|encryption|signing|shared)[_-]?key"
)
_SHORT = r"(?:pg|db)?pass|pwd|pw|sig"
"""Names of secrets only as a whole, or after a `_`: `bypass` is none."""
_NAME = rf"(?:[\w.-]{{0,99}}(?:{_WORDS})[\w.-]{{0,99}}+|(?:[\w.-]{{0,99}}[_.-])?(?:{_SHORT}))"
_HARMLESS = re.compile(r"(?i).*(?:_lifetime|_lifetime_max|_tokens|_hash|_total)$")
"""Names that end so hold a duration or a number."""
_FILE = re.compile(r"(?i).*[_-]file$")
"""And these a place, if what they hold looks like one."""
_PLACE = re.compile(r"[\"']?(?:/|~|@|\.\.?/)")
_SECRET_NAME = re.compile(f"(?i){_NAME}")
_HEADERS = re.compile(r"(?i)headers?$")
"""What a mapping of this name holds is all for the receiver's eyes."""
_HEADER = r"((?<![\w-])(?:proxy-)?authorization|(?<![\w-])(?:set-)?cookie)([ \t]*[=:][ \t]*)"
_KEY = r"-----{} [A-Z ]*PRIVATE KEY[A-Z ]*-----"
_FORMS = (
    (re.compile(rf"{_KEY.format('BEGIN')}.*?(?:{_KEY.format('END')}|\Z)", re.DOTALL), REMOVED),
    (re.compile(r"yard_[a-z0-9]{10}_[0-9a-f]{16,}"), REMOVED),
    (re.compile(r"\beyJ[\w-]{8,}(?:\.[\w-]*){1,2}"), REMOVED),
    (re.compile(r"\b(?:hf_|gh[opsur]_|github_pat_|glpat-|xox[a-z]-|sk-|AKIA)[\w-]{16,}"), REMOVED),
    (re.compile(r"(://hooks\.[\w.-]+/)[^\s\"'<>]+"), rf"\1{REMOVED}"),
    # A header may have several words, and quotes in them.
    (re.compile(rf"(?i){_HEADER}[^\s\"'][^\n]*"), rf"\1\2{REMOVED}"),
    (re.compile(r"(?i)\b(bearer|basic|apikey|negotiate)(\s+)[\w.~+/=-]{6,}"), rf"\1\2{REMOVED}"),
    # The password of a URL may hold an @ itself: it ends at the last one before the path. One that somebody
    # typed as it is may hold a / or a quote.
    (re.compile(r"(://)(?:[^\s/'\"<>]{0,999}|[^\s/'\"<>@:]{0,99}:(?!\d+[\"'/])\S{0,999})@"), rf"\1{REMOVED}@"),
    (re.compile(r"([?&](?:key|code)=)[^&\s\"']+"), rf"\1{REMOVED}"),
    (re.compile(r"((?<!\S)(?:-u|--user)[ =][^\s:]+:)\S+"), rf"\1{REMOVED}"),
)  # fmt: skip
_QUOTED = r"(?P<quote>\\*[\"'])(?:(?P=quote){2}|(?!(?P=quote))(?:\\.|[^\n]))*+(?:(?P=quote)|(?=\n)|\Z)"
"""With quotes in it, behind a backslash or doubled, and without its end, where a line was cut off."""
_SAID = re.compile(
    rf"(?i)(?P<name>(?<![\w.-])(?P<option>--?)?{_NAME})"
    rf"(?P<is>\\*[\"']?[ \t]*[=:][ \t]*|(?(option)[ \t]+|(?!)))"
    rf"(?P<value>{_QUOTED}|\[[^\]\n]*\]?|\S*[^\s,;)}}\]])"
)
"""`password=…`, `"token": "…"`, `?api_key=…&`, `--token …`."""


class Redactor:
    """What takes secrets out of texts and documents."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        """`known`: secrets as they are."""
        stripped = {each.strip() for each in known}
        found = {each for each in stripped if len(each) >= _KNOWN_LENGTH_MIN and each.lower() not in _PLAIN}
        # A URL writes some characters otherwise; the longest first, since one may be a part of another.
        spelled = found | {quote(each, safe="") for each in found} | {unquote(each) for each in found}
        self._known = sorted(spelled, key=lambda each: (-len(each), each))

    def text(self, text: str) -> str:
        """A text without secrets."""
        # What is known goes last: it may be a part of a form, by which that is told.
        for form, instead in _FORMS:
            text = form.sub(instead, text)
        for each in self._known:
            text = text.replace(each, REMOVED)
        return _SAID.sub(_without_value, text)

    def document(self, value: Any, name: str = "") -> Any:
        """A document as JSON or YAML has it, without secrets."""
        if isinstance(value, Mapping):
            if _is_secret(name):
                return REMOVED
            if _HEADERS.search(name):
                return {self.text(str(key)): REMOVED for key in value}
            return {self.text(str(key)): self.document(each, str(key)) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.document(each, name) for each in value]
        if value is None or isinstance(value, bool):
            return value
        if _is_secret(name, str(value)) or _HEADERS.search(name):
            return REMOVED
        return self.text(value) if isinstance(value, str) else value


def is_secret_name(name: str) -> bool:
    """Whether what has this name, a variable or a key, is a secret by it."""
    return _is_secret(name)


def _is_secret(name: str, value: str = "") -> bool:
    if not _SECRET_NAME.fullmatch(name.lstrip("-")) or _HARMLESS.fullmatch(name):
        return False
    return not (_FILE.fullmatch(name) and _PLACE.match(value))


def _without_value(found: re.Match[str]) -> str:
    rest = found["value"].replace(REMOVED, "").strip("[]\"'\\, ")
    if not rest or rest.lower() in _PLAIN or not _is_secret(found["name"], found["value"]):
        return found[0]
    return f"{found['name']}{found['is']}{REMOVED}"
