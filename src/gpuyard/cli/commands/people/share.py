"""`yard share`: what each tenant is due, has had, uses, borrows and lends, and the arithmetic behind it."""

from collections.abc import Mapping
from typing import Annotated, Any

from gpuyard.cli.connection.places import open_client
from gpuyard.cli.line.options import Argument, ColumnsOption, Option, Output, OutputOption, WatchOption
from gpuyard.quantities import percent_share, usd_plain

Row = Mapping[str, Any]


def share(
    tenant: Annotated[
        str, Argument(metavar="TENANT", help="Show only this tenant, with all tenants above and below it.")
    ] = "",
    explain: Annotated[bool, Option("--explain", help="Print the arithmetic, line by line.")] = False,
    output: OutputOption = Output.TABLE,
    columns: ColumnsOption = "",
    watch: WatchOption = None,
) -> None:
    """Show the tenant tree: weights, decayed usage, guarantees, what is borrowed, lent and could be taken back."""
    from gpuyard.cli.connection.places import show_or_watch

    show_or_watch(lambda: _show(tenant, explain, output, columns), watch)


def _show(tenant: str, explain: bool, output: Output, wanted: str) -> None:
    with open_client() as yard:
        found = yard.share(tenant)
    if output in (Output.JSON, Output.YAML):
        from gpuyard.cli.listings.tables import write_document

        write_document(found, output)
    elif explain and output is not Output.CSV:
        _arithmetic(found)
    else:
        _table(found, output, wanted)


def _table(found: Mapping[str, Any], output: Output, wanted: str) -> None:
    from gpuyard.cli.listings.tables import print_records
    from gpuyard.reports.tenants import cap_columns
    from gpuyard.tables import Column

    columns = [
        Column("TENANT", lambda row: "  " * row["depth"] + _name(row["path"])),
        Column("WEIGHT", lambda row: str(row["weight"]), right=True),
        Column("SHARE", lambda row: percent_share(row["share_ppm"]), right=True),
        Column("HAS HAD", lambda row: percent_share(row["used_ppm"]), right=True),
        Column(
            "CHARGED", lambda row: usd_plain(row["usage_milli_usd"] + row["current_milli_usd"]), right=True
        ),
        Column("OF YARD", lambda row: percent_share(row["yard_ppm"]), right=True, wide=True),
        Column("GUARANTEE", lambda row: _amounts(row, "guarantee"), right=True),
        Column("LIMIT", lambda row: _amounts(row, "limit"), right=True),
        Column("USES", lambda row: _amounts(row, "used"), right=True),
        Column("BORROWS", lambda row: _amounts(row, "borrowed"), right=True),
        Column("LENDS", lambda row: _amounts(row, "lent"), right=True),
        Column("EXPOSED", lambda row: _amounts(row, "exposure"), right=True),
        *cap_columns(found["tenants"]),
        Column("RUN", lambda row: str(row["running"]), right=True),
        Column("WAIT", lambda row: str(row["waiting"]), right=True),
    ]
    rows = found["tenants"]
    if output is Output.CSV:
        rows = [
            {name: value for name, value in row.items() if name != "amounts"} | row["amounts"]["total"]
            for row in rows
        ]
    print_records(rows, columns, output, wanted=wanted)


def _name(path: str) -> str:
    """The last part of a path. A tenant's own jobs, beside those of the tenants below it, are under a dash."""
    name = path.rpartition("/")[2]
    return "(its own jobs)" if name == "-" else name or "(all)"


def _amounts(row: Row, name: str) -> str:
    """GPUs in total, or, where only models have a quota, of each model."""
    from gpuyard.reports.table import number

    def says(amount: float | None) -> bool:
        # No limit and a limit of nothing are opposites.
        return amount is not None if name == "limit" else bool(amount)

    total = row["amounts"]["total"][name]
    models = {
        model: each[name] for model, each in row["amounts"].items() if model != "total" and says(each[name])
    }
    if says(total) or not models or name in ("used", "borrowed"):
        return number(total) if says(total) else "-"
    return ",".join(f"{number(amount)} {model}" for model, amount in models.items())


# -- the arithmetic --------------------------------------------------------------------------------------------------


def _arithmetic(found: Mapping[str, Any]) -> None:
    from gpuyard.quantities import span_words

    half_life, period = span_words(found["half_life_ms"]), span_words(found["period_ms"])
    print(
        f"Charges are decayed to a half every {half_life}, at the end of each {period}; what runs counts as if it ran "
        "to the end of this one.\n"
        "They count what was used: GPU-hours times the share weight of the GPU model, which is its list price "
        "unless yard.yaml says otherwise."
    )
    if not found["fair"]:
        print(
            f"Policy {found['policy']} does not order jobs by fair share: the shares below decide nothing now."
        )
    for row in found["tenants"]:
        print()
        print(row["path"] or "(the whole yard)")
        for name, text in _lines(row, found):
            print(f"  {name:<10} {text}")


def _lines(row: Row, found: Mapping[str, Any]) -> list[tuple[str, str]]:
    from gpuyard.reports.table import ordinal

    total = row["usage_milli_usd"] + row["current_milli_usd"]
    decayed, running = usd_plain(row["usage_milli_usd"]), usd_plain(row["current_milli_usd"])
    charged = f"{decayed} decayed + {running} running = {usd_plain(total)}"
    lines = [("charged", charged)]
    if row["depth"]:
        parent = row["path"].rpartition("/")[0] or "the yard"
        of = (
            f"of the {row['members']} members of {parent}"
            if row["members"] > 1
            else f"of the only member of {parent}"
        )
        lines = [
            ("share", f"weight {row['weight']} / {row['weights']} {of} = {percent_share(row['share_ppm'])}"),
            *lines,
            (
                "has had",
                f"{usd_plain(total)} / {usd_plain(row['siblings_milli_usd'])} {of} = {percent_share(row['used_ppm'])}",
            ),
        ]
        if found["fair"]:
            each = total / row["weight"] / 1000
            lines.append(
                (
                    "order",
                    f"{usd_plain(total)} / weight {row['weight']} = {each:.3f}: "
                    f"served {ordinal(row['place'])} of {row['members']}, the least first",
                )
            )
    for model, amount in row["amounts"].items():
        lines += _quota_lines(row, model, amount)
    lines.append(("jobs", f"{row['running']} running, {row['waiting']} waiting"))
    return lines


def _quota_lines(row: Row, model: str, amount: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Use against guarantee and limit, of one model or in total."""
    from gpuyard.reports.table import number

    name = "GPUs" if model == "total" else model
    uses, guarantee = number(amount["used"]), number(amount["guarantee"])
    lines = []
    if not row["depth"]:
        return [(name, f"uses {uses}")]
    limit = "" if amount["limit"] is None else f", may use {number(amount['limit'])}"
    lines.append((name, f"uses {uses}, guaranteed {guarantee}{limit}"))
    if amount["borrowed"]:
        most = "as much as is free" if amount["borrow"] is None else f"at most {number(amount['borrow'])}"
        lines.append(("", f"borrows {uses} - {guarantee} = {number(amount['borrowed'])} (may borrow {most})"))
        lines.append(("", f"of that {number(amount['exposure'])} could be taken back right now"))
    if amount["guarantee"] > amount["used"]:
        idle = number(amount["guarantee"] - amount["used"])
        lines.append(
            (
                "",
                f"leaves {guarantee} - {uses} = {idle} idle: lends {number(amount['lendable'])}, "
                f"of which others have {number(amount['lent'])}",
            )
        )
    return lines
