"""Light declarations for Typer: `Option` and `Argument` as its own, `Called` from its context.

And the kinds of command that Typer does not have: one that carries another command line, as `yard run -- train.sh`, and
one that lists its options under headings.
"""

from collections.abc import Callable
from inspect import Parameter, signature
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from gpuyard.cli.options import Argument, Called, Option

DASHES, OPTIONS = "gpuyard.dashes", "gpuyard.options"
_REST = "Options"


def bridged(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command as Typer understands it. Declarations in Typer's own words stay as they are."""
    parameters, asks = [], ""
    for parameter in signature(command).parameters.values():
        if parameter.annotation is Called:
            asks = parameter.name
            parameters.append(parameter.replace(annotation=typer.Context))
        else:
            parameters.append(parameter.replace(annotation=_annotation(parameter)))

    def call(**values: Any) -> Any:
        if asks:
            values[asks] = called(values[asks])
        return command(**values)

    call.__doc__, call.__name__ = command.__doc__, command.__name__
    call.__annotations__ = {each.name: each.annotation for each in parameters}
    call.__signature__ = signature(command).replace(parameters=parameters)  # type: ignore[attr-defined]
    return call


def bridge_group(group: typer.Typer) -> None:
    """The same for every command of a group, and for the group's own function."""
    alone = group.registered_callback
    if alone is not None and alone.callback is not None:
        alone.callback = bridged(alone.callback)
    for command in group.registered_commands:
        if command.callback is not None:
            command.callback = bridged(command.callback)
    for below in group.registered_groups:
        if below.typer_instance is not None:
            bridge_group(below.typer_instance)


def called(context: Any) -> Called:
    """How a command was called, from Typer's context."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    given = {name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"}
    return Called(context.meta.get(DASHES, False), frozenset(given), context.meta.get(OPTIONS, ()))


def _annotation(parameter: Parameter) -> Any:
    hint = parameter.annotation
    for says in getattr(hint, "__metadata__", ()):
        if isinstance(says, Option):
            theirs: Any = typer.Option(
                *says.names, metavar=says.metavar, help=says.help, min=says.min, max=says.max,
                show_default=says.show_default,
            )  # fmt: skip
            return Annotated[hint.__origin__, theirs]
        if isinstance(says, Argument):
            theirs = typer.Argument(
                metavar=says.metavar,
                help=says.help,
                show_default=says.show_default,
                envvar=says.envvar or None,
            )
            return Annotated[hint.__origin__, theirs]
    return hint


class BareCommand(TyperCommand):
    """A command with options that may stand without a value, such as `--watch`."""

    bare: dict[str, str]
    """By name of the option, the value that it then has."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Fill in the values that are left out."""
        full: list[str] = []
        # Behind `--` nothing is an option, however it looks.
        end = args.index("--") if "--" in args else len(args)
        for place, word in enumerate(args[:end]):
            full.append(word)
            if word in self.bare and not (place + 1 < len(args) and args[place + 1].isdecimal()):
                full.append(self.bare[word])
        return super().parse_args(ctx, [*full, *args[end:]])


def bare_values(command: Callable[..., Any]) -> dict[str, str]:
    """Options of a command that may stand without a value."""
    return {
        name: says.bare
        for hint in command.__annotations__.values()
        for says in getattr(hint, "__metadata__", ())
        if isinstance(says, Option) and says.bare
        for name in says.names
    }


class WordsCommand(TyperCommand):
    """Knows whether `--` stood before the words: what follows it is a command line, whatever it looks like."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Note the dashes and what stood before them, which are gone afterwards."""
        typed = list(args)
        left = super().parse_args(ctx, args)
        words = ctx.params.get("words") or ()
        own = typed[: len(typed) - len(words)]
        ctx.meta[DASHES] = own[-1:] == ["--"]
        ctx.meta[OPTIONS] = tuple(own[:-1] if own[-1:] == ["--"] else own)
        return left


class SectionedCommand(TyperCommand):
    """A command with its options in the sections that `rich_help_panel` names."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Those without a section come first, then section by section."""
        sections: dict[str, list[tuple[str, str]]] = {_REST: []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                section = getattr(parameter, "rich_help_panel", None) or _REST
                sections.setdefault(section, []).append(record)
        for section, records in sections.items():
            with formatter.section(section):
                formatter.write_dl(records)
