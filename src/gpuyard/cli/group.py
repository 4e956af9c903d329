"""All commands as one group of Typer's, each built when it is called."""

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from gpuyard.cli.bridge import BareCommand, bare_values, bridge_group, bridged
from gpuyard.cli.helpwords import reworded
from gpuyard.cli.lazy import ENTRIES, Entry
from gpuyard.cli.overall_help import page


class LazyGroup(TyperGroup):
    """A group with the commands in `SECTIONS`."""

    def __init__(self, **attrs: Any) -> None:
        super().__init__(**attrs)
        # Suggestions for a mistyped command are made from the names.
        self.commands = dict.fromkeys(ENTRIES)  # type: ignore[assignment]

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in the order of the help."""
        return list(ENTRIES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command, built now."""
        entry = ENTRIES.get(cmd_name)
        return None if entry is None else built(cmd_name, entry)

    def get_help(self, ctx: Any) -> str:
        """The page that is also printed without Typer."""
        return page()


def built(name: str, entry: Entry) -> Any:
    """A command or a group of them."""
    module = import_module(f"gpuyard.cli.{entry.module}")
    found = getattr(module, entry.attribute or name)
    alone = typer.Typer(
        add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False, suggest_commands=True
    )
    if entry.attribute == "app":
        bridge_group(found)
        alone.add_typer(found, name=name, short_help=entry.help)
        return reworded(get_group(alone).commands[name])
    bare = bare_values(found)
    kind: Any = type("Bare", (BareCommand,), {"bare": bare}) if bare else TyperCommand
    if entry.cls:
        place, _, class_name = entry.cls.partition(":")
        kind = getattr(import_module(f"gpuyard.cli.{place}"), class_name)
    settings: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
    if entry.words:
        settings["allow_interspersed_args"] = False
    alone.command(
        name,
        cls=kind,
        short_help=entry.help,
        no_args_is_help=entry.no_args_is_help,
        context_settings=settings,
    )(bridged(found))
    return reworded(get_command(alone))
