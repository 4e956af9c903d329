"""The reports that there are: ours, those that a program registers, and those of installed packages.

A package says in its metadata which it has: the entry point `busiest = "mine:REPORT"` in the group `gpuyard.reports`.
"""

from importlib import import_module
from typing import Any

from gpuyard.errors import YardError
from gpuyard.reports.installed_reports import find_installed
from gpuyard.reports.report import Report

OURS = {
    "audit": "gpuyard.reports.audit:REPORT",
    "budget": "gpuyard.reports.budget:REPORT",
    "cost": "gpuyard.reports.cost:REPORT",
    "doctor": "gpuyard.reports.doctor:REPORT",
    "duties": "gpuyard.reports.duties:REPORT",
    "efficiency": "gpuyard.reports.efficiency:REPORT",
    "focus": "gpuyard.reports.focus:REPORT",
    "gpus": "gpuyard.reports.gpus:REPORT",
    "nodes": "gpuyard.reports.nodes:REPORT",
    "savings": "gpuyard.reports.savings:REPORT",
    "statement": "gpuyard.reports.money.statement:REPORT",
    "tco": "gpuyard.reports.money.tco:REPORT",
    "tenants": "gpuyard.reports.tenants:REPORT",
    "topology": "gpuyard.reports.topology:REPORT",
    "usage": "gpuyard.reports.usage:REPORT",
    "waits": "gpuyard.reports.waits:REPORT",
}
"""By name, where each is: only the one that is asked for is imported."""

_registered: dict[str, Report[Any]] = {}


def register(report: Report[Any]) -> None:
    """Have this process know a report."""
    _registered[report.name] = report


def load_outside_reports() -> dict[str, Report[Any]]:
    """All reports but ours, by name."""
    found = {
        name: loaded(name, where) for name, where in sorted(find_installed().items()) if name not in OURS
    }
    return {**found, **_registered}


def load_own_report(name: str) -> Report[Any]:
    """One of our own."""
    return loaded(name, OURS[name])


def load_reports() -> list[Report[Any]]:
    """All reports."""
    return [*map(load_own_report, OURS), *load_outside_reports().values()]


def loaded(name: str, where: str) -> Report[Any]:
    """A report by its place."""
    module, _, attribute = where.partition(":")
    try:
        made: Any = getattr(import_module(module), attribute)
    except Exception as error:
        raise YardError(
            f"the report {name} ({where}) cannot be loaded: {error}",
            "Repair the package that has it, or remove the package.",
        ) from error
    if not isinstance(made, Report) or made.name != name:
        raise YardError(f"{where} is not a report of the name {name}", "Repair the package that has it.")
    return made
