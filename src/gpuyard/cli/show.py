"""`yard show`: everything about one job, and why it waits."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from gpuyard.cli.listing import Output
from gpuyard.cli.options import OutputOption
from gpuyard.cli.places import client

_TASKS_SHOWN_MAX = 20


def show(
    job: Annotated[str, typer.Argument(metavar="JOB", help="17, or 12_3 for a task of array 12.")],
    output: OutputOption = Output.TABLE,
) -> None:
    """Show a job, live or ended; for one that waits, everything that is in its way."""
    with client() as yard:
        found = yard.job(job)
    if output is Output.JSON:
        import json

        print(json.dumps(found, indent=2))
    elif output is Output.YAML:
        import yaml

        print(yaml.safe_dump(dict(found), sort_keys=False, allow_unicode=True), end="")
    elif output is Output.CSV:
        from gpuyard.cli.tables import emit

        emit([dict(found)], [], output)
    else:
        _story(found)


def _story(job: Mapping[str, Any]) -> None:
    from gpuyard.cli.tables import clock, number, span

    lines: list[tuple[str, str]] = [
        ("job", f"{job['label']}  {job['name']}"),
        ("state", _state(job)),
        ("tenant", f"{job['tenant']}, user {job['user']}, class {job['class']}"),
    ]
    if job.get("array"):
        counts = ", ".join(f"{count} {state}" for state, count in sorted(job["states"].items()))
        lines.append(("tasks", f"{job['tasks']}: {counts}"))
        _print(lines)
        for task in job["jobs"][:_TASKS_SHOWN_MAX]:
            code = "" if task["exit_code"] is None else f"  exit code {task['exit_code']}"
            print(f"  {task['label']:<12} {task['state']}{code}")
        if len(job["jobs"]) > _TASKS_SHOWN_MAX:
            print(f"  and {len(job['jobs']) - _TASKS_SHOWN_MAX} more")
        return
    models = f" ({' or '.join(job['gpu_models'])})" if job["gpu_models"] else ""
    asks = [f"{number(job['gpus'])} GPUs{models}"]
    asks += [f"{job['tasks']} tasks"] if job["tasks"] > 1 else []
    asks += [f"{number(job['cpus'])} cores a task"] if job["cpus"] else []
    asks += [f"{job['memory_mib']} MiB a task"] if job["memory_mib"] else []
    asks.append(f"limit {span(job['time_limit_s'] * 1000)}" if job["time_limit_s"] else "no time limit")
    lines.append(("asks for", ", ".join(asks)))
    lines.append(("submitted", clock(job["submitted_ms"])))
    if job["started_ms"]:
        where = " ".join(
            f"{node}[{','.join(map(str, gpus))}]"
            for node, gpus in zip(job["nodes"], job["gpu_indices"], strict=False)
        )
        lines.append(("started", f"{clock(job['started_ms'])} on {where}"))
    if job["ended_ms"]:
        ran = f", after {span(job['ended_ms'] - job['started_ms'])}" if job["started_ms"] else ""
        lines.append(("ended", f"{clock(job['ended_ms'])}{ran}"))
    if job["exit_code"] is not None:
        lines.append(("exit code", str(job["exit_code"])))
    if job["attempts"] > 1 or job["preemptions"]:
        lines.append(("attempts", f"{job['attempts']}, preempted {job['preemptions']} times"))
    if job["reason"]:
        lines.append(("why", job["reason"]))
    for reason in job.get("why", []):
        lines.append(("", f"{reason['by']}: {reason['text']}"))
    if job.get("how"):
        lines.append(("then", _then(job)))
    _print(lines + [("helps", text) for text in job.get("helps", [])])


def _then(job: Mapping[str, Any]) -> str:
    from gpuyard.cli.tables import clock

    expected = job.get("expected_start_ms")
    if job["state"] == "PENDING" and expected:
        return f"expected to start at {clock(expected)}: {job['how']}"
    return str(job["how"])


def _print(lines: list[tuple[str, str]]) -> None:
    width = max(len(name) for name, _ in lines)
    for name, text in lines:
        print(f"{name:<{width}}  {text}")


def _state(job: Mapping[str, Any]) -> str:
    more = job.get("attempt_state")
    return f"{job['state']} ({more})" if more and more != job["state"] else str(job["state"])
