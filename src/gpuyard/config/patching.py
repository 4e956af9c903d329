"""A change of some keys of a yard.yaml that leaves the rest of its text as it stands, comments among it.

What changes are whole blocks of the top level: each that a patch touches is written anew. A file in which that would
not come out as meant (brackets around it all, anchors) is written anew as a whole.
"""

from copy import deepcopy
from typing import Any

import yaml

from gpuyard.config import document
from gpuyard.keys.problems import ConfigError
from gpuyard.keys.tree import Document, Nothing
from gpuyard.model.settings import TOTAL

Path = tuple[str, ...]
_QUOTAS = ("guarantee", "limit", "borrow", "lend")


class _Dumper(yaml.SafeDumper):
    """Texts stand without quotes where YAML allows it: what they are is the schema's to say."""

    yaml_implicit_resolvers = {  # noqa: RUF012 (as PyYAML declares it)
        first: [rule for rule in rules if rule[0] == "tag:yaml.org,2002:null"]
        for first, rules in yaml.SafeDumper.yaml_implicit_resolvers.items()
    }

    def ignore_aliases(self, data: object) -> bool:
        """Every value is written out."""
        return True


_Dumper.add_representer(Nothing, lambda dumper, _value: dumper.represent_scalar("tag:yaml.org,2002:null", ""))


class Configuration:
    """A yard.yaml as keys and texts, in which some may be set."""

    def __init__(self, text: str, name: str) -> None:
        self._text = text
        self._document: Document = document.parse(text, name)
        self._was = self._document.plain()
        self.plain: dict[str, Any] = deepcopy(self._was)

    def mapping(self, *path: str) -> dict[str, Any]:
        """The mapping at a path; made where there is none. A quota that is one amount becomes one by model."""
        at: dict[str, Any] = self.plain
        for key in path:
            found = at.get(key)
            if isinstance(found, str) and key in _QUOTAS:
                found = {TOTAL: found}
            if not isinstance(found, dict):
                found = {}
            at[key] = found
            at = found
        return at

    def get(self, *path: str) -> Any:
        """The value at a path; None: there is none."""
        at: Any = self.plain
        for key in path:
            if not isinstance(at, dict) or key not in at:
                return None
            at = at[key]
        return at

    def set(self, path: Path, value: object) -> None:
        """Set a key."""
        self.mapping(*path[:-1])[path[-1]] = value if isinstance(value, dict) else str(value)

    def text(self) -> str:
        """The file with what was set."""
        for entry in (
            self.plain.get("tenants", {}).values() if isinstance(self.plain.get("tenants"), dict) else ()
        ):
            for kind in _QUOTAS if isinstance(entry, dict) else ():
                if isinstance(entry.get(kind), dict) and list(entry[kind]) == [TOTAL]:
                    entry[kind] = entry[kind][TOTAL]
        changed = [key for key, value in self.plain.items() if self._was.get(key) != value]
        if not changed:
            return self._text
        patched = self._patched(changed)
        if patched is not None:
            return patched
        return _written(self.plain)

    def _patched(self, changed: list[str]) -> str | None:
        """The text with the changed blocks written anew; None: that would say something else."""
        places = {key: place for key, (place, _node) in self._document.root.entries.items()}
        if any([place.column != 1 for place in places.values()]):
            return None
        lines = self._text.splitlines()
        starts = sorted([place.line for place in places.values()])
        for key in sorted(changed, key=lambda each: -places[each].line if each in places else 0):
            block = _written({key: self.plain[key]}).splitlines()
            if key not in places:
                lines += block
                continue
            first = places[key].line - 1
            last = min([start - 1 for start in starts if start - 1 > first], default=len(lines))
            while last > first + 1 and (not lines[last - 1].strip() or lines[last - 1].startswith("#")):
                # Comments above the next block belong to that.
                last -= 1
            lines[first:last] = block
        text = "\n".join(lines) + "\n"
        try:
            said = document.parse(text, "yard.yaml").plain()
        except ConfigError:
            return None
        return text if said == self.plain else None


def _written(plain: dict[str, Any]) -> str:
    return yaml.dump(plain, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
