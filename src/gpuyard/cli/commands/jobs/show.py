"""`yard show`: everything about one job, and why it waits."""

import sys
from collections.abc import Mapping
from typing import Annotated, Any

from gpuyard.cli.connection.places import open_client
from gpuyard.cli.line.options import JobArgument, Option, Output, OutputOption, WatchOption
from gpuyard.cli.terminal.visible_text import visible_lines, visible_text
from gpuyard.quantities import gpu_hours_text, seconds_text, usd_text

_TASKS_SHOWN_MAX = 20


def show(
    job: JobArgument,
    env: Annotated[
        bool, Option("--env", help="Show only the environment that was submitted with it.")
    ] = False,
    script: Annotated[bool, Option("--script", help="Show only the script, as it was submitted.")] = False,
    output: OutputOption = Output.TABLE,
    watch: WatchOption = None,
) -> None:
    """Show a job, live or ended; for a waiting job, everything that is in its way.

    Only its owner and administrators see its command or script, folder and environment.
    """
    from gpuyard.cli.connection.places import show_or_watch

    if env or script:
        _show_recipe(job, env, output)
    else:
        show_or_watch(lambda: _show(job, output), watch)


def _show_recipe(job: str, env: bool, output: Output) -> None:
    with open_client() as yard:
        found = yard.recipe(job)
    if output in (Output.JSON, Output.YAML):
        from gpuyard.cli.listings.tables import write_document

        write_document(found["env"] if env else {"script": found["script"]}, output)
    elif env and not found["env"] and (gone := (found.get("removed") or {}).get("environments")):
        from gpuyard.errors import BadInput

        told = f"the environment of job {job} was removed on {_day(gone['at_ms'])} by {gone['by']}"
        raise BadInput(told, f"yard show {job} shows what is kept of it.")
    elif env:
        import shlex

        for name in sorted(found["env"]):
            print(_for_reader(f"{name}={shlex.quote(found['env'][name])}"))
    elif found["script"]:
        print(_for_reader(found["script"]), end="" if found["script"].endswith("\n") else "\n")
    else:
        from gpuyard.errors import BadInput

        raise BadInput(f"job {job} runs a command, and has no script", f"yard show {job} shows the command.")


def _for_reader(text: str) -> str:
    """Text that a job was sent with: exact for a file or a program, and on a terminal without control sequences."""
    if not sys.stdout.isatty():
        return text
    return "\t".join([visible_lines(part) for part in text.split("\t")])


def _show(job: str, output: Output) -> None:
    with open_client() as yard:
        found = yard.job(job)
        ran = "array" not in found and found["started_ms"] and output is not Output.CSV
        told = _curves(yard, job) if ran else None
    from gpuyard.cli.listings.tables import print_records, write_document

    if output in (Output.JSON, Output.YAML):
        write_document({**found, **({"curves": told["curves"]} if told else {})}, output)
    elif output is Output.CSV:
        print_records([dict(found)], [], output)
    else:
        lines = job_lines(found, _width(), sampled=bool(told and told["curves"]))
        if told and told["curves"]:
            import time

            from gpuyard.cli.terminal.curves import draw_curves

            lines += ["", *draw_curves(told, _drawn_width(), time.time_ns() // 1_000_000)]
        for line in lines:
            print(line)


def _curves(yard: Any, job: str) -> Any:
    """What the job used over time; None: the server is of a release that keeps no curves."""
    from gpuyard.api.connecting.calling import Refused

    try:
        return yard.curves(job)
    except Refused as refused:
        if refused.status != 404:
            raise
        return None


def _drawn_width() -> int:
    """The width for pictures; 0: none are drawn, because this is no terminal or it has no such characters."""
    return _width() if "utf" in (sys.stdout.encoding or "").lower() else 0


def _width() -> int:
    """The width of the terminal; 0: there is none, and lines may be of any length."""
    if not sys.stdout.isatty():
        return 0
    import shutil

    return shutil.get_terminal_size().columns


def job_lines(job: Mapping[str, Any], width: int = 0, *, sampled: bool = False) -> list[str]:
    """Everything about a job, line by line. `sampled`: curves of what it used follow."""
    from gpuyard.errors import count_text
    from gpuyard.quantities import memory_size, span
    from gpuyard.reports.table import clock

    lines: list[tuple[str, str]] = [
        ("job", f"{job['label']}  {job['name']}"),
        ("state", _state(job)),
        ("tenant", f"{job['tenant']}, user {job['user']}, class {job['class']}"),
    ]
    labels = job.get("labels") or {}
    if labels:
        lines.append(("labels", ", ".join([f"{key}={labels[key]}" for key in sorted(labels)])))
    if job.get("array"):
        counts = ", ".join(f"{count} {state}" for state, count in sorted(job["states"].items()))
        lines.append(("tasks", f"{job['tasks']}: {counts}"))
        return _aligned(lines) + _tasks(job["jobs"])
    models = f" ({' or '.join(job['gpu_models'])})" if job["gpu_models"] else ""
    asks = [f"{count_text(job['gpus'], 'GPU')}{models}"]
    asks += [f"{job['tasks']} tasks"] if job["tasks"] > 1 else []
    asks += [f"{count_text(job['cpus'], 'core')} a task"] if job["cpus"] else []
    asks += [f"{memory_size(job['memory_mib'])} a task"] if job["memory_mib"] else []
    asks.append(f"limit {span(job['time_limit_s'] * 1000)}" if job["time_limit_s"] else "no time limit")
    lines.append(("asks for", ", ".join(asks)))
    lines.append(("submitted", clock(job["submitted_ms"])))
    if job.get("moved_by"):
        lines.append(("moved", f"to the top of the queue, by {job['moved_by']}"))
    if job["started_ms"]:
        where = " ".join(
            f"{node}[{','.join(map(str, gpus))}]" if gpus else node
            for node, gpus in zip(job["nodes"], job["gpu_indices"], strict=False)
        )
        lines.append(("started", f"{clock(job['started_ms'])} on {where}"))
    if job["ended_ms"]:
        ran = f", after {span(job['ended_ms'] - job['started_ms'])}" if job["started_ms"] else ""
        lines.append(("ended", f"{clock(job['ended_ms'])}{ran}"))
    if job.get("waited_ms") is not None:
        lines.append(("waited", span(job["waited_ms"])))
    lines += _runs(job) + _used(job, sampled=sampled)
    if job["exit_code"] is not None:
        lines.append(("exit code", str(job["exit_code"])))
    if job["attempts"] > 1 or job["preemptions"]:
        often = f", preempted {count_text(job['preemptions'], 'time')}" if job["preemptions"] else ""
        lines.append(("attempts", f"{job['attempts']}{often}"))
    for what, gone in sorted((job.get("removed") or {}).items()):
        lines.append(("removed", f"its {what.removesuffix('s')}, {_day(gone['at_ms'])}, by {gone['by']}"))
    if job["reason"]:
        lines.append(("why", job["reason"]))
    for reason in job.get("why", []):
        lines.append(("", f"{reason['by']}: {reason['text']}"))
    if job.get("how"):
        lines.append(("then", _then(job)))
    told = _aligned(lines + [("helps", text) for text in job.get("helps", [])])
    if job.get("scheduler_log"):
        told += [
            "",
            "from the logs of its scheduler:",
            *[visible_lines(line) for line in job["scheduler_log"]],
        ]
    if job.get("kernel_log"):
        said = [f"{clock(each['at_ms'])} {each['node']}: {each['text']}" for each in job["kernel_log"]]
        told += ["", "from the kernels of its nodes:", *[visible_lines(line) for line in said]]
    if not job.get("tries"):
        return told
    from gpuyard.cli.commands.jobs.tries import tries_table

    return [*told, "", *tries_table(job, width)]


def _day(ms: int) -> str:
    import time

    return time.strftime("%Y-%m-%d", time.localtime(ms / 1000))


def _runs(job: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What it runs and where it writes, where that may be seen."""
    files = job.get("files") or {}
    if not files.get("command") and not files.get("script"):
        return []
    import shlex

    command = shlex.join(files["command"])
    if files["script"]:
        command = f"a script{' with ' if command else ''}{command}: yard show --script {job['label']}"
    lines = [("command", command)]
    lines += [("folder", files["cwd"])] if files["cwd"] else []
    lines.append(("output", files["stdout"] or f"kept by the yard: yard logs {job['label']}"))
    return lines + ([("errors", files["stderr"])] if files["stderr"] else [])


def _used(job: Mapping[str, Any], *, sampled: bool) -> list[tuple[str, str]]:
    """What it has used so far."""
    used = job.get("used")
    if not used or not (job["started_ms"] or used["run_s"]):
        return []
    from gpuyard.quantities import span

    parts = [f"ran for {span(used['run_s'] * 1000)}"]
    if job["gpus"]:
        parts.append(f"{gpu_hours_text(used['gpu_hours'])} GPU-hours")
        parts += [usd_text(round(used["cost_usd"] * 1_000_000))] if used["cost_usd"] is not None else []
    return [("used", ", ".join(parts)), *_taken(used, sampled=sampled)]


def _taken(used: Mapping[str, Any], *, sampled: bool) -> list[tuple[str, str]]:
    """CPU time and memory; what the engine does not know is shown as unknown.

    The engine's totals are of all processes for as long as the job runs; curves are samples, and need no cgroup.
    """
    if "cpu_s" not in used:
        return []
    from gpuyard.quantities import memory_size

    cpu, memory, process = used["cpu_s"], used["memory_mib"], used["process_mib"]
    if sampled and cpu is None and memory is None and process is None:
        no_totals = "no total is known, and no peak of memory; the curves below are samples of its processes"
        return [*_image(used.get("image")), ("CPU time", no_totals)]
    parts = ["unknown" if cpu is None else f"{cpu:,.1f} s"]
    if memory is not None:
        parts.append(f"at most {memory_size(memory)} of memory")
    elif process is not None:
        parts.append(f"at most {memory_size(process)} of memory in one process")
    else:
        parts.append("memory unknown")
    return [*_image(used.get("image")), ("CPU time", ", ".join(parts))]


def _image(image: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """The image that it ran in, and how long it took to get there."""
    if image is None:
        return []
    pull, start, line = (image[name] for name in ("pull_ms", "start_ms", "line_ms"))
    parts = [image["image"], "was there" if pull is None else f"pulled in {seconds_text(pull)}"]
    parts += [] if start is None else [f"ran after {seconds_text(start)}"]
    parts += [] if line is None else [f"first output after {seconds_text(line)}"]
    return [("image", ", ".join(parts))]


def _tasks(tasks: list[Mapping[str, Any]]) -> list[str]:
    """The first tasks of an array."""
    lines = []
    for task in tasks[:_TASKS_SHOWN_MAX]:
        # A job that failed by itself says no more than its exit code.
        code = "" if task["exit_code"] is None else f"exit code {task['exit_code']}"
        why = "" if task["reason"] == code else task["reason"]
        more = "".join(f"  {text}" for text in (code, why) if text)
        lines.append(f"  {task['label']:<12} {task['state']}{visible_text(more)}")
    left = len(tasks) - _TASKS_SHOWN_MAX
    return [*lines, f"  and {left} more"] if left > 0 else lines


def _then(job: Mapping[str, Any]) -> str:
    from gpuyard.reports.table import clock

    expected = job.get("expected_start_ms")
    if job["state"] == "PENDING" and expected:
        return f"expected to start at {clock(expected)}: {job['how']}"
    return str(job["how"])


def _aligned(lines: list[tuple[str, str]]) -> list[str]:
    width = max(len(name) for name, _ in lines)
    return [f"{name:<{width}}  {visible_text(text)}" for name, text in lines]


def _state(job: Mapping[str, Any]) -> str:
    more = job.get("attempt_state")
    return f"{job['state']} ({more})" if more and more != job["state"] else str(job["state"])
