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
_WORDS = r"passw(?:or)?d|passphrase|secret|token|credential|api_?-?key|private_?-?key|cookie|authorization"
_NAME = rf"[\w.-]*(?:{_WORDS})[\w.-]*"
_HARMLESS = re.compile(r"(?i).*(?:_file|_lifetime|_lifetime_max|_tokens|_hash|_total)$")
"""Names that end so hold a place, a duration or a number."""
_SECRET_NAME = re.compile(f"(?i){_NAME}")
_HEADERS = re.compile(r"(?i)headers?$")
"""What a mapping of this name holds is all for the receiver's eyes."""
_FORMS = (
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL), REMOVED),
    (re.compile(r"yard_[a-z0-9]{10}_[0-9a-f]{16,}"), REMOVED),
    (re.compile(r"\beyJ[\w-]{8,}(?:\.[\w-]*){1,2}"), REMOVED),
    (re.compile(r"(?i)\b(bearer|basic|apikey|negotiate)(\s+)[\w.~+/=-]{6,}"), rf"\1\2{REMOVED}"),
    # The password of a URL may hold an @ itself: it ends at the last one before the path.
    (re.compile(r"(\b[\w+.-]+://)[^\s/'\"<>]*@"), rf"\1{REMOVED}@"),
)  # fmt: skip
_SAID = re.compile(
    rf"(?i)(?P<name>(?<![\w.-]){_NAME})(?P<is>[\"']?\s*[=:]\s*)(?P<value>\"[^\"\n]*\"|'[^'\n]*'|[^\s,;&\"'}}\])]+)"
)
"""`password=…`, `"token": "…"`, `?api_key=…&`."""


class Redactor:
    """What takes secrets out of texts and documents."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        """`known`: secrets as they are."""
        found = {each.strip() for each in known if len(each.strip()) >= _KNOWN_LENGTH_MIN}
        # A URL writes some characters otherwise; the longest first, since one may be a part of another.
        spelled = found | {quote(each, safe="") for each in found} | {unquote(each) for each in found}
        self._known = sorted(spelled, key=lambda each: (-len(each), each))

    def text(self, text: str) -> str:
        """A text without secrets."""
        for each in self._known:
            text = text.replace(each, REMOVED)
        for form, instead in _FORMS:
            text = form.sub(instead, text)
        return _SAID.sub(_without_value, text)

    def document(self, value: Any, name: str = "") -> Any:
        """A document as JSON or YAML has it, without secrets."""
        if isinstance(value, Mapping):
            if _HEADERS.search(name):
                return {self.text(str(key)): REMOVED for key in value}
            return {self.text(str(key)): self.document(each, str(key)) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.document(each, name) for each in value]
        if value is not None and not isinstance(value, bool) and (_is_secret(name) or _HEADERS.search(name)):
            return REMOVED
        return self.text(value) if isinstance(value, str) else value


def _is_secret(name: str) -> bool:
    return bool(_SECRET_NAME.fullmatch(name)) and not _HARMLESS.fullmatch(name)


def _without_value(found: re.Match[str]) -> str:
    if not _is_secret(found["name"]) or found["value"].strip("\"'") == REMOVED:
        return found[0]
    return f"{found['name']}{found['is']}{REMOVED}"
