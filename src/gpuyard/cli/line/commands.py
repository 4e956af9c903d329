"""The table of all commands: names, one line about each, and where the function is, imported when it is called."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

TYPE_CHECKING = False
if TYPE_CHECKING:
    # For the type checker alone: `typing` would take a seventh of the time that `yard --help` takes.
    from typing import Any

HELP = ("-h", "--help")


class Entry:
    """A command, or a group of commands. Written out: a NamedTuple is compiled anew at every start."""

    __slots__ = ("about", "attribute", "below", "help", "module", "no_args_is_help", "words")

    def __init__(
        self,
        module: str,
        help: str,
        attribute: str = "",
        no_args_is_help: bool = False,
        words: bool = False,
        below: "Mapping[str, Entry]" = MappingProxyType({}),
        about: str = "",
    ) -> None:
        self.module = module
        """Below `gpuyard.cli`."""
        self.help = help
        """One line, for the list of commands."""
        self.attribute = attribute
        """The function, if its name differs from the command's."""
        self.no_args_is_help = no_args_is_help
        self.words = words
        """Whether it takes a command line of its own: what follows the first word is not ours."""
        self.below = below
        """Commands of a group."""
        self.about = about
        """The help of a group that does nothing by itself; a group without it is a command too."""

    def function(self, name: str) -> "Callable[..., Any]":
        """The command, imported now. Its docstring is its help, its parameters are its options."""
        from importlib import import_module

        found: Callable[..., Any] = getattr(
            import_module(f"gpuyard.cli.{self.module}"), self.attribute or name
        )
        return found


SECTIONS: dict[str, dict[str, Entry]] = {
    "The yard": {
        "up": Entry("commands.yard.up", "Start the yard on this machine."),
        "down": Entry("commands.yard.down", "Stop the yard; jobs go on, or stop too with --jobs."),
        "collect": Entry(
            "commands.yard.collect", "Watch this node and hand in what is seen to a yard elsewhere."
        ),
        "nodes": Entry("commands.yard.nodes", "Show the nodes and what is free."),
        "doctor": Entry("commands.reports", "Show what keeps jobs on this machine to what they asked for."),
        "mig": Entry(
            "commands.yard.mig",
            "Show and set how GPUs are cut into MIG slices.",
            below={
                "plan": Entry("commands.yard.mig", "Say what a layout, or the queue, would do to GPUs."),
                "apply": Entry("commands.yard.mig", "Pin GPUs of a node to a layout.", no_args_is_help=True),
                "release": Entry("commands.yard.mig", "Let pinned GPUs be cut by demand again."),
                "export": Entry("commands.yard.mig", "Write the layouts as a mig-parted file."),
            },
        ),
        "defrag": Entry("commands.yard.defrag", "List moves of jobs that would free whole GPUs."),
        "drain": Entry("commands.yard.nodes", "Let nothing new start on a node."),
        "resume": Entry("commands.yard.nodes", "Let a drained node take work again."),
        "tenants": Entry("commands.reports", "Show the tenants, their quotas and what they use."),
        "share": Entry("commands.people.share", "Show each tenant's fair share, and how it comes about."),
        "validate": Entry("commands.config.validate", "Check a yard.yaml.", no_args_is_help=True),
        "config": Entry("commands.config.config", "Print the configuration in force, or its versions."),
        "diff": Entry("commands.config.apply", "Show what a yard.yaml would change."),
        "apply": Entry("commands.config.apply", "Put a yard.yaml in force, with a preview."),
        "rollback": Entry("commands.config.apply", "Go back to an earlier configuration."),
        "service": Entry(
            "commands.yard.service",
            "Run the yard as a service of systemd.",
            about="Run the yard as a service of systemd: started with the machine, and again after a failure.",
            below={
                "install": Entry(
                    "commands.yard.service", "Write a unit file, and enable and start the service."
                ),
                "status": Entry("commands.yard.service", "Show how systemd sees the service."),
                "uninstall": Entry("commands.yard.service", "Stop the service and remove its unit."),
            },
        ),
        "store": Entry(
            "commands.yard.upkeep",
            "Copy the whole store: back up, restore, move it.",
            about="Copy a yard's whole store: back it up, restore it, move it to PostgreSQL.",
            below={
                "copy": Entry(
                    "commands.yard.upkeep", "Copy everything that a store holds.", no_args_is_help=True
                )
            },
        ),
        "export": Entry(
            "commands.yard.export",
            "Write what Prometheus, Grafana and Fluent Bit need to see this yard.",
            about="Write files for programs that watch: to standard output, or into a folder.",
            below={
                "focus": Entry("commands.yard.export", "Write the charges as rows of FOCUS."),
                "prometheus": Entry("commands.yard.export", "Write a scrape file for Prometheus."),
                "grafana": Entry("commands.yard.export", "Write dashboards for Grafana."),
                "fluent-bit": Entry(
                    "commands.yard.export", "Write a configuration of Fluent Bit for logs.", "fluent_bit"
                ),
            },
        ),
        "prune": Entry("commands.yard.upkeep", "Remove what is kept of old jobs."),
        "rebuild": Entry("commands.yard.upkeep", "Fill a projection anew from the log."),
        "completion": Entry("commands.yard.completion", "Make a shell complete `yard` on Tab."),
    },
    "Jobs": {
        "convert": Entry("commands.submit.convert", "Turn a script or a manifest into native YAML."),
        "submit": Entry(
            "commands.submit.submit", "Submit a command or a script.", no_args_is_help=True, words=True
        ),
        "run": Entry("commands.submit.run", "Run a command and watch it.", no_args_is_help=True, words=True),
        "queue": Entry("commands.jobs.queue", "Show what runs and what waits, in order."),
        "top": Entry("top", "Watch GPUs, queue and tenants on a full screen."),
        "show": Entry("commands.jobs.show", "Show everything about a job."),
        "efficiency": Entry(
            "commands.reports", "Show what jobs used of what they asked for, and the smaller ask."
        ),
        "cost": Entry(
            "commands.reports",
            "Show where GPU time went, in GPU-hours, and what it cost.",
            below={
                "statement": Entry("commands.reports", "Show one month of a tenant, as a page to print too."),
                "savings": Entry("commands.reports", "Show what a month has saved against another."),
                "tco": Entry(
                    "commands.reports", "Compare owning, reserving, on demand and spot for the recorded load."
                ),
                "reconcile": Entry(
                    "commands.yard.reconcile",
                    "Compare a cloud's bill with the books.",
                    no_args_is_help=True,
                ),
                "opencost": Entry(
                    "commands.yard.opencost",
                    "Compare what OpenCost or Kubecost says with the books.",
                    no_args_is_help=True,
                ),
                "close": Entry(
                    "commands.yard.upkeep",
                    "Close the books of a month.",
                    "close_month",
                    no_args_is_help=True,
                ),
            },
        ),
        "waits": Entry("commands.reports", "Show what jobs waited for, in GPU-hours."),
        "budget": Entry("commands.reports", "Show what is spent of each budget, and when it will be spent."),
        "why": Entry("commands.jobs.why", "Say why a job waits, now or in the past, and what would help."),
        "eta": Entry("commands.jobs.eta", "Say when waiting jobs will start."),
        "logs": Entry("commands.jobs.logs", "Show what a job wrote."),
        "attach": Entry("commands.inside.attach", "Come to the terminal of a job."),
        "shell": Entry("commands.inside.attach", "Open a shell beside a running job.", words=True),
        "forward": Entry("commands.inside.forward", "Make a port of a job a port of this machine."),
        "cp": Entry("commands.inside.copy", "Copy files into a job and out of it."),
        "notebook": Entry("commands.submit.notebook", "Run JupyterLab on the yard, reached from here."),
        "history": Entry("commands.jobs.history", "Show jobs that have ended."),
        "cancel": Entry("commands.jobs.verbs", "Cancel jobs, by id or all that match."),
        "hold": Entry("commands.jobs.verbs", "Keep waiting jobs from starting."),
        "release": Entry("commands.jobs.verbs", "Let held jobs start."),
        "suspend": Entry("commands.jobs.verbs", "Freeze running jobs; they keep their GPUs."),
        "continue": Entry("commands.jobs.verbs", "Let frozen jobs go on.", "continue_"),
        "requeue": Entry("commands.jobs.verbs", "Stop running jobs and let them wait again."),
        "move": Entry("commands.jobs.verbs", "Move waiting jobs to the top of the line."),
        "checkpoint": Entry("commands.jobs.verbs", "Say that a running job has saved its work."),
    },
    "Other ways in": {
        "slurm": Entry("slurm.face", "Slurm's own commands, over this yard.", words=True),
    },
    "People": {
        "token": Entry(
            "commands.people.token",
            "Make, list and revoke tokens.",
            about="Make, list and revoke tokens: how people and programs come in over the network.",
            below={
                "create": Entry("commands.people.token", "Make a token."),
                "list": Entry(
                    "commands.people.token",
                    "List your own tokens, and those of the tenants that you administer.",
                    "list_",
                ),
                "revoke": Entry(
                    "commands.people.token", "Take tokens back, and with each those that were made with it."
                ),
                "unbind": Entry("commands.people.token", "Unbind a name from the person of its first login."),
            },
        ),
        "login": Entry("commands.people.login", "Log in to a yard on another machine."),
        "logout": Entry("commands.people.login", "Forget the login."),
        "open": Entry("commands.people.open", "Open the console in a browser, signed in.", "open_console"),
        "whoami": Entry("commands.people.login", "Show who you are to the yard, and your tenant."),
        "audit": Entry("commands.reports", "Show what people did."),
    },
    "Foresight": {
        "simulate": Entry(
            "commands.foresight.simulate", "Compare policies on recorded jobs.", no_args_is_help=True
        ),
        "demo": Entry(
            "commands.foresight.demo", "See a yard at work, and a week of three teams under two policies."
        ),
        "bench": Entry(
            "commands.bench.bench",
            "Measure speed on this machine.",
            about="Measure how fast gpuyard decides and simulates, and how well it packs.",
            below={
                "pack": Entry(
                    "commands.bench.bench_pack", "Measure how full a placement gets the GPUs.", "bench_pack"
                ),
                "place": Entry(
                    "commands.bench.bench_place", "Count placements per CPU second.", "bench_place"
                ),
                "simulate": Entry(
                    "commands.bench.bench",
                    "Simulate a generated trace and measure CPU time and memory.",
                    "bench_simulate",
                ),
                "decide": Entry(
                    "commands.bench.bench",
                    "Time single decisions on a full cluster with a long queue.",
                    "bench_decide",
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
        return super().__contains__(name) or (str(name)[:1] != "-" and name in reports_of_packages())


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

    return {name: Entry("commands.reports", report.help) for name, report in others().items()}
