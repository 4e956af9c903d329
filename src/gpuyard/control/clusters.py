"""The engines of a yard by cluster: where an attempt ran, there it is asked about, and nowhere else."""

from collections.abc import Callable, Iterator, Mapping

from gpuyard.control.refusals import Impossible
from gpuyard.engines.contract import Engine
from gpuyard.errors import quote


def _never(_cluster: str) -> bool:
    return False


class Clusters(Mapping[str, Engine]):
    """Engines in the order of yard.yaml."""

    def __init__(
        self, engines: Mapping[str, Engine], here: str = "", elsewhere: Callable[[str], bool] = _never
    ) -> None:
        """`here`: the cluster of this machine; empty: there is none. `elsewhere`: whether a cluster that the file no
        longer has was another one: this machine's own may have had another name, and kept its folder."""
        self._engines = dict(engines)
        self._here = here
        self._elsewhere = elsewhere

    def __getitem__(self, cluster: str) -> Engine:
        return self._engines[cluster]

    def __iter__(self) -> Iterator[str]:
        return iter(self._engines)

    def __len__(self) -> int:
        return len(self._engines)

    def engine_of(self, cluster: str) -> Engine:
        """The engine of the cluster that a grant names; empty: it is not known. Raises where there is none."""
        if not cluster and len(self._engines) == 1:
            cluster = next(iter(self._engines))
        found = self._engines.get(cluster)
        if found is None and cluster and self._here and not self._elsewhere(cluster):
            found = self._engines[self._here]
        if found is not None:
            return found
        if not cluster:
            raise Impossible("it is not known in which cluster this attempt ran")
        raise Impossible(
            f"this attempt ran in cluster {quote(cluster)}, which yard.yaml no longer has",
            "Name the cluster in yard.yaml again to see what it knows of the attempt.",
        )
