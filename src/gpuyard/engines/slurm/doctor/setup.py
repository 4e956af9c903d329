"""Rules about how a site is set up: daemons, accounting, priorities, the scheduler's parameters."""

from collections.abc import Iterator

from gpuyard.engines.slurm.doctor.evidence import Evidence, Finding, Level
from gpuyard.engines.slurm.words.forms import Unreadable, limit_ms, parse_words
from gpuyard.model.units import DAY_MS, MINUTE_MS

_FAULT, _ADVICE = Level.FAULT, Level.ADVICE
BF_WINDOW_MIN = 1440
"""Slurm's default: how far ahead backfill plans, in minutes."""
_ALWAYS_TRACKED = frozenset({"cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem", "pages"})
"""Slurm adds these to AccountingStorageTRES by itself, and shows them there."""
_ENFORCED = ("associations", "limits", "qos")
_MEANT = {
    "all": ("associations", "limits", "qos", "safe", "wckeys"),
    "limits": ("associations",),
    "qos": ("associations",),
    "safe": ("associations", "limits"),
    "wckeys": ("associations",),
}
"""Words that a word of AccountingStorageEnforce implies; the controller shows these, slurm.conf need not."""


def check_daemons(look: Evidence) -> Iterator[Finding]:
    """Which daemons answer, and whether all are of one release."""
    if look.controller:
        seen = f"slurmctld does not answer: {_last(look.controller)}"
        if look.conf_file:
            seen += f"; settings are from {look.conf_file}"
        why = "nothing starts, and nobody can submit; what runs goes on"
        yield Finding("slurmctld", _FAULT, seen, why, "systemctl status slurmctld, and the end of its log")
    if look.munge:
        why = "every daemon and command proves its identity with munge; without it none talks to another"
        yield Finding(
            "munge", _FAULT, f"munge does not work here: {_last(look.munge)}", why, "systemctl status munge"
        )
    if look.rest:
        seen = f"slurmrestd at {look.rest_url} does not answer: {_last(look.rest)}"
        yield Finding(
            "slurmrestd", _FAULT, seen, "what speaks REST cannot reach Slurm", "systemctl status slurmrestd"
        )
    server, client = look.setting("SLURM_VERSION"), look.client_version
    ages = {
        "slurmctld": server,
        "commands here": client,
        "slurmdbd": look.database_setting("SLURMDBD_VERSION"),
    }
    ages |= {f"slurmd of {node.name}": node.version for node in look.site.nodes if node.version != server}
    told = {name: version for name, version in ages.items() if version}
    if len(set(told.values())) > 1:
        seen = ", ".join(f"{name} {version}" for name, version in list(told.items())[:6])
        why = "slurmdbd has to be the newest, then slurmctld, then slurmd; older than two releases does not talk at all"
        yield Finding("versions", _ADVICE, seen, why, "bring all to one release, slurmdbd first")


def check_accounting(look: Evidence) -> Iterator[Finding]:
    """Whether usage is kept, and limits are held."""
    kind = look.setting("AccountingStorageType")
    if look.site.config and kind != "accounting_storage/slurmdbd":
        seen = f"AccountingStorageType is {kind or 'not set'}"
        why = "no history, no fair share over time, no limits: nothing to charge anybody for"
        yield Finding(
            "accounting-off", _FAULT, seen, why, "AccountingStorageType=accounting_storage/slurmdbd"
        )
        return
    trouble = look.errors.get("slurmdbd") or look.errors.get("associations.txt")
    if trouble:
        why = "slurmctld keeps what ends in memory and loses it once that is full (MaxDBDMsgs)"
        yield Finding(
            "slurmdbd",
            _FAULT,
            f"slurmdbd does not answer: {_last(trouble)}",
            why,
            "systemctl status slurmdbd",
        )
    if not look.site.config:
        return
    yield from _enforcing(look)
    yield from _tres(look)
    after = look.database_setting("PurgeJobAfter")
    if after and after.upper() != "NONE":
        why = "reports and replays reach no further back"
        change = "PurgeJobAfter=24month in slurmdbd.conf"
        yield Finding("purge", _ADVICE, f"slurmdbd forgets jobs after {after}", why, change)


def _enforcing(look: Evidence) -> Iterator[Finding]:
    given = [word.lower() for word in parse_words(look.setting("AccountingStorageEnforce"))]
    enforced = {*given, *[each for word in given for each in _MEANT.get(word, ())]}
    missing = [word for word in _ENFORCED if word not in enforced]
    if missing:
        seen = f"AccountingStorageEnforce is {','.join(given) or 'empty'}"
        why = f"{', '.join(missing)} are written down and nobody is held to them"
        line = dict.fromkeys((*_ENFORCED, "safe", *[word for word in given if word != "none"]))
        yield Finding("not-enforced", _FAULT, seen, why, f"AccountingStorageEnforce={','.join(line)}")


def _tres(look: Evidence) -> Iterator[Finding]:
    types = sorted(
        {each.type for node in look.site.nodes for each in node.gres if each.name == "gpu" and each.type}
    )
    has_gpus = any(node.gpu_count for node in look.site.nodes)
    tracked = [word.strip() for word in look.setting("AccountingStorageTRES").split(",") if word.strip()]
    wanted = ["gres/gpu", *[f"gres/gpu:{each}" for each in types]]
    lacking = [each for each in wanted if each not in tracked]
    if has_gpus and lacking:
        level = _FAULT if "gres/gpu" in lacking else _ADVICE
        seen = f"AccountingStorageTRES lacks {', '.join(lacking)}"
        why = "what is not tracked is in no report, and no limit on it holds"
        kept = [each for each in tracked if each.lower() not in _ALWAYS_TRACKED and each not in wanted]
        yield Finding("tres", level, seen, why, f"AccountingStorageTRES={','.join([*kept, *wanted])}")
    unweighted = [
        part.name for part in look.site.partitions if part.tres.get("gres/gpu") and not part.billing
    ]
    if has_gpus and unweighted:
        weights = ",".join(f"GRES/gpu:{each}=1.0" for each in types) or "GRES/gpu=1.0"
        seen = f"partition {', '.join(unweighted)}: no TRESBillingWeights"
        why = "usage is counted in cores: a job with 8 GPUs and 8 cores counts as much as a job with 8 cores"
        change = f"PartitionName={unweighted[0]} … TRESBillingWeights=CPU=0.0,{weights}"
        yield Finding("billing", _FAULT, seen, why, change)


def check_priorities(look: Evidence) -> Iterator[Finding]:
    """Which jobs go first, and how long usage counts."""
    if not look.site.config:
        return
    kind = look.setting("PriorityType")
    if kind != "priority/multifactor":
        seen = f"PriorityType is {kind or 'not set'}: first come, first served"
        yield Finding(
            "priority",
            _ADVICE,
            seen,
            "shares and QOS have no say in the order",
            "PriorityType=priority/multifactor",
        )
        return
    shares = {each.share for each in look.site.associations if not each.user and each.account != "root"}
    if len(shares) > 1 and look.setting("PriorityWeightFairShare") in ("", "0"):
        why = "accounts have different shares, and they count nothing"
        yield Finding(
            "fairshare", _FAULT, "PriorityWeightFairshare is 0", why, "PriorityWeightFairshare=100000"
        )
    priority = {qos.priority for qos in look.site.qos}
    if len(priority) > 1 and look.setting("PriorityWeightQOS") in ("", "0"):
        why = "QOS have different priorities, and they count nothing"
        yield Finding("qos-weight", _FAULT, "PriorityWeightQOS is 0", why, "PriorityWeightQOS=1000000")
    half = look.setting("PriorityDecayHalfLife")
    if half and _ms(half) == 0 and look.setting("PriorityUsageResetPeriod").upper() in ("", "NONE"):
        seen = "PriorityDecayHalfLife is 0 and PriorityUsageResetPeriod is NONE"
        why = "usage is never forgotten: a user who ran a lot last year waits this year"
        yield Finding("decay", _FAULT, seen, why, "PriorityDecayHalfLife=7-0")


def check_scheduling(look: Evidence) -> Iterator[Finding]:
    """Parameters of the scheduler that are worth changing."""
    if not look.site.config:
        return
    if look.setting("SchedulerType") == "sched/builtin":
        why = "a large job at the head of the line keeps everybody behind it waiting beside idle GPUs"
        yield Finding(
            "backfill", _ADVICE, "SchedulerType is sched/builtin", why, "SchedulerType=sched/backfill"
        )
        return
    given = parse_words(look.setting("SchedulerParameters"))
    wanted = dict(given)

    def line(**more: object) -> str:
        """The whole line, with the advice so far: of two such lines in slurm.conf only one would count."""
        wanted.update({name: str(value) for name, value in more.items()})
        return "SchedulerParameters=" + ",".join(
            [f"{name}={value}" if value else name for name, value in wanted.items()]
        )

    longest_ms = max([part.max_ms for part in look.site.partitions], default=0)
    window = _int(given.get("bf_window", ""), BF_WINDOW_MIN)
    if longest_ms > window * MINUTE_MS:
        need = -(-longest_ms // MINUTE_MS)
        seen = f"backfill looks {window} minutes ahead, and jobs may run {need}"
        why = "what begins later than that is not planned for: small jobs overtake large ones for ever"
        resolution = max(60, need // 24, _int(given.get("bf_resolution", ""), 0))
        yield Finding("bf-window", _FAULT, seen, why, line(bf_window=need, bf_resolution=resolution))
    if "bf_continue" not in given:
        seen = "SchedulerParameters has no bf_continue"
        why = "a pass of backfill that takes long is given up and begins again at the head of the line"
        yield Finding("bf-continue", _ADVICE, seen, why, line(bf_continue=""))
    if not look.setting("Epilog"):
        seen = "no Epilog is set"
        why = "Slurm then looks for the next job at its next pass, and not when one leaves: GPUs stand idle in between"
        yield Finding("epilog", _ADVICE, seen, why, "Epilog=/bin/true, if there is nothing to do")
    waiting = sum(1 for row in look.queue if row.state == "PENDING")
    depth = _int(given.get("bf_max_job_test", ""), 500)
    if waiting > depth:
        seen = f"{waiting} jobs wait, backfill looks at {depth}"
        why = "those behind are not tried however small they are"
        user = _int(given.get("bf_max_job_user", ""), 0) or 50
        change = line(bf_max_job_test=2 * waiting, bf_max_job_user=user)
        yield Finding("bf-depth", _ADVICE, seen, why, change)
    elif not _int(given.get("bf_max_job_user", ""), 0) and waiting > 100:
        seen = "SchedulerParameters has no bf_max_job_user"
        why = "a user with a long line uses up what backfill looks at"
        yield Finding("bf-user", _ADVICE, seen, why, line(bf_max_job_user=50))


def check_requeueing(look: Evidence) -> Iterator[Finding]:
    """Jobs that come back, and how long that takes."""
    if not look.site.config:
        return
    requeues = "REQUEUE" in look.setting("PreemptMode").upper() or look.setting("JobRequeue") == "1"
    expire = parse_words(look.setting("AuthInfo")).get("cred_expire", "")
    if requeues and _int(expire, 120) > 60:
        seen = f"AuthInfo has {'cred_expire=' + expire if expire else 'no cred_expire, which is 120'}"
        why = f"a job that is requeued may not start for {_int(expire, 120) + 1} s, however much is free"
        kept = ",".join(
            part for part in look.setting("AuthInfo").split(",") if part and "cred_expire" not in part
        )
        yield Finding(
            "cred-expire", _ADVICE, seen, why, f"AuthInfo={kept + ',' if kept else ''}cred_expire=30"
        )
    lists = [qos.name for qos in look.site.qos if qos.preempts]
    if look.setting("PreemptType") == "preempt/qos" and look.site.qos and not lists:
        seen = "PreemptType is preempt/qos, and no QOS preempts another"
        yield Finding(
            "preempt-none",
            _ADVICE,
            seen,
            "nobody is ever preempted",
            "sacctmgr modify qos high set preempt=low",
        )
    if lists and look.setting("PreemptType") != "preempt/qos":
        seen = f"QOS {', '.join(lists)} may preempt, and PreemptType is {look.setting('PreemptType') or 'preempt/none'}"
        yield Finding("preempt-off", _FAULT, seen, "nobody is ever preempted", "PreemptType=preempt/qos")


def check_sharing(look: Evidence) -> Iterator[Finding]:
    """Whether jobs on one node keep to their own GPUs and memory."""
    if not look.site.config or not any(node.gpu_count for node in look.site.nodes):
        return
    if "task/cgroup" not in look.setting("TaskPlugin") or look.setting("ConstrainDevices").lower() in (
        "no",
        "false",
    ):
        seen = f"TaskPlugin is {look.setting('TaskPlugin') or 'not set'}"
        if "task/cgroup" in look.setting("TaskPlugin"):
            seen = "ConstrainDevices is no"
        why = "a job can use every GPU of its node, whichever it was given: CUDA_VISIBLE_DEVICES is a request"
        plugins = [word for word in parse_words(look.setting("TaskPlugin")) if word != "task/none"]
        line = ",".join(dict.fromkeys(("task/cgroup", "task/affinity", *plugins)))
        change = f"TaskPlugin={line}, and ConstrainDevices=yes in cgroup.conf"
        yield Finding("devices", _FAULT, seen, why, change)
    if look.setting("SelectType") not in ("select/cons_tres", ""):
        seen = f"SelectType is {look.setting('SelectType')}"
        yield Finding(
            "select",
            _FAULT,
            seen,
            "only select/cons_tres gives out GPUs with care",
            "SelectType=select/cons_tres",
        )
    default = look.setting("DefMemPerNode") or look.setting("DefMemPerCPU")
    everywhere = default.upper() not in ("", "UNLIMITED") or "DefMemPerGPU" in look.setting("JobDefaults")
    lacking = [part.name for part in look.site.partitions if not (everywhere or part.default_memory)]
    if "MEMORY" in look.setting("SelectTypeParameters").upper() and lacking:
        seen = f"no default for memory in partition {', '.join(lacking)}"
        why = "a job that names no memory takes all of its node's, and the GPUs beside it stand idle"
        yield Finding("default-memory", _FAULT, seen, why, "DefMemPerCPU=4000")
    for part in look.site.partitions:
        if not part.default_ms and (not part.max_ms or part.max_ms > DAY_MS):
            seen = f"partition {part.name} has no DefaultTime"
            why = "a job that names no time limit counts as endless, and nothing can be fitted in before it"
            yield Finding(
                "default-time", _ADVICE, seen, why, f"PartitionName={part.name} … DefaultTime=04:00:00"
            )


def _ms(text: str) -> int:
    try:
        return limit_ms(text, "")
    except Unreadable:
        return -1


def _int(text: str, default: int) -> int:
    return int(text) if text.isdecimal() else default


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no answer"
