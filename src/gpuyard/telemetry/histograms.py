"""Histograms as Prometheus has them: how often a value was at most so large. One addition for each value."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

from gpuyard.telemetry.exposition import labels


class Histogram:
    """Values counted by their size. Filled by one thread, read by any."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        """`bounds` rise; values above the last one are counted too."""
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum: float = 0
        """Of all values."""

    def add(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


def histogram(name: str, help: str, rows: Iterable[tuple[Mapping[str, str], Histogram]]) -> list[str]:
    """One metric with all its histograms, each under its labels; without any, nothing."""
    lines: list[str] = []
    for named, each in rows:
        counts, total = list(each.counts), 0
        for bound, count in zip((*each.bounds, None), counts, strict=True):
            total += count
            le = "+Inf" if bound is None else repr(float(bound))
            lines.append(f"{name}_bucket{labels(**named, le=le)} {total}")
        own = labels(**named) if named else ""
        lines += [f"{name}_sum{own} {float(each.sum)!r}", f"{name}_count{own} {total}"]
    return [f"# HELP {name} {help}", f"# TYPE {name} histogram", *lines] if lines else []
