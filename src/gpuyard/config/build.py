"""Turns a file of the right shape into the values gpuyard works with, or into a list of all that is wrong with it.

The schema sees one value at a time; here names are looked up and numbers are compared with each other.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from gpuyard.config import access, fleet, marks, servers, tenants, walls
from gpuyard.config.engine_keys import Read
from gpuyard.config.prices import check_prices
from gpuyard.config.schema import YardFile
from gpuyard.config.values import ATTEMPTS_PER_NODE, ATTEMPTS_PER_USER, Cluster, Config
from gpuyard.errors import quote, suggest
from gpuyard.keys.findings import Findings
from gpuyard.keys.problems import Path, described
from gpuyard.model import JobClass, PolicySpec, Retention, Settings
from gpuyard.model.units import DAY_MS
from gpuyard.policies import registry
from gpuyard.quantities import duration_text

PAUSE_MS_MAX = 30 * DAY_MS
"""A longer `min_run` or `grace` would make a job not preemptible, and `preemptible: false` says so plainly."""

_DEFAULTS = Settings()


def build(file: YardFile, findings: Findings, read: Read, notes: tuple[str, ...] = ()) -> Config:
    """Check what the schema cannot, raise what was found, and build the values.

    `read` are the keys of engines; `notes` is what the file's form gives rise to.
    """
    known = fleet.read_models(file, findings)
    fleet.check_models(_models_named(file), known, findings)
    fleet.check_fleet(file, read, known, findings)
    marks.check_marks(file, findings)
    tenants.check_tenants(file, fleet.count_gpus(file), known, findings)
    check_prices(file.price_book or [], fleet.list_pools(file), findings)
    _check_classes(file, findings)
    fleet.check_aliases(file, findings)
    _check_fairness(file, findings)
    _check_policies(file, findings)
    servers.check_logs(file.logs, findings)
    servers.check_telemetry(file.telemetry, list(file.clusters or ()), findings)
    findings.raise_if_any()
    paths = [tenant.path for tenant in tenants.build_tenants(file)]
    _check_whose(file, paths, findings)
    tenants.check_class_limits(file, set(file.classes or [_DEFAULTS.default_class]), findings)
    tenants.check_budgets(file, paths, set(file.classes or [_DEFAULTS.default_class]), findings)
    access.check_access(file.auth, paths, findings)
    classes = list(file.classes or [_DEFAULTS.default_class])
    walls.check_walls(file, fleet.list_pools(file), paths, classes, findings)
    findings.raise_if_any()
    policies = {**registry.PRESETS, **{name: _policy(file, name) for name in file.policies or {}}}
    gangs = file.gangs or registry.BALANCED
    policies = {name: registry.with_gangs(each, gangs) for name, each in policies.items()}
    if preferred := fleet.read_preferences(file):
        policies = {name: replace(each, clusters=preferred) for name, each in policies.items()}
    clusters = fleet.build_clusters(file, read)
    return Config(
        settings=_settings(file, known, policies, clusters),
        pools=fleet.build_pools(file, known),
        policies=policies,
        clusters=clusters,
        prices=dict(file.prices or {}),
        access=access.build_access(file.auth),
        sinks=servers.build_logs(file.logs),
        prometheus=servers.build_telemetry(file.telemetry),
        notes=notes,
    )


def _models_named(file: YardFile) -> Iterator[tuple[Path, str]]:
    yield from ((("prices", name), name) for name in file.prices or {})
    for place, entry in enumerate(file.price_book or []):
        if entry.model:
            yield ("price_book", place, "model"), entry.model
    if file.fairness and file.fairness.share_weights:
        yield from ((("fairness", "share_weights", name), name) for name in file.fairness.share_weights)
    yield from tenants.list_named_models(file)


def _check_classes(file: YardFile, findings: Findings) -> None:
    classes = [_DEFAULTS.default_class] if file.classes is None else list(file.classes)
    chosen = file.default_class or _DEFAULTS.default_class
    if not classes:
        findings.at_key(("classes",), "there are no classes; add one or remove the key")
    elif chosen not in classes and file.default_class is not None:
        text = f"unknown class {quote(chosen)}; {suggest(chosen, classes, 'classes')}"
        findings.at(("default_class",), text)
    elif chosen not in classes:
        text = f"there is no class {quote(chosen)}, the default for jobs that name none"
        findings.at_key(
            ("classes",), f"{text}; add it, or set 'default_class' to one of: {', '.join(classes[:20])}"
        )
    for name, entry in (file.classes or {}).items():
        for key, value_ms in (("min_run", entry.min_run), ("grace", entry.grace)):
            if value_ms is not None and value_ms > PAUSE_MS_MAX:
                text = f"{quote(key)} of class {quote(name)} must be at most {duration_text(PAUSE_MS_MAX)}"
                findings.at(("classes", name, key), f"{text}, not {duration_text(value_ms)}")


def _check_whose(file: YardFile, paths: list[str], findings: Findings) -> None:
    """A class for some tenants or users names known tenants, and is not the default class."""
    for name, entry in (file.classes or {}).items():
        for key in ("tenants", "users"):
            if getattr(entry, key) == []:
                text = f"{quote(key)} of class {quote(name)} is empty; name at least one, or remove the key"
                findings.at(("classes", name, key), text)
        for index, tenant in enumerate(entry.tenants or ()):
            if tenant not in paths:
                whole = [path for path in paths if path.rpartition("/")[2] == tenant]
                known = suggest(tenant, paths, "tenants") if paths else "the file has no tenants"
                known = f"did you mean {quote(whole[0])}?" if whole else known
                text = f"unknown tenant {quote(tenant)} for class {quote(name)}; {known}"
                findings.at(("classes", name, "tenants", index), text)
        key = "tenants" if entry.tenants else "users"
        if (entry.tenants or entry.users) and name == (file.default_class or _DEFAULTS.default_class):
            text = f"class {quote(name)} is the default for jobs that name none, and has to be everybody's"
            findings.at_key(
                ("classes", name, key), f"{text}; remove {quote(key)}, or set another 'default_class'"
            )


def _check_fairness(file: YardFile, findings: Findings) -> None:
    if file.fairness is None:
        return
    half_life_ms = file.fairness.half_life or _DEFAULTS.half_life_ms
    period_ms = file.fairness.period or _DEFAULTS.period_ms
    if half_life_ms < period_ms:
        key = "half_life" if file.fairness.half_life is not None else "period"
        text = f"'half_life' ({duration_text(half_life_ms)}) must not be shorter than 'period'"
        findings.at(("fairness", key), f"{text} ({duration_text(period_ms)})")


def _check_policies(file: YardFile, findings: Findings) -> None:
    own = file.policies or {}
    for name, entry in own.items():
        path: Path = ("policies", name)
        if name in registry.PRESETS:
            findings.at_key(path, f"policy {quote(name)} is a preset; give yours another name")
        if entry.placement is not None and not registry.has_placement(entry.placement):
            _check_part(path, "placement", entry.placement, registry.PLACEMENTS, findings)
        _check_part(path, "backfill", entry.backfill, registry.BACKFILLS, findings)
        _check_parts(path, "order", entry.order, registry.ORDERS, findings)
        _check_parts(path, "preemption", entry.preemption, registry.PREEMPTIONS, findings)
        if entry.order == []:
            findings.at(
                (*path, "order"),
                f"'order' of policy {quote(name)} is empty; name at least one, as in [fifo]",
            )
    if file.policy is not None and file.policy not in own and file.policy not in registry.PRESETS:
        names = [*own, *registry.PRESETS]
        findings.at(
            ("policy",), f"unknown policy {quote(file.policy)}; {suggest(file.policy, names, 'policies')}"
        )


def _check_part(
    path: Path, key: str | int, name: str | None, known: Iterable[str], findings: Findings
) -> None:
    kind = path[-1] if isinstance(key, int) else key
    if name is not None and name not in known:
        text = f"unknown {kind} {quote(name)}; {suggest(name, known, f'names for {quote(str(kind))}')}"
        findings.at((*path, key), text)


def _check_parts(
    path: Path, key: str, names: list[str] | None, known: Iterable[str], findings: Findings
) -> None:
    for index, name in enumerate(names or []):
        _check_part((*path, key), index, name, known, findings)
        if name in (names or [])[:index]:
            text = f"{quote(name)} is twice in {described((*path, key))}; remove one of them"
            findings.at((*path, key, index), text)


def _policy(file: YardFile, name: str) -> PolicySpec:
    given = (file.policies or {})[name].given()
    for key in given.keys() & {"order", "preemption"}:
        given[key] = tuple(given[key])
    return PolicySpec(name, **given)


_AS_GIVEN = (
    "default_class",
    "prices",
    "whole_gpus",
    "attempts_per_user",
    "attempts_per_node",
    "waiting_per_user",
    "mps_users",
)
"""Fields of the file that are fields of `Settings` as they stand."""


def _settings(
    file: YardFile, known: fleet.Models, policies: dict[str, PolicySpec], clusters: Mapping[str, Cluster]
) -> Settings:
    """Pass on only what the file gives, so that the defaults of `Settings` are the only ones."""
    given: dict[str, Any] = {}
    if file.classes is not None:
        given["classes"] = tuple(_class(file, name) for name in file.classes)
    if file.recipes_per_user is not None:
        given["recipes_mib_per_user"] = file.recipes_per_user
    if file.earmark is not None:
        given["earmark_ms"] = file.earmark
    if fleet.is_one_machine(file):
        given |= {"attempts_per_user": ATTEMPTS_PER_USER, "attempts_per_node": ATTEMPTS_PER_NODE}
    given |= {name: value for name in _AS_GIVEN if (value := getattr(file, name)) is not None}
    if file.partitions is not None:
        given["partitions"] = {name: tuple(pools) for name, pools in file.partitions.items()}
    if file.accounts is not None:
        given["accounts"] = dict(file.accounts)
    if file.qos is not None:
        given["qos"] = dict(file.qos)
    if file.retention is not None:
        given["retention"] = Retention(**{f"{key}_ms": ms for key, ms in file.retention.given().items()})
    given |= fleet.read_payment(file)
    given["marks"] = marks.build_marks(file)
    if reserves := fleet.read_reserves(file):
        given["reserves"] = reserves
    given["walls"] = walls.build_walls(file)
    if file.budgets:
        given["budgets"] = tenants.build_budgets(file)
    if observed := fleet.read_observed(clusters):
        given["observed"] = observed
    if file.fairness is not None:
        fairness = file.fairness.given()
        named = {"half_life": "half_life_ms", "period": "period_ms", "share_weights": "share_weights"}
        given |= {named[key]: value for key, value in fairness.items()}
    return Settings(
        version=file.version,
        tenants=tenants.build_tenants(file),
        gpu_models=tuple(known[name] for name in file.gpu_models or {}),
        policy=policies[file.policy or _DEFAULTS.policy.name],
        **given,
    )


def _class(file: YardFile, name: str) -> JobClass:
    given = (file.classes or {})[name].given()
    named = {"limit": "limit_ms", "min_run": "min_run_ms", "grace": "grace_ms"}
    values = {named.get(key, key): value for key, value in given.items()}
    for key in {"tenants", "users"} & values.keys():
        values[key] = tuple(dict.fromkeys(values[key]))
    return JobClass(name, **values)
