"""`yard up`: the yard on this machine, in the foreground or in the background."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from gpuyard.cli.connection.places import DataOption
from gpuyard.cli.line.options import Option
from gpuyard.control.places import PORT

if TYPE_CHECKING:
    from gpuyard.api.client import Client
    from gpuyard.control.options import Options
    from gpuyard.control.places import DataDir
    from gpuyard.wire.replies.people import ReadyReply


PortOption = Annotated[
    int | None,
    Option(
        "--port",
        metavar="N",
        min=0,
        max=65535,
        help=f"The port to listen on; 0: any free one. Default: {PORT}, or the next free one if that is "
        f"taken.",
    ),
]
AuthOption = Annotated[
    bool, Option("--auth", help="Admit only people with a token and those in `auth` of yard.yaml.")
]
HostOption = Annotated[
    str,
    Option(
        "--host",
        metavar="ADDRESS",
        help="Address to listen on; one that other machines can reach needs --auth.",
    ),
]
CertOption = Annotated[Path | None, Option("--tls-cert", metavar="FILE", help="Certificate for HTTPS, PEM.")]
KeyOption = Annotated[Path | None, Option("--tls-key", metavar="FILE", help="Its key, PEM.")]
OlderOption = Annotated[
    bool,
    Option(
        "--older-log",
        help="Accept a store that is older than the jobs that run, because a backup was restored.",
    ),
]
InsecureOption = Annotated[
    bool,
    Option(
        "--insecure-http",
        help="Serve without TLS although others can connect, because a proxy terminates TLS.",
    ),
]

NoLeadOption = Annotated[
    bool,
    Option(
        "--no-lead",
        help="Answer requests and accept jobs, but leave scheduling to other servers on the same store.",
    ),
]
LookOption = Annotated[
    int,
    Option(
        "--look-every",
        metavar="SECONDS",
        min=1,
        max=60,
        help="How often to measure the GPUs and jobs of this machine.",
    ),
]


def up(
    detach: Annotated[bool, Option("-d", "--detach", help="Run in the background.")] = False,
    data: DataOption = None,
    port: PortOption = None,
    config: Annotated[
        Path | None,
        Option(
            "-c",
            "--config",
            metavar="FILE",
            help="The yard.yaml to use: tenants, classes, policy. Default: yard.yaml in the data "
            "folder, if there is one.",
        ),
    ] = None,
    store: Annotated[
        str,
        Option(
            "--store",
            metavar="URL",
            help="postgresql://…, or @FILE that holds the URL, since `ps` shows what you type here. "
            "Default: $YARD_STORE, else a file in the data folder.",
        ),
    ] = "",
    emulate: Annotated[
        str, Option("--emulate", metavar="GPUS", help="Pretend to have these GPUs, as in '8 x A100-80GB'.")
    ] = "",
    auth: AuthOption = False,
    host: HostOption = "127.0.0.1",
    tls_cert: CertOption = None,
    tls_key: KeyOption = None,
    insecure_http: InsecureOption = False,
    older_log: OlderOption = False,
    no_lead: NoLeadOption = False,
    look_every: LookOption = 10,
) -> None:
    """Start the yard on this machine: accept jobs, schedule them and run them.

    The yard keeps everything in one folder. You can stop and start it at any time: jobs keep running. On a machine
    without GPUs it emulates eight, so that you can try it anywhere.
    """
    from gpuyard.control.places import DataDir, default_data, resolve_store

    folder, named = DataDir(data or default_data()), resolve_store(store)
    _check_at_once(folder, named, host, port)
    from gpuyard.control.options import Options

    options = Options(
        data=folder.root,
        port=PORT if port is None else port,
        any_port=port is None,
        config=config.absolute() if config else None,
        store=named,
        emulate=emulate,
        host=host,
        auth=auth,
        tls_cert=tls_cert.absolute() if tls_cert else None,
        tls_key=tls_key.absolute() if tls_key else None,
        insecure_http=insecure_http,
        older_log=older_log,
        leads=not no_lead,
        look_s=look_every,
    )
    if detach:
        _detached(options)
    else:
        _foreground(options)


def _check_at_once(folder: "DataDir", store: str, host: str, port: int | None) -> None:
    """Refuse a start that cannot be before anything is loaded for it, or made on the disk."""
    folder.check_reach()
    if not store:
        folder.instance(port or PORT, False).check_free()
    if port:
        from gpuyard.api.connecting.ports import listen_at

        listen_at(host, port).close()


def _foreground(options: "Options") -> None:
    import logging
    import sys

    from gpuyard import interpreter
    from gpuyard.api.server.serving import serve, start_log
    from gpuyard.cli.commands.yard.first_process import make_way
    from gpuyard.cli.terminal.streams import print_notice
    from gpuyard.control.serve import Yard

    make_way()
    # Others may be able to write where it was started; all paths are absolute by now.
    interpreter.leave_folder()

    start_log(logging.StreamHandler(sys.stderr))

    def ready(yard: Yard) -> None:
        print_notice(_words(yard.options, yard.options.port))
        for note in yard.readiness()[1]["notes"]:
            print_notice(f"note: {note}")

    serve(options, ready)


def _detached(options: "Options") -> None:
    import shlex

    from gpuyard.api.client import Client
    from gpuyard.api.server.serving import detach
    from gpuyard.cli.terminal.streams import print_notice
    from gpuyard.control.places import DataDir, default_data
    from gpuyard.control.readiness import READY_S, SPACE, is_up
    from gpuyard.control.starting import check
    from gpuyard.errors import YardError

    data = DataDir(options.data)
    check(options)
    data.prepare()
    instance = data.instance(options.port, options.shared)
    pid = detach(options, instance.log)
    found = next((each for each in data.instances() if each.running() == pid), instance)
    with Client(f"unix:{found.socket}", patience_s=READY_S) as client:
        how = _until_ready(client)
    if not is_up(how):
        raise YardError(
            f"the yard runs with pid {pid}, but is not ready: {how['error']}", f"Its log: {found.log}"
        )
    print(_words(options, int(str(found.note().get("port", 0))), pid))
    if options.data.resolve() != default_data().resolve():
        print_notice(
            f"note: commands find it by its folder: export YARD_DATA={shlex.quote(str(options.data))}"
        )
    for note in how["notes"]:
        print_notice(f"note: {note}")
    if how["reason"] == SPACE:
        print_notice(f"note: {how['error']}: nothing new is taken in or started; jobs can be cancelled")


def _until_ready(client: "Client") -> "ReadyReply":
    import time

    from gpuyard.control.readiness import READY_S, is_up

    until_s = time.monotonic() + READY_S
    while True:
        how = client.ready()[1]
        if is_up(how) or how["reason"] == "damaged" or time.monotonic() > until_s:
            return how
        time.sleep(0.05)


def _words(options: "Options", port: int, pid: int | None = None) -> str:
    from dataclasses import replace

    by = f" (pid {pid})" if pid else ""
    return f"the yard is up{by}: {replace(options, port=port).url}, data in {options.data}"
