"""A Slurm site added to a yard.yaml that is there: one file for several clusters."""

from typing import Any

from gpuyard.engines.slurm.site.notes import Notes
from gpuyard.errors import BadInput, quote

_SECTIONS = {"tenants": "tenant", "classes": "class", "gpu_models": "GPU model", "policies": "policy"}
_AS_IT_WAS = "it stays as the first file has it"


def join_site(file: dict[str, Any], site: dict[str, Any], notes: Notes) -> dict[str, Any]:
    """The file with the cluster, tenants and classes of a site. Where both say something, the file's stays."""
    found = {**site, **file}
    ((cluster, entry),) = site["clusters"].items()
    clusters = file.get("clusters") or {}
    if cluster in clusters:
        raise BadInput(
            f"there is a cluster {quote(cluster)} in the file already",
            "Rename it in the file; what a cluster is called there need not be what Slurm calls itself.",
        )
    taken = {pool for each in clusters.values() for pool in (each or {}).get("pools") or {}}
    pools = {}
    for name, pool in entry["pools"].items():
        own = f"{cluster}-{name}" if name in taken else name
        pools[own] = pool
        if own != name:
            notes.guess(f"pool {quote(name)} is also in another cluster: here it is {quote(own)}")
    found["clusters"] = {**clusters, cluster: {**entry, "pools": pools}}
    for section, noun in _SECTIONS.items():
        both = _both(file.get(section) or {}, site.get(section) or {}, noun, notes)
        if both:
            found[section] = both
    users = _both(_users(file), _users(site), "user", notes)
    if users:
        found["auth"] = {**(site.get("auth") or {}), **(file.get("auth") or {}), "users": users}
    for key in sorted(file.keys() & site.keys() - {*_SECTIONS, "clusters", "auth", "version"}):
        if file[key] != site[key]:
            notes.leave(f"{quote(key)} is another in {cluster}: {_AS_IT_WAS}")
    return found


def _users(document: dict[str, Any]) -> dict[str, Any]:
    return (document.get("auth") or {}).get("users") or {}


def _both(file: dict[str, Any], site: dict[str, Any], noun: str, notes: Notes) -> dict[str, Any]:
    for name in sorted(file.keys() & site.keys()):
        if file[name] != site[name]:
            notes.leave(f"{noun} {quote(name)} is in both with other values: {_AS_IT_WAS}")
    return {**site, **file}
