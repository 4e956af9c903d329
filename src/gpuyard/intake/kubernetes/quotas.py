"""Quotas, classes and queues as Kubernetes and Kueue write them, as a change of a yard's configuration.

A file of manifests says less than a configuration, so it is a patch of the one in force: it sets some keys of tenants
and classes, and the rest stays. What becomes of each field stands in one table (`quota_fields`); a field that the table
does not have is refused, and so are two manifests that say different things of one key.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

from gpuyard.config.patching import Configuration
from gpuyard.config.reading import loads
from gpuyard.config.values import Config
from gpuyard.errors import quote, suggest
from gpuyard.intake.documents import Document, Node, Scalar, parse_documents
from gpuyard.intake.documents import Mapping as Tree
from gpuyard.intake.documents import Sequence as List
from gpuyard.intake.kubernetes.quota_fields import FIELDS, GPU, VERSIONS, Fate
from gpuyard.intake.kubernetes.resources import cores, memory_mib, quantity
from gpuyard.keys.problems import ConfigError, Position, Problem
from gpuyard.model import CATALOGUE
from gpuyard.model.gpu_names import choose_models
from gpuyard.model.settings import TOTAL
from gpuyard.quantities import memory_text

_PRIORITY_MAX = 1_000_000_000
_BOUNDS = {GPU: "gpus", "cpu": "cpus", "memory": "memory"}
Path = tuple[str, ...]


class Patch(NamedTuple):
    """A configuration with what manifests change of it."""

    text: str
    notes: tuple[str, ...]
    """What was left out, with its line."""


def is_manifest(text: str) -> bool:
    """Whether a file is of Kubernetes rather than a yard.yaml: one has `apiVersion`, the other has `version`."""
    return any([line.startswith(("apiVersion:", '{"apiVersion"')) for line in text.splitlines()])


def patch_configuration(live: str, manifests: str, file: str) -> Patch:
    """The configuration in force with what a file of manifests says; `ConfigError` with all that is wrong with it."""
    reader = _Reader(file, Configuration(live, "the configuration in force"), loads(live))
    documents = parse_documents(manifests, file)
    for each in sorted(documents, key=lambda each: _ORDER.get(_kind(each), 0)):
        reader.problems += each.problems
        reader.read(each)
    reader.finish()
    return Patch(reader.live.text(), tuple(dict.fromkeys(reader.notes)))


def _kind(document: Document) -> str:
    node = document.root.entries.get("kind", (None, None))[1]
    return node.text if isinstance(node, Scalar) else ""


@dataclass
class _Reader:
    """What the manifests have said so far."""

    file: str
    live: Configuration
    config: Config
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    _said: dict[Path, tuple[str, Position]] = field(default_factory=dict)
    flavors: dict[str, str] = field(default_factory=dict)
    """GPU models by the names of their flavors."""
    cohorts: dict[str, dict[str, Fraction]] = field(default_factory=dict)
    """What cohorts have beside their members', by GPU model."""

    def refuse(self, place: Position, text: str) -> None:
        self.problems.append(Problem(place, text))

    def note(self, place: Position, text: str) -> None:
        self.notes.append(f"{self.file}:{place.line}: {text}")

    def put(self, path: Path, value: object, place: Position) -> None:
        """Set a key, once: two manifests that set it to different values disagree."""
        text = str(value)
        before = self._said.setdefault(path, (text, place))
        if before[0] != text:
            name = (
                f"{'.'.join(path[2:])} of {path[0].rstrip('s')} {quote(path[1])}"
                if len(path) > 2
                else path[-1]
            )
            self.refuse(
                place, f"{name} is {text} here and {before[0]} on line {before[1].line}; keep one of them"
            )
            return
        self.live.set(path, value)

    def finish(self) -> None:
        """Raise all that is wrong; then let cohorts be guaranteed what their members are."""
        if self.problems:
            raise ConfigError(
                self.file, sorted(self.problems, key=lambda each: (each.place.line, each.place.column))
            )
        tenants = self.live.get("tenants") or {}
        for cohort in self.cohorts:
            _sum_up(self.live, tenants, cohort, self.cohorts[cohort])

    def read(self, document: Document) -> None:
        """Take in one object."""
        root, kind = document.root, _kind(document)
        place = root.entries["kind"][0] if "kind" in root.entries else root.place
        if kind not in FIELDS:
            text = f"kind {quote(kind)} does not change a configuration; {suggest(kind, FIELDS, 'kinds')}"
            self.refuse(place, f"{text}. Jobs are submitted: yard submit FILE")
            return
        version_place, version = root.entries.get(
            "apiVersion", (root.place, Scalar(root.place, "", null=False))
        )
        told = version.text if isinstance(version, Scalar) else ""
        if told not in VERSIONS[kind]:
            self.refuse(
                version_place, f"apiVersion of a {kind} is {' or '.join(VERSIONS[kind])}, not {quote(told)}"
            )
        before = len(self.problems)
        self._walk(kind, root, "")
        if len(self.problems) == before:
            _TAKERS[kind](self, _Object(document, self))

    def _walk(self, kind: str, node: Node, path: str) -> None:
        """Compare every field with the table."""
        if isinstance(node, List):
            for item in node.items:
                self._walk(kind, item, f"{path}[]")
            return
        if not isinstance(node, Tree):
            return
        rows = {row.key: row for row in FIELDS[kind] if row.above == path}
        for key, (place, value) in node.entries.items():
            row, below = rows.get(key) or rows.get("*"), f"{path}.{key}" if path else key
            if row is None:
                known = suggest(key, rows, "fields") if rows else "it has no fields that are read"
                self.refuse(place, f"{below} of a {kind} is not known here; {known}")
            elif row.fate is Fate.REFUSED:
                self.refuse(place, f"{below} of a {kind} cannot be kept: {row.meaning}")
            elif row.fate is Fate.WARNED:
                self.note(place, f"{below} of a {kind} is left out: {row.meaning}")
            elif row.fate is Fate.KEPT:
                self._walk(kind, value, below)


class _Object:
    """One object whose fields are those of the table."""

    def __init__(self, document: Document, reader: _Reader) -> None:
        self._document = document
        self._reader = reader
        self.plain: dict[str, Any] = document.plain()

    def place(self, *path: str | int) -> Position:
        return self._document.place(path)

    def at(self, *path: str | int) -> Any:
        """What is at a path; None: nothing."""
        at: Any = self.plain
        for key in path:
            known = isinstance(at, list) and isinstance(key, int) and key < len(at)
            if known or (isinstance(at, dict) and key in at):
                at = at[key]
            else:
                return None
        return at if isinstance(at, str | list | dict) else None

    def text(self, *path: str | int, needed: bool = False) -> str:
        found = self.at(*path)
        if isinstance(found, str) and found:
            return found
        if needed or found is not None:
            name = ".".join(map(str, path))
            self._reader.refuse(
                self.place(*path), f"{name} {'must be a single value' if found else 'is missing'}"
            )
        return ""

    def mapping(self, *path: str | int) -> Mapping[str, Any]:
        found = self.at(*path)
        if found is not None and not isinstance(found, dict):
            self._reader.refuse(self.place(*path), f"{'.'.join(map(str, path))} must be a mapping")
        return found if isinstance(found, dict) else {}

    def items(self, *path: str | int) -> list[Any]:
        found = self.at(*path)
        if found is not None and not isinstance(found, list):
            self._reader.refuse(self.place(*path), f"{'.'.join(map(str, path))} must be a list")
        return found if isinstance(found, list) else []

    def read(self, parse: Callable[[str], Any], *path: str | int) -> Any:
        """A value, understood by `parse`; None: it is none."""
        text = self.text(*path)
        try:
            return parse(text) if text else None
        except ValueError as error:
            self._reader.refuse(self.place(*path), f"{path[-1]} {error}")
            return None


def _gpus(text: str) -> str:
    """GPUs, whole ones."""
    value = quantity(text)
    if value.denominator != 1:
        raise ValueError(f"must be a whole number of GPUs, not {quote(text)}")
    return str(value)


def _cores(text: str) -> str:
    return str(cores(text))


def _memory(text: str) -> str:
    return memory_text(memory_mib(text))


def _count(text: str) -> str:
    value = quantity(text)
    if value.denominator != 1 or value < 1:
        raise ValueError(f"must be a whole number of at least 1, not {quote(text)}")
    return str(value)


_PARSERS: dict[str, Callable[[str], str]] = {GPU: _gpus, "cpu": _cores, "memory": _memory}


def _tenant_of(reader: _Reader, found: _Object) -> str:
    """The tenant of a namespace; it is in the configuration from now on."""
    name = found.text("metadata", "namespace", needed=True)
    return _tenant(reader, name) if name else ""


def _tenant(reader: _Reader, name: str) -> str:
    reader.live.mapping("tenants", name)
    return name


# -- Kubernetes ----------------------------------------------------------------------------------------------------


def _resource_quota(reader: _Reader, found: _Object) -> None:
    tenant = _tenant_of(reader, found)
    least: dict[Path, tuple[Fraction, str, Position]] = {}
    path: Path
    for key in found.mapping("spec", "hard"):
        if GPU in key:
            path, parse = ("limit", TOTAL), _gpus
        elif "cpu" in key:
            path, parse = ("max_cpus",), _cores
        elif "memory" in key:
            path, parse = ("max_memory",), _memory
        elif key in ("pods", "count/pods", "count/jobs.batch"):
            path, parse = ("max_jobs",), _count
        else:
            continue
        text, place = found.read(parse, "spec", "hard", key), found.place("spec", "hard", key)
        if text is None:
            continue
        if text == "0" and path != ("limit", TOTAL):
            reader.refuse(place, f"{key} is 0: a yard has no quota of nothing but of GPUs; take it out")
            continue
        amount = quantity(found.text("spec", "hard", key))
        if path in least and least[path][0] != amount:
            smaller = min(amount, least[path][0])
            reader.note(place, f"{key} and another quota become one here, '{path[0]}': the smaller of both")
            if smaller != amount:
                continue
        least[path] = amount, text, place
    for path, (_amount, text, place) in least.items():
        reader.put(("tenants", tenant, *path), text, place)
    if least and tenant:
        reader.put(("tenants", tenant, "on_limit"), "refuse", found.place("spec", "hard"))


def _limit_range(reader: _Reader, found: _Object) -> None:
    tenant = _tenant_of(reader, found)
    largest = max([node.gpus for pool in reader.config.pools for node in pool.nodes], default=0)
    for index in range(len(found.items("spec", "limits"))):
        kind = found.text("spec", "limits", index, "type", needed=True)
        if kind not in ("Container", "Pod"):
            place = found.place("spec", "limits", index, "type")
            reader.note(place, f"a LimitRange of type {quote(kind)} is left out: a yard bounds jobs")
            continue
        for bound in ("min", "default", "max"):
            for resource in found.mapping("spec", "limits", index, bound):
                if resource not in _BOUNDS:
                    continue
                path = ("spec", "limits", index, bound, resource)
                text, place = found.read(_PARSERS[resource], *path), found.place(*path)
                if text is None or (text == "0" and bound != "max"):
                    continue
                if resource == GPU and bound == "min" and largest and int(text) > largest:
                    why = f"the largest node has {largest}, so that no container could be that large"
                    reader.refuse(place, f"{bound} of {GPU} is {text}, and {why}; lower it")
                    continue
                _put_bound(reader, tenant, _BOUNDS[resource], bound, text, place)


def _put_bound(reader: _Reader, tenant: str, kind: str, bound: str, text: str, place: Position) -> None:
    if (kind, bound) == ("gpus", "max"):
        if text == "0":
            reader.put(("tenants", tenant, "limit", TOTAL), "0", place)
            return
        # The same quota by its other name would be there twice.
        reader.live.mapping("tenants", tenant).pop("max_gpus_per_job", None)
    reader.put(("tenants", tenant, "per_job", kind, bound), text, place)


def _namespace(reader: _Reader, found: _Object) -> None:
    if name := found.text("metadata", "name", needed=True):
        _tenant(reader, name)


def _priority_class(reader: _Reader, found: _Object) -> None:
    name = found.text("metadata", "name", needed=True)
    value, place = found.text("value", needed=True), found.place("value")
    if not (name and value):
        return
    digits = value.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal()) or int(digits) > _PRIORITY_MAX:
        reader.refuse(
            place,
            f"value must be a whole number from -{_PRIORITY_MAX} to {_PRIORITY_MAX}, not {quote(value)}",
        )
        return
    if not isinstance(reader.live.get("classes"), dict):
        # The class that there is where a configuration has none.
        reader.live.mapping("classes", reader.config.settings.default_class)
    reader.put(("classes", name, "priority"), str(int(value)), place)
    if found.text("globalDefault") == "true":
        reader.put(("default_class",), name, found.place("globalDefault"))


# -- Kueue ---------------------------------------------------------------------------------------------------------


def _resource_flavor(reader: _Reader, found: _Object) -> None:
    name = found.text("metadata", "name", needed=True)
    product = found.text("spec", "nodeLabels", "nvidia.com/gpu.product")
    reader.flavors[name] = _model(reader, product) if product else TOTAL
    if product and not reader.flavors[name]:
        place = found.place("spec", "nodeLabels", "nvidia.com/gpu.product")
        reader.refuse(place, f"{quote(product)} is no GPU model that is known; name one, such as H100")


def _model(reader: _Reader, name: str) -> str:
    """The GPU model of a name; empty: none, or several."""
    own = [model.name for model in reader.config.settings.gpu_models]
    known = [model for model in choose_models(name, own) if model in CATALOGUE or model in own]
    there = {node.gpu_model for pool in reader.config.pools for node in pool.nodes}
    if len(known) > 1:
        known = [model for model in known if model in there]
    return known[0] if len(known) == 1 else ""


def _flavor(reader: _Reader, name: str) -> str:
    """The GPU model, or `total`, that a flavor stands for."""
    return reader.flavors.get(name) or _model(reader, name) or TOTAL


def _quotas_of(found: _Object) -> list[tuple[str, str, Path]]:
    """Every resource of every flavor: the resource, the flavor's name, and its path."""
    rows = []
    for group in range(len(found.items("spec", "resourceGroups"))):
        for flavor in range(len(found.items("spec", "resourceGroups", group, "flavors"))):
            here: tuple[Any, ...] = ("spec", "resourceGroups", group, "flavors", flavor)
            name = found.text(*here, "name", needed=True)
            for index in range(len(found.items(*here, "resources"))):
                path = (*here, "resources", index)
                rows.append((found.text(*path, "name", needed=True), name, path))
    return rows


def _cluster_queue(reader: _Reader, found: _Object) -> None:
    tenant = _tenant(reader, found.text("metadata", "name", needed=True))
    cohort = found.text("spec", "cohortName") or found.text("spec", "cohort")
    _check_stop(reader, found)
    if cohort:
        reader.put(("tenants", tenant, "parent"), cohort, found.place("spec"))
        _tenant(reader, cohort)
        reader.cohorts.setdefault(cohort, {})
    for resource, flavor, path in _quotas_of(found):
        place = found.place(*path, "nominalQuota")
        if resource not in _PARSERS:
            reader.note(
                place, f"the quota of {quote(resource)} is left out: a yard counts GPUs, cores and memory"
            )
            continue
        nominal = found.read(_PARSERS[resource], *path, "nominalQuota")
        if nominal is None:
            reader.refuse(place, f"nominalQuota of {quote(resource)} is missing")
            continue
        if resource != GPU:
            if cohort:
                reader.note(
                    place, f"the quota of {resource} is left out: cores and memory cannot be borrowed"
                )
            else:
                key = "max_cpus" if resource == "cpu" else "max_memory"
                reader.put(("tenants", tenant, key), nominal, place)
            continue
        model = _flavor(reader, flavor)
        reader.put(("tenants", tenant, "guarantee", model), nominal, place)
        for limit, key in (("borrowingLimit", "borrow"), ("lendingLimit", "lend")):
            amount = found.read(_gpus, *path, limit)
            if amount is not None:
                reader.put(("tenants", tenant, key, model), amount, found.place(*path, limit))
        if not cohort:
            # Outside of a cohort there is nothing to borrow.
            reader.put(("tenants", tenant, "limit", model), nominal, place)
    _weight(reader, found, tenant)


def _cohort(reader: _Reader, found: _Object) -> None:
    tenant = _tenant(reader, found.text("metadata", "name", needed=True))
    parent = found.text("spec", "parentName") or found.text("spec", "parent")
    if parent:
        reader.put(("tenants", tenant, "parent"), parent, found.place("spec"))
        _tenant(reader, parent)
        reader.cohorts.setdefault(parent, {})
    own = reader.cohorts.setdefault(tenant, {})
    for resource, flavor, path in _quotas_of(found):
        place = found.place(*path, "nominalQuota")
        nominal = found.read(_PARSERS.get(resource, _count), *path, "nominalQuota")
        if resource != GPU:
            reader.note(place, f"the quota of {quote(resource)} is left out: a cohort shares GPUs")
        elif nominal is not None:
            model = _flavor(reader, flavor)
            own[model] = own.get(model, Fraction(0)) + Fraction(nominal)
    _weight(reader, found, tenant)


def _weight(reader: _Reader, found: _Object, tenant: str) -> None:
    weight = found.read(_count, "spec", "fairSharing", "weight")
    if weight is not None:
        reader.put(("tenants", tenant, "weight"), weight, found.place("spec", "fairSharing", "weight"))


def _check_stop(reader: _Reader, found: _Object) -> None:
    policy = found.text("spec", "stopPolicy")
    if policy not in ("", "None"):
        text = f"stopPolicy {quote(policy)} cannot be kept: drain nodes (yard drain) or hold jobs (yard hold)"
        reader.refuse(found.place("spec", "stopPolicy"), text)


def _local_queue(reader: _Reader, found: _Object) -> None:
    tenant, name = _tenant_of(reader, found), found.text("metadata", "name", needed=True)
    queue = found.text("spec", "clusterQueue", needed=True)
    _check_stop(reader, found)
    if not (tenant and name and queue):
        return
    place = found.place("spec", "clusterQueue")
    if queue not in (reader.live.get("tenants") or {}):
        reader.refuse(
            place, f"there is no tenant {quote(queue)}, and no ClusterQueue of that name in the file"
        )
        return
    if tenant != queue:
        reader.put(("tenants", tenant, "parent"), queue, place)
    reader.put(("accounts", name), _path(reader.live, tenant), place)


def _path(live: Configuration, name: str) -> str:
    """A tenant by its whole path."""
    parts, above = [name], live.get("tenants", name, "parent")
    while isinstance(above, str) and above not in parts:
        parts.append(above)
        above = live.get("tenants", above, "parent")
    return "/".join(reversed(parts))


def _sum_up(
    live: Configuration, tenants: Mapping[str, Any], cohort: str, own: Mapping[str, Fraction]
) -> None:
    """Guarantee to a cohort what its members are guaranteed, and its own beside that."""
    sums = dict(own)
    for entry in tenants.values():
        if isinstance(entry, dict) and entry.get("parent") == cohort:
            given = entry.get("guarantee") or {}
            for model, amount in (given if isinstance(given, dict) else {TOTAL: given}).items():
                if "%" not in str(amount):
                    sums[model] = sums.get(model, Fraction(0)) + Fraction(amount)
    for model, amount in sums.items():
        before = live.get("tenants", cohort, "guarantee")
        known = before.get(model, "0") if isinstance(before, dict) else before or "0"
        if "%" not in known and Fraction(known) < amount:
            live.set(("tenants", cohort, "guarantee", model), str(amount))
            if live.get("tenants", cohort, "parent") is None:
                # What the members of a cohort borrow is each other's, and nobody else's.
                live.set(("tenants", cohort, "limit", model), str(amount))


_TAKERS: dict[str, Callable[[_Reader, _Object], None]] = {
    "ResourceFlavor": _resource_flavor,
    "Namespace": _namespace,
    "PriorityClass": _priority_class,
    "Cohort": _cohort,
    "ClusterQueue": _cluster_queue,
    "LocalQueue": _local_queue,
    "ResourceQuota": _resource_quota,
    "LimitRange": _limit_range,
}
_ORDER = {kind: place for place, kind in enumerate(_TAKERS)}
"""What a kind may refer to is read before it, wherever it stands in the file."""
