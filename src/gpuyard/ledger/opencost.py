"""What OpenCost or Kubecost says of namespaces and labels beside the books: where they differ, and why.

Both give GPU time and cost to names; here a name stands for a tenant with all below it, for a project or for the value
of a label. OpenCost splits the price of a node over GPUs, cores and memory, and the books charge the largest part of a
node that a job holds: so what it has for the three together is compared with the charge. Time is compared by periods
of whole days, since the books are kept by the day.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from typing import NamedTuple

from gpuyard.errors import BadInput, quote
from gpuyard.ledger.bills import Sums, differs
from gpuyard.model.units import HOUR_MS
from gpuyard.quantities import hour_rate_text, usd_text

IDLE = "__idle__"
UNALLOCATED = "__unallocated__"
TENANT = "tenant"

_SPELLINGS: tuple[Callable[[str], str], ...] = (
    lambda path: path,
    lambda path: path.replace("/", "-"),
    lambda path: path.rpartition("/")[2],
)
"""How a namespace may spell the path of a tenant; the first that fits counts."""

Period = tuple[int, int]
"""The first day, and the one after the last."""


class OpencostRow(NamedTuple):
    """What is said of one name in one window."""

    where: str
    """In the file."""
    name: str
    """As OpenCost has it: `IDLE` for what no pod had, `UNALLOCATED` for pods that lack what they are named by."""
    period: Period
    gpu_ms: int
    micro_usd: int
    """GPUs, cores and memory."""


class BooksTime(NamedTuple):
    """What the books have for one day."""

    day: int
    name: str
    """The tenant's path, the project, or the value of the label; empty: jobs without one."""
    job: bool
    """False: no job had that time."""
    sums: Sums


class NameDiffers(NamedTuple):
    """A name with other time or cost than its part of the books."""

    period: Period
    name: str
    """OpenCost's; empty: it has none."""
    of: str
    """The books'; empty: they have none."""
    opencost: Sums
    books: Sums
    where: tuple[str, ...]
    said: str


class _Pair:
    """The two sides of one name in one period."""

    __slots__ = ("books", "opencost", "theirs", "where")

    def __init__(self) -> None:
        self.opencost, self.books = Sums(), Sums()
        self.theirs = ""
        """The name that OpenCost has for it; empty: none."""
        self.where: list[str] = []


class Compared(NamedTuple):
    """What came of it."""

    differ: list[NameDiffers]
    others: int
    """Names without GPU time that the books lack, such as `kube-system`."""
    others_micro_usd: int


def compare_rows(
    rows: Sequence[OpencostRow],
    books: Sequence[BooksTime],
    by: str,
    mapped: Mapping[str, str],
    per_mille: int,
) -> Compared:
    """What differs by more than so many thousandths, by period and name.

    `by` is a dimension of the books; `mapped` says what a name of OpenCost stands for there.
    """
    stands = _stands_for({row.name for row in rows}, {each.name for each in books if each.job}, by, mapped)
    chosen = {*stands.values()}
    pairs: dict[tuple[Period, str], _Pair] = {}
    for row in rows:
        pair = pairs.setdefault((row.period, stands[row.name]), _Pair())
        pair.opencost = _added(pair.opencost, row.gpu_ms, row.micro_usd)
        pair.theirs = pair.theirs or row.name
        pair.where.append(row.where)
    periods = {day: period for period in {row.period for row in rows} for day in range(*period)}
    for each in books:
        if each.day in periods:
            name = IDLE if not each.job else _home(each.name, chosen) if by == TENANT else each.name
            pair = pairs.setdefault((periods[each.day], name), _Pair())
            pair.books = _added(pair.books, *each.sums)
    differ: list[NameDiffers] = []
    others: dict[str, int] = {}
    for (period, name), pair in sorted(pairs.items()):
        if pair.theirs and name != IDLE and not pair.opencost.gpu_ms and pair.books == Sums():
            others[name] = others.get(name, 0) + pair.opencost.micro_usd
        elif said := _said(name, pair, by, per_mille):
            ours = name if pair.books != Sums() else ""
            differ.append(
                NameDiffers(period, pair.theirs, ours, pair.opencost, pair.books, tuple(pair.where), said)
            )
    return Compared(differ, len(others), sum(others.values()))


def _added(sums: Sums, gpu_ms: int, micro_usd: int) -> Sums:
    return Sums(sums.gpu_ms + gpu_ms, sums.micro_usd + micro_usd)


def _stands_for(names: Set[str], known: Set[str], by: str, mapped: Mapping[str, str]) -> dict[str, str]:
    """What each name of OpenCost stands for in the books."""
    fixed = {**mapped, IDLE: IDLE, **({} if by == TENANT else {UNALLOCATED: ""})}
    if by != TENANT:
        return {name: fixed.get(name, name) for name in names}
    tenants = sorted({path[:end] for path in known for end in _ends(path)})
    meant: dict[str, list[str]] = {}
    for spelled in _SPELLINGS:
        found: dict[str, list[str]] = {}
        for tenant in tenants:
            found.setdefault(spelled(tenant), []).append(tenant)
        meant = {**found, **meant}
    unsure = sorted([name for name in names if name not in fixed and len(meant.get(name, [])) > 1])
    if unsure:
        raise BadInput(
            f"{quote(unsure[0])} may be the tenant {' or '.join(meant[unsure[0]])}",
            "Say which of them is meant.",
        )
    return {name: fixed.get(name) or meant.get(name, [name])[0] for name in names}


def _ends(path: str) -> list[int]:
    """Where the paths of the tenants above it end, and its own."""
    return [place for place, sign in enumerate(path) if sign == "/"] + [len(path)]


def _home(path: str, chosen: Set[str]) -> str:
    """The nearest tenant at or above it that a name stands for; else itself."""
    return next((path[:end] for end in reversed(_ends(path)) if path[:end] in chosen), path)


def _said(name: str, pair: _Pair, by: str, per_mille: int) -> str:
    """Why they differ, as far as that is known; empty: they agree."""
    there, here, theirs = pair.opencost, pair.books, pair.theirs
    time = differs(there.gpu_ms, here.gpu_ms, per_mille)
    money = differs(there.micro_usd, here.micro_usd, per_mille)
    if name == IDLE:
        # OpenCost has a cost of idle time, and no hours.
        return _said_of_idle(theirs, there, here) if money else ""
    if not (time or money):
        return ""
    if here == Sums():
        if theirs == UNALLOCATED:
            return f"pods that lack what they are named by; in the books every job has a {by}: label the pods"
        return f"the books have no {by} of that name"
    if not theirs:
        unnamed = f"OpenCost has no {UNALLOCATED}, and jobs of the books have no {by}"
        return "OpenCost has no name for it" if name else unnamed
    if not time:
        return f"the price is another one: {_rate(there)} a GPU-hour there, {_rate(here)} in the books"
    if not there.gpu_ms:
        return "OpenCost has no GPU time for it: it sees the GPUs that pods ask Kubernetes for"
    if there.gpu_ms < here.gpu_ms:
        return "OpenCost has less GPU time than the books: it sees the pods that its Prometheus has scraped"
    if not here.gpu_ms:
        return "OpenCost has GPU time for it, and its jobs had no GPU in the books"
    tenths = 10 * there.gpu_ms // here.gpu_ms
    more = f"{tenths // 10}.{tenths % 10} times the GPU time" if tenths > 10 else "more GPU time"
    return (
        f"OpenCost has {more} of the books; where jobs share GPUs that is why: it counts a part of a GPU as a "
        "whole one (opencost#3828)"
    )


def _said_of_idle(theirs: str, there: Sums, here: Sums) -> str:
    rest = f"the books have {usd_text(here.micro_usd)} not charged"
    if not theirs:
        return f"the answer has no {IDLE}: ask OpenCost with includeIdle=true; {rest}"
    return f"OpenCost shows idle time as {usd_text(there.micro_usd)}; {rest}"


def _rate(sums: Sums) -> str:
    return (
        hour_rate_text((2 * sums.micro_usd * HOUR_MS + sums.gpu_ms) // (2 * sums.gpu_ms))
        if sums.gpu_ms
        else "$0.00"
    )
