"""The reports of `sreport`: their fields, and the rows of each from what a yard tells of its time.

Names of reports, fields and conditions may be cut short, as Slurm allows; the first that fits counts.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

TRES = {"cpu": ("cpu_ms", "cpu_milli", "cpus"), "gres/gpu": ("gpu_ms", "gpu_milli", "gpus")}
"""What a yard counts, in Slurm's order: the time and the size in a line, and the part of a cluster."""
ROOT = "root"
MS = 1000
Line = Mapping[str, Any]


class Field(NamedTuple):
    """A column: its name in `format=`, how much of that is needed, its heading and its width."""

    name: str
    least: int
    head: str
    width: int
    shows: str
    """What of a row it shows."""
    amount: bool = False
    """Whether that is an amount of time, whose column grows with it."""


CLUSTER_FIELDS = (
    Field("accounts", 2, "Account", 15, "account"),
    Field("allocated", 2, "Allocated", 12, "allocated", True),
    Field("cluster", 2, "Cluster", 9, "cluster"),
    Field("down", 1, "Down", 10, "down", True),
    Field("idle", 1, "Idle", 12, "idle", True),
    Field("login", 1, "Login", 9, "login"),
    Field("overcommitted", 1, "Over Comm", 9, "over", True),
    Field("planneddown", 8, "PLND Down", 10, "planned down", True),
    Field("plnddown", 2, "PLND Down", 10, "planned down", True),
    Field("planned", 2, "Planned", 9, "planned", True),
    Field("proper", 2, "Proper Name", 15, "proper"),
    Field("reported", 3, "Reported", 12, "reported", True),
    Field("reserved", 3, "Planned", 9, "planned", True),
    Field("trescount", 5, "TRES Count", 10, "count"),
    Field("cpucount", 2, "TRES Count", 10, "count"),
    Field("count", 2, "TRES Count", 10, "count"),
    Field("tresname", 5, "TRES Name", 14, "tres"),
    Field("used", 1, "Used", 10, "used", True),
    Field("energy", 1, "Energy", 10, "energy", True),
)
USER_FIELDS = (
    Field("accounts", 1, "Account", 15, "account"),
    Field("cluster", 1, "Cluster", 9, "cluster"),
    Field("energy", 1, "Energy", 10, "energy", True),
    Field("login", 1, "Login", 9, "login"),
    Field("proper", 1, "Proper Name", 15, "proper"),
    Field("tresname", 5, "TRES Name", 14, "tres"),
    Field("used", 1, "Used", 10, "used", True),
)
JOB_FIELDS = (
    Field("account", 1, "Account", 9, "account"),
    Field("acct", 4, "Account", 9, "account"),
    Field("cluster", 2, "Cluster", 9, "cluster"),
)


class ReportRow(NamedTuple):
    """One line of a report."""

    texts: Mapping[str, str]
    amounts: Mapping[str, tuple[int, int]]
    """In seconds, each with what is 100 % of it."""


class Wanted(NamedTuple):
    """Which clusters, accounts and users count; none named: all."""

    clusters: Sequence[str] = ()
    accounts: Sequence[str] = ()
    users: Sequence[str] = ()

    def cluster(self, name: str) -> bool:
        """Whether a cluster is among them."""
        return not self.clusters or name in self.clusters

    def user(self, name: str) -> bool:
        """Whether a user is among them."""
        return not self.users or name in self.users


def find_field(fields: Sequence[Field], word: str) -> Field | None:
    """The field of `format=` that a word stands for."""
    word = word.lower()
    return next(
        (each for each in fields if len(word) >= each.least and each.name.startswith(word)),
        None,
    )


def account_path(line: Line) -> str:
    """The tenant as an account: a user's own place in the tree belongs to the account above it."""
    above, _, last = line["tenant"].rpartition("/")
    return str(above) if last == line["user"] else str(line["tenant"])


def account_name(path: str) -> str:
    """Slurm's accounts have no paths."""
    return path.rpartition("/")[2] or ROOT


def within(path: str, names: Iterable[str]) -> bool:
    """Whether an account is one of these, or below one of them."""
    return bool({*path.split("/"), ROOT, path} & set(names))


def _clusters(reply: Mapping[str, Any], wanted: Wanted) -> list[Mapping[str, Any]]:
    return [each for each in reply["clusters"] if wanted.cluster(each["cluster"])]


def reported_s(cluster: Mapping[str, Any], tres: str) -> int:
    """All that a cluster had of something."""
    had = cluster[TRES[tres][2]]
    return sum([had[f"{kind}_ms"] // MS for kind in ("allocated", "down", "idle", "planned")])


def sum_utilization(reply: Mapping[str, Any], tres: Sequence[str], wanted: Wanted) -> list[ReportRow]:
    """What became of all that clusters had."""
    rows = []
    for cluster in _clusters(reply, wanted):
        for name in tres:
            had, total = cluster[TRES[name][2]], reported_s(cluster, name)
            if not total:
                continue
            kinds = ("allocated", "down", "idle", "planned", "over")
            amounts = {kind: (had[f"{kind}_ms"] // MS, total) for kind in kinds}
            window_s = (reply["until_ms"] - reply["from_ms"]) // MS
            rows.append(
                ReportRow(
                    {"cluster": cluster["cluster"], "tres": name, "count": str(had["count"])},
                    {
                        **amounts,
                        "planned down": (0, total),
                        "reported": (total, window_s * had["count"]),
                        "energy": (0, 1),
                    },
                )
            )
    return rows


class _Sum:
    """Time of some lines, by resource."""

    def __init__(self) -> None:
        self.ms: dict[str, int] = dict.fromkeys(TRES, 0)

    def add(self, line: Line) -> None:
        for tres, (time, _size, _part) in TRES.items():
            self.ms[tres] += line[time]


def _used(cluster: Mapping[str, Any], tres: str, total: _Sum, texts: Mapping[str, str]) -> ReportRow:
    whole = reported_s(cluster, tres)
    shown = {"cluster": cluster["cluster"], "tres": tres, **texts}
    return ReportRow(shown, {"used": (total.ms[tres] // MS, whole), "energy": (0, 1)})


def sum_by_account(
    reply: Mapping[str, Any], tres: Sequence[str], wanted: Wanted, tree: bool = False
) -> list[ReportRow]:
    """Accounts as they are in the tree: each with its sum, its users, and then the accounts below it.

    `tree`: each is set in by its depth.
    """
    rows = []
    for cluster in _clusters(reply, wanted):
        accounts: dict[str, _Sum] = {}
        users: dict[tuple[str, str], _Sum] = {}
        for line in reply["lines"]:
            path = account_path(line)
            if line["cluster"] != cluster["cluster"] or not wanted.user(line["user"]):
                continue
            users.setdefault((path, line["user"]), _Sum()).add(line)
            parts = path.split("/") if path else []
            for depth in range(len(parts) + 1):
                accounts.setdefault("/".join(parts[:depth]), _Sum()).add(line)
        found: list[tuple[tuple[Any, ...], str, str, _Sum]] = []
        if not wanted.users:
            found += [(_order(path, ""), path, "", total) for path, total in accounts.items()]
        found += [(_order(path, user), path, user, total) for (path, user), total in users.items()]
        for _, path, user, total in sorted(found, key=lambda each: each[0]):
            if not wanted.accounts or within(path, wanted.accounts):
                depth = (path.count("/") + bool(path) + bool(user)) if tree else 0
                texts = {"account": " " * depth + account_name(path), "login": user}
                rows += [_used(cluster, each, total, texts) for each in tres]
    return rows


def _order(path: str, user: str) -> tuple[Any, ...]:
    """An account comes before its users, and these before the accounts below it."""
    parts = path.split("/") if path else []
    return (*[(1, part) for part in parts], (0, user))


def sum_by_user(
    reply: Mapping[str, Any],
    tres: Sequence[str],
    wanted: Wanted,
    order: str,
    together: bool = False,
    most: int | None = None,
) -> list[ReportRow]:
    """Users by what they used, the most first: a line for each account of theirs, or all of them together.

    `order`: the resource that counts for that. `most`: of each cluster no more than so many.
    """
    rows = []
    for cluster in _clusters(reply, wanted):
        users: dict[tuple[str, str], _Sum] = {}
        accounts: dict[str, list[str]] = {}
        for line in reply["lines"]:
            name = account_name(account_path(line))
            if line["cluster"] != cluster["cluster"] or not wanted.user(line["user"]):
                continue
            if wanted.accounts and name not in wanted.accounts:
                continue
            users.setdefault((line["user"], "" if together else name), _Sum()).add(line)
            accounts.setdefault(line["user"], []).append(name)
        found = sorted(users.items(), key=lambda each: (-(each[1].ms[order] // MS), each[0]))
        for (user, account), total in found[:most]:
            named = ", ".join(sorted(set(accounts[user]))) if together else account
            rows += [_used(cluster, each, total, {"account": named, "login": user}) for each in tres]
    return rows


class Sizes(NamedTuple):
    """Jobs of some accounts by their size."""

    cluster: str
    account: str
    seconds: list[int]
    """By group of sizes."""
    jobs: list[int]
    part: tuple[int, int]
    """Of all that the cluster's accounts had: seconds or jobs, and of how many."""


def sum_by_size(
    reply: Mapping[str, Any], tres: str, wanted: Wanted, bounds: Sequence[tuple[int, int | None]], flat: bool
) -> list[Sizes]:
    """How much time jobs of each size had, by account."""
    rows = []
    time, size, _part = TRES[tres]
    for cluster in _clusters(reply, wanted):
        sums: dict[str, tuple[list[int], list[int]]] = {}
        for line in reply["lines"]:
            if line["cluster"] != cluster["cluster"] or not wanted.user(line["user"]) or not line[time]:
                continue
            account = top_account(account_path(line), wanted.accounts, flat)
            count = line[size] // MS
            at = next(
                (at for at, (low, high) in enumerate(bounds) if low <= count <= _most(high, count)), None
            )
            if account is None or at is None:
                continue
            seconds, jobs = sums.setdefault(account, ([0] * len(bounds), [0] * len(bounds)))
            seconds[at] += line[time]
            jobs[at] += line["runs"]
        whole = sum([sum(seconds) for seconds, _ in sums.values()])
        for account, (seconds, jobs) in sorted(sums.items()):
            in_seconds = [each // MS for each in seconds]
            rows.append(Sizes(cluster["cluster"], account, in_seconds, jobs, (sum(seconds), whole)))
    return rows


def _most(high: int | None, count: int) -> int:
    return count if high is None else high


def top_account(path: str, names: Sequence[str], flat: bool) -> str | None:
    """The account under which a job counts; None: under none of these."""
    if flat:
        return account_name(path) if not names or account_name(path) in names else None
    if not names:
        return ROOT
    return next((name for name in names if within(path, [name])), None)
