"""`yard submit --dry-run`: where, when and for how much, without submitting anything."""

from collections.abc import Mapping, Sequence
from typing import Any

from gpuyard.cli.commands.jobs.eta import by_limits, earliest_text, quantiles_text
from gpuyard.cli.commands.submit.jobfields import say_if_no_gpus
from gpuyard.cli.commands.submit.scripts import refuse_folder
from gpuyard.cli.connection.places import open_client
from gpuyard.cli.line.options import Output
from gpuyard.cli.terminal.streams import result
from gpuyard.quantities import hour_rate_text, usd_text

NEVER = 3
"""Exit code where a job could never run."""


def rehearse(
    jobs: Sequence[Mapping[str, Any]], output: Output, *, said: bool = False, gpus_said: bool = True
) -> int:
    """Try each job and say what would become of it; the exit code. `said`: with notes about earlier jobs."""
    with open_client() as yard:
        if yard.here:
            for fields in jobs:
                refuse_folder(fields)
        found = [yard.dry_run(fields) for fields in jobs]
        for fields in jobs:
            if not gpus_said:
                say_if_no_gpus("", fields)
            if said:
                from gpuyard.cli.commands.submit.notes import say

                say(yard, fields)
    if output in (Output.TABLE, Output.WIDE):
        for number, each in enumerate(found):
            if number:
                print()
            show_rehearsal(each, "nothing was submitted")
    else:
        from gpuyard.cli.listings.tables import print_records

        print_records([_flat(each) for each in found] if output is Output.CSV else found, [], output)
    return 0 if all(each["would_run"] for each in found) else NEVER


def show_rehearsal(found: Mapping[str, Any], ends: str) -> None:
    """Say where, when and for how much a job would start; `ends` is the last line."""
    if not found["would_run"]:
        # The reason is the result here, so it goes where results go.
        print(f"never   {found['why_never'].removeprefix('it could never start: ')}")
        if found["hint"]:
            print(f"        {found['hint']}")
        return
    lines = [("where", _where(found))]
    if not found["starts_now"]:
        lines += [("why", f"{reason['by']}: {reason['text']}") for reason in found["why"]]
    lines.append(("when", when(found)))
    lines.append(("how", found["how"]))
    lines.append(("cost", _cost(found)))
    lines += [("helps", text) for text in found["helps"]]
    lines.append(("", ends))
    last = ""
    for name, text in lines:
        result(text, f"{'' if name == last else name:<6}  ", " " * 8)
        last = name


def when(found: Mapping[str, Any]) -> str:
    """When it starts: with chances, by limits alone, or that it cannot be told."""
    if found["starts_by_ms"]:
        return quantiles_text(found)
    if found["runs"]:
        late = found.get("left_out_ahead") or found["never_of_runs"] == found["runs"]
        return earliest_text(found) if late else "cannot be told"
    return by_limits(found) or "cannot be told"


def _where(found: Mapping[str, Any]) -> str:
    if not found["starts_now"]:
        return "not now"
    first = "the first of its tasks starts now on " if found["tasks"] > 1 else "now on "
    return first + " ".join(f"{each['node']}[{','.join(map(str, each['gpus']))}]" for each in found["nodes"])


def _cost(found: Mapping[str, Any]) -> str:
    from gpuyard.quantities import span_words
    from gpuyard.reports.table import number

    cost = found["cost"]
    if not cost["gpu_model"] or not cost["price_micro_usd_h"]:
        return "no price" if found["gpus"] else "no GPUs, no price"
    tasks = f"{found['tasks']} tasks x " if found["tasks"] > 1 else ""
    # A job is charged for the largest part of a node that it holds, cores and memory too.
    charged = "charged as " if cost["charged_gpus"] != found["gpus"] else ""
    gpus = f"{tasks}{number(cost['charged_gpus'])} x {cost['gpu_model']}"
    price = f"{charged}{gpus} at {hour_rate_text(cost['price_micro_usd_h'])} an hour"
    parts = []
    if cost["expected_micro_usd"] is not None:
        ran = span_words(cost["expected_run_ms"])
        parts.append(
            f"{usd_text(cost['expected_micro_usd'], up=True)} if it runs {ran}, the mean of {cost['expected_from']}"
        )
    if cost["at_most_micro_usd"] is not None:
        parts.append(f"at most {usd_text(cost['at_most_micro_usd'], up=True)}, up to its time limit")
    else:
        parts.append("no upper bound without a time limit")
    return f"{price}: {'; '.join(parts)}"


def _flat(found: Mapping[str, Any]) -> dict[str, Any]:
    """For csv: one level."""
    if not found["would_run"]:
        return {"would_run": False, "why_never": found["why_never"]}
    starts = found["starts_by_ms"] or {"p50": None, "p90": None}
    return {
        "would_run": True,
        "starts_now": found["starts_now"],
        "nodes": [each["node"] for each in found["nodes"]],
        "p50_ms": starts["p50"],
        "p90_ms": starts["p90"],
        "bound_ms": found["bound_ms"],
        **found["cost"],
        "how": found["how"],
    }
