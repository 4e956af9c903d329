"""`yard submit`: hand in a job and come back."""

import os
from typing import Annotated

import typer

from gpuyard.cli import jobfields as f
from gpuyard.cli.listing import Output
from gpuyard.cli.options import OutputOption
from gpuyard.cli.places import client
from gpuyard.cli.words import DASHES
from gpuyard.errors import BadInput


def submit(
    ctx: typer.Context,
    words: f.WordsArgument = None,
    gpus: f.Gpus = 0,
    name: f.JobName = "",
    time_limit: f.TimeLimit = "",
    klass: f.Klass = "",
    tenant: f.Tenant = "",
    array: Annotated[
        str,
        typer.Option(
            "--array",
            metavar="INDICES",
            help="Many tasks: 0-9, 1,3,5 or 0-100:10; with %4 at the end no more than 4 at a time.",
            show_default=False,
        ),
    ] = "",
    after: Annotated[
        list[str] | None,
        typer.Option(
            "--after",
            metavar="[KIND:]JOB",
            help="Wait for a job, an array or a task: afterok (if no kind is given), afterany, afternotok, after, "
            "aftercorr; or singleton. May be repeated.",
            show_default=False,
        ),
    ] = None,
    tasks: f.Tasks = 1,
    cpus: f.Cpus = 0,
    memory: f.Memory = "",
    gpu_model: f.GpuModel = None,
    stdout: Annotated[
        str, typer.Option("--stdout", metavar="FILE", help="For its output.", show_default=False)
    ] = "",
    stderr: Annotated[
        str, typer.Option("--stderr", metavar="FILE", help="For its errors.", show_default=False)
    ] = "",
    env: f.Env = None,
    export: f.Export = True,
    signal: f.Signal = "",
    retries: Annotated[
        int,
        typer.Option(
            "--retries", metavar="N", min=0, max=100, help="How often it is tried again if it fails."
        ),
    ] = 0,
    requeue: Annotated[
        bool, typer.Option("--requeue/--no-requeue", help="Wait again when its node is lost.")
    ] = True,
    hold: Annotated[bool, typer.Option("--hold", help="Do not start it before `yard release`.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Submit a command, or a script that begins with #!, and print the job's id.

    `yard submit -g 2 --time 2h train.sh` submits the text of the script as it is now; `yard submit -g 2 -- ./train.sh`
    runs the file when the job starts. `-` reads a script from standard input.
    """
    fields = f.command_of(words, ctx.meta.get(DASHES, False))
    own_name = fields.get("name", "")
    fields |= f.request(
        gpus=gpus, gpu_model=gpu_model, name=name or own_name, tenant=tenant, klass=klass, time_limit=time_limit,
        tasks=tasks, cpus=cpus, memory=memory, env=env, export=export, signal=signal,
    )  # fmt: skip
    for key, path in (("stdout", stdout), ("stderr", stderr)):
        if path:
            fields[key] = os.path.abspath(path)
    indices, _percent, at_a_time = array.partition("%")
    if _percent and not at_a_time.isdecimal():
        raise BadInput(f"--array {array!r}: after % comes a number", "For example: --array 0-99%8")
    more = {"array": indices, "array_limit": int(at_a_time or 0), "retries": retries, "hold": hold}
    fields |= {"dependencies": [_dependency(each) for each in after]} if after else {}
    fields |= {key: value for key, value in more.items() if value}
    if not requeue:
        fields["requeue"] = False
    with client() as yard:
        accepted = yard.submit(fields)
    if output in (Output.TABLE, Output.WIDE):
        print(accepted["id"])
    elif output is Output.JSON:
        import json

        print(json.dumps(accepted, indent=2))
    else:
        from gpuyard.cli.tables import emit

        emit([dict(accepted)], [], output)


def _dependency(text: str) -> dict[str, str]:
    """`12`, `12_3`, `afterany:12` or `singleton`."""
    kind, _, job = text.rpartition(":")
    if text == "singleton":
        return {"kind": text}
    return {"kind": kind or "afterok", "job": job}
