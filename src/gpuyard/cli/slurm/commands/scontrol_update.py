"""`scontrol update`: jobs and nodes, key by key. Each key is served, served with a note, or refused with what to type.

What a job asks for is changed as `yard update` changes it; a node is drained and taken back as `yard nodes` does.
Nothing is changed where one key of a line cannot be served.
"""

import sys
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from gpuyard.api.client import Client
from gpuyard.cli.slurm.language.ids import parse_id, split_ids
from gpuyard.cli.slurm.language.stopping import Stop, make_stop
from gpuyard.cli.terminal.visible_text import visible_text
from gpuyard.intake.sbatch.amounts import parse_minutes
from gpuyard.intake.sbatch.dependencies import parse_dependencies
from gpuyard.intake.sbatch.hostlists import expand
from gpuyard.intake.sbatch.moments import parse_moment
from gpuyard.wire.job_fields import NICE_S_MAX, label_fault


class Asked(NamedTuple):
    """What one key comes to."""

    fields: Mapping[str, Any]
    note: str = ""
    """What of it is otherwise than Slurm has it."""
    verb: str = ""
    """A verb to be asked beside the change."""


def explain_refusal(status: int, detail: str) -> str:
    """Slurm's sentence where it has one."""
    if status == 404:
        return "Invalid job id specified"
    if status == 403:
        return "Access/permission denied"
    if "has ended" in detail:
        return "Job/step already completing or completed"
    if "does not run" in detail or "waits already" in detail:
        return "Job is pending execution"
    if "is not suspended" in detail or "is not on hold" in detail or "runs already" in detail:
        return "Requested operation is presently disabled"
    return detail


def read_labels(words: str) -> list[int | str]:
    """The jobs that a list of ids names."""
    labels: list[int | str] = []
    for part in split_ids(words):
        wanted = parse_id(part)
        if wanted is None:
            raise Stop("Invalid job id specified", f"scontrol: error: {part!r} is not a job id")
        labels += wanted.labels()
    return labels


# -- jobs --------------------------------------------------------------------------------------------------------------


def update_jobs(given: Mapping[str, str]) -> int:
    """`update JobId=… Key=value…`; keys are in small letters."""
    labels = read_labels(given.get("jobid") or given.get("job", ""))
    asked = [_read_key(name, value, labels) for name, value in given.items() if name not in ("jobid", "job")]
    if not asked:
        raise Stop("No changes specified")
    change: dict[str, Any] = {}
    for each in asked:
        for name, value in each.fields.items():
            if change.setdefault(name, value) != value:
                raise make_stop("scontrol", f"two of these keys set {name}, to different values")
    for each in asked:
        if each.note:
            print(f"scontrol: {visible_text(each.note)}", file=sys.stderr)
    refused = []
    with Client() as yard:
        if change:
            refused += [answer for answer in yard.update(labels, change) if answer["status"] >= 400]
        for verb in dict.fromkeys([each.verb for each in asked if each.verb]):
            refused += [answer for answer in yard.ask_many(verb, labels) if answer["status"] >= 400]
    for answer in refused:
        why = explain_refusal(answer["status"], answer["detail"])
        print(visible_text(f"{why} for job {answer['label']}"), file=sys.stderr)
    return 1 if refused else 0


def _read_key(name: str, value: str, labels: list[int | str]) -> Asked:
    name = _SPELLINGS.get(name, name)
    if name in _REFUSED or (name == "priority" and value != "0"):
        raise make_stop(
            "scontrol", f"{_REFUSED.get(name, _NUMBERED).format(job=labels[0])}\nnothing was changed"
        )
    if name not in _KEYS:
        raise Stop(f"Update of this parameter is not supported: {name}={value}")
    try:
        return _KEYS[name](value)
    except ValueError as wrong:
        raise make_stop("scontrol", f"{name} {wrong}\nnothing was changed") from None


def _time_limit(text: str) -> Asked:
    if text[:1] in ("+", "-"):
        raise ValueError(f"is the whole limit here, not a difference: {text}")
    minutes = parse_minutes(text)
    if not minutes:
        raise ValueError(
            "has to be a time: no job here runs longer than its class says, unless an administrator says so"
        )
    return Asked({"time_limit_s": minutes * 60})


def _nodes(field: str) -> Callable[[str], Asked]:
    def read(text: str) -> Asked:
        return Asked({field: expand(text) if text else []})

    return read


def _dependency(text: str) -> Asked:
    found = parse_dependencies(text)
    each = [{**one, "job": str(one["job"])} if "job" in one else one for one in found.each]
    return Asked({"dependencies": each, "dependencies_any": found.any_will_do})


def _moment_ms(text: str) -> int:
    return int(parse_moment(text, datetime.now().astimezone()).timestamp()) * 1000


def _whole(text: str, what: str) -> int:
    sign = "-" if text.startswith("-") else ""
    if not text.removeprefix(sign).isdecimal() or len(text) > 9:
        raise ValueError(f"must be {what}, not {text!r}")
    return int(text)


def _nice(text: str) -> Asked:
    value = _whole(text or "100", "a number")
    nice_s = max(-NICE_S_MAX, min(NICE_S_MAX, value))
    how = "later" if nice_s >= 0 else "earlier"
    return Asked(
        {"nice_s": nice_s}, f"Nice={value}: the job waits as if it had been submitted {abs(nice_s)} s {how}"
    )


def _comment(text: str) -> Asked:
    if text and (fault := label_fault("comment", text)):
        raise ValueError(f"is kept as a label here: {fault}")
    return Asked({"labels": {"comment": text}}, "Comment: it is kept as the label `comment`")


def _throttle(text: str) -> Asked:
    return Asked({"array_limit": _whole(text, "a number of tasks")})


def _requeue(text: str) -> Asked:
    if text not in ("0", "1"):
        raise ValueError(f"must be 0 or 1, not {text!r}")
    return Asked({"requeue": text == "1"})


_SPELLINGS = {
    "name": "jobname", "nodelist": "reqnodelist", "eligibletime": "starttime", "feature": "features",
    "shared": "oversubscribe", "reservation": "reservationname", "numcpus": "cpus", "reqprocs": "cpus",
    "tres": "gres", "trespernode": "gres", "tresperjob": "gres", "trespertask": "gres",
}  # fmt: skip
"""Slurm's several names for one thing."""
_KEYS: dict[str, Callable[[str], Asked]] = {
    "timelimit": _time_limit,
    "qos": lambda text: Asked({"class": text}),
    "jobname": lambda text: Asked({"name": text}),
    "partition": lambda text: Asked({"pools": [name for name in text.split(",") if name]}),
    "account": lambda text: Asked({"tenant": text}),
    "reqnodelist": _nodes("on_nodes"),
    "excnodelist": _nodes("not_nodes"),
    "dependency": _dependency,
    "features": lambda text: Asked({"constraint": text}),
    "starttime": lambda text: Asked({"begin_ms": _moment_ms(text)}),
    "deadline": lambda text: Asked({"deadline_ms": _moment_ms(text)}),
    "arraytaskthrottle": _throttle,
    "nice": _nice,
    "priority": lambda _text: Asked({}, verb="hold"),
    "comment": _comment,
    "wckey": lambda text: Asked({"project": text}),
    "requeue": _requeue,
}
_NUMBERED = (
    "a yard has no numeric priorities: class and share decide the turn of a job, and `yard why` explains it\n"
    "an administrator moves the job to the top with: scontrol top {job}\n"
    "its owner keeps the job back with: scontrol hold {job}"
)
_SHELL = "what a job runs does not change: cancel it and submit it again (yard submit --like {job})"
_GANG = "how many nodes and tasks a job has does not change: submit it again (yard submit --like {job})"
_REFUSED = {
    "gres": "GPUs are counted for each task here: yard update {job} --gpus N",
    "cpus": "cores are counted for each task here: yard update {job} --cpus N",
    "minmemorynode": "memory is counted for each task here: yard update {job} --memory SIZE",
    "minmemorycpu": "memory is counted for each task here: yard update {job} --memory SIZE",
    "endtime": "when a running job ends follows from its limit: scontrol update JobId={job} TimeLimit=...",
    "reservationname": "a yard has no reservations: a team's room is its guarantee, under `tenants` in yard.yaml",
    "oversubscribe": "whether a job shares its nodes is settled when it is submitted (yard submit --like {job})",
    "licenses": "a yard counts no licenses",
    "burstbuffer": "a yard has no burst buffers",
    "mailtype": "a yard sends no mail",
    "mailuser": "a yard sends no mail",
    "userid": "a job stays its owner's",
    "admincomment": "a yard keeps no comment of administrators: `yard audit` has what was done, and by whom",
    "sitefactor": "a yard has no numeric priorities: an administrator moves a job with `yard update {job} --top`",
    "switches": "switches are asked for when a job is submitted (yard submit --like {job})",
    "numnodes": _GANG, "numtasks": _GANG, "mincpusnode": _GANG, "cpuspertask": _GANG, "ntaskspernode": _GANG,
    "stdin": _SHELL, "stdout": _SHELL, "stderr": _SHELL, "workdir": _SHELL, "script": _SHELL, "batchscript": _SHELL,
    "clusters": "the clusters of a job: yard update {job} --cluster NAME",
}  # fmt: skip
"""Keys that Slurm knows and a yard does not change, with what to do instead."""


# -- nodes -------------------------------------------------------------------------------------------------------------

_CLOSING = ("DRAIN", "DOWN", "FAIL")
_OPENING = ("RESUME", "UNDRAIN", "IDLE")


def update_nodes(given: Mapping[str, str]) -> int:
    """`update NodeName=… State=… Reason=…`; keys are in small letters."""
    state = given.get("state", "").upper()
    more = set(given) - {"nodename", "state", "reason"}
    if more:
        raise make_stop(
            "scontrol", f"of a node only State and Reason can be changed, not {', '.join(sorted(more))}"
        )
    if state not in (*_CLOSING, *_OPENING):
        raise Stop(
            "Invalid node state specified" if state else "No changes specified",
            "scontrol: error: a yard takes State=DRAIN or DOWN with a Reason, and State=RESUME",
        )
    if state in _CLOSING and not given.get("reason"):
        raise Stop("You must specify a reason when DOWNING or DRAINING a node. Request denied")
    try:
        names = expand(given["nodename"])
    except ValueError as wrong:
        raise make_stop("scontrol", f"NodeName {wrong}") from None
    with Client() as yard:
        there = {
            form for node in yard.nodes() for form in (node["name"], f"{node['cluster']}:{node['name']}")
        }
        if unknown := [name for name in names if name not in there]:
            raise Stop(
                "Invalid node name specified", f"scontrol: error: there is no node {', '.join(unknown)}"
            )
        for name in names:
            if state in _CLOSING:
                yard.drain(name, given["reason"])
            else:
                yard.resume(name)
    if state not in ("DRAIN", *_OPENING):
        print(
            f"scontrol: State={state} drains here: what runs on {given['nodename']} goes on", file=sys.stderr
        )
    return 0
