"""`yard token`: make tokens for people and programs, list them, take them back."""

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Annotated, Any

from gpuyard.cli.connection.places import open_client
from gpuyard.cli.line.options import Argument, Option, OutputOption
from gpuyard.cli.listings.listing import Output
from gpuyard.errors import BadInput, YardError

if TYPE_CHECKING:
    from gpuyard.api.client import Client

WHOLE_YARD = "/"


def create(
    user: Annotated[
        str,
        Option(
            "--user",
            "-u",
            metavar="USER",
            help="The user that the token is for; with --role collector, the node.",
        ),
    ],
    role: Annotated[
        str,
        Option(
            "--role",
            metavar="ROLE",
            help="viewer, user, tenant-admin, admin, or collector, which only sends the samples of one "
            "node. Default: the user's role in yard.yaml, else user.",
        ),
    ] = "",
    tenant: Annotated[
        str,
        Option(
            "--tenant",
            metavar="TENANT",
            help="The tenant where the role holds, and below it; / for the whole yard. Default: the "
            "user's own tenant.",
        ),
    ] = "",
    days: Annotated[
        int | None,
        Option(
            "--days",
            metavar="N",
            min=1,
            help="How many days it lasts. Default: 30; at most 90, unless yard.yaml says otherwise.",
        ),
    ] = None,
    note: Annotated[str, Option("--note", metavar="NOTE", help="What the token is for.")] = "",
    to: Annotated[
        str,
        Option("--to", metavar="FILE", help="Write the secret into this file, which only you can read."),
    ] = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Make a token. Its secret is printed once, alone on standard output, and stored nowhere.

    With --to the secret goes into a file instead; an existing file keeps its content if no token is made.
    """
    from gpuyard.cli.terminal.streams import print_notice
    from gpuyard.reports.table import clock

    place = "" if tenant == WHOLE_YARD else tenant or None
    with _draft(to) as keep, open_client() as yard:
        made = yard.make_token(user, role=role or None, tenant=place, days=days, note=note)
        with _revoking(yard, made["id"], to):
            keep(made["secret"])
    if output is Output.JSON:
        import json

        print(
            json.dumps({name: value for name, value in made.items() if name != "secret" or not to}, indent=2)
        )
        return
    if not to:
        print(made["secret"])
    where = f", in {to}" if to else ""
    print_notice(
        f"token {made['id']} for {user}, {right_text(made)}, until {clock(made['expires_ms'])}{where}"
    )


@contextmanager
def _revoking(yard: "Client", token: str, path: str) -> Iterator[None]:
    """A token whose secret could not be written is taken back."""
    try:
        yield
    except OSError as error:
        yard.revoke_token(token)
        raise YardError(
            f"{path} cannot be written: {error.strerror}",
            f"The token {token} is revoked. Name another file with --to.",
        ) from error


@contextmanager
def _draft(path: str) -> Iterator[Callable[[str], None]]:
    """A file for a secret, opened before there is one; it is in its place once the secret is in it."""
    if not path:
        yield lambda _secret: None
        return
    with suppress(OSError):
        found = os.lstat(path).st_mode
        if not stat.S_ISREG(found):
            # The rename would put a file in the place of a device or a link.
            what = "a link: name the file that it leads to" if stat.S_ISLNK(found) else "not a plain file"
            raise BadInput(f"{path} is {what}", "No token was made. Name another file with --to.")
    draft = f"{path}.{os.getpid()}.new"
    try:
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise BadInput(
            f"{path} cannot be written: {error.strerror}", "No token was made. Name another file with --to."
        ) from error

    def keep(secret: str) -> None:
        with os.fdopen(os.dup(fd), "w") as file:
            file.write(f"{secret}\n")
        os.fsync(fd)
        os.rename(draft, path)

    try:
        yield keep
    finally:
        os.close(fd)
        with suppress(FileNotFoundError):
            os.unlink(draft)


def list_(output: OutputOption = Output.TABLE) -> None:
    """List your own tokens, and those of the tenants that you administer. Secrets are never shown."""
    from gpuyard.cli.listings.tables import print_records
    from gpuyard.reports.table import clock
    from gpuyard.tables import Column

    with open_client() as yard:
        found = yard.tokens()
    columns = [
        Column("ID", lambda token: token["id"]),
        Column("USER", lambda token: token["user"]),
        Column("ROLE", lambda token: token["role"]),
        Column("TENANT", lambda token: token["tenant"] or WHOLE_YARD),
        Column("STATE", _state),
        Column("EXPIRES", lambda token: clock(token["expires_ms"])),
        Column("USED", lambda token: clock(token["used_ms"])),
        Column("MADE", lambda token: clock(token["created_ms"]), wide=True),
        Column("BY", lambda token: token["made_by"]),
        Column("NOTE", lambda token: token["note"] or "-"),
    ]
    print_records(found, columns, output)


def revoke(
    tokens: Annotated[list[str], Argument(metavar="ID...", help="Ids from `yard token list`.")],
) -> None:
    """Revoke tokens, and those that were made with them. They stop working at once."""
    with open_client() as yard:
        for token in tokens:
            # A leaked token is often pasted whole.
            name = token.split("_")[1] if token.startswith("yard_") and token.count("_") == 2 else token
            done = yard.revoke_token(name)
            more = len(done["revoked"]) - 1
            with_it = f", and {more} made with it" if more > 0 else ""
            print(f"{name} is revoked{with_it}" if done["revoked"] else f"{name} was revoked already")


def unbind(user: Annotated[str, Argument(metavar="NAME", help="A name at the identity provider.")]) -> None:
    """Unbind a name from the person who logged in with it first. That person's logins end, and the next login binds
    the name."""
    from gpuyard.errors import count_text

    with open_client() as yard:
        ended = yard.unbind_name(user)["revoked"]
    with_it = f"; {count_text(len(ended), 'token')} revoked" if ended else ""
    print(f"{user} is unbound{with_it}: the next login with the name binds it")


def right_text(made: Mapping[str, Any]) -> str:
    """`user of research`."""
    if made["role"] == "collector":
        return "collector of this node alone"
    return f"{made['role']} of {made['tenant'] or 'the whole yard'}"


def _state(token: Any) -> str:
    import time

    if token["revoked_ms"]:
        return "REVOKED"
    return "EXPIRED" if token["expires_ms"] <= time.time_ns() // 1_000_000 else "VALID"
