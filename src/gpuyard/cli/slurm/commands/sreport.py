"""`sreport`: GPU and core time by cluster, account and user, in Slurm's columns."""

import os
import pwd
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple

from gpuyard.api.client import Client
from gpuyard.cli.slurm.language import sreport_fields as f
from gpuyard.cli.slurm.language.columns import Cell, Parsable, format_cells
from gpuyard.cli.slurm.language.getopt import Grammar, Read, parse_option_table, read
from gpuyard.cli.slurm.language.stopping import Stop, make_stop
from gpuyard.cli.slurm.language.times import moment_text, parse_moment_ms

GRAMMAR = Grammar(
    "sreport",
    parse_option_table(
        """
        all_clusters,a cluster,M= federation help,h local noheader,n parsable,p parsable2,P quiet,Q time,t=
        tres,T= usage verbose,v version,V
        """
    ),
)
HELP = """\
Usage: sreport [-t time_format] [-T tres] [-M clusters] [-nPp] TYPE REPORT [CONDITION...]
  cluster Utilization                what became of all that clusters had
  cluster AccountUtilizationByUser   accounts as they are in the tree, with their users
  cluster UserUtilizationByAccount   users by what they used, a line for each account
  user TopUsage                      the users that used the most
  job SizesByAccount                 time by the size of jobs
Conditions: start= end= format= clusters= accounts= users=; tree of AccountUtilizationByUser, topcount= and group of
TopUsage, grouping=, flatview and printjobcount of SizesByAccount.
Time formats: Seconds, Minutes, Hours, Percent, SecPer, MinPer, HourPer. TRES: cpu, gres/gpu.
Hours are whole ones: a start and an end are rounded to the nearest."""
_FORMATS = (
    ("secper", 6, "Seconds/Percentage of Total"),
    ("minper", 6, "Minutes/Percentage of Total"),
    ("hourper", 6, "Hours/Percentage of Total"),
    ("seconds", 1, "Seconds"),
    ("minutes", 1, "Minutes"),
    ("hours", 1, "Hours"),
    ("percent", 1, "Percentage of Total"),
)
_UNITS = {"sec": 1, "min": 60, "hou": 3600}
_RULE = "-" * 80
_GROUPS = "50,250,500,1000"
_HOUR_MS = 3_600_000
_TOP = 10


class SreportKind(NamedTuple):
    """One report: what it is called, and what may stand behind its name."""

    kind: str
    name: str
    least: int
    """How much of the name is needed."""
    conditions: tuple[tuple[str, int], ...]
    flags: tuple[tuple[str, int], ...] = ()
    short: str = ""


_TIMES = (("end", 1), ("format", 1), ("start", 1))
_USERS = (("users", 1), ("accounts", 2), ("acct", 4), ("clusters", 1))
REPORTS = (
    SreportKind("cluster", "accountutilizationbyuser", 1, (*_USERS, *_TIMES), (("tree", 4),)),
    SreportKind("cluster", "userutilizationbyaccount", 18, (*_USERS, *_TIMES), short="ua"),
    SreportKind("cluster", "utilization", 2, (("clusters", 1), *_TIMES)),
    SreportKind("user", "topusage", 1, (*_USERS, *_TIMES, ("topcount", 1)), (("group", 1),)),
    SreportKind(
        "job",
        "sizesbyaccount",
        1,
        (("clusters", 1), ("accounts", 2), ("acct", 4), ("end", 1), ("format", 2), ("grouping", 2), ("start", 1),
         ("users", 1)),
        (("printjobcount", 2), ("flatview", 2)),
    ),
)  # fmt: skip
_ELSEWHERE = {
    "userutilizationbywckey": "wckeys",
    "wckeyutilizationbyuser": "wckeys",
    "sizesbywckey": "wckeys",
    "sizesbyaccountandwckey": "wckeys",
}
"""Reports of Slurm's about what a yard does not have."""


class Asked(NamedTuple):
    """A command line, read."""

    report: SreportKind
    values: Mapping[str, str]
    flags: frozenset[str]
    how: str
    """The format of time."""
    how_said: str
    tres: list[str]
    tres_said: str
    """As they were typed; empty: none were."""
    from_ms: int
    until_ms: int
    parsable: Parsable
    header: bool
    clusters: list[str]

    def listed(self, *names: str) -> list[str]:
        """The parts of a list with commas."""
        text = ",".join([self.values.get(name, "") for name in names])
        return [part for part in text.split(",") if part]

    @property
    def wanted(self) -> f.Wanted:
        """Which lines count."""
        return f.Wanted(self.clusters, self.listed("accounts", "acct"), self.listed("users"))

    def amount(self, seconds: int, whole: int) -> str:
        """Time as it is printed."""
        part = f"{seconds / (whole or 1) * 100:.2f}%"
        if self.how == "percent":
            return part
        unit = _UNITS[self.how[:3]]
        number = str(seconds) if unit == 1 else f"{seconds / unit:.0f}"
        return f"{number}({part})" if self.how.endswith("per") else number

    def width(self, most_s: int) -> int:
        """Of a column of amounts: the most of them in seconds has room."""
        return max(8, len(str(most_s))) + (9 if self.how.endswith("per") else 0)

    @property
    def usage_said(self) -> str:
        """The second line above a table."""
        if self.how == "percent":
            return f"Usage reported in {self.how_said}"
        return f"Usage reported in {'TRES' if self.tres_said else 'CPU'} {self.how_said}"

    @property
    def between(self) -> str:
        """From when until when, to the last second."""
        return f"{moment_text(self.from_ms)} - {moment_text(self.until_ms - 1000)}"

    @property
    def seconds(self) -> int:
        """How long that is."""
        return (self.until_ms - self.from_ms) // 1000


def run(words: Sequence[str]) -> int:
    """Print a report."""
    given = read(GRAMMAR, words)
    if given.has("help") or given.has("usage"):
        print(HELP)
        return 0
    if given.has("federation"):
        raise make_stop("sreport", "--federation is not served by a yard")
    asked = _asked(given, int(time.time() * 1000))
    from gpuyard.reports.usage import REPORT

    with Client() as yard:
        reply = yard.report(REPORT, from_ms=asked.from_ms, until_ms=asked.until_ms)
    known = [each["cluster"] for each in reply["clusters"]]
    strange = [name for name in asked.clusters if name not in known]
    if strange:
        raise make_stop(
            "sreport", f"there is no cluster {strange[0]}; there is: {', '.join(known) or 'none'}"
        )
    _tell_strange(asked, reply)
    lines = _sizes(asked, reply) if asked.report.kind == "job" else _table(asked, reply)
    if lines:
        print("\n".join(lines))
    return 0


def _tell_strange(asked: Asked, reply: Mapping[str, Any]) -> None:
    """Names that were asked for and used nothing: misspelt, or not to be seen."""
    for what, names in (("user", asked.listed("users")), ("account", asked.listed("accounts", "acct"))):
        field = "user" if what == "user" else "tenant"
        seen = {part for line in reply["lines"] for part in (line[field], *line[field].split("/"))}
        for name in [each for each in names if each not in seen]:
            print(f"sreport: no {what} {name} used anything in this time", file=sys.stderr)


# -- the command line ------------------------------------------------------------------------------------------------


def _fits(word: str, name: str, least: int) -> bool:
    return len(word) >= least and name.startswith(word)


def _report(rest: Sequence[str]) -> SreportKind:
    if len(rest) < 2:
        said = f"too few arguments for keyword:{rest[0]}" if rest else "name a report"
        raise Stop(f"sreport: error: {said}", "For example: sreport cluster Utilization start=now-1day")
    kind, name = rest[0].lower(), rest[1].lower()
    if kind and "reservation".startswith(kind):
        raise make_stop("sreport", "a yard has no reservations")
    kinds = [each for each in ("cluster", "job", "user") if kind and each.startswith(kind)]
    if not kinds:
        raise Stop(f"sreport: error: invalid keyword: {rest[0]}")
    for each in REPORTS:
        if each.kind == kinds[0] and (_fits(name, each.name, each.least) or name == each.short):
            return each
    for other, what in _ELSEWHERE.items():
        if other.startswith(name):
            raise make_stop("sreport", f"a yard has no {what}: use labels, and `yard cost --by label:KEY`")
    valid = ", ".join([each.name for each in REPORTS if each.kind == kinds[0]])
    raise Stop(f"sreport: error: Not valid report {rest[1]}", f"Valid {kinds[0]} reports are: {valid}")


def _asked(given: Read, now_ms: int) -> Asked:
    report = _report(given.rest)
    values: dict[str, str] = {}
    flags: set[str] = set()
    everywhere = given.has("all_clusters")
    for word in given.rest[2:]:
        name, is_value, value = word.partition("=")
        table = report.conditions if is_value else (*report.flags, ("all_clusters", 1))
        found = next((each for each, least in table if _fits(name.lower(), each, least)), None)
        if found is None:
            raise Stop(
                f"sreport: error: Unknown condition: {word}", 'Try "sreport --help" for more information'
            )
        if found == "all_clusters":
            everywhere = True
        elif is_value:
            values[found] = f"{values[found]},{value}" if found in values and found != "end" else value
        else:
            flags.add(found)
    how = (given.last("time") or "minutes").lower()
    form = next((each for each in _FORMATS if _fits(how, each[0], each[1])), None)
    if form is None:
        raise make_stop(
            "sreport", f"unknown time format {how}; there is: {', '.join([each[0] for each in _FORMATS])}"
        )
    said = given.last("tres") or os.environ.get("SREPORT_TRES", "")
    from_ms, until_ms = _times(values.get("start", ""), values.get("end", ""), now_ms)
    bare = given.has("parsable") or given.has("parsable2")
    clusters = [part for part in f"{given.last('cluster')},{values.get('clusters', '')}".split(",") if part]
    return Asked(
        report,
        values,
        frozenset(flags),
        form[0],
        form[2],
        _tres(said, report),
        said,
        from_ms,
        until_ms,
        Parsable(bare, "|", given.has("parsable") and not given.has("parsable2")),
        not given.has("noheader"),
        [] if everywhere else clusters,
    )


def _tres(said: str, report: SreportKind) -> list[str]:
    names = [part.strip().lower() for part in said.split(",") if part.strip()] or ["cpu"]
    known = list(f.TRES) if "all" in names else [name for name in dict.fromkeys(names) if name in f.TRES]
    strange = [name for name in names if name not in f.TRES and name != "all"]
    if strange:
        raise make_stop("sreport", f"a yard counts cpu and gres/gpu, not {strange[0]}")
    if report.kind == "job" and len(known) > 1:
        raise Stop(
            " Job report only supports a single --tres type.",
            " Generate a separate report for each TRES type.",
        )
    return known


def _times(start: str, end: str, now_ms: int) -> tuple[int, int]:
    """Whole hours of local time: the nearest ones; left out: the whole of yesterday."""
    today = _midnight_ms(now_ms)
    first_ms, last_ms = _moment("start", start) if start else 0, _moment("end", end) if end else now_ms
    if start and end and last_ms < first_ms:
        raise make_stop("sreport", f"end={end} is before start={start}")
    if first_ms < 0 or last_ms < 0:
        raise make_stop("sreport", f"{f'start={start}' if first_ms < 0 else f'end={end}'} is before 1970")
    if first_ms > now_ms:
        raise make_stop("sreport", f"start={start} is still to come")
    until_ms = _hour_ms(min(_moment("end", end), now_ms)) if end else today
    from_ms = _hour_ms(_moment("start", start)) if start else _midnight_ms(today - 1)
    return from_ms, max(until_ms, from_ms + _HOUR_MS)


def _moment(name: str, text: str) -> int:
    try:
        return parse_moment_ms(text)
    except ValueError:
        raise Stop(f"sreport: error: Invalid time specification (pos=0): {name}={text}") from None


def _hour_ms(at_ms: int) -> int:
    """The nearest hour of the local clock."""
    local = time.localtime(at_ms / 1000)
    hour = int(time.mktime((*local[:4], 0, 0, 0, 0, local.tm_isdst)))
    minutes = local.tm_min + (local.tm_sec >= 30)
    return (hour + (3600 if minutes >= 30 else 0)) * 1000


def _midnight_ms(at_ms: int) -> int:
    local = time.localtime(at_ms / 1000)
    return int(time.mktime((*local[:3], 0, 0, 0, 0, 0, -1))) * 1000


# -- tables ----------------------------------------------------------------------------------------------------------


def _defaults(asked: Asked) -> tuple[Sequence[f.Field], str, str]:
    """The fields that there are, those of the table, and the line above it."""
    name, used = asked.report.name, "tresname,used" if asked.tres_said else "used,energy"
    if asked.report.kind == "user":
        top = asked.values.get("topcount") or _TOP
        title = f"Top {top} Users {asked.between} ({asked.seconds} secs)"
        return f.USER_FIELDS, f"cluster,login,proper,accounts,{used}", title
    if name == "utilization":
        tres = "tresname," if asked.tres_said else ""
        plain = f"cluster,{tres}allocated,down,planneddown,idle,planned,reported"
        return f.CLUSTER_FIELDS, plain, f"Cluster Utilization {asked.between}"
    if name == "accountutilizationbyuser":
        title = f"Cluster/Account/User Utilization {asked.between} ({asked.seconds} secs)"
        return f.CLUSTER_FIELDS, f"cluster,accounts,login,proper,{used}", title
    title = f"Cluster/User/Account Utilization {asked.between} ({asked.seconds} secs)"
    return f.CLUSTER_FIELDS, f"cluster,login,proper,accounts,{used}", title


def _table(asked: Asked, reply: Mapping[str, Any]) -> list[str]:
    known, default, title = _defaults(asked)
    rows = _rows(asked, reply)
    cells = []
    for part in asked.listed("format") or default.split(","):
        word, _, width = part.partition("%")
        field = f.find_field(known, word)
        if field is None:
            raise Stop(f"sreport: error: Unknown field '{word}'")
        if field.shows == "energy" and "format" in asked.values:
            print("sreport: a yard counts no energy here, so it is 0; `yard cost` has it", file=sys.stderr)
        cells.append(_cell(asked, field, rows, width))
    head = [_RULE, title, asked.usage_said, _RULE] if asked.header else []
    return head + format_cells(cells, rows, asked.parsable, header=asked.header)


def _rows(asked: Asked, reply: Mapping[str, Any]) -> list[f.ReportRow]:
    name = asked.report.name
    if name == "utilization":
        return f.sum_utilization(reply, asked.tres, asked.wanted)
    if name == "accountutilizationbyuser":
        return f.sum_by_account(reply, asked.tres, asked.wanted, "tree" in asked.flags)
    if name == "userutilizationbyaccount":
        # Slurm goes by cores here, whatever is shown.
        return f.sum_by_user(reply, asked.tres, asked.wanted, "cpu")
    most = asked.values.get("topcount") or str(_TOP)
    if not most.isdecimal():
        raise Stop(f"sreport: error: Invalid value for TopCount ({most})")
    return f.sum_by_user(reply, asked.tres, asked.wanted, asked.tres[0], "group" in asked.flags, int(most))


def _cell(asked: Asked, field: f.Field, rows: Sequence[f.ReportRow], width: str) -> Cell:
    shows = field.shows
    wide = int(width) if width.lstrip("-").isdecimal() else 0
    if shows == "account" and "tree" in asked.flags:
        wide = wide or -20
    if field.amount:
        most = max([row.amounts[shows][0] for row in rows if shows in row.amounts], default=0)
        wide = wide or asked.width(most)

    def text(row: f.ReportRow) -> str:
        if shows in row.amounts:
            return asked.amount(*row.amounts[shows])
        return _proper(row.texts.get("login", "")) if shows == "proper" else row.texts.get(shows, "")

    return Cell(field.head, abs(wide) or field.width, text, left=wide < 0)


@cache
def _proper(user: str) -> str:
    """The name of a user as the machine has it."""
    try:
        return pwd.getpwnam(user).pw_gecos.partition(",")[0] if user else ""
    except KeyError:
        return ""


def _sizes(asked: Asked, reply: Mapping[str, Any]) -> list[str]:
    tres, counted = asked.tres[0], "printjobcount" in asked.flags
    each_size = "individual".startswith(asked.values.get("grouping", "-").lower())
    bounds, heads = _groups(asked, reply, each_size)
    rows = f.sum_by_size(reply, tres, asked.wanted, bounds, flat="flatview" in asked.flags)
    cells: list[Cell] = []
    for part in asked.listed("format") or ["cluster", "account"]:
        word, _, width = part.partition("%")
        field = f.find_field(f.JOB_FIELDS, word)
        if field is None:
            raise Stop(f"sreport: error: Unknown field '{word}'")
        wide = int(width) if width.lstrip("-").isdecimal() else field.width
        cells.append(Cell(field.head, abs(wide), attrgetter(field.shows), left=wide < 0))
    column = 20 if asked.how.endswith("per") else 13
    for at, name in enumerate(heads):

        def text(row: f.Sizes, at: int = at) -> str:
            return str(row.jobs[at]) if counted else asked.amount(row.seconds[at], sum(row.seconds))

        cells.append(Cell(name, column, text))
    percent = asked._replace(how="percent")

    def part_of(row: f.Sizes) -> str:
        if counted:
            return percent.amount(sum(row.jobs), sum([sum(each.jobs) for each in rows]))
        return percent.amount(*row.part)

    cells.append(Cell("% of cluster", 12, part_of))
    units = "Units are in number of jobs ran" if counted else f"Time reported in {asked.how_said}"
    title = f"Job Sizes {asked.between} ({asked.seconds} secs)"
    kind = [f"TRES type is {asked.tres_said}"] if asked.tres_said else []
    head = [_RULE, title, *kind, units, _RULE] if asked.header else []
    return head + format_cells(cells, rows, asked.parsable, header=asked.header)


def _groups(
    asked: Asked, reply: Mapping[str, Any], each_size: bool
) -> tuple[list[tuple[int, int | None]], list[str]]:
    """The sizes of each column, and its heading."""
    unit = "CPUs" if asked.tres == ["cpu"] else "TRES"
    if each_size:
        _time, size, _part = f.TRES[asked.tres[0]]
        found = sorted({line[size] // f.MS for line in reply["lines"]})
        return [(count, count) for count in found], [f"{count} {unit}" for count in found]
    texts = asked.listed("grouping") or _GROUPS.split(",")
    if not all([each.isdecimal() and int(each) for each in texts]):
        raise Stop(f"sreport: error: grouping={','.join(texts)} is not a list of sizes, such as {_GROUPS}")
    tops = sorted([int(each) for each in texts])
    lows = [0, *tops[:-1]]
    bounds: list[tuple[int, int | None]] = [(low, top - 1) for low, top in zip(lows, tops, strict=True)]
    heads = [f"{low}-{top} {unit}" for low, top in bounds]
    return [*bounds, (tops[-1], None)], [*heads, f">= {tops[-1]} {unit}"]
