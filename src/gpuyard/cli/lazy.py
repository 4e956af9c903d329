"""Commands that are imported when they are called, not when they are listed.

Typer builds every command of a program before it runs one. With thirty commands that takes longer than most of them
run, so here a table has their names and descriptions, and only the called command is built.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple


class Entry(NamedTuple):
    """A command: where it is and what it does."""

    module: str
    help: str
    attribute: str = ""
    """The function, if its name differs from the command's; `app` for a group of commands."""
    no_args_is_help: bool = False
    cls: str = ""
    """`module:Class` of a command that is more than Typer's own."""
    words: bool = False
    """Whether it takes a command line of its own: what follows the first word is not ours."""

    @property
    def plain(self) -> bool:
        """Whether it starts at once, without Typer."""
        return self.module in PLAIN_MODULES


PLAIN_MODULES = frozenset(
    {
        "audit",
        "completion",
        "defrag",
        "down",
        "eta",
        "history",
        "logs",
        "nodes",
        "prune",
        "queue",
        "rebuild",
        "run",
        "share",
        "show",
        "submit",
        "tenants",
        "top",
        "verbs",
        "why",
    }
)
"""Modules that do not import Typer and declare their options with `options`."""

SECTIONS: dict[str, dict[str, Entry]] = {
    "The yard": {
        "up": Entry("up", "Start the yard on this machine."),
        "down": Entry("down", "Stop the yard; jobs go on, or stop too with --jobs."),
        "nodes": Entry("nodes", "Show the nodes and what is free."),
        "mig": Entry("mig", "Show and set how GPUs are cut into MIG slices.", "app"),
        "defrag": Entry("defrag", "List moves of jobs that would free whole GPUs."),
        "drain": Entry("nodes", "Let nothing new start on a node."),
        "resume": Entry("nodes", "Let a drained node take work again."),
        "tenants": Entry("tenants", "Show the tenants, their quotas and what they use."),
        "share": Entry("share", "Show each tenant's fair share, and how it comes about."),
        "validate": Entry("validate", "Check a yard.yaml.", no_args_is_help=True),
        "config": Entry("config", "Print the configuration in force, or its versions."),
        "diff": Entry("diff", "Show what a yard.yaml would change."),
        "apply": Entry("apply", "Put a yard.yaml in force, with a preview."),
        "rollback": Entry("apply", "Go back to an earlier configuration."),
        "service": Entry("service", "Run the yard as a service of systemd.", "app", no_args_is_help=True),
        "store": Entry(
            "store", "Copy the whole store: back up, restore, move it.", "app", no_args_is_help=True
        ),
        "prune": Entry("prune", "Remove what is kept of old jobs."),
        "rebuild": Entry("rebuild", "Fill a projection anew from the log."),
        "completion": Entry("completion", "Make a shell complete `yard` on Tab."),
    },
    "Jobs": {
        "convert": Entry("convert", "Turn a script or a manifest into native YAML."),
        "submit": Entry(
            "submit",
            "Submit a command or a script.",
            no_args_is_help=True,
            cls="bridge:WordsCommand",
            words=True,
        ),
        "run": Entry(
            "run", "Run a command and watch it.", no_args_is_help=True, cls="bridge:WordsCommand", words=True
        ),
        "queue": Entry("queue", "Show what runs and what waits, in order."),
        "top": Entry("top", "Watch GPUs, queue and tenants on a full screen."),
        "show": Entry("show", "Show everything about a job."),
        "why": Entry("why", "Say why a job waits, now or in the past, and what would help."),
        "eta": Entry("eta", "Say when waiting jobs will start."),
        "logs": Entry("logs", "Show what a job wrote."),
        "history": Entry("history", "Show jobs that have ended."),
        "cancel": Entry("verbs", "Cancel jobs, by id or all that match."),
        "hold": Entry("verbs", "Keep waiting jobs from starting."),
        "release": Entry("verbs", "Let held jobs start."),
        "suspend": Entry("verbs", "Freeze running jobs; they keep their GPUs."),
        "continue": Entry("verbs", "Let frozen jobs go on.", "continue_"),
        "requeue": Entry("verbs", "Stop running jobs and let them wait again."),
        "move": Entry("verbs", "Move waiting jobs to the top of the line."),
        "checkpoint": Entry("verbs", "Say that a running job has saved its work."),
    },
    "Other ways in": {
        "slurm": Entry("slurm.command", "Slurm's own commands, over this yard.", words=True),
    },
    "People": {
        "token": Entry("token", "Make, list and revoke tokens.", "app", no_args_is_help=True),
        "login": Entry("login", "Log in to a yard on another machine."),
        "logout": Entry("login", "Forget the login."),
        "whoami": Entry("login", "Show who you are to the yard, and your tenant."),
        "audit": Entry("audit", "Show what people did."),
    },
    "Foresight": {
        "simulate": Entry(
            "simulate",
            "Compare policies on recorded jobs.",
            no_args_is_help=True,
            cls="bridge:SectionedCommand",
        ),
        "demo": Entry("demo", "See a yard at work, and a week of three teams under two policies."),
        "bench": Entry("bench", "Measure speed on this machine.", "app", no_args_is_help=True),
    },
}

ALIASES = {
    "ps": "queue",
    "ls": "queue",
    "jobs": "queue",
    "status": "queue",
    "kill": "cancel",
    "stop": "cancel",
    "log": "logs",
    "info": "show",
}
"""Words that people type, and the command that is meant. `status JOB` is `show JOB`."""


def resolved(words: Sequence[str]) -> list[str]:
    """A command line with the command's own name, where another word for it was typed."""
    first, *rest = words if words else ("",)
    if first == "status" and rest[:1] and rest[0][:1].isdecimal():
        return ["show", *rest]
    return [ALIASES[first], *rest] if first in ALIASES else list(words)


ENTRIES = {name: entry for section in SECTIONS.values() for name, entry in section.items()}


def build(name: str, entry: Entry) -> Any:
    """A command or a group of them, as Typer has it."""
    from gpuyard.cli.group import built

    return built(name, entry)
