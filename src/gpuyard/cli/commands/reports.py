"""Commands of reports, each made from the report alone: its options, its forms of output, `--watch`."""

from collections.abc import Callable, Mapping
from typing import Any

from gpuyard.cli.connection.places import open_client
from gpuyard.cli.line.options import (
    Argument,
    ColumnsOption,
    Option,
    Output,
    OutputOption,
    PageOutput,
    Parameter,
    WatchOption,
    with_options,
)
from gpuyard.reports import registry
from gpuyard.reports.report import Flag, Report

_KINDS: dict[str, tuple[type, Any]] = {"integer": (int, None), "boolean": (bool, False), "string": (str, "")}
"""By its type in the description, what an option becomes, and what it is when it is left out."""


def __getattr__(name: str) -> Callable[..., None]:
    """The command of a report, by its name."""
    report = (
        registry.load_own_report(name) if name in registry.OURS else registry.load_outside_reports().get(name)
    )
    if report is None:
        raise AttributeError(name)
    return command(report)


def command(report: Report[Any]) -> Callable[..., None]:
    """The command of a report, as the reader of command lines wants it."""
    described = {each["name"]: each for each in report.endpoint.parameters}
    declared = [_parameter(flag, described[flag.parameter]) for flag in report.flags]
    if report.page is not None:
        return _with_page(report, declared)

    @with_options(declared)
    def run(
        *,
        output: OutputOption = Output.TABLE,
        columns: ColumnsOption = "",
        watch: WatchOption = None,
        **values: Any,
    ) -> None:
        show_report(report, values, output, columns, watch)

    run.__doc__ = _help(report)
    return run


def _with_page(report: Report[Any], declared: list[Parameter]) -> Callable[..., None]:
    """The command of a report that is a page too."""
    forms = Option(
        "-o",
        "--output",
        metavar="FORM",
        help="table, wide, json, yaml, csv, parquet, or html: a page with plots.",
    )
    declared.append(Parameter("output", PageOutput, False, forms, PageOutput.TABLE, False))

    @with_options(declared)
    def run(*, columns: ColumnsOption = "", watch: WatchOption = None, **values: Any) -> None:
        show_report(report, values, values.pop("output"), columns, watch)

    run.__doc__ = _help(report)
    return run


def _help(report: Report[Any]) -> str:
    return f"{report.help}\n\n{report.more_help}" if report.more_help else report.help


def _parameter(flag: Flag, described: Mapping[str, Any]) -> Parameter:
    """An option as the endpoint describes it."""
    schema = described["schema"]
    says_more = " Also: today, yesterday, 7d (ago)." if schema.get("format") == "date" else ""
    kind, empty = _KINDS[schema["type"]]
    if flag.operand:
        word = Argument(metavar=flag.parameter.upper(), help=flag.help or described["description"])
        return Parameter(flag.parameter, kind, False, word, empty, False)
    says = Option(
        *(flag.names or (f"--{flag.parameter.replace('_', '-')}",)),
        metavar=None if kind is bool else "N" if kind is int else flag.parameter.upper(),
        help=(flag.help or described["description"]) + says_more,
        min=schema.get("minimum"),
        max=schema.get("maximum"),
    )
    return Parameter(
        flag.parameter, kind, False, says, empty if flag.default is None else flag.default, False
    )


def show_report(
    report: Report[Any],
    values: Mapping[str, Any],
    output: Output | PageOutput,
    columns: str,
    watch: int | None,
) -> None:
    """Ask for a report and print it, once or again and again."""
    from gpuyard.cli.connection.places import show_or_watch
    from gpuyard.cli.listings.tables import print_records, write_document
    from gpuyard.cli.terminal.streams import print_notice

    values = _with_days(report, values)
    if output == PageOutput.HTML:
        _print_page(report, values, columns, watch)
        return

    def show() -> None:
        with open_client() as yard:
            reply = yard.report(report, **values)
        rows = reply[report.rows]
        if report.whole and not columns and output in (Output.JSON, Output.YAML):
            write_document(reply, output)
        else:
            shows = report.columns(reply)
            fields = () if output in (Output.TABLE, Output.WIDE) and not columns else report.fields(reply)
            print_records(rows, shows, output, fields=fields, wanted=columns)
        for note in report.notes(reply):
            print_notice(note, before="note: ", style="bold")

    show_or_watch(show, watch, wakes=report.wakes)


def _with_days(report: Report[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values; where the endpoint takes a day, the day of the books that was meant."""
    taken = [each["name"] for each in report.endpoint.parameters if each["schema"].get("format") == "date"]
    given = [name for name in taken if values.get(name)]
    if not given:
        return dict(values)
    from gpuyard.cli.line.times import book_day, now_ms

    at_ms = now_ms()
    return {**values} | {name: book_day(f"--{name}", values[name], at_ms) for name in given}


def _print_page(report: Report[Any], values: Mapping[str, Any], columns: str, watch: int | None) -> None:
    from gpuyard.errors import BadInput

    if columns or watch is not None:
        raise BadInput("a page shows all of a report, once", "Leave --columns and --watch out, or -o html.")
    assert report.page is not None
    with open_client() as yard:
        print(report.page(lambda asked: yard.report(report, **asked), values), end="")
