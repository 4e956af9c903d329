"""Expected ends in order, with sums: how many thousandths of a GPU are free again by a time.

The rows are in chunks, each with its sum, so that a change and a question both touch a few hundred rows of thousands.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator

_CHUNK_MAX = 512

End = tuple[int, int, int]
"""(expected end, id, milli-GPU)."""


class SortedEnds:
    """The expected ends of some running jobs."""

    __slots__ = ("_chunks", "_lasts", "_sums")

    def __init__(self, rows: list[End]) -> None:
        rows.sort()
        half = _CHUNK_MAX // 2
        self._chunks = [rows[at : at + half] for at in range(0, len(rows), half)] or [[]]
        self._lasts = [chunk[-1] for chunk in self._chunks[:-1]]
        """The last row of each chunk but the last."""
        self._sums = [sum([row[2] for row in chunk]) for chunk in self._chunks]

    def __iter__(self) -> Iterator[End]:
        for chunk in self._chunks:
            yield from chunk

    def add(self, row: End) -> None:
        """A job runs."""
        at = bisect_left(self._lasts, row)
        chunk = self._chunks[at]
        insort(chunk, row)
        self._sums[at] += row[2]
        if len(chunk) > _CHUNK_MAX:
            half = _CHUNK_MAX // 2
            self._chunks[at : at + 1] = [chunk[:half], chunk[half:]]
            self._lasts.insert(at, chunk[half - 1])
            self._sums[at : at + 1] = [sum([row[2] for row in each]) for each in (chunk[:half], chunk[half:])]

    def remove(self, row: End) -> None:
        """It no longer does, or not until then."""
        at = bisect_left(self._lasts, row)
        chunk = self._chunks[at]
        del chunk[bisect_left(chunk, row)]
        self._sums[at] -= row[2]
        if not chunk and len(self._chunks) > 1:
            del self._chunks[at], self._sums[at]
            del self._lasts[min(at, len(self._lasts) - 1)]

    def until(self, time_ms: int) -> tuple[int, int]:
        """The sum and the number of the jobs that end at that time or before."""
        row = (time_ms + 1, 0, 0)
        at = bisect_left(self._lasts, row)
        chunk = self._chunks[at]
        count = bisect_left(chunk, row)
        milli = sum(self._sums[:at]) + sum([row[2] for row in chunk[:count]])
        return milli, count + sum([len(chunk) for chunk in self._chunks[:at]])

    def last_ms(self) -> int:
        """The last end; 0: there is none."""
        last = self._chunks[-1]
        return last[-1][0] if last else 0
