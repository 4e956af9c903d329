"""What commands share: where the yard is and a person's defaults, the client that they speak with, and `--watch`."""

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from gpuyard.cli.line.options import Option

if TYPE_CHECKING:
    from gpuyard.api.client import Client

DataOption = Annotated[
    Path | None,
    Option(
        "--data",
        metavar="DIR",
        help="Where the yard keeps its data. Default: $YARD_DATA, else /var/lib/gpuyard for root and "
        "~/.local/share/gpuyard for others.",
    ),
]


def open_client() -> "Client":
    """A client of the yard that YARD_URL names, or the one of the login, or that of this machine."""
    from gpuyard.api.client import Client

    found = Client()
    if os.geteuid():
        _say_whose(found.server)
    return found


@cache
def _say_whose(socket: str) -> None:
    """Say, once and to a person at a terminal, that another yard answers than the asker's own."""
    from gpuyard.control.places import default_data

    if note := whose_yard(socket, default_data()):
        from gpuyard.cli.terminal.streams import print_aside

        print_aside(f"note: {note}")


def whose_yard(socket: str, own: Path, machine: Path | None = None) -> str:
    """What to say where the yard of the machine answers at a socket, and a user has one of their own, which is down.

    `machine`: where the data of the machine's yard is, if not in the usual place.
    """
    from gpuyard.control.places import SYSTEM_DATA, DataDir

    mine, machine = DataDir(own), machine or SYSTEM_DATA
    if mine.root == machine or not socket.startswith(f"{machine}/") or not mine.database.exists():
        return ""
    return "the machine's yard answers; yours is down: `yard up -d` starts it"


def defaults_file() -> str:
    """Where a person's defaults are, if there are any."""
    config = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return os.path.join(config, "gpuyard", "defaults.yaml")


def has_defaults() -> bool:
    """Whether a person has defaults: most have none, and need not wait for them to be read."""
    return bool(os.environ.get("YARD_TENANT")) or os.path.lexists(defaults_file())


def show_or_watch(show: Callable[[], None], every_s: int | None, *, wakes: bool = True) -> None:
    """Show a listing once, or with `--watch` until Ctrl-C. Not `wakes`: it changes without an event of the yard."""
    if every_s is None:
        show()
        return
    from gpuyard.cli.connection.change_feed import Stream
    from gpuyard.cli.connection.watching import keep_showing

    keep_showing(show, every_s, Stream() if wakes else None)
