"""Rules about what happens at a site: nodes that do not work, jobs that ask for too much or for the wrong thing."""

from collections.abc import Iterator
from statistics import median

from gpuyard.engines.slurm.doctor.evidence import Evidence, Finding, Level
from gpuyard.engines.slurm.words.forms import parse_words
from gpuyard.errors import names_text
from gpuyard.quantities import percent_text, span_down

_FAULT, _ADVICE = Level.FAULT, Level.ADVICE
ENOUGH = 10
"""Jobs from which a median says something."""
OVER_ASKED = 0.5
"""A job that uses less than this part of what it asked for asks for too much."""
NAMED_MAX = 8


def check_rows(look: Evidence) -> Iterator[Finding]:
    """Rows of jobs that could not be read."""
    for program, (count, first) in look.unread.items():
        seen = f"{count} rows of {program} could not be read: {first}"
        why = "what is said of jobs here leaves them out"
        yield Finding("unread", _ADVICE, seen, why, "nothing, unless they are many")


def check_nodes(look: Evidence) -> Iterator[Finding]:
    """Nodes that take no work, each with why and since when."""
    for node in look.site.nodes:
        if node.up:
            continue
        since = f", since {span_down(look.now_ms - node.reason_ms)}" if node.reason_ms else ""
        reason = node.reason or "no reason given"
        gpus = node.gpu_count
        seen = f"node {node.name} is {node.state.lower()}: {reason}{since}"
        why = f"{gpus} GPUs stand idle" if gpus else "it takes no work"
        change = f"scontrol update nodename={node.name} state=resume, once it is mended"
        if node.state.endswith("*") or "NOT_RESPONDING" in node.states:
            change = f"look at slurmd on {node.name}: systemctl status slurmd; then {change}"
        yield Finding("node", _FAULT, seen, why, change)


def check_resources(look: Evidence) -> Iterator[Finding]:
    """GPUs as configured, as slurmd found them, and as the driver shows them."""
    with_gpus = [node for node in look.site.nodes if node.gpu_count]
    types = parse_words(look.setting("GresTypes"))
    if with_gpus and look.site.config and "gpu" not in types:
        yield Finding("gres-types", _FAULT, f"GresTypes is {look.setting('GresTypes') or 'not set'}",
                      "GPUs of nodes are not given out", f"GresTypes={','.join([*types, 'gpu'])}")  # fmt: skip
    for node in look.site.nodes:
        if "gres/" in node.reason.lower() or "INVAL" in node.states or "INVALID_REG" in node.states:
            why = "slurmd counts fewer GPUs than slurm.conf says, and the node is not used"
            change = f"a File= for each GPU of {node.name} in gres.conf, or AutoDetect=nvml; then scontrol reconfigure"
            yield Finding("gres", _FAULT, f"node {node.name}: {node.reason or node.state}", why, change)
    untyped = [node.name for node in with_gpus if not node.gpus.type]
    if untyped:
        why = "jobs cannot ask for a model, and reports cannot tell models apart"
        yield Finding(
            "gres-untyped",
            _ADVICE,
            f"GPUs without a type on {names_text(untyped, NAMED_MAX)}",
            why,
            "Gres=gpu:h100:8",
        )
    yield from _here(look)


def _here(look: Evidence) -> Iterator[Finding]:
    """This machine's own GPUs, where it is a node."""
    own = next((node for node in look.site.nodes if node.name == look.host), None)
    if look.host_gpus is None or own is None:
        return
    if own.gpu_count != look.host_gpus:
        seen = f"slurm.conf gives {own.name} {own.gpu_count} GPUs, its driver shows {look.host_gpus}"
        why = "GPUs that Slurm does not know stand idle; those that are not there fail jobs"
        gres = [f"gpu:{own.gpus.type or 'TYPE'}:{look.host_gpus}"]
        gres += [":".join([each.name, *([each.type] if each.type else []), str(each.number)])
                 for each in own.gres if each.name != "gpu"]  # fmt: skip
        yield Finding("nvml", _FAULT, seen, why, f"NodeName={own.name} … Gres={','.join(gres)}")


def check_jobs(look: Evidence) -> Iterator[Finding]:
    """Jobs that sit on GPU nodes without GPUs."""
    on_gpus = {part.name for part in look.site.partitions if _all_gpus(look, part.nodes)}
    without = [
        row for row in look.queue
        if row.partition in on_gpus and row.state == "RUNNING" and not row.held.gpus and not row.held.shared
    ]  # fmt: skip
    if without:
        users = sorted({row.user for row in without})
        labels = names_text([row.label for row in without], NAMED_MAX)
        whose = names_text(users, NAMED_MAX)
        seen = f"{len(without)} running jobs on GPU nodes asked for no GPU ({labels}), of {whose}"
        why = "they take cores and memory that the GPUs beside them need"
        change = "a partition of nodes without GPUs for them, or a job_submit plugin that sends them there"
        yield Finding("no-gpu", _ADVICE, seen, why, change)
    past = [row for row in look.site.jobs.rows if row.ran and not row.live and row.partition in on_gpus]
    none = [row for row in past if not row.held.gpus and not row.held.shared]
    if len(past) >= ENOUGH and len(none) * 4 > len(past):
        seen = f"{len(none)} of {len(past)} jobs on GPU partitions asked for no GPU"
        why = "they may have used one all the same, where devices are not constrained, or kept others from it"
        yield Finding("no-gpu-past", _ADVICE, seen, why, "the same, and ConstrainDevices=yes in cgroup.conf")


def _all_gpus(look: Evidence, names: tuple[str, ...]) -> bool:
    gpus = {node.name: node.gpu_count for node in look.site.nodes}
    return bool(names) and all(gpus.get(name, 0) for name in names)


def check_asking(look: Evidence) -> Iterator[Finding]:
    """Time and memory that are asked for and not used."""
    timed = [used.elapsed_ms / used.limit_ms for used in look.used if used.limit_ms and used.elapsed_ms]
    if len(timed) >= ENOUGH and median(timed) < OVER_ASKED:
        seen = (
            f"the median job uses {percent_text(100 * median(timed))} of its time limit ({len(timed)} jobs)"
        )
        why = "backfill believes the limits: gaps that a job would fit into are left idle"
        yield Finding(
            "over-time",
            _ADVICE,
            seen,
            why,
            "tell people, and give partitions a short DefaultTime",
        )
    needed = [used.used_mib / used.asked_mib for used in look.used if used.asked_mib and used.used_mib]
    if len(needed) >= ENOUGH and median(needed) < OVER_ASKED:
        part = percent_text(100 * median(needed))
        seen = f"the median job uses {part} of the memory it asks for ({len(needed)} jobs)"
        why = "memory runs out before GPUs do, and these stand idle"
        yield Finding(
            "over-memory", _ADVICE, seen, why, "tell people, and set DefMemPerGPU to what the median needs"
        )
    measured = look.setting("JobAcctGatherType")
    if look.site.config and measured in ("", "jobacct_gather/none"):
        why = "nobody can say how much memory or processor time jobs need"
        change = "JobAcctGatherType=jobacct_gather/cgroup"
        yield Finding("no-gather", _ADVICE, "JobAcctGatherType is none", why, change)
