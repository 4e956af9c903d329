"""`yard status`: the queue, and which duties of the server fail."""

from typing import Any

from gpuyard.cli.commands.jobs.queue import queue
from gpuyard.cli.connection.places import open_client
from gpuyard.cli.line.options import Parameter, WatchOption, list_parameters, with_options
from gpuyard.wire.replies.people import DUTY_FAILS


@with_options(
    [each for each in list_parameters(queue) if isinstance(each, Parameter) and each.name != "watch"]
)
def status(*, watch: WatchOption = None, **values: Any) -> None:
    """Show the queue as `yard queue` does, and say which duties of the server fail.

    `yard duties` shows all of them.
    """
    queue(**values, watch=watch)
    if watch is None:
        say_what_fails()


def say_what_fails() -> None:
    """What keeps the server from its work, and which of its duties fail, as notes."""
    from gpuyard.cli.terminal.streams import print_notice

    with open_client() as yard:
        how = yard.ready()[1]
    reason = how["reason"] or ""
    if not how["ready"]:
        why = f": {how['error']}" if how.get("error") else ""
        print_notice(f"the server is not ready ({reason}){why}", before="note: ", style="bold")
    # Why a duty fails is for people who may see everything.
    unexplained = [reason.removeprefix(DUTY_FAILS)] if reason.startswith(DUTY_FAILS) else []
    for failing in how.get("duties", unexplained):
        print_notice(f"a duty of the server fails: {failing}", before="note: ", style="bold")
