"""`yard cancel` for all jobs that match: shows them and asks before any is cancelled."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gpuyard.cli.places import client
from gpuyard.cli.verbs import Wanted, told
from gpuyard.errors import BadInput

if TYPE_CHECKING:
    from gpuyard.api.client import Client

_SHOWN_MAX = 10


def cancel_all(wanted: Wanted, yes: bool) -> int:
    """Cancel what matches."""
    from gpuyard.reports.table import counted

    with client() as yard:
        rows = _matching(yard, wanted)
        if not rows:
            print("no job matches: nothing is cancelled")
            return 0
        if not yes:
            _ask_first(rows)
        answers = yard.ask_many("cancel", [row[0] for row in rows])
    done = [row for row, answer in zip(rows, answers, strict=True) if answer["status"] < 400]
    print(f"cancelled {counted(len(done), 'job')}{': ' if done else ''}{_labels(done)}")
    return told(answers)


def _matching(yard: "Client", wanted: Wanted) -> list[list[Any]]:
    """Live jobs that match: the user's own, unless a user or a tenant is named."""
    user = wanted.user
    if not user and not wanted.tenant:
        user = str(yard.me()["user"])
    found = yard.queue(states=wanted.states, tenant=wanted.tenant, user=user, name=wanted.name)
    return [row for row in found["rows"] if row[10]]


def _ask_first(rows: Sequence[Sequence[Any]]) -> None:
    """Go on if the user says yes."""
    from gpuyard.reports.table import counted

    jobs = counted(len(rows), "job")
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise BadInput(
            f"{jobs} would be cancelled, and this is no terminal to ask at: {_labels(rows)}",
            "With --yes they are cancelled without a question.",
        )
    for row in rows[:_SHOWN_MAX]:
        print(f"  {row[1]:<10} {row[6]:<9} {row[4]:<12} {row[2]}", file=sys.stderr)
    if len(rows) > _SHOWN_MAX:
        print(f"  and {len(rows) - _SHOWN_MAX} more", file=sys.stderr)
    print(f"Cancel {jobs}? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise BadInput("nothing is cancelled")


def _labels(rows: Sequence[Sequence[Any]]) -> str:
    labels = [str(row[1]) for row in rows[:_SHOWN_MAX]]
    more = f" and {len(rows) - _SHOWN_MAX} more" if len(rows) > _SHOWN_MAX else ""
    return ", ".join(labels) + more
