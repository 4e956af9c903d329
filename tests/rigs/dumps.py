"""Two dumps of one log, of an earlier release and of this one, held against each other."""

from collections.abc import Iterator
from typing import Any

from gpuyard.model import Settings
from gpuyard.model.serialise import to_plain


def differences(earlier: Any, later: Any, at: str = "") -> Iterator[str]:
    """Where two dumps differ. A key that is new may say nothing, or what is so without a setting."""
    if isinstance(earlier, dict) and isinstance(later, dict):
        for key, value in earlier.items():
            yield from differences(value, later.get(key, "is gone"), f"{at}/{key}")
        plain = to_plain(Settings()) if at == "/settings" else {}
        for key in later.keys() - earlier.keys():
            if later[key] not in (plain.get(key), ["", 0]) and later[key]:
                yield f"{at}/{key}: {later[key]!r} is new"
    elif isinstance(earlier, list) and isinstance(later, list) and len(earlier) == len(later):
        for number, (one, other) in enumerate(zip(earlier, later, strict=True)):
            yield from differences(one, other, f"{at}/{number}")
    elif earlier != later:
        yield f"{at}: {earlier!r} became {later!r}"
