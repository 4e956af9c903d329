"""Partitions: the names that scripts have for pools (`partitions` in yard.yaml), and the pools' own.

One rule for a job's environment and for every list of Slurm's commands.
"""

from collections.abc import Iterable, Mapping, Sequence

Names = Mapping[str, Sequence[str]]
"""Pools by the names that scripts have for them."""


def list_partitions(pools: Iterable[str], names: Names) -> dict[str, tuple[str, ...]]:
    """Partitions that lists show, each with its pools: every name, and every pool that has no name to itself."""
    renamed = {found[0] for found in names.values() if len(found) == 1}
    own = {pool: (pool,) for pool in pools if pool not in renamed}
    return dict(sorted({**own, **{name: tuple(found) for name, found in names.items()}}.items()))


def choose_partition(pool: str, asked: str, names: Names) -> str:
    """The partition of a job in a pool: the first that it asked for and that has the pool, else the narrowest."""
    if not names:
        return pool
    for name in asked.split(",") if asked else ():
        if pool in names.get(name, (name,)):
            return name
    having = [(len(found), name) for name, found in list_partitions((pool,), names).items() if pool in found]
    return min(having)[1]
