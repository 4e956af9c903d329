"""Why jobs wait, as the last pass of the leader found it. A reader takes these codes and never decides again.

The leader's process has them in its books. The others get them through the store, a second or two later.
"""

import json
from collections.abc import Mapping
from typing import NamedTuple


class Judged(NamedTuple):
    """What one pass said of the jobs that it looked at."""

    seq: int = 0
    """The last event that the pass knew of."""
    last_job_id: int = 0
    """Jobs with higher ids have come since: no pass has looked at them yet."""
    examined: tuple[int, ...] = ()
    codes: bytes = b""
    """A `ReasonCode` for each of them."""

    def by_id(self) -> Mapping[int, int]:
        """The code of each job."""
        return dict(zip(self.examined, self.codes, strict=True))

    def same(self, other: "Judged") -> bool:
        """Whether both say the same of every job."""
        return (
            self.codes == other.codes
            and self.examined == other.examined
            and self.last_job_id == other.last_job_id
        )

    def text(self) -> str:
        """As it stands in the store."""
        return json.dumps(
            [self.seq, self.last_job_id, self.examined, self.codes.hex()], separators=(",", ":")
        )


def judged_of(text: str) -> Judged:
    """What stands in the store; nothing where nobody has led yet."""
    if not text:
        return Judged()
    seq, last_job_id, examined, codes = json.loads(text)
    return Judged(seq, last_job_id, tuple(examined), bytes.fromhex(codes))
