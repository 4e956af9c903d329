"""Books against world: a recount of what really runs, compared with what the log says.

Nothing is mended here; the loop does that. This says how far the two are apart, so that a person or an alert can see
when they do not come together again.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from gpuyard.control.replica.attempt_keys import attempt_of
from gpuyard.core.jobs.records import JobRecord
from gpuyard.engines.contract import Phase, Report
from gpuyard.model import AttemptState

_ALIVE = frozenset({Phase.RUNNING, Phase.SUSPENDED, Phase.STOPPING})


@dataclass(frozen=True, slots=True)
class Difference:
    """Attempts about which books and world disagree, by key."""

    missing: tuple[str, ...] = ()
    """Said to run, and the engine does not know them."""
    orphans: tuple[str, ...] = ()
    """Run, and no job of the books owns them."""
    strangers: tuple[str, ...] = ()
    """Known to the engine under a name that is none of ours."""

    @property
    def count(self) -> int:
        """How many there are; 0: books and world agree."""
        return len(self.missing) + len(self.orphans) + len(self.strangers)


def compare(
    yard: str, here: Mapping[str, JobRecord], owned: Container[str], listing: Sequence[Report]
) -> Difference:
    """Recount the truth: of the attempts `here` none should be missing, and all that run should be `owned`."""
    known = {report.key for report in listing if report.phase is not Phase.UNKNOWN}
    missing = [
        key
        for key, record in here.items()
        if key not in known and record.phase in (AttemptState.RUNNING, AttemptState.SUSPENDED)
    ]
    alive = [report.key for report in listing if report.phase in _ALIVE]
    strangers = [key for key in alive if attempt_of(yard, key) is None]
    orphans = [key for key in alive if key not in owned and key not in strangers]
    return Difference(tuple(sorted(missing)), tuple(sorted(orphans)), tuple(sorted(strangers)))
