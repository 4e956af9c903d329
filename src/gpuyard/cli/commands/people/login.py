"""`yard login`, `logout`, `whoami`: which yard commands speak to from now on, and as which user."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from gpuyard.cli.line.options import Argument, Option
from gpuyard.errors import BadInput


def login(
    url: Annotated[
        str, Argument(metavar="URL", help="https://yard.example.org:7447. Default: $YARD_URL.")
    ] = "",
    token_file: Annotated[
        Path | None,
        Option(
            "--token-file",
            metavar="FILE",
            help="The file that holds the token; - for standard input. Default: $YARD_TOKEN, else the "
            "command asks.",
        ),
    ] = None,
    oidc: Annotated[bool, Option("--oidc", help="Log in through the yard's identity provider.")] = False,
    browser: Annotated[
        bool,
        Option("--browser/--no-browser", help="With --oidc: open the login page, or only print its address."),
    ] = True,
    ca: Annotated[
        Path | None,
        Option(
            "--ca",
            metavar="FILE",
            help="The certificate that signed the server's, if this machine does not trust it already.",
        ),
    ] = None,
) -> None:
    """Log in to a yard on another machine; commands talk to it until `yard logout`.

    The token is kept in ~/.config/gpuyard/login.json, which only you can read. YARD_URL and YARD_TOKEN override it.
    """
    import os

    from gpuyard.api.client import Client
    from gpuyard.api.connecting.finding import Login, keep_login
    from gpuyard.reports.table import clock

    url = url or os.environ.get("YARD_URL", "")
    if not url.startswith(("https://", "http://")):
        raise BadInput(
            f"{url!r} is not an address of a yard" if url else "no yard is named",
            "For example: yard login https://yard.example.org:7447",
        )
    ca_path = str(ca.absolute()) if ca else ""
    if oidc:
        from gpuyard.cli.commands.people.oidc import log_in

        token = log_in(url, ca_path, browser)
    else:
        token = _token(token_file)
    with Client(url, token, ca=ca_path) as yard:
        me = yard.me()
    path = keep_login(Login(url, token, ca_path))
    until = f", until {clock(me['expires_ms'])}" if me["expires_ms"] else ""
    print(f"logged in at {url} as {me['user']}, {_rights(me)}{until}; kept in {path}")


def logout(revoke: Annotated[bool, Option("--revoke", help="Revoke the token too.")] = False) -> None:
    """Forget the login."""
    from gpuyard.api.client import Client
    from gpuyard.api.connecting.finding import forget_login, read_login

    kept = read_login()
    if kept is not None and revoke:
        with Client(kept.url, kept.token, ca=kept.ca) as yard:
            yard.revoke_token(str(yard.me()["token"]))
    forget_login()
    print(f"logged out of {kept.url}" if kept else "there was no login")


def whoami() -> None:
    """Show your user, role and tenant in the yard, and what you may do."""
    from gpuyard.cli.connection.places import open_client
    from gpuyard.reports.table import clock

    with open_client() as yard:
        me = yard.me()
        where = yard.server
    runs = f"jobs run as {me['runs_as']}" if me["runs_as"] else "who only looks"
    print(f"user     {me['user']}, {runs}")
    print(f"rights   {_rights(me)}")
    if me["runs_as"]:
        print(f"tenant   {_tenant(str(me['home']))}")
    if me["token"]:
        print(f"token    {me['token']}, until {clock(me['expires_ms'])}")
    print(f"yard     {where}{'' if me['auth'] else ', without --auth'}")


def _tenant(home: str) -> str:
    """The tenant for jobs that name none."""
    from gpuyard.cli.connection.defaults import default_origin, read_defaults

    own = read_defaults().get("tenant")
    if own:
        return f"{own}, for jobs that name none: from {default_origin('tenant')}"
    return f"{home}, for jobs that name none" if home else "none by default: every job has to name one"


def _rights(me: Mapping[str, Any]) -> str:
    return ", ".join(f"{right['role']} of {right['tenant'] or 'the whole yard'}" for right in me["rights"])


def _token(file: Path | None) -> str:
    import os
    import sys

    if file is None and os.environ.get("YARD_TOKEN"):
        return os.environ["YARD_TOKEN"].strip()
    if file is None and sys.stdin.isatty():
        import getpass

        return getpass.getpass("token: ").strip()
    try:
        text = sys.stdin.read() if file is None or str(file) == "-" else file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise BadInput(
            f"the token cannot be read from {file}: {why}", "Name a file that you can read with --token-file."
        ) from error
    if not text.strip():
        raise BadInput("there is no token", "Give it with --token-file, in YARD_TOKEN or on standard input.")
    return text.strip()
