"""`yard diff`, `yard apply`, `yard rollback`: change the configuration of a running yard, after a look at it."""

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from gpuyard.cli.commands.config.changes import (
    FileArgument,
    FileOption,
    choose_file,
    read_change,
    run_preview,
    show_changes,
    show_notes,
    show_preview,
)
from gpuyard.cli.connection.places import open_client
from gpuyard.cli.line.options import Argument, Option, OutputOption, SizesOption
from gpuyard.cli.listings.listing import Output
from gpuyard.errors import BadInput, YardError
from gpuyard.job_sizes import SIZES_TEXT

if TYPE_CHECKING:
    from gpuyard.api.client import Client
    from gpuyard.wire.replies.tenants import AppliedReply

DIFFERS = 1


def diff(path: FileArgument = None, file: FileOption = None, output: OutputOption = Output.TABLE) -> int:
    """Compare a yard.yaml with the configuration in force, by meaning rather than by text.

    Exit code 0: nothing would change, 1: something would, 2 or more: the comparison failed.
    """
    chosen = choose_file("diff", path, file)
    with open_client() as yard:
        difference = yard.config_diff(**read_change(yard, chosen)[0])
    if output in (Output.TABLE, Output.WIDE):
        if difference["same"]:
            print(f"nothing would change: version {difference['version']} is in force")
        else:
            print(f"against version {difference['version']}, which is in force:")
            show_changes(difference)
        show_notes([*difference["obstacles"], *difference["notes"]])
    elif output is Output.CSV:
        from gpuyard.cli.listings.tables import print_records

        print_records(difference["changes"], (), output.value)
    else:
        from gpuyard.cli.listings.listing import Listing
        from gpuyard.cli.listings.listing import print_listing as emit_listing

        emit_listing(Listing(difference, lambda: difference["changes"], lambda _wide: ()), output)
    return 0 if difference["same"] else DIFFERS


DryRunOption = Annotated[bool, Option("--dry-run", help="Show the changes and make none.")]
YesOption = Annotated[bool, Option("-y", "--yes", help="Do not ask, and continue if the preview fails.")]
NoPreviewOption = Annotated[bool, Option("--no-preview", help="Skip the simulation on recorded jobs.")]
DaysOption = Annotated[
    int, Option("--days", metavar="N", min=1, max=365, help="Simulate the recorded jobs of N days.")
]


def apply(
    path: FileArgument = None,
    file: FileOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    no_preview: NoPreviewOption = False,
    days: DaysOption = 7,
    sizes: SizesOption = SIZES_TEXT,
) -> None:
    """Put a yard.yaml in force while the yard runs: tenants, quotas, classes, prices, policy.

    It shows the changes, simulates their effect on the recorded jobs, and then asks. The whole file comes into force
    at once, or nothing does. Every version is kept, and `yard rollback` goes back to one. A file of Kubernetes or Kueue
    (ResourceQuota, LimitRange, PriorityClass, Namespace, ClusterQueue, Cohort, LocalQueue, ResourceFlavor) changes what
    it names, and the rest stays.

    \b
    Examples:
      yard apply yard.yaml --dry-run
      yard apply yard.yaml --yes --no-preview
      yard apply -f quota-of-team-a.yaml --dry-run
    """
    chosen = choose_file("apply", path, file)
    with open_client() as yard:
        wanted, read_at = read_change(yard, chosen)
        _change(
            yard,
            wanted,
            yard.apply,
            dry_run=dry_run,
            yes=yes,
            days=0 if no_preview else days,
            sizes=sizes,
            read_at=read_at,
        )


def rollback(
    version: Annotated[
        int | None,
        Argument(
            metavar="VERSION",
            min=1,
            help="A number from `yard config --list`. Default: the version before the present one.",
        ),
    ] = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    no_preview: NoPreviewOption = False,
    days: DaysOption = 7,
    sizes: SizesOption = SIZES_TEXT,
) -> None:
    """Put an earlier version of the configuration in force again, as a new version."""
    with open_client() as yard:
        if version is None:
            # Settle the version now, so that the one that is shown, previewed and restored is the same.
            live: int = yard.config()["version"]
            version = live - 1
            if version < 1:
                raise BadInput(
                    "there is no version before the first", "`yard config --list` lists those that exist."
                )
        wanted = {"version": version}
        _change(
            yard, wanted, yard.rollback, dry_run=dry_run, yes=yes, days=0 if no_preview else days, sizes=sizes
        )


def _change(
    yard: "Client",
    wanted: Mapping[str, Any],
    put: "Callable[..., AppliedReply]",
    *,
    dry_run: bool,
    yes: bool,
    days: int,
    sizes: str,
    read_at: int = 0,
) -> None:
    if not (yes or dry_run or sys.stdin.isatty()):
        raise BadInput(
            "there is no terminal on which to ask", "Look at the changes with --dry-run, then add --yes."
        )
    difference = yard.config_diff(**wanted)
    if read_at and difference["version"] != read_at:
        raise BadInput(
            f"version {difference['version']} came into force meanwhile, and this was to change version {read_at}",
            "Run the command again; nothing was changed.",
        )
    against, following = difference["version"], difference["version"] + 1
    if difference["same"]:
        print(f"nothing to change: version {against} is in force")
    else:
        of = f", the settings of version {difference['restores']}" if difference["restores"] else ""
        print(f"version {against} is in force; this would be version {following}{of}:")
        show_changes(difference)
    show_notes(difference["notes"])
    if difference["obstacles"]:
        raise _in_the_way(difference["obstacles"])
    if days and not difference["same"]:
        _preview(yard, wanted, days, sizes, required=dry_run or not yes)
    if dry_run:
        return
    if not yes and not difference["same"]:
        from gpuyard.cli.terminal.streams import confirm

        sys.stdout.flush()
        if not confirm(f"Put version {following} in force?"):
            raise YardError("nothing was changed")
    done = put(**wanted, against=against)
    if done["version"] != against:
        print(f"version {done['version']} is in force")


def _preview(yard: "Client", wanted: Mapping[str, Any], days: int, sizes: str, *, required: bool) -> None:
    """What the change would have done. Unless `required`, a preview that fails does not stop the change."""
    try:
        preview = run_preview(yard, wanted, days, sizes)
    except YardError as error:
        if required:
            hint = f"{error.hint} Without a preview: --no-preview. Nothing was changed."
            raise YardError(f"there is no preview: {error.message}", hint.lstrip()) from error
        show_notes([f"there is no preview: {error.message}"])
        return
    print()
    show_preview(preview)
    show_notes(preview["notes"])


def _in_the_way(obstacles: list[str]) -> YardError:
    return BadInput("; ".join(obstacles), "Wait for these jobs, or cancel them; nothing was changed.")
