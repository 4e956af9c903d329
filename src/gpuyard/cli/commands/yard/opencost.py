"""OpenCost and Kubecost: what they say beside the books (`yard cost opencost`), and values for their Helm charts
(`yard export kubecost`)."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from gpuyard.cli.commands.yard.reconcile import DIFFERS, SHOWN_MAX
from gpuyard.cli.connection.places import open_client
from gpuyard.cli.line.options import Argument, ColumnsOption, Option, Output, OutputOption
from gpuyard.errors import BadInput, count_text, names_text, quote, suggest_end

if TYPE_CHECKING:
    from gpuyard.intake.opencost import OpencostAnswer
    from gpuyard.ledger.opencost import BooksTime, Compared, NameDiffers

PROJECT = "project"
LABEL = "label:"
JOB_KINDS = ("used", "wasted", "unmeasured", "starting")
"""Kinds of time in which a job has its GPUs."""
_NAME_DEFAULT = "Default: the namespace of a tenant, else the label of the same key."


def opencost(
    file: Annotated[
        Path, Argument(metavar="FILE", help="The JSON answer of /allocation, or - for standard input.")
    ],
    by: Annotated[
        str, Option("--by", metavar="WHAT", help="What the names stand for: tenant, project or label:KEY.")
    ] = "tenant",
    name: Annotated[
        str,
        Option(
            "--name",
            metavar="WHAT",
            help="The dimension that OpenCost's names stand for: namespace or label:KEY. " + _NAME_DEFAULT,
        ),
    ] = "",
    mapped: Annotated[
        list[str] | None,
        Option("--map", metavar="NAME=WHAT", help="What a name stands for in the books; may be repeated."),
    ] = None,
    cluster: Annotated[
        str,
        Option("--cluster", metavar="NAME", help="The cluster of the yard. Default: all clusters together."),
    ] = "",
    tolerance: Annotated[
        float,
        Option(
            "--tolerance",
            metavar="PERCENT",
            min=0.0,
            max=100.0,
            help="Accept sums that differ by at most PERCENT.",
        ),
    ] = 1.0,
    output: OutputOption = Output.TABLE,
    columns: ColumnsOption = "",
) -> int:
    """Compare the allocation of OpenCost or Kubecost with the books: GPU time and cost by namespace or label.

    A namespace stands for the tenant of that path, of that path with - for /, or of that last name, and all tenants
    below it. OpenCost's cost of GPUs, cores and memory is compared with the charge, its __idle__ with the time that
    was not charged. Each difference has its reason, if the yard knows it. The command changes nothing. You need sight
    of the whole yard.

    \b
    Exit codes: 0: they agree, 1: they differ, 2: the file cannot be read or compared.
    \b
    Examples:
      curl -G http://localhost:9003/allocation -d includeIdle=true -d aggregate=namespace -d step=1d
        -d window=2026-11-01T00:00:00Z,2026-11-08T00:00:00Z | yard cost opencost -
      yard cost opencost november.json --by project --name label:team
    """
    from gpuyard.cli.listings.tables import print_records
    from gpuyard.cli.terminal.streams import print_notice
    from gpuyard.intake.opencost import read_opencost
    from gpuyard.ledger.opencost import compare_rows

    what = _names_meant(by, name)
    stands = dict([_mapped(each) for each in mapped or ()])
    found = read_opencost(file, what)
    first, last = min(row.period for row in found.rows)[0], max(row.period for row in found.rows)[1] - 1
    books = _books(by, cluster, first, last)
    try:
        result = compare_rows(found.rows, books, by, stands, round(10 * tolerance))
    except BadInput as unsure:
        raise BadInput(unsure.message, "--map NAME=TENANT says which of them is meant.") from None
    shown = result.differ[:SHOWN_MAX] if output in (Output.TABLE, Output.WIDE) else result.differ
    print_records([_row(each) for each in shown], _columns(by), output, fields=_FIELDS, wanted=columns)
    for text in _notes(found, result, len(shown), (first, last)):
        print_notice(text, before="note: ", style="bold")
    return DIFFERS if result.differ else 0


def _names_meant(by: str, name: str) -> str:
    """What OpenCost's names are, for time by this dimension of the books."""
    what = name or ("namespace" if by == "tenant" else f"{LABEL}{by.removeprefix(LABEL)}")
    _check(by, what)
    return what


def _check(by: str, what: str) -> None:
    from gpuyard.wire.job_fields import label_fault

    for option, value, others in (("--by", by, ("tenant", PROJECT)), ("--name", what, ("namespace",))):
        key = value.removeprefix(LABEL)
        if value not in others and (not value.startswith(LABEL) or label_fault(key, "value")):
            raise BadInput(
                f"{option} {quote(value)} is not known{suggest_end(value, [*others, 'label:KEY'])}",
                f"Give {', '.join(others)} or label:KEY, as label:team.",
            )


def _mapped(text: str) -> tuple[str, str]:
    name, sign, stands = text.partition("=")
    if not (name and sign and stands):
        raise BadInput(f"--map {quote(text)} is not NAME=WHAT", "Write it as --map vision=research/vision.")
    return name, stands


def _books(by: str, cluster: str, first: int, last: int) -> "list[BooksTime]":
    """What the books have by day and name, with the time that no job had."""
    from gpuyard.ledger.bills import Sums
    from gpuyard.ledger.opencost import BooksTime
    from gpuyard.ledger.units import day_text, read_day
    from gpuyard.model.units import HOUR_MS

    dimensions = ["day", "tenant", "cluster", *([by] if by != "tenant" else [])]
    reply = _asked(",".join(dimensions), day_text(first), day_text(last))
    clusters = {line["cluster"] for line in reply["lines"]}
    if cluster and cluster not in clusters:
        raise BadInput(
            f"the books have no cluster {quote(cluster)} in that time",
            f"They have: {names_text(sorted(clusters))}.",
        )
    found = []
    for line in reply["lines"]:
        if cluster not in ("", line["cluster"]):
            continue
        job = bool(line["tenant"])
        kept = line["labels"][by.removeprefix(LABEL)] if by.startswith(LABEL) else line[by]
        gpu_ms = round(sum([line[f"{kind}_gpu_hours"] for kind in JOB_KINDS]) * HOUR_MS) if job else 0
        sums = Sums(gpu_ms, line["charged_micro_usd"] if job else line["not_charged_micro_usd"])
        found.append(BooksTime(read_day(line["day"]), kept, job, sums))
    if not found:
        raise BadInput(
            f"the books have nothing from {day_text(first)} to {day_text(last)}, UTC, the days of the file",
            "Ask OpenCost for days on which the yard had nodes; `yard cost --from DAY --to DAY` shows them.",
        )
    return found


def _asked(by: str, from_day: str, to_day: str) -> Mapping[str, Any]:
    """What the books say; they have to be seen whole."""
    from gpuyard.reports import registry

    with open_client() as yard:
        reply: Mapping[str, Any] = yard.report(
            registry.load_own_report("cost"), by=by, **{"from": from_day, "to": to_day}
        )
    if reply["fleet_micro_usd"] is None:
        raise BadInput(
            "OpenCost sees all namespaces, but you see only a part of the yard", "Ask an administrator."
        )
    return reply


def _notes(found: "OpencostAnswer", result: "Compared", shown: int, days: tuple[int, int]) -> list[str]:
    from gpuyard.ledger.units import day_text
    from gpuyard.quantities import usd_text

    left = len(result.differ) - shown
    told = [f"{left:,} more differences are not shown; -o csv or -o json has all"] if left else []
    what = f"differences: {len(result.differ)}" if result.differ else "OpenCost and the books agree"
    told.append(
        f"{day_text(days[0])} to {day_text(days[1])}, UTC: {count_text(len(found.rows), 'row')} of OpenCost; {what}"
    )
    if any([not each.name or not each.of for each in result.differ]):
        told.append("where only one side has a name, --map NAME=WHAT may say what it stands for in the books")
    if result.others:
        money = usd_text(result.others_micro_usd)
        told.append(
            f"names without GPU time that the books do not have: {result.others:,}, {money}; not compared"
        )
    if found.apart_micro_usd:
        money = usd_text(found.apart_micro_usd)
        told.append(
            f"volumes, networks, shared and external costs: {money}; the books have none, not compared"
        )
    if len(found.clusters) > 1:
        told.append(f"the file is about the clusters {names_text(found.clusters)} together")
    return told


_FIELDS = (
    "from_day", "to_day", "name", "of", "opencost_gpu_hours", "books_gpu_hours", "opencost_micro_usd",
    "books_micro_usd", "rows", "said",
)  # fmt: skip


def _row(each: "NameDiffers") -> Mapping[str, Any]:
    from gpuyard.ledger.units import day_text
    from gpuyard.model.units import HOUR_MS

    return {
        "from_day": day_text(each.period[0]),
        "to_day": day_text(each.period[1] - 1),
        "name": each.name,
        "of": each.of,
        "opencost_gpu_hours": round(each.opencost.gpu_ms / HOUR_MS, 6),
        "books_gpu_hours": round(each.books.gpu_ms / HOUR_MS, 6),
        "opencost_micro_usd": each.opencost.micro_usd,
        "books_micro_usd": each.books.micro_usd,
        "rows": list(each.where),
        "said": each.said,
    }


def _columns(by: str) -> list[Any]:
    from gpuyard.ledger.opencost import IDLE
    from gpuyard.quantities import usd_text
    from gpuyard.reports.money.lines import NO_JOB
    from gpuyard.tables import Column

    return [
        Column("FROM", lambda row: row["from_day"]),
        Column("TO", lambda row: row["to_day"], wide=True),
        Column("NAME", lambda row: row["name"] or "-"),
        Column(by.upper(), lambda row: NO_JOB if row["of"] == IDLE else row["of"] or "-"),
        Column("OPENCOST GPU-H", lambda row: f"{row['opencost_gpu_hours']:,.2f}", right=True),
        Column("BOOKS GPU-H", lambda row: f"{row['books_gpu_hours']:,.2f}", right=True),
        Column("OPENCOST", lambda row: usd_text(row["opencost_micro_usd"]), right=True),
        Column("BOOKS", lambda row: usd_text(row["books_micro_usd"]), right=True),
        Column("ROWS", lambda row: names_text(row["rows"][:3]) or "-", wide=True),
        Column("WHAT", lambda row: row["said"]),
    ]


_VALUES = {
    "kubecost": """\
kubecostProductConfigs:
  clusterName: {cluster}
  currencyCode: "USD"
  customPricesEnabled: true
  defaultModelPricing:
    enabled: true
    # Texts: the chart leaves out a number 0.
    CPU: "0"
    spotCPU: "0"
    RAM: "0"
    spotRAM: "0"
    GPU: "{gpu}"
    spotGPU: "{spot}"
  labelMappingConfigs:
    enabled: true
    team_label: {label}
prometheus:
  server:
    global:
      external_labels:
        cluster_id: {cluster}
""",
    "opencost": """\
opencost:
  exporter:
    defaultClusterId: {cluster}
  customPricing:
    enabled: true
    provider: custom
    costModel:
      description: "prices of a yard"
      CPU: "0"
      spotCPU: "0"
      RAM: "0"
      spotRAM: "0"
      GPU: "{gpu}"
      spotGPU: "{spot}"
""",
}
"""Values of their Helm charts, cost-analyzer and opencost."""


def _cluster_meant(cluster: str, names: list[str]) -> str:
    """The cluster of this name, or the only one."""
    if cluster in names or (not cluster and len(names) == 1):
        return cluster or names[0]
    wrong = (
        f"the books have no GPUs of a cluster {quote(cluster)} then" if cluster else "which cluster is meant?"
    )
    raise BadInput(wrong, f"They have: {names_text(names)}." if names else "Give days by --from and --to.")


def kubecost(
    cluster: Annotated[
        str, Option("--cluster", metavar="NAME", help="The cluster of the yard. Default: the only one.")
    ] = "",
    chart: Annotated[
        str, Option("--chart", metavar="CHART", help="The Helm chart: kubecost or opencost.")
    ] = "kubecost",
    label: Annotated[
        str, Option("--team-label", metavar="KEY", help="The pod label that names the team.")
    ] = "team",
    from_day: Annotated[
        str,
        Option(
            "--from",
            metavar="DAY",
            help="The first day that the price covers: 2026-11-01, 7d. Default: the first of this month.",
        ),
    ] = "",
    to_day: Annotated[
        str,
        Option(
            "--to",
            metavar="DAY",
            help="The last day that the price covers: 2026-11-30, yesterday. Default: today.",
        ),
    ] = "",
) -> None:
    """Write values for the Helm chart of Kubecost or OpenCost: the cluster's name, and the price of its GPUs in the
    books.

    Both know one price for all GPU models: the file has the mean cost of a GPU-hour of the cluster in these days, on
    spot and otherwise. That price includes cores and memory, which cost 0 by themselves. You need sight of the whole
    yard.

    \b
    Example:
      yard export kubecost --cluster gke-eu > kubecost.yaml
      helm upgrade --install kubecost kubecost/cost-analyzer -n kubecost -f kubecost.yaml
    """
    import json

    from gpuyard.cli.line.times import book_days
    from gpuyard.wire.job_fields import label_fault

    if chart not in _VALUES:
        raise BadInput(
            f"there are no values for the chart {quote(chart)}{suggest_end(chart, _VALUES)}",
            f"There are: {', '.join(_VALUES)}.",
        )
    if fault := label_fault(label, "value"):
        raise BadInput(f"--team-label {quote(label)} is not a key of a label: {fault}", "Write it as team.")
    from_day, to_day = book_days(from_day, to_day)
    reply = _asked("model,market,cluster", from_day, to_day)
    lines = [line for line in reply["lines"] if line["model"]]
    names = sorted({line["cluster"] for line in lines})
    cluster = _cluster_meant(cluster, names)
    own = [line for line in lines if line["cluster"] == cluster]
    spot = [line for line in own if line["market"] == "spot"]
    prices = [
        _price(each) for each in (own if own == spot else [line for line in own if line not in spot], spot)
    ]
    days = f"{reply['from_day']} to {reply['to_day']}"
    print(f"# Written by `yard export kubecost`: an hour of a GPU as it cost in the books, {days}, UTC.")
    quoted_words = {"cluster": json.dumps(cluster), "label": json.dumps(label)}
    print(_VALUES[chart].format(**quoted_words, gpu=prices[0], spot=prices[1] if spot else prices[0]), end="")


def _price(lines: list[Mapping[str, Any]]) -> str:
    """Dollars for a GPU-hour, to the micro-dollar."""
    from gpuyard.model.units import HOUR_MS
    from gpuyard.quantities import hour_rate_text
    from gpuyard.reports.money.lines import KINDS

    gpu_ms = sum([round(line[f"{kind}_gpu_hours"] * HOUR_MS) for line in lines for kind in KINDS])
    micro_usd = sum([line["fleet_micro_usd"] for line in lines])
    rate = (2 * micro_usd * HOUR_MS + gpu_ms) // (2 * gpu_ms) if gpu_ms else 0
    return hour_rate_text(rate).removeprefix("$").replace(",", "")
