"""`yard export`: the charges for programs that read bills, and files for those that watch a yard."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from gpuyard.cli.line.options import Argument, Option
from gpuyard.errors import BadInput, suggest_end

if TYPE_CHECKING:
    from gpuyard.telemetry.exports.prometheus import Target

ToOption = Annotated[
    Path | None,
    Option("--to", metavar="DIR", help="Write into this folder. Default: standard output."),
]


def focus(
    month: Annotated[
        str, Option("--month", metavar="MONTH", help="The month: 2026-11. Default: this one.")
    ] = "",
    from_day: Annotated[
        str, Option("--from", metavar="DAY", help="The first day: 2026-11-01, yesterday, 7d.")
    ] = "",
    to_day: Annotated[str, Option("--to", metavar="DAY", help="The last day: 2026-11-30, yesterday.")] = "",
    version: Annotated[
        str, Option("--focus", metavar="VERSION", help="The version of FOCUS: 1.2 or 1.3.")
    ] = "1.2",
) -> None:
    """Write the charges in FOCUS, the billing format of clouds, as csv to standard output.

    There is one row for each day, tenant, user, class, set of labels and pool. A correction of a closed month is a row
    of the class Correction. You see only your own tenants.

    \b
    Example:
      yard export focus --month 2026-11 > november.csv
    """
    from gpuyard.cli.commands.reports import show_report
    from gpuyard.cli.line.options import Output
    from gpuyard.reports import registry

    values = {"month": month, "from": from_day, "to": to_day, "focus": version}
    show_report(registry.load_own_report("focus"), values, Output.CSV, "", None)


def prometheus(
    server: Annotated[
        list[str] | None,
        Option(
            "--server",
            metavar="URL",
            help="A server's URL, as Prometheus reaches it; may be repeated. Default: the server of "
            "this command.",
        ),
    ] = None,
    credentials: Annotated[
        str,
        Option(
            "--credentials",
            metavar="FILE",
            help="The file on the Prometheus machine that holds the token; '' for none.",
        ),
    ] = "/etc/prometheus/gpuyard.token",
    ca: Annotated[
        str, Option("--ca", metavar="FILE", help="The certificate on that machine that signed the server's.")
    ] = "",
    to: ToOption = None,
) -> None:
    """Write a scrape file for Prometheus that reads every server of the yard every 15 s.

    \b
    Example:
      yard export prometheus --server https://yard.example.org --to /etc/prometheus
      promtool check config /etc/prometheus/gpuyard.yml
    """
    from gpuyard.telemetry.exports.prometheus import scrape_file

    _put({"gpuyard.yml": scrape_file([_target(each) for each in server or [_own()]], credentials, ca)}, to)


def grafana(
    dashboard: Annotated[
        str, Argument(metavar="[DASHBOARD]", help="One of them. Default: all, which needs --to.")
    ] = "",
    to: ToOption = None,
) -> None:
    """Write dashboards for Grafana as JSON: gpus, jobs, racks, queue, tenants, failed, hardware.

    Grafana imports them as they are, or loads them from a folder that it is configured with. Each dashboard asks for
    the Prometheus to use.

    \b
    Examples:
      yard export grafana --to /var/lib/grafana/dashboards
      yard export grafana queue > queue.json
    """
    import json

    from gpuyard.telemetry.exports.grafana import dashboard_json
    from gpuyard.telemetry.exports.panels import DASHBOARDS

    names = ", ".join(DASHBOARDS)
    if dashboard and dashboard not in DASHBOARDS:
        raise BadInput(
            f"there is no dashboard {dashboard!r}{suggest_end(dashboard, DASHBOARDS)}", f"There is: {names}."
        )
    if not dashboard and to is None:
        raise BadInput(
            f"there are {len(DASHBOARDS)} dashboards, and standard output takes one",
            f"Add --to DIR, or name one: {names}.",
        )
    chosen = [DASHBOARDS[dashboard]] if dashboard else list(DASHBOARDS.values())
    _put(
        {
            f"gpuyard-{each.name}.json": json.dumps(dashboard_json(each), indent=2, ensure_ascii=False) + "\n"
            for each in chosen
        },
        to,
    )


def fluent_bit(
    listen: Annotated[
        str, Option("--listen", metavar="HOST:PORT", help="Where Fluent Bit listens for the yard.")
    ] = "127.0.0.1:4318",
    to: ToOption = None,
) -> None:
    """Write a Fluent Bit configuration that receives the jobs' output from the yard over OTLP.

    \b
    Example:
      yard export fluent-bit --to /etc/fluent-bit
    """
    from gpuyard.telemetry.exports.fluent_bit import fluent_bit_file

    host, port = _address(listen)
    _put({"gpuyard.yaml": fluent_bit_file(host, port)}, to)


def _put(texts: Mapping[str, str], to: Path | None) -> None:
    """Files that are there are written again: they are ours, and a newer release has newer ones."""
    if to is None:
        print("".join(texts.values()), end="")
        return
    try:
        to.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (to / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{error.filename or to}: {error.strerror}", "Choose another --to.") from None
    for name in texts:
        print(to / name)


def _address(text: str) -> tuple[str, int]:
    from gpuyard.api.connecting.finding import parse_address

    found = parse_address(text)
    if isinstance(found, str):
        raise BadInput(f"{text} is not an address of a port", "Write HOST:PORT, or https://HOST:PORT.")
    return found


def _target(url: str) -> "Target":
    from gpuyard.telemetry.exports.prometheus import Target

    host, port = _address(url)
    return Target(f"[{host}]:{port}" if ":" in host else f"{host}:{port}", url.strip().startswith("https://"))


def _own() -> str:
    """The yard that commands of this user ask, as an address with a port."""
    from gpuyard.api.connecting.finding import read_login
    from gpuyard.control.places import PORT, DataDir, likely_data

    said = os.environ.get("YARD_URL") or os.environ.get("YARD_SERVER") or ""
    login = None if said or os.environ.get("YARD_DATA") else read_login()
    said = said or (login.url if login else "")
    if said and not said.startswith(("unix:", "/")):
        return said
    notes = [each.note() for folder in likely_data() for each in DataDir(folder).instances()]
    ports = [note["port"] for note in notes if note.get("port")]
    return f"http://127.0.0.1:{ports[0] if ports else PORT}"
