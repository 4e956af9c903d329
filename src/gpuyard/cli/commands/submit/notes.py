"""Notes at submit: what earlier jobs of the same name used of what this one asks for. They refuse nothing.

They are asked for when the job is accepted, on a terminal alone: a program that submits thousands of jobs costs the
server nothing more, and nobody would read them there.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpuyard.errors import YardError
from gpuyard.quantities import percent_text

if TYPE_CHECKING:
    from gpuyard.api.client import Client

JOBS = 5
_JOBS_MIN = 2
"""What a single job used says little."""
_WORTH_PERCENT = 75
"""Memory: a smaller ask that is larger than this part of the ask is not worth a word."""


def say(yard: "Client", fields: Mapping[str, Any], label: str = "") -> None:
    """Print them on standard error. `label`: of the job; empty: it is only tried, and its name and user say which."""
    if not (_one_gpu(fields) or fields.get("memory_mib") or (fields.get("cpus") or 0) > 1):
        return
    if label:
        which = {"like": label}
    elif fields.get("name"):
        import getpass

        which = {"name": fields["name"], "user": getpass.getuser()}
    else:
        return
    from gpuyard.cli.terminal.streams import print_notice
    from gpuyard.reports import registry

    try:
        rows = yard.report(registry.load_own_report("efficiency"), **which, limit=JOBS)["jobs"]
    except YardError:
        # The job is accepted whatever becomes of a note; a server of an older release has none.
        return
    for text in notes_of(rows, fields):
        print_notice(text, before="note: ")


def notes_of(rows: Sequence[Mapping[str, Any]], fields: Mapping[str, Any]) -> list[str]:
    """What to say of a job that asks for this, by what these earlier ones used."""
    from gpuyard.quantities import memory_size
    from gpuyard.reports.efficiency import SEEN_MIN_MS, suggest_cores, suggest_memory_mib

    seen = [
        row
        for row in rows
        if row["seen_s"] * 1000 >= SEEN_MIN_MS and row["state"] not in ("RUNNING", "PENDING")
    ]
    if len(seen) < _JOBS_MIN:
        return []
    told = []
    tasks = fields.get("tasks") or 1
    if _one_gpu(fields) and all([row["gpus"] == "1" and row["smaller"].get("gpus") for row in seen]):
        # The largest of the smaller asks: the one that would have saved least of its time.
        most = min(seen, key=lambda row: row["saved_gpu_hours"] / max(1, row["ran_s"]))
        memory = max([row["gpu_memory_mib"] for row in seen])
        busy = max([row["gpu_busy_pct"] for row in seen])
        told.append(
            f"used {memory_size(memory)} of {memory_size(most['gpu_memory_held_mib'])} of GPU memory and "
            f"{percent_text(busy)} of the GPU at most: --gpus {most['smaller']['gpus']} would do"
        )
    used = [row["memory_used_mib"] for row in seen]
    asked_mib = fields.get("memory_mib") or 0
    if asked_mib and None not in used and max(used):
        memory_mib = suggest_memory_mib(max(used), tasks)
        if memory_mib * 100 <= asked_mib * _WORTH_PERCENT:
            told.append(
                f"used {memory_size(max(used))} of memory at most: "
                f"--memory {memory_mib}M would do, not {memory_size(asked_mib)}"
            )
    peaks = [row["cpus_peak"] for row in seen]
    asked = fields.get("cpus") or 0
    if asked > 1 and None not in peaks and (cores := suggest_cores(max(peaks), tasks)) < asked:
        told.append(f"kept {max(peaks):.2g} cores busy at most: --cpus {cores} would do, not {asked:g}")
    return [f"the last {len(seen)} jobs called {seen[0]['name']} {text}" for text in told]


def _one_gpu(fields: Mapping[str, Any]) -> bool:
    return fields.get("gpus") == 1 and not any(
        [fields.get(key) for key in ("mig", "gpu_milli", "gpu_memory_mib")]
    )
