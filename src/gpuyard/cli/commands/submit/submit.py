"""`yard submit`: hand in a job and come back."""

import os
from typing import Any

from gpuyard.api.connecting.surroundings import here
from gpuyard.cli.commands.submit import jobfields as f
from gpuyard.cli.commands.submit import jobimages as i
from gpuyard.cli.commands.submit import jobplaces as p
from gpuyard.cli.commands.submit.scripts import (
    command_of,
    is_file_to_read,
    piped,
    refuse_command,
    refuse_folder,
)
from gpuyard.cli.connection.places import client
from gpuyard.cli.line.options import Called, Output, OutputOption
from gpuyard.errors import BadInput, YardError


def submit(
    ctx: Called,
    words: f.WordsArgument = None,
    gpus: f.Gpus = "",
    gpu_memory: f.GpuMemory = "",
    isolation: f.Isolated = "",
    name: f.JobName = "",
    time_limit: f.TimeLimit = "",
    klass: f.Klass = "",
    tenant: f.Tenant = "",
    array: f.Array = "",
    after: f.After = None,
    after_one: f.AfterOne = False,
    image: i.Image = "",
    volume: i.Volume = None,
    secret: i.Secret = None,
    pull: i.Pull = "",
    tasks: f.Tasks = 1,
    cpus: f.Cpus = None,
    memory: f.Memory = "",
    gpu_model: f.GpuModel = None,
    chdir: p.Chdir = "",
    pool: p.Pool = None,
    cluster: p.Clusters = None,
    constraint: p.Constraint = "",
    nodes: p.Nodes = "",
    node: p.OnNodes = None,
    exclude: p.Exclude = None,
    exclusive: p.Exclusive = False,
    begin: p.Begin = "",
    deadline: p.Deadline = "",
    checkpoint: p.Checkpoint = "",
    stdout: f.Stdout = "",
    stderr: f.Stderr = "",
    open_mode: f.OpenMode = "",
    env: f.Env = None,
    env_file: p.EnvFile = "",
    export: f.Export = True,
    signal: f.Signal = "",
    retries: f.Retries = 0,
    requeue: f.Requeue = True,
    hold: f.Hold = False,
    host_process: f.HostProcess = False,
    dry_run: f.DryRun = False,
    output: OutputOption = Output.TABLE,
) -> int:
    """Submit a command, or a script that begins with #!, and print the job's id.

    `yard submit -g 2 --time 2h train.sh` submits the text of the script as it is now, and heeds its #SBATCH lines;
    `yard submit -g 2 -- ./train.sh` runs the file when the job starts. A .yaml file holds jobs of Kubernetes or of the
    yard's own form (`yard convert`). `-` reads any of these from standard input.

    With --dry-run, as with #SBATCH --test-only, nothing is submitted; exit code 3: it could never run.
    """
    given = f.request(
        gpus=gpus, gpu_memory=gpu_memory, isolation=isolation, gpu_model=gpu_model,
        name=name, tenant=tenant, klass=klass, time_limit=time_limit,
        tasks=tasks, cpus=cpus, memory=memory, env=env, env_file=env_file, signal=signal,
        export=f.exports(ctx, export, image),
    )  # fmt: skip
    given |= i.boxed(image, volume, secret, pull)
    given |= p.place(
        chdir=chdir, pool=pool, cluster=cluster, constraint=constraint, nodes=nodes, node=node, exclude=exclude,
        exclusive=exclusive, begin=begin, deadline=deadline, checkpoint=checkpoint,
    )  # fmt: skip
    given |= _more(ctx, array, after, stdout, stderr)
    flags = {"retries": retries, "hold": hold, "dependencies_any": after_one, "open_mode": open_mode}
    given |= {key: value for key, value in flags.items() if value} | ({} if requeue else {"requeue": False})
    jobs, test_only = _jobs(words, given, host_process, ctx)
    return _handed_in(jobs, dry_run or test_only, output, ctx)


def _more(ctx: Called, array: str, after: list[str] | None, stdout: str, stderr: str) -> dict[str, Any]:
    """Fields that only a submitted job has: `yard run` stays with its job."""
    fields = {
        key: _file(key, path, array=bool(array))
        for key, path in (("stdout", stdout), ("stderr", stderr))
        if path
    }
    if f.was_empty(ctx, "array", array):
        raise BadInput("--array names no task", "For example: --array 0-9; without --array it is one job.")
    dependencies = {"dependencies": [_dependency(each) for each in after]} if after else {}
    return fields | _array(array) | dependencies


def _jobs(
    words: list[str] | None, given: dict[str, Any], host_process: bool, ctx: Called
) -> tuple[list[dict[str, Any]], bool]:
    """The jobs, and whether they are only to be tried."""
    through = piped(words, ctx.dashes)
    if is_file_to_read(words, ctx.dashes, through):
        return _taken_in(words, given, host_process, ctx, through)
    return [_plain(words, given, ctx, through)], False


def _handed_in(jobs: list[dict[str, Any]], tried: bool, output: Output, ctx: Called) -> int:
    if any(fields.get("not_nodes") for fields in jobs):
        from gpuyard.cli.commands.submit.exclusions import drop_unknown
        from gpuyard.cli.terminal.streams import notice

        drop_unknown(jobs, lambda text: notice(text, before="warning: ", style="bold yellow"))
    if tried:
        from gpuyard.cli.commands.submit.dry_run import rehearse

        return rehearse(jobs, output)
    with client() as yard:
        for place, fields in enumerate(jobs):
            try:
                if yard.here:
                    refuse_folder(fields)
                    refuse_command("submit", fields, ctx.options)
                accepted = yard.submit(fields)
            except YardError as error:
                raise _of_several(f.own_default(error, fields), jobs, place) from error
            _show(accepted, output)
            if not f.was_given(ctx, "gpus"):
                f.say_if_no_gpus(accepted, fields)
    return 0


def _file(option: str, path: str, *, array: bool) -> str:
    """The whole path of a file for output; patterns in it that stand for nothing are reported."""
    if "%" in path:
        from gpuyard.cli.terminal.streams import notice
        from gpuyard.engines.patterns import check

        for text in check(path, array=array):
            notice(f"--{option} {path}: {text}", before="warning: ", style="bold yellow")
    return os.path.abspath(path)


def _of_several(error: YardError, jobs: list[dict[str, Any]], place: int) -> YardError:
    """Say which of several jobs was refused, and what became of the others."""
    if len(jobs) > 1:
        name = f" ({jobs[place]['name']})" if jobs[place].get("name") else ""
        before = f"the {place} before it {'is' if place == 1 else 'are'} submitted" if place else "none is"
        after = "" if place + 1 == len(jobs) else f", the {len(jobs) - place - 1} after it not"
        error.message = f"job {place + 1} of {len(jobs)}{name}: {error.message}; {before}{after}"
    return error


def _plain(
    words: list[str] | None, given: dict[str, Any], ctx: Called, through: bytes | None
) -> dict[str, Any]:
    """A command, or a script as it stands."""
    fields = command_of("submit", words, ctx, through, image=bool(given.get("image")))
    return fields | f.completed(ctx, given) | {"name": given.get("name") or fields.get("name", "")}


def _taken_in(
    words: list[str] | None, given: dict[str, Any], host_process: bool, ctx: Called, through: bytes | None
) -> tuple[list[dict[str, Any]], bool]:
    """Jobs of a file with directives of its own, and whether it says itself that they are only to be tried.

    The command line overrides them.
    """
    from gpuyard.cli.commands.submit.convert import take

    said = {
        key: value
        for key, value in given.items()
        if key not in _ALWAYS_THERE or f.was_given(ctx, _ALWAYS_THERE[key])
    }
    kept = f.fallbacks(gpus=False)
    jobs, test_only = [], False
    file, *arguments = words or [""]
    for each in take(file, script_arguments=tuple(arguments), host_process=host_process, content=through):
        fields = {"cwd": here()} | kept | each.request() | said
        fields["env"] = each.environment(given["env"])
        jobs.append(fields)
        test_only = test_only or each.handing.test_only
    return jobs, test_only


_ALWAYS_THERE = {"gpus": "gpus", "tasks": "tasks", "cwd": "chdir", "env": ""}
"""Fields that a request always has, by the option that sets them."""


def _array(text: str) -> dict[str, Any]:
    indices, percent, at_a_time = text.partition("%")
    if percent and not at_a_time.isdecimal():
        raise BadInput(f"--array {text!r}: after % comes a number", "For example: --array 0-99%8")
    fields: dict[str, Any] = {"array": indices} if indices else {}
    return fields | ({"array_limit": int(at_a_time)} if at_a_time else {})


def _dependency(text: str) -> dict[str, str]:
    """`12`, `12_3`, `afterany:12` or `singleton`."""
    kind, _, job = text.rpartition(":")
    if text == "singleton":
        return {"kind": text}
    return {"kind": kind or "afterok", "job": job}


def _show(accepted: Any, output: Output) -> None:
    if output in (Output.TABLE, Output.WIDE):
        print(accepted["id"])
    else:
        from gpuyard.cli.listings.tables import emit, write_document

        if output is Output.JSON:
            write_document(accepted, output)
        else:
            emit([dict(accepted)], [], output)
