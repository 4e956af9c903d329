"""`sacct --json`, in the shape of 22.05 and in that of 23.11 and later; the rows are those of the parsable form."""

from collections.abc import Mapping
from typing import Any

from gpuyard.engines.slurm.site.accounting import Jobs, make_job_row
from gpuyard.engines.slurm.words.forms import Unreadable


def read_jobs_json(document: Mapping[str, Any]) -> Jobs:
    """`sacct --json`: numbers as they are (22.05) or as `{set, infinite, number}`, states as a word or a list."""
    found = Jobs()
    jobs = document.get("jobs")
    if not isinstance(jobs, list):
        raise Unreadable("has no list 'jobs': is it what sacct --json printed?")
    for place, job in enumerate(jobs):
        try:
            found.rows.append(make_job_row(_json_cells(job)))
        except (Unreadable, KeyError, TypeError, AttributeError) as wrong:
            found.bad(f"job {place + 1}", wrong if isinstance(wrong, Unreadable) else f"lacks {wrong}")
    return found


def _json_cells(job: Mapping[str, Any]) -> dict[str, str]:
    """A job of the document with the names of the columns."""
    array, time, state = job["array"], job["time"], job["state"]["current"]
    number, task = str(job["job_id"]), _json_number(array.get("task_id"))
    is_task = bool(_json_number(array["job_id"])) and task is not None
    code = job["exit_code"]
    limit = _json_number(time["limit"])
    return {
        "jobidraw": number,
        "jobid": f"{_json_number(array['job_id'])}_{task}" if is_task else number,
        "user": job["user"] or "",
        "account": job["account"] or "",
        "qos": job["qos"] or "",
        "partition": job["partition"] or "",
        "state": state[0] if isinstance(state, list) else state,
        "exitcode": f"{_json_number(code['return_code']) or 0}:{_json_signal(code)}",
        "submit": str(time["submission"]),
        "eligible": str(time["eligible"]),
        "start": str(time["start"]),
        "end": str(time["end"]),
        "elapsedraw": str(time["elapsed"]),
        "timelimitraw": "" if limit is None else str(limit),
        "alloctres": _json_tres(job["tres"]["allocated"]),
        "reqtres": _json_tres(job["tres"]["requested"]),
        "nodelist": job["nodes"] or "",
        "reason": job["state"].get("reason") or "",
        "wckey": _json_wckey(job.get("wckey") or {}),
        "jobname": job["name"] or "",
    }


def _json_number(value: Any) -> int | None:
    if isinstance(value, Mapping):
        return int(value["number"]) if value.get("set") and not value.get("infinite") else None
    return None if value is None else int(value)


def _json_signal(code: Mapping[str, Any]) -> int:
    signal = code.get("signal") or {}
    return _json_number(signal.get("id", signal.get("signal_id"))) or 0


def _json_wckey(told: Mapping[str, Any]) -> str:
    return str(told.get("wckey") or "")


def _json_tres(entries: list[Mapping[str, Any]]) -> str:
    def word(entry: Mapping[str, Any]) -> str:
        name = f"{entry['type']}/{entry['name']}" if entry["name"] else entry["type"]
        return f"{name}={entry['count']}{'M' if name == 'mem' else ''}"

    return ",".join([word(entry) for entry in entries if entry["count"] is not None])
