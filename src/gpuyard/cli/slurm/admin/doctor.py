"""`yard slurm doctor`: examines a site; every finding comes with the line to change."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

from gpuyard.cli.line.options import Option, Output
from gpuyard.cli.slurm.admin.site_options import ConfOption, SinceOption, days_since, make_commands

if TYPE_CHECKING:
    from gpuyard.engines.slurm.doctor.evidence import Evidence, Finding

FIELDS = ("code", "level", "seen", "why", "change")


def run(
    conf: ConfOption = None,
    since: SinceOption = "7d",
    rest: Annotated[str, Option("--rest", metavar="URL", help="Also try slurmrestd at this address.")] = "",
    output: Annotated[Output, Option("-o", "--output", help="How to print the result.")] = Output.TABLE,
) -> int:
    """Check a Slurm cluster: daemons, accounting, GPUs, nodes, jobs and the scheduler's parameters.

    The command changes nothing. Exit code 1: it found a fault, 0: it found none, or has only advice. It works while
    slurmctld is down too: then it checks slurm.conf and the accounting.
    """
    from gpuyard.engines.contract import Permanent
    from gpuyard.engines.slurm.calls.commands import Refusal
    from gpuyard.engines.slurm.doctor.evidence import Level
    from gpuyard.engines.slurm.doctor.examine import examine
    from gpuyard.engines.slurm.doctor.findings import apply_rules
    from gpuyard.errors import BadInput

    asked = make_commands(conf)
    number = days_since(since)
    try:
        asked.run("sinfo", "--version")
    except Refusal:
        pass
    except Permanent as error:
        raise BadInput(str(error), "Run it where Slurm's commands are.") from error
    look = examine(asked, number, rest)
    found = apply_rules(look)
    if output in (Output.TABLE, Output.WIDE):
        _print(look, found)
    else:
        from gpuyard.cli.listings.tables import print_records

        rows: list[dict[str, Any]] = [
            {**{name: getattr(each, name) for name in FIELDS}, "level": each.level.value} for each in found
        ]
        print_records(rows, [], output.value, fields=FIELDS)
    if any(each.level is Level.FAULT for each in found):
        return 1
    return 0


def _print(look: "Evidence", found: "list[Finding]") -> None:
    from gpuyard.cli.terminal.streams import style_text

    site = look.site
    gpus = sum(node.gpu_count for node in site.nodes)
    print(
        f"{site.name}, Slurm {look.setting('SLURM_VERSION') or look.client_version or '?'}: "
        f"{len(site.nodes):,} nodes, {gpus:,} GPUs, {len(look.queue):,} jobs in the queue, "
        f"{len(site.jobs.rows):,} in the history"
    )
    for number, each in enumerate(found, start=1):
        fault = each.level.value == "fault"
        level = style_text(
            f"{number}. {each.level.value.upper()}", "bold red" if fault else "bold yellow", sys.stdout
        )
        print(f"\n{level} {style_text(f'{each.code}:', 'bold', sys.stdout)} {each.seen}")
        print(f"   why     {each.why}")
        print(f"   change  {each.change}")
    if look.rest is None:
        print("\nslurmrestd was not looked at: give its address with --rest.")
    faults = sum(1 for each in found if each.level.value == "fault")
    advice = len(found) - faults
    print(
        f"\n{_counted(faults, 'fault')}, {_counted(advice, 'piece')} of advice"
        if found
        else "\nnothing to change"
    )


def _counted(number: int, noun: str) -> str:
    return f"{number or 'no'} {noun}{'' if number == 1 else 's'}"
