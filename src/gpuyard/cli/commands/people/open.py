"""`yard open`: the console in a browser, signed in."""

from typing import Annotated

from gpuyard.cli.line.options import Option
from gpuyard.errors import YardError


def open_console(
    browser: Annotated[
        bool, Option("--browser/--no-browser", help="Open the page, or only print its address.")
    ] = True,
) -> None:
    """Open the yard's console in a browser, signed in as you.

    The printed address holds a code that works once, for 60 seconds. It signs in the first browser that loads it, so
    show it to nobody. The browser stays signed in for up to seven days, but no longer than your token lasts.
    """
    from gpuyard.cli.connection.places import open_client
    from gpuyard.cli.terminal.streams import print_notice

    with open_client() as yard:
        made = yard.browser_code()
        where = yard.server
    if not made["console"]:
        raise YardError(
            f"the yard at {made['url']} has no console: it was not built into its installation",
            "After `make demo`, `make console` in the checkout builds it in half a minute, and this works at once. "
            "A wheel has it.",
        )
    base = where if where.startswith(("http://", "https://")) else made["url"]
    address = f"{base.rstrip('/')}/#/open/{made['code']}"
    print(address)
    if browser:
        import webbrowser

        if not webbrowser.open(address):
            print_notice("no browser could be started here: open the address yourself, within 60 seconds")
