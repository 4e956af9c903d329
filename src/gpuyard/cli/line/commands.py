"""The table of all commands: names, one line about each, and where the function is, imported when it is called."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

TYPE_CHECKING = False
if TYPE_CHECKING:
    # For the type checker alone: `typing` would take a seventh of the time that `yard --help` takes.
    from typing import Any

HELP = ("-h", "--help")


class CommandEntry:
    """A command, or a group of commands. Written out: a NamedTuple is compiled anew at every start."""

    __slots__ = ("about", "attribute", "below", "help", "module", "needs", "words")

    def __init__(
        self,
        module: str,
        help: str,
        attribute: str = "",
        needs: tuple[str, str] = ("", ""),
        words: bool = False,
        below: "Mapping[str, CommandEntry]" = MappingProxyType({}),
        about: str = "",
    ) -> None:
        self.module = module
        """Below `gpuyard.cli`."""
        self.help = help
        """One line, for the list of commands."""
        self.attribute = attribute
        """The function, if its name differs from the command's."""
        self.needs = needs
        """What is missing where it is typed alone, and a line that has it; empty: it may be typed alone."""
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


SECTIONS: dict[str, dict[str, CommandEntry]] = {
    "The yard": {
        "up": CommandEntry("commands.yard.up", "Start the yard on this machine."),
        "down": CommandEntry(
            "commands.yard.down", "Stop the yard; jobs keep running, unless --jobs cancels them."
        ),
        "collect": CommandEntry(
            "commands.yard.collect", "Watch this node and send samples of it to a yard elsewhere."
        ),
        "status": CommandEntry(
            "commands.yard.status", "Show the queue, and which duties of the server fail."
        ),
        "nodes": CommandEntry("commands.yard.nodes", "Show the nodes and what is free on them."),
        "doctor": CommandEntry(
            "commands.reports", "Show what holds jobs on this machine to what they asked for."
        ),
        "duties": CommandEntry("commands.reports", "Show what the server does by itself, and what fails."),
        "mig": CommandEntry(
            "commands.yard.mig",
            "Show and set how GPUs are cut into MIG slices.",
            below={
                "plan": CommandEntry(
                    "commands.yard.mig", "Show what a layout, or the queue, would do to GPUs."
                ),
                "apply": CommandEntry(
                    "commands.yard.mig",
                    "Pin GPUs of a node to a layout.",
                    needs=("which layout?", "yard mig apply 7x1g.10gb --gpu 0"),
                ),
                "release": CommandEntry(
                    "commands.yard.mig", "Release pinned GPUs, to be cut on demand again."
                ),
                "export": CommandEntry("commands.yard.mig", "Write the layouts as a mig-parted file."),
            },
        ),
        "defrag": CommandEntry("commands.yard.defrag", "List moves of jobs that would free whole GPUs."),
        "drain": CommandEntry("commands.yard.nodes", "Stop new jobs from starting on a node."),
        "resume": CommandEntry("commands.yard.nodes", "Let a drained node take work again."),
        "label": CommandEntry(
            "commands.yard.mark", "Set labels of nodes.", needs=("which node?", "yard label NODE KEY=VALUE")
        ),
        "taint": CommandEntry(
            "commands.yard.mark",
            "Keep jobs away from nodes.",
            needs=("which node?", "yard taint NODE KEY:NoSchedule"),
        ),
        "tenants": CommandEntry("commands.reports", "Show the tenants, their quotas and what they use."),
        "share": CommandEntry(
            "commands.people.share", "Show each tenant's fair share, and how it is calculated."
        ),
        "validate": CommandEntry(
            "commands.config.validate",
            "Check a yard.yaml.",
            needs=("which file?", "yard validate yard.yaml"),
        ),
        "config": CommandEntry(
            "commands.config.config", "Print the configuration in force, or its versions."
        ),
        "diff": CommandEntry("commands.config.apply", "Show what a yard.yaml would change."),
        "apply": CommandEntry("commands.config.apply", "Put a yard.yaml in force, with a preview."),
        "rollback": CommandEntry("commands.config.apply", "Go back to an earlier configuration."),
        "service": CommandEntry(
            "commands.yard.service",
            "Run the yard as a systemd service.",
            about="Run the yard as a systemd service, which starts with the machine and again after a "
            "failure.",
            below={
                "install": CommandEntry(
                    "commands.yard.service", "Write a unit file, then enable and start the service."
                ),
                "status": CommandEntry("commands.yard.service", "Show what systemd says of the service."),
                "uninstall": CommandEntry("commands.yard.service", "Stop the service and remove its unit."),
            },
        ),
        "store": CommandEntry(
            "commands.yard.upkeep",
            "Copy the whole store: back it up, restore it, move it.",
            about="Copy a yard's whole store: back it up, restore it, move it to PostgreSQL.",
            below={
                "copy": CommandEntry(
                    "commands.yard.upkeep",
                    "Copy everything that a store holds.",
                    needs=(
                        "from where, and to where?",
                        "yard store copy /var/lib/gpuyard/yard.db /backup/yard.db",
                    ),
                )
            },
        ),
        "export": CommandEntry(
            "commands.yard.export",
            "Write what Prometheus, Grafana and Fluent Bit need to see this yard.",
            about="Write files for monitoring programs, to standard output or into a folder.",
            below={
                "focus": CommandEntry(
                    "commands.yard.export", "Write the charges in the billing format FOCUS."
                ),
                "kubecost": CommandEntry(
                    "commands.yard.opencost", "Write Helm values for Kubecost and OpenCost: names and prices."
                ),
                "prometheus": CommandEntry("commands.yard.export", "Write a scrape file for Prometheus."),
                "grafana": CommandEntry("commands.yard.export", "Write dashboards for Grafana."),
                "fluent-bit": CommandEntry(
                    "commands.yard.export", "Write a Fluent Bit configuration for logs.", "fluent_bit"
                ),
            },
        ),
        "support": CommandEntry("commands.yard.support", "Write a bundle for a bug report, without secrets."),
        "prune": CommandEntry("commands.yard.upkeep", "Remove the files of jobs that ended long ago."),
        "rebuild": CommandEntry("commands.yard.upkeep", "Fill a projection again from the log."),
        "completion": CommandEntry("commands.yard.completion", "Make your shell complete `yard` on Tab."),
    },
    "Jobs": {
        "convert": CommandEntry("commands.submit.convert", "Turn a script or a manifest into native YAML."),
        "submit": CommandEntry(
            "commands.submit.submit",
            "Submit a command or a script.",
            needs=("what is to run?", "yard submit -g 1 -- python3 train.py"),
            words=True,
        ),
        "run": CommandEntry(
            "commands.submit.run",
            "Run a command and watch it.",
            needs=("what is to run?", "yard run -g 1 -- python3 train.py"),
            words=True,
        ),
        "queue": CommandEntry("commands.jobs.queue", "Show the jobs that run and wait, in order."),
        "top": CommandEntry("top", "Watch GPUs, queue and tenants on a full screen."),
        "show": CommandEntry("commands.jobs.show", "Show everything about a job."),
        "efficiency": CommandEntry("commands.reports", "Compare what jobs asked for with what they used."),
        "cost": CommandEntry(
            "commands.reports",
            "Show where GPU time went, in GPU-hours, and what it cost.",
            below={
                "statement": CommandEntry(
                    "commands.reports", "Show one month of a tenant, also as a page to print."
                ),
                "savings": CommandEntry(
                    "commands.reports", "Show what one month saved compared with another."
                ),
                "tco": CommandEntry(
                    "commands.reports", "Compare owning, reserving, on demand and spot for the recorded load."
                ),
                "reconcile": CommandEntry(
                    "commands.yard.reconcile",
                    "Compare a cloud's bill with the books.",
                    needs=("which bill?", "yard cost reconcile bill.csv"),
                ),
                "opencost": CommandEntry(
                    "commands.yard.opencost",
                    "Compare OpenCost's or Kubecost's allocation with the books.",
                    needs=("which answer of OpenCost?", "yard cost opencost allocation.json"),
                ),
                "close": CommandEntry(
                    "commands.yard.upkeep",
                    "Close the books of a month.",
                    "close_month",
                    needs=("which month?", "yard cost close 2026-10"),
                ),
            },
        ),
        "waits": CommandEntry("commands.reports", "Show what jobs waited for, in GPU-hours."),
        "budget": CommandEntry(
            "commands.reports", "Show how much of each budget is spent, and when all of it will be."
        ),
        "why": CommandEntry(
            "commands.jobs.why", "Show why a job waits, now or in the past, and what would help."
        ),
        "eta": CommandEntry("commands.jobs.eta", "Estimate when waiting jobs will start."),
        "logs": CommandEntry("commands.jobs.logs", "Show what a job wrote."),
        "attach": CommandEntry("commands.inside.attach", "Attach to the terminal of a job."),
        "shell": CommandEntry("commands.inside.attach", "Open a shell beside a running job.", words=True),
        "forward": CommandEntry(
            "commands.inside.forward", "Forward a port of this machine to a port of a job."
        ),
        "cp": CommandEntry("commands.inside.copy", "Copy files into or out of a job."),
        "notebook": CommandEntry(
            "commands.submit.notebook", "Run JupyterLab on the yard, and reach it from here."
        ),
        "history": CommandEntry("commands.jobs.history", "Show jobs that have ended."),
        "cancel": CommandEntry("commands.jobs.verbs", "Cancel jobs, by id or all that match."),
        "hold": CommandEntry("commands.jobs.verbs", "Keep waiting jobs from starting."),
        "release": CommandEntry("commands.jobs.verbs", "Let held jobs start."),
        "suspend": CommandEntry("commands.jobs.verbs", "Suspend running jobs; they keep their GPUs."),
        "continue": CommandEntry("commands.jobs.verbs", "Let suspended jobs continue.", "continue_"),
        "requeue": CommandEntry("commands.jobs.verbs", "Stop running jobs and put them back in the queue."),
        "update": CommandEntry(
            "commands.submit.update", "Change jobs: limit, class, resources, place in line."
        ),
        "move": CommandEntry("commands.jobs.verbs", "The old spelling of `yard update --top` and `--back`."),
        "checkpoint": CommandEntry(
            "commands.jobs.checkpoint", "Report that a job has saved its work, or save it."
        ),
    },
    "Other ways in": {
        "slurm": CommandEntry("slurm.face", "Slurm's own commands, run against this yard.", words=True),
    },
    "People": {
        "token": CommandEntry(
            "commands.people.token",
            "Make, list and revoke tokens.",
            about="Make, list and revoke tokens, with which people and programs use the yard over the "
            "network.",
            below={
                "create": CommandEntry("commands.people.token", "Make a token."),
                "list": CommandEntry(
                    "commands.people.token",
                    "List your own tokens, and those of the tenants that you administer.",
                    "list_",
                ),
                "revoke": CommandEntry(
                    "commands.people.token", "Revoke tokens, and those that were made with them."
                ),
                "unbind": CommandEntry(
                    "commands.people.token", "Unbind a name from the person who logged in with it first."
                ),
            },
        ),
        "login": CommandEntry("commands.people.login", "Log in to a yard on another machine."),
        "logout": CommandEntry("commands.people.login", "Forget the login."),
        "open": CommandEntry(
            "commands.people.open", "Open the console in a browser, signed in.", "open_console"
        ),
        "whoami": CommandEntry("commands.people.login", "Show your user, role and tenant in the yard."),
        "audit": CommandEntry("commands.reports", "Show what people did."),
    },
    "Foresight": {
        "simulate": CommandEntry(
            "commands.foresight.simulate",
            "Compare policies on recorded jobs.",
            needs=(
                "which jobs? --trace names a file, --history a time of this yard",
                "yard simulate --history 30d",
            ),
        ),
        "demo": CommandEntry(
            "commands.foresight.demo",
            "Watch a yard at work, and simulate a week of three teams under two policies.",
        ),
        "bench": CommandEntry(
            "commands.bench.bench",
            "Measure speed on this machine.",
            about="Measure how fast gpuyard decides and simulates.",
            below={
                "simulate": CommandEntry(
                    "commands.bench.bench",
                    "Simulate a generated trace and measure CPU time and memory.",
                    "bench_simulate",
                ),
                "decide": CommandEntry(
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
    "kill": "cancel",
    "stop": "cancel",
    "log": "logs",
    "info": "show",
}
"""Words that people type, and the command that is meant. `status JOB` is `show JOB`."""


def resolve_alias(words: Sequence[str]) -> list[str]:
    """A command line with the command's own name, where another word for it was typed."""
    first, *rest = words if words else ("",)
    if first == "help":
        return [*resolve_alias(rest), "--help"]
    if first == "status" and rest[:1] and rest[0][:1].isdecimal():
        return ["show", *rest]
    return [ALIASES[first], *rest] if first in ALIASES else list(words)


class _Entries(dict[str, CommandEntry]):
    """All commands by name; where none of ours has a name, a report of an installed package may have it."""

    def __missing__(self, name: str) -> CommandEntry:
        return reports_of_packages()[name]

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or (str(name)[:1] != "-" and name in reports_of_packages())


ENTRIES = _Entries({name: entry for section in SECTIONS.values() for name, entry in section.items()})


def list_sections() -> dict[str, dict[str, CommandEntry]]:
    """All commands by section, with those of installed packages."""
    outside = reports_of_packages()
    return {**SECTIONS, "Reports of packages": outside} if outside else SECTIONS


def reports_of_packages() -> dict[str, CommandEntry]:
    """Commands of reports that installed packages have."""
    from gpuyard.reports.installed_reports import find_installed

    if not find_installed():
        return {}
    from gpuyard.reports.registry import load_outside_reports

    return {
        name: CommandEntry("commands.reports", report.help) for name, report in load_outside_reports().items()
    }
