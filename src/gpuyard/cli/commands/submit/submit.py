"""`yard submit`: hand in a job and come back."""

from typing import Annotated, Any

from gpuyard.api.client import current_folder
from gpuyard.cli.commands.submit import jobfields as f
from gpuyard.cli.commands.submit.scripts import (
    is_file_to_read,
    read_command,
    read_piped,
    refuse_command,
    refuse_folder,
)
from gpuyard.cli.connection.places import open_client
from gpuyard.cli.line.options import Called, Option, Output, OutputOption, with_options
from gpuyard.errors import BadInput, YardError

HostProcess = Annotated[
    bool,
    Option("--host-process", help="Run a container's command on the node itself, without its image."),
]
DryRun = Annotated[
    bool,
    Option(
        "--dry-run", help="Show where and when the job would start and what it would cost; submit nothing."
    ),
]

Like = Annotated[
    str,
    Option("--like", metavar="JOB", help="Submit this job or array again, changed by the other options."),
]
Notes = Annotated[
    bool,
    Option("--notes/--no-notes", help="On a terminal, show what earlier jobs of the same name used."),
]


@with_options(f.job_options(run=False))
def submit(
    ctx: Called,
    words: f.WordsArgument = None,
    *,
    host_process: HostProcess = False,
    dry_run: DryRun = False,
    like: Like = "",
    notes: Notes = True,
    output: OutputOption = Output.TABLE,
    **options: Any,
) -> int:
    """Submit a command, or a script that begins with #!, and print the job's id.

    `yard submit -g 2 --time 2h train.sh` submits the script's present text and follows its #SBATCH lines; `yard submit
    -g 2 -- ./train.sh` runs the file as it is when the job starts. A .yaml file holds Kubernetes manifests or native
    YAML (`yard convert`). `-` reads any of these from standard input.

    `yard submit --like 12 --memory 32G` submits job 12 again with more memory. The new job has its command or script,
    folder, variables and ask, but not its begin time, dependencies and deadline.

    With --dry-run or #SBATCH --test-only nothing is submitted; exit code 3: the job could never run.
    """
    if like:
        jobs, test_only = [_again(like, words, ctx, options)], False
    else:
        jobs, test_only = _jobs(words, f.build_request(ctx, options), host_process, ctx)
    return _handed_in(jobs, dry_run or test_only, output, ctx, notes and f.wants_notes())


def _jobs(
    words: list[str] | None, given: dict[str, Any], host_process: bool, ctx: Called
) -> tuple[list[dict[str, Any]], bool]:
    """The jobs, and whether they are only to be tried."""
    through = read_piped(words, ctx.dashes)
    if is_file_to_read(words, ctx.dashes, through):
        return _taken_in(words, given, host_process, ctx, through)
    return [_plain(words, given, ctx, through)], False


def _again(like: str, words: list[str] | None, ctx: Called, options: dict[str, Any]) -> dict[str, Any]:
    """The request of a job that is there, with what was typed in place of its own."""
    if words:
        raise BadInput(
            f"--like {like} has a command of its own, and {words[0]!r} is another",
            "Leave the command out, or leave --like out.",
        )
    with open_client() as yard:
        found = yard.request(like)
    if "environments" in found.get("removed", {}):
        from gpuyard.cli.terminal.streams import print_notice

        print_notice(
            f"the variables of job {like} are no longer kept; the new one has those of --env and --env-file alone",
            before="warning: ",
            style="bold yellow",
        )
    return f.change_request(found["request"], ctx, options)


def _handed_in(jobs: list[dict[str, Any]], tried: bool, output: Output, ctx: Called, said: bool) -> int:
    """Submit the jobs, or try them. `said`: with notes about what earlier ones used."""
    # A cluster that was typed, and not read from a script, must exist.
    if any([each.get("not_nodes") or ("cluster" not in ctx.given and each.get("clusters")) for each in jobs]):
        from gpuyard.cli.commands.submit.jobfields import drop_unknown
        from gpuyard.cli.terminal.streams import print_notice

        drop_unknown(jobs, lambda text: print_notice(text, before="warning: ", style="bold yellow"))
    if tried:
        from gpuyard.cli.commands.submit.dry_run import rehearse

        return rehearse(jobs, output, said=said, gpus_said="gpus" in ctx.given)
    with open_client() as yard:
        for place, fields in enumerate(jobs):
            try:
                if yard.here:
                    refuse_folder(fields)
                    refuse_command("submit", fields, ctx.options)
                accepted = yard.submit(fields)
            except YardError as error:
                raise _of_several(f.blame_default(error, fields), jobs, place) from error
            _show(accepted, output)
            if "gpus" not in ctx.given:
                f.say_if_no_gpus(accepted["label"], fields)
            if said:
                from gpuyard.cli.commands.submit.notes import say

                say(yard, fields, accepted["label"])
    return 0


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
    fields = read_command("submit", words, ctx, through, image="image" in given)
    return fields | f.complete_request(ctx, given)


def _taken_in(
    words: list[str] | None, given: dict[str, Any], host_process: bool, ctx: Called, through: bytes | None
) -> tuple[list[dict[str, Any]], bool]:
    """Jobs of a file with directives of its own, and whether it says itself that they are only to be tried.

    The command line overrides them.
    """
    from gpuyard.cli.commands.submit.convert import take
    from gpuyard.intake.values import Form

    said = {key: value for key, value in given.items() if key != "cwd" or "chdir" in ctx.given}
    kept = f.read_fallbacks(gpus=False)
    jobs, test_only = [], False
    file, *arguments = words or [""]
    for each in take(file, script_arguments=tuple(arguments), host_process=host_process, content=through):
        request = each.request()
        # A pod begins in the folder that its image names, and sees none of this machine that it does not mount.
        folder = {"cwd": "" if each.form is Form.KUBERNETES and "image" in request else current_folder()}
        fields = folder | kept | request | said
        fields["env"] = each.environment(given["env"])
        jobs.append(fields)
        test_only = test_only or each.options.test_only
    return jobs, test_only


def _show(accepted: Any, output: Output) -> None:
    if output in (Output.TABLE, Output.WIDE):
        print(accepted["id"])
    else:
        from gpuyard.cli.listings.tables import print_records, write_document

        if output is Output.JSON:
            write_document(accepted, output)
        else:
            print_records([dict(accepted)], [], output)
