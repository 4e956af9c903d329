"""The walls of pools, from the file to values: whose jobs a pool takes, for how long, how large."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from gpuyard.config.schema import AskersEntry, WallEntry, YardFile
from gpuyard.errors import quote, suggest
from gpuyard.keys.findings import Findings
from gpuyard.keys.problems import Path
from gpuyard.model.walls import NOBODY, Askers, Wall
from gpuyard.quantities import duration_text

_KINDS = tuple(AskersEntry.model_fields)
_EMPTY = Wall()


class _Placed(NamedTuple):
    """The wall of a pool, with its place in the file."""

    place: str
    entry: WallEntry
    path: Path


def _walls(file: YardFile) -> Iterator[_Placed]:
    for cluster, entry in file.clusters.items():
        for section, pools in (("pools", entry.pools or {}), ("walls", entry.walls or {})):
            for name, wall in pools.items():
                yield _Placed(f"{cluster}/{name}", wall, ("clusters", cluster, section, name))


def build_walls(file: YardFile) -> dict[str, Wall]:
    """The walls by `CLUSTER/POOL`, without pools that have none."""
    found = {
        each.place: Wall(
            allow=_askers(each.entry.allow),
            deny=_askers(each.entry.deny),
            time_limit_ms=each.entry.time_limit or 0,
            default_time_ms=each.entry.default_time or 0,
            max_nodes_per_job=each.entry.max_nodes_per_job or 0,
            min_gpu_milli=each.entry.min_gpus_per_job or 0,
            priority=each.entry.priority or 0,
            preemptible=each.entry.preemptible is not False,
        )
        for each in _walls(file)
    }
    return {place: wall for place, wall in found.items() if wall != _EMPTY}


def _askers(entry: AskersEntry | None) -> Askers:
    if entry is None:
        return NOBODY
    return Askers(*[tuple(dict.fromkeys(getattr(entry, kind) or ())) for kind in _KINDS])


def check_walls(
    file: YardFile,
    pools: Sequence[str] | None,
    tenants: Sequence[str],
    classes: Sequence[str],
    findings: Findings,
) -> None:
    """Refuse walls that name nobody, or what is not there. `pools`: those that there will be; None: not known."""
    for name, entry in file.clusters.items():
        if entry.walls is not None and entry.pools is not None:
            text = f"'walls' of cluster {quote(name)} is for a cluster without pools; write its keys into the pools"
            findings.at_key(("clusters", name, "walls"), text)
        for pool in (entry.walls or {}) if pools is not None and entry.pools is None else ():
            if pool not in (pools or ()):
                text = f"'walls' names an unknown pool {quote(pool)}; {suggest(pool, pools or (), 'pools')}"
                findings.at_key(("clusters", name, "walls", pool), text)
    for each in _walls(file):
        _check_times(each, findings)
        for key, askers in (("allow", each.entry.allow), ("deny", each.entry.deny)):
            if askers is not None:
                _check_askers(askers, (*each.path, key), {"tenants": tenants, "classes": classes}, findings)


def _check_times(each: _Placed, findings: Findings) -> None:
    longest, default = each.entry.time_limit, each.entry.default_time
    if longest and default and default > longest:
        text = f"'default_time' of pool {quote(str(each.path[-1]))} must not be longer than its 'time_limit'"
        findings.at((*each.path, "default_time"), f"{text} ({duration_text(longest)})")


def _check_askers(
    askers: AskersEntry, path: Path, known: Mapping[str, Sequence[str]], findings: Findings
) -> None:
    if not any([getattr(askers, kind) for kind in _KINDS]):
        text = f"'{path[-1]}' of pool {quote(str(path[-2]))} names nobody; name {', '.join(_KINDS)}, or remove the key"
        findings.at_key(path, text)
    for kind in _KINDS:
        there = known.get(kind)
        for index, name in enumerate(getattr(askers, kind) or ()):
            if there is not None and name not in there and not (kind == "tenants" and not there):
                what = f"unknown {'class' if kind == 'classes' else 'tenant'} {quote(name)}"
                text = f"{what} in '{path[-1]}' of pool {quote(str(path[-2]))}; {suggest(name, there, kind)}"
                findings.at((*path, kind, index), text)
