"""Commands of reports, each made from the report alone: its options, its forms of output, `--watch`."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from gpuyard.cli.connection.places import client
from gpuyard.cli.line.options import ColumnsOption, Option, Output, OutputOption, WatchOption
from gpuyard.reports import registry
from gpuyard.reports.report import Flag, Report

_KINDS = {"integer": int, "boolean": bool, "string": str}


def __getattr__(name: str) -> Callable[..., None]:
    """The command of a report, by its name."""
    report = registry.ours(name) if name in registry.OURS else registry.others().get(name)
    if report is None:
        raise AttributeError(name)
    return command(report)


def command(report: Report[Any]) -> Callable[..., None]:
    """A function as one that is written by hand: readers of command lines look at its parameters."""
    parameters = {each["name"]: each for each in report.endpoint.parameters}
    names = [flag.parameter for flag in report.flags]
    made: dict[str, Any] = {"run": lambda values: _run(report, values)}
    exec(f"def command({', '.join([*names, 'output', 'columns', 'watch'])}): run(locals())", made)
    found: Any = made["command"]
    hints = [_hint(flag, parameters[flag.parameter]) for flag in report.flags]
    found.__annotations__ = {
        **dict(zip(names, [hint for hint, _ in hints], strict=True)),
        "output": OutputOption,
        "columns": ColumnsOption,
        "watch": WatchOption,
    }
    found.__defaults__ = (*(default for _, default in hints), Output.TABLE, "", None)
    found.__name__ = report.name
    found.__doc__ = f"{report.help}\n\n{report.more_help}" if report.more_help else report.help
    command_: Callable[..., None] = found
    return command_


def _hint(flag: Flag, parameter: Mapping[str, Any]) -> tuple[Any, Any]:
    """The declaration of an option, and its default."""
    schema = parameter["schema"]
    kind: Any = _KINDS[schema["type"]]
    empty = {int: None, bool: False, str: ""}[kind]
    default = empty if flag.default is None else flag.default
    says = Option(
        *(flag.names or (f"--{flag.parameter.replace('_', '-')}",)),
        metavar=None if kind is bool else "N" if kind is int else flag.parameter.upper(),
        help=flag.help or parameter["description"],
        min=schema.get("minimum"),
        max=schema.get("maximum"),
        show_default=default != empty,
    )
    return Annotated[kind | None if default is None else kind, says], default


def _run(report: Report[Any], values: dict[str, Any]) -> None:
    output, columns, watch = (values.pop(name) for name in ("output", "columns", "watch"))
    shown(report, values, output, columns, watch)


def shown(
    report: Report[Any], values: Mapping[str, Any], output: Output, columns: str, watch: int | None
) -> None:
    """Ask for a report and print it, once or again and again."""
    from gpuyard.cli.connection.watching import repeated
    from gpuyard.cli.listings.tables import emit
    from gpuyard.cli.terminal.streams import notice

    def show() -> None:
        with client() as yard:
            reply = yard.report(report, **values)
        rows = reply[report.rows]
        fields = () if rows else report.fields()
        emit(rows, report.columns(rows), output, fields=fields, wanted=columns)
        for note in report.notes(reply):
            notice(note, before="note: ", style="bold")

    repeated(show, watch, wakes=report.wakes)
