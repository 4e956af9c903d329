"""The table of all commands: names, one line about each, and where the function is, imported when it is called."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

HELP = ("-h", "--help")


class Entry(NamedTuple):
    """A command, or a group of commands."""

    module: str
    """Below `gpuyard.cli`."""
    help: str
    """One line, for the list of commands."""
    attribute: str = ""
    """The function, if its name differs from the command's."""
    no_args_is_help: bool = False
    words: bool = False
    """Whether it takes a command line of its own: what follows the first word is not ours."""
    below: "Mapping[str, Entry]" = MappingProxyType({})
    """Commands of a group."""
    about: str = ""
    """The help of a group that does nothing by itself; a group without it is a command too."""

    def function(self, name: str) -> Callable[..., Any]:
        """The command, imported now. Its docstring is its help, its parameters are its options."""
        from importlib import import_module

        found: Callable[..., Any] = getattr(
            import_module(f"gpuyard.cli.{self.module}"), self.attribute or name
        )
        return found


SECTIONS: dict[str, dict[str, Entry]] = {
    "The yard": {
        "up": Entry("up", "Start the yard on this machine."),
        "down": Entry("down", "Stop the yard; jobs go on, or stop too with --jobs."),
        "nodes": Entry("nodes", "Show the nodes and what is free."),
        "mig": Entry(
            "mig",
            "Show and set how GPUs are cut into MIG slices.",
            below={
                "plan": Entry("mig", "Say what a layout, or the queue, would do to GPUs."),
                "apply": Entry("mig", "Pin GPUs of a node to a layout.", no_args_is_help=True),
                "release": Entry("mig", "Let pinned GPUs be cut by demand again."),
                "export": Entry("mig", "Write the layouts as a mig-parted file."),
            },
        ),
        "defrag": Entry("defrag", "List moves of jobs that would free whole GPUs."),
        "drain": Entry("nodes", "Let nothing new start on a node."),
        "resume": Entry("nodes", "Let a drained node take work again."),
        "tenants": Entry("reports", "Show the tenants, their quotas and what they use."),
        "share": Entry("share", "Show each tenant's fair share, and how it comes about."),
        "validate": Entry("validate", "Check a yard.yaml.", no_args_is_help=True),
        "config": Entry("config", "Print the configuration in force, or its versions."),
        "diff": Entry("diff", "Show what a yard.yaml would change."),
        "apply": Entry("apply", "Put a yard.yaml in force, with a preview."),
        "rollback": Entry("apply", "Go back to an earlier configuration."),
        "service": Entry(
            "service",
            "Run the yard as a service of systemd.",
            about="Run the yard as a service of systemd: started with the machine, and again after a failure.",
            below={
                "install": Entry("service", "Write a unit file, and enable and start the service."),
                "status": Entry("service", "Show how systemd sees the service."),
                "uninstall": Entry("service", "Stop the service and remove its unit."),
            },
        ),
        "store": Entry(
            "store",
            "Copy the whole store: back up, restore, move it.",
            about="Copy a yard's whole store: back it up, restore it, move it to PostgreSQL.",
            below={"copy": Entry("store", "Copy everything that a store holds.", no_args_is_help=True)},
        ),
        "prune": Entry("prune", "Remove what is kept of old jobs."),
        "rebuild": Entry("rebuild", "Fill a projection anew from the log."),
        "completion": Entry("completion", "Make a shell complete `yard` on Tab."),
    },
    "Jobs": {
        "convert": Entry("convert", "Turn a script or a manifest into native YAML."),
        "submit": Entry("submit", "Submit a command or a script.", no_args_is_help=True, words=True),
        "run": Entry("run", "Run a command and watch it.", no_args_is_help=True, words=True),
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
        "slurm": Entry("slurm.face", "Slurm's own commands, over this yard.", words=True),
    },
    "People": {
        "token": Entry(
            "token",
            "Make, list and revoke tokens.",
            about="Make, list and revoke tokens: how people and programs come in over the network.",
            below={
                "create": Entry("token", "Make a token."),
                "list": Entry(
                    "token", "List your own tokens, and those of the tenants that you administer.", "list_"
                ),
                "revoke": Entry("token", "Take tokens back, and with each those that were made with it."),
                "unbind": Entry("token", "Unbind a name from the person of its first login."),
            },
        ),
        "login": Entry("login", "Log in to a yard on another machine."),
        "logout": Entry("login", "Forget the login."),
        "whoami": Entry("login", "Show who you are to the yard, and your tenant."),
        "audit": Entry("reports", "Show what people did."),
    },
    "Foresight": {
        "simulate": Entry("simulate", "Compare policies on recorded jobs.", no_args_is_help=True),
        "demo": Entry("demo", "See a yard at work, and a week of three teams under two policies."),
        "bench": Entry(
            "bench",
            "Measure speed on this machine.",
            about="Measure how fast gpuyard decides and simulates, and how well it packs.",
            below={
                "pack": Entry("bench_pack", "Measure how full a placement gets the GPUs.", "bench_pack"),
                "place": Entry("bench_place", "Count placements per CPU second.", "bench_place"),
                "simulate": Entry(
                    "bench", "Simulate a generated trace and measure CPU time and memory.", "bench_simulate"
                ),
                "decide": Entry(
                    "bench", "Time single decisions on a full cluster with a long queue.", "bench_decide"
                ),
            },
        ),
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
    if first == "help":
        return [*resolved(rest), "--help"]
    if first == "status" and rest[:1] and rest[0][:1].isdecimal():
        return ["show", *rest]
    return [ALIASES[first], *rest] if first in ALIASES else list(words)


class _Entries(dict[str, Entry]):
    """All commands by name; where none of ours has a name, a report of an installed package may have it."""

    def __missing__(self, name: str) -> Entry:
        return reports_of_packages()[name]

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in reports_of_packages()


ENTRIES = _Entries({name: entry for section in SECTIONS.values() for name, entry in section.items()})


def sections() -> dict[str, dict[str, Entry]]:
    """All commands by section, with those of installed packages."""
    outside = reports_of_packages()
    return {**SECTIONS, "Reports of packages": outside} if outside else SECTIONS


def reports_of_packages() -> dict[str, Entry]:
    """Commands of reports that installed packages have."""
    from gpuyard.reports.installed import installed

    if not installed():
        return {}
    from gpuyard.reports.registry import others

    return {name: Entry("reports", report.help) for name, report in others().items()}
