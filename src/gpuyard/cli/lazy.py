"""Commands that are imported when they are called, not when they are listed.

Typer builds every command of a program before it runs one. With thirty commands that takes longer than most of them,
so here a table has their names and what they do, and only the one that is called is built.
"""

from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group


class Entry(NamedTuple):
    """A command: where it is and what it does."""

    module: str
    help: str
    attribute: str = ""
    """The function, if it is not called like the command; `app` for a group of commands."""
    no_args_is_help: bool = False
    cls: str = ""
    """`module:Class` of a command that is more than Typer's own."""
    words: bool = False
    """Whether it takes a command line of its own: what follows the first word is not ours."""


SECTIONS: dict[str, dict[str, Entry]] = {
    "The yard": {
        "up": Entry("up", "Start the yard on this machine."),
        "down": Entry("down", "Stop it; jobs go on, or stop too with --jobs."),
        "nodes": Entry("nodes", "Show the nodes and what is free."),
        "drain": Entry("nodes", "Let nothing new start on a node.", no_args_is_help=True),
        "resume": Entry("nodes", "Let a drained node take work again.", no_args_is_help=True),
        "tenants": Entry("tenants", "Show the tenants, their quotas and what they use."),
        "validate": Entry("validate", "Check a yard.yaml.", no_args_is_help=True),
        "config": Entry("config", "Print the configuration in force, or its versions."),
        "diff": Entry("diff", "Show what a yard.yaml would change.", no_args_is_help=True),
        "apply": Entry("apply", "Put a yard.yaml in force, with a preview.", no_args_is_help=True),
        "rollback": Entry("apply", "Go back to an earlier configuration."),
    },
    "Jobs": {
        "convert": Entry("convert", "Turn a script or a manifest into native YAML.", no_args_is_help=True),
        "submit": Entry(
            "submit",
            "Submit a command or a script.",
            no_args_is_help=True,
            cls="words:WordsCommand",
            words=True,
        ),
        "run": Entry(
            "run", "Run a command and watch it.", no_args_is_help=True, cls="words:WordsCommand", words=True
        ),
        "queue": Entry("queue", "Show what runs and what waits, in order."),
        "show": Entry("show", "Show a job, and why it waits.", no_args_is_help=True),
        "eta": Entry("eta", "Say when waiting jobs will start.", no_args_is_help=True),
        "why": Entry("why", "Say why a job waits, now or then, and what would help.", no_args_is_help=True),
        "share": Entry("share", "Show each tenant's fair share, and how it comes about."),
        "logs": Entry("logs", "Show what a job wrote.", no_args_is_help=True),
        "history": Entry("history", "Show jobs that have ended."),
        "cancel": Entry("verbs", "Cancel jobs.", no_args_is_help=True),
        "hold": Entry("verbs", "Keep waiting jobs from starting.", no_args_is_help=True),
        "release": Entry("verbs", "Let held jobs start.", no_args_is_help=True),
        "suspend": Entry("verbs", "Freeze running jobs; they keep their GPUs.", no_args_is_help=True),
        "continue": Entry("verbs", "Let frozen jobs go on.", "continue_", no_args_is_help=True),
        "requeue": Entry("verbs", "Stop running jobs and let them wait again.", no_args_is_help=True),
        "checkpoint": Entry("verbs", "Say that a running job has saved its work."),
    },
    "Other ways in": {
        "slurm": Entry("slurm.command", "Slurm's own commands, over this yard.", words=True),
    },
    "People": {
        "token": Entry("token", "Make, list and revoke tokens.", "app", no_args_is_help=True),
        "login": Entry("login", "Log in to a yard on another machine."),
        "logout": Entry("login", "Forget the login."),
        "whoami": Entry("login", "Show who you are to the yard."),
        "audit": Entry("audit", "Show who did what."),
    },
    "Foresight": {
        "simulate": Entry(
            "simulate",
            "Compare policies on recorded jobs.",
            no_args_is_help=True,
            cls="sections:SectionedCommand",
        ),
        "demo": Entry("demo", "See a yard at work, and a week of three teams under two policies."),
        "bench": Entry("bench", "Measure speed on this machine.", "app", no_args_is_help=True),
    },
}

ENTRIES = {name: entry for section in SECTIONS.values() for name, entry in section.items()}


class LazyGroup(TyperGroup):
    """A group whose commands stand in `SECTIONS`."""

    def __init__(self, **attrs: Any) -> None:
        super().__init__(**attrs)
        # The names are what suggestions for a mistyped one are made from.
        self.commands = dict.fromkeys(ENTRIES)  # type: ignore[assignment]

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in the order of the help."""
        return list(ENTRIES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command, built now."""
        entry = ENTRIES.get(cmd_name)
        return None if entry is None else build(cmd_name, entry)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The table, section by section, without importing anything."""
        width = max(map(len, ENTRIES))
        for section, entries in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(name.ljust(width), entry.help) for name, entry in entries.items()])


def build(name: str, entry: Entry) -> Any:
    """A command or a group of them."""
    module = import_module(f"gpuyard.cli.{entry.module}")
    found = getattr(module, entry.attribute or name)
    alone = typer.Typer(
        add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False, suggest_commands=True
    )
    if entry.attribute == "app":
        alone.add_typer(found, name=name, short_help=entry.help)
        return get_group(alone).commands[name]
    kind: Any = TyperCommand
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
    )(found)
    return get_command(alone)
