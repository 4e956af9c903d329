"""`--constraint`: features of nodes. A feature that names a GPU model counts as that model; the rest stay as they are.

Sites write `a100`, `a100|h100`, `[rack1|rack2]`, `intel&ib`, `gpu*2`. Models are found in plain words joined by `|`
or by `&`; anything else is checked for balanced brackets and passed on, to be read by `model.placement`.
"""

import re
from typing import NamedTuple

from gpuyard.errors import quote
from gpuyard.model import CATALOGUE
from gpuyard.model.gpu_names import find_models
from gpuyard.model.placement import parse_features
from gpuyard.wire.job_fields import TEXT_MAX

_ALLOWED = re.compile(r"[A-Za-z0-9_.=,:!&|*()\[\] -]+")


class Constraint(NamedTuple):
    """Features, split by what they are about."""

    models: tuple[str, ...]
    """Suitable GPU models; empty: the constraint names none."""
    text: str
    """The remaining features."""


def parse_constraint(text: str, *, with_gpus: bool) -> Constraint:
    """The constraint of a job; else `ValueError` with the rest of a sentence."""
    words = text.strip()
    if not words or len(words) > TEXT_MAX or not _ALLOWED.fullmatch(words) or not _balanced(words):
        raise ValueError(f"must be features such as a100, 'a100|h100' or 'intel&ib', not {quote(text)}")
    bare = words[1:-1] if words.startswith("[") and words.endswith("]") else words
    if not with_gpus or re.search(r"[*!()\[\]]", bare) or ("|" in bare and re.search("[&,]", bare)):
        return Constraint((), words)
    if "|" in bare:
        choice = [_models(word) for word in bare.split("|")]
        if all(choice):
            return Constraint(tuple(dict.fromkeys([model for each in choice for model in each])), "")
        return Constraint((), words)
    named = [(word.strip(), _models(word)) for word in re.split("[&,]", bare)]
    models = [model for _, each in named for model in each]
    return Constraint(tuple(dict.fromkeys(models)), "&".join([word for word, each in named if not each]))


def parse_preferred(text: str) -> list[str]:
    """`--prefer`: nodes that are better, as preferences; else `ValueError` with the rest of a sentence."""
    groups = parse_features(text)
    if all([len(group) == 1 for group in groups]):
        return [", ".join([group[0] for group in groups])] if groups else []
    if len(groups) > 1:
        raise ValueError(f"joins features by & or by |, not by both: {quote(text)}")
    return list(groups[0])


def _models(word: str) -> tuple[str, ...]:
    found = find_models(word)
    return found if found[0] in CATALOGUE else ()


def _balanced(text: str) -> bool:
    open_: list[str] = []
    for char in text:
        if char in "([":
            open_.append(char)
        elif char in ")]" and (not open_ or open_.pop() != {")": "(", "]": "["}[char]):
            return False
    return not open_
