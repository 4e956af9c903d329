"""Labels and taints of clusters, pools and nodes in the file."""

from collections.abc import Iterator, Mapping
from typing import Any

from gpuyard.config.schema import MarksEntry, PoolEntry, YardFile
from gpuyard.engines.name_lists import expand
from gpuyard.errors import quote, suggest
from gpuyard.keys.findings import Findings
from gpuyard.keys.problems import Path, described
from gpuyard.model import NodeMarks
from gpuyard.model.placement import check_label, parse_taint


def check_marks(file: YardFile, findings: Findings) -> None:
    """Refuse labels and taints that cannot be, and nodes that the cluster does not have."""
    for path, entry in _entries(file):
        for key, value in (entry.labels or {}).items():
            try:
                check_label(key, value)
            except ValueError as error:
                findings.at((*path, "labels", key), f"{described((*path, 'labels'))} {error}")
        seen: set[tuple[str, str]] = set()
        for place, text in enumerate(entry.taints or ()):
            where = (*path, "taints", place)
            try:
                taint = parse_taint(text)
            except ValueError as error:
                findings.at(where, f"{described((*path, 'taints'))} {error}")
                continue
            mark = (taint.key, taint.effect.value)
            if mark in seen:
                findings.at(
                    where, f"{quote(taint.key)} is twice in {described((*path, 'taints'))}; keep one of them"
                )
            seen.add(mark)
    for cluster, cluster_entry in file.clusters.items():
        there = {
            f"{pool}-{number + 1:04d}"
            for pool, pool_entry in (cluster_entry.pools or {}).items()
            for number in range(pool_entry.nodes)
        }
        for text in cluster_entry.nodes or {}:
            _check_names(("clusters", cluster, "nodes", text), text, there, findings)


def _check_names(path: Path, text: str, there: set[str], findings: Findings) -> None:
    try:
        names = expand(text)
    except ValueError as error:
        findings.at_key(path, f"{quote(text)} {error}")
        return
    unknown = [name for name in names if name not in there] if there else []
    if unknown or not names:
        known = suggest(unknown[0] if unknown else "", sorted(there)[:20], "nodes")
        findings.at_key(path, f"there is no node {quote(unknown[0] if unknown else text)}; {known}")


def _entries(file: YardFile) -> Iterator[tuple[Path, Any]]:
    for cluster, entry in file.clusters.items():
        path: Path = ("clusters", cluster)
        yield path, entry
        for pool, pool_entry in (entry.pools or {}).items():
            yield (*path, "pools", pool), pool_entry
        for text, node_entry in (entry.nodes or {}).items():
            yield (*path, "nodes", text), node_entry


def build_marks(file: YardFile) -> tuple[NodeMarks, ...]:
    """What the file says of nodes, the weaker first: of a cluster, of a pool, of single nodes."""
    found = []
    for cluster, entry in file.clusters.items():
        found.append(_marks(cluster, "", (), entry))
        found += [_marks(cluster, pool, (), each) for pool, each in (entry.pools or {}).items()]
        found += [_marks(cluster, "", expand(text), each) for text, each in (entry.nodes or {}).items()]
    return tuple([marks for marks in found if marks.labels or marks.taints])


def _marks(cluster: str, pool: str, nodes: tuple[str, ...], entry: MarksEntry | PoolEntry | Any) -> NodeMarks:
    labels: Mapping[str, str] = entry.labels or {}
    taints = tuple([parse_taint(text) for text in entry.taints or ()])
    return NodeMarks(cluster, pool, nodes, tuple(sorted(labels.items())), taints)
