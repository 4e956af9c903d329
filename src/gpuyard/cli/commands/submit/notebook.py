"""`yard notebook`: JupyterLab on a GPU, reached through a port of this machine."""

import os
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

from gpuyard.api.client import Client
from gpuyard.cli.commands.inside.forward import listen_here, serve
from gpuyard.cli.commands.jobs.waiting import Waiting
from gpuyard.cli.commands.submit import jobfields as f
from gpuyard.cli.connection.places import open_client
from gpuyard.cli.connection.visits import NotThere
from gpuyard.cli.line.options import Argument, Called, Option, with_options
from gpuyard.cli.terminal.streams import print_notice
from gpuyard.cli.terminal.visible_text import visible_text
from gpuyard.engines.node import notebook as runner
from gpuyard.errors import BadInput, YardError
from gpuyard.quantities import parse_duration_ms

_TOKEN, _IDLE = "JUPYTER_TOKEN", "YARD_NOTEBOOK_IDLE_S"
_PORT = 8888
_PORTS_TRIED = 20
_SAYS = "yard: "

JobArgument = Annotated[str, Argument(metavar="[JOB]", help="A running notebook to return to.")]
Idle = Annotated[
    str,
    Option("--idle", metavar="TIME", help="Stop the notebook when no cell has run for this long: 30m, 2h."),
]
Port = Annotated[int, Option("--port", metavar="N", min=0, max=65535, help="The port here; 0: any free one.")]


@with_options(f.job_options(run=True))
def notebook(
    ctx: Called, job: JobArgument = "", *, idle: Idle = "1h", port: Port = _PORT, **options: Any
) -> int:
    """Run JupyterLab on the yard and print its address here: `yard notebook -g 1`.

    The notebook uses your own JupyterLab, from the environment that you submit from. Ctrl-C leaves the notebook
    running, and `yard notebook JOB` returns to it. An idle notebook is stopped, five minutes after a warning here.
    """
    with open_client() as yard:
        if not job:
            job = _submitted(yard, ctx, options, idle)
        return _opened(yard, job, port, any_port="port" not in ctx.given)


def _submitted(yard: Client, ctx: Called, options: dict[str, Any], idle: str) -> str:
    try:
        idle_s = parse_duration_ms(idle) // 1000
    except ValueError as wrong:
        raise BadInput(f"--idle {idle!r}: {wrong}", "For example: 30m, 2h") from None
    fields = f.complete_request(ctx, f.build_request(ctx, options))
    if yard.here and not fields.get("image") and not _installed():
        raise YardError(
            "JupyterLab was not found, and a notebook runs the JupyterLab of your environment",
            "Type pip install jupyterlab, or activate the environment that has it; then repeat yard "
            "notebook.",
        )
    fields["script"] = f"#!/usr/bin/env python3\n{Path(runner.__file__).read_text(encoding='utf-8')}"
    fields["name"] = fields.get("name") or "notebook"
    # The token is in the environment, which only the job's owner reads, and on no command line.
    fields["env"] = {**fields["env"], _TOKEN: os.urandom(24).hex(), _IDLE: str(max(1, idle_s))}
    try:
        accepted = yard.submit(fields)
    except YardError as error:
        raise f.blame_default(error, fields) from error
    print_notice(f"job {accepted['label']} is submitted; Ctrl-C cancels it while it starts")
    if "gpus" not in ctx.given and sys.stderr.isatty():
        f.say_if_no_gpus(accepted["label"], fields)
    return str(accepted["label"])


def _installed() -> bool:
    """Whether this environment has JupyterLab: as a command, or for the Python that would run it."""
    import shutil
    import subprocess

    look = "import importlib.util, sys; sys.exit(not importlib.util.find_spec('jupyterlab'))"
    python = shutil.which("python3")
    return bool(shutil.which("jupyter-lab")) or (
        python is not None and subprocess.run([python, "-c", look], check=False, cwd="/").returncode == 0
    )


def _opened(yard: Client, job: str, port: int, *, any_port: bool) -> int:
    """Print the address, and pass connections on until the notebook ends."""
    try:
        remote = _port_of(yard, job)
    except KeyboardInterrupt:
        yard.cancel(job)
        print_notice(f"job {job} is cancelled", before=_SAYS)
        return 130
    token = yard.recipe(job)["env"].get(_TOKEN, "")
    teller = threading.Thread(target=_tell, args=(yard.again(), job), daemon=True)
    with _listener(port, any_port) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/lab?token={token}"

        def begun() -> None:
            print(address, flush=True)
            print_notice(
                f"job {job}: Ctrl-C leaves it running, `yard notebook {job}` comes back, `yard cancel {job}` ends it"
            )
            teller.start()

        try:
            serve(yard, job, listener, remote, begun)
        except KeyboardInterrupt:
            print(file=sys.stderr)
            return 0
        except NotThere:
            # It has ended, and has said why.
            if teller.ident is not None:
                teller.join(5.0)
    ended = yard.job(job, explain=False)
    return 0 if "array" in ended else ended["exit_code"] or 0


def _listener(port: int, any_port: bool) -> Any:
    for each in range(port, port + _PORTS_TRIED if any_port else port):
        with suppress(BadInput):
            return listen_here(each)
    return listen_here(port)


def _port_of(yard: Client, job: str) -> int:
    """Where it listens, once it does; raises what it said if it ended before."""
    said, end = "", None
    with Waiting() as line:
        for piece in yard.follow(job, standing=line.told):
            if not isinstance(piece, bytes):
                end = piece
                break
            said += piece.decode(errors="replace")
            _before, found, rest = said.partition(runner.PORT)
            if found and "\n" in rest:
                return int(rest.partition("\n")[0])
    last = [line.removeprefix(_SAYS) for line in said.splitlines() if line.startswith(_SAYS)][-1:]
    why = visible_text(last[0] if last else f"{end['state']} {end['reason']}" if end else "it says nothing")
    raise YardError(f"the notebook of job {job} did not start: {why}", f"Its output: yard logs {job}")


def _tell(yard: Client, job: str) -> None:
    """Show what the notebook's runner says from now on: that it will stop, and that it has."""
    rest = ""
    with yard, suppress(YardError, OSError):
        for piece in yard.follow(job):
            if isinstance(piece, bytes):
                *lines, rest = (rest + piece.decode(errors="replace")).split("\n")
                for line in lines:
                    if line.startswith(_SAYS) and not line.startswith(runner.PORT):
                        print_notice(visible_text(line.removeprefix(_SAYS)), before=_SAYS)
