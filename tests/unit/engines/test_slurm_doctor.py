"""The rules of `yard slurm doctor`: each finds what it should, and keeps quiet where all is well."""

from dataclasses import replace
from pathlib import Path

import pytest

from gpuyard.engines.slurm.doctor.evidence import Evidence, Finding, Level, Used
from gpuyard.engines.slurm.doctor.examine import read_used
from gpuyard.engines.slurm.doctor.findings import apply_rules
from gpuyard.engines.slurm.site import site
from gpuyard.engines.slurm.site.accounting import JobRow
from gpuyard.engines.slurm.words.forms import parse_tres

RECORDED = Path(__file__).parent / "slurm_22_05"
NOW_MS = 1_794_738_623_000 + 3 * 86_400_000

WELL = {
    "TaskPlugin": "task/cgroup,task/affinity",
    "ConstrainDevices": "yes",
    "DefMemPerNode": "16000",
    "SchedulerParameters": "bf_continue",
    "Epilog": "/etc/slurm/epilog.sh",
    "JobAcctGatherType": "jobacct_gather/cgroup",
}


def look(**settings: str) -> Evidence:
    """The recorded site in good order, but for the settings given."""
    found = site.read_saved_site(RECORDED)
    found.config |= WELL | settings
    found.nodes = [replace(node, state="IDLE", reason="") for node in found.nodes]
    found.partitions = [
        replace(part, billing={"gres/gpu:a100": "1.0"}, default_ms=3_600_000) for part in found.partitions
    ]
    return Evidence(site=found, now_ms=NOW_MS, client_version="22.05.8", munge="")


def codes(found: list[Finding]) -> list[str]:
    return [each.code for each in found]


def test_a_site_in_good_order_has_nothing_to_change() -> None:
    assert [] == apply_rules(look())


@pytest.mark.parametrize(
    ("settings", "code", "level"),
    [
        ({"AccountingStorageType": "accounting_storage/none"}, "accounting-off", Level.FAULT),
        ({"AccountingStorageEnforce": "associations"}, "not-enforced", Level.FAULT),
        ({"AccountingStorageTRES": "cpu,mem,node"}, "tres", Level.FAULT),
        ({"AccountingStorageTRES": "cpu,gres/gpu"}, "tres", Level.ADVICE),
        ({"PriorityType": "priority/basic"}, "priority", Level.ADVICE),
        ({"PriorityWeightFairShare": "0"}, "fairshare", Level.FAULT),
        ({"PriorityWeightQOS": "0"}, "qos-weight", Level.FAULT),
        ({"PriorityDecayHalfLife": "00:00:00"}, "decay", Level.FAULT),
        ({"SchedulerType": "sched/builtin"}, "backfill", Level.ADVICE),
        ({"SchedulerParameters": "bf_interval=2"}, "bf-continue", Level.ADVICE),
        ({"Epilog": "(null)"}, "epilog", Level.ADVICE),
        ({"AuthInfo": "socket=/run/munge"}, "cred-expire", Level.ADVICE),
        ({"PreemptType": "preempt/none"}, "preempt-off", Level.FAULT),
        ({"TaskPlugin": "task/none"}, "devices", Level.FAULT),
        ({"ConstrainDevices": "no"}, "devices", Level.FAULT),
        ({"SelectType": "select/linear"}, "select", Level.FAULT),
        ({"DefMemPerNode": "UNLIMITED"}, "default-memory", Level.FAULT),
        ({"JobAcctGatherType": "jobacct_gather/none"}, "no-gather", Level.ADVICE),
        ({"GresTypes": ""}, "gres-types", Level.FAULT),
        ({"SLURM_VERSION": "23.11.1"}, "versions", Level.ADVICE),
    ],
)
def test_a_setting_that_is_wrong(settings: dict[str, str], code: str, level: Level) -> None:
    found = apply_rules(look(**settings))

    assert [(code, level)] == [(each.code, each.level) for each in found]
    assert found[0].seen
    assert found[0].why
    assert found[0].change


def test_the_line_to_change_keeps_what_is_there() -> None:
    (expire,) = apply_rules(look(AuthInfo="cred_expire=300,socket=/run/munge"))

    assert "AuthInfo=socket=/run/munge,cred_expire=30" == expire.change
    assert "301 s" in expire.why


def test_backfill_that_looks_less_far_than_jobs_run() -> None:
    evidence = look()
    evidence.site.partitions = [replace(part, max_ms=7 * 86_400_000) for part in evidence.site.partitions]

    (window,) = apply_rules(evidence)

    assert ("bf-window", Level.FAULT) == (window.code, window.level)
    assert "SchedulerParameters=bf_continue,bf_window=10080,bf_resolution=420" == window.change


def test_what_is_advised_for_the_scheduler_replaces_what_is_set() -> None:
    evidence = look(SchedulerParameters="bf_window=2880,bf_resolution=600,defer,bf_max_job_user=20")
    evidence.site.partitions = [replace(part, max_ms=7 * 86_400_000) for part in evidence.site.partitions]
    evidence.queue = [replace(_row(str(n), "gres/gpu=1,node=1"), state="PENDING") for n in range(1, 602)]

    found = {each.code: each.change for each in apply_rules(evidence)}

    window = "bf_window=10080,bf_resolution=600,defer,bf_max_job_user=20"
    assert f"SchedulerParameters={window}" == found["bf-window"]
    # Who takes over the last line has what the ones before it advise.
    assert f"SchedulerParameters={window},bf_continue" == found["bf-continue"]
    assert f"SchedulerParameters={window},bf_continue,bf_max_job_test=1202" == found["bf-depth"]


def test_what_is_tracked_and_enforced_already_stays_so() -> None:
    (tracked,) = apply_rules(look(AccountingStorageTRES="cpu,mem,energy,node,billing,license/ansys,gres/gpu"))
    (enforced,) = apply_rules(look(AccountingStorageEnforce="associations,nosteps,wckeys"))

    assert "AccountingStorageTRES=license/ansys,gres/gpu,gres/gpu:a100" == tracked.change
    assert "AccountingStorageEnforce=associations,limits,qos,safe,nosteps,wckeys" == enforced.change
    assert "limits, qos are written down and nobody is held to them" == enforced.why
    assert [] == apply_rules(look(AccountingStorageEnforce="all"))


def test_other_plugins_and_resources_stay_too() -> None:
    (types,) = apply_rules(look(GresTypes="shard"))
    (devices,) = apply_rules(look(TaskPlugin="task/affinity,task/mine"))

    assert "GresTypes=shard,gpu" == types.change
    assert devices.change.startswith("TaskPlugin=task/cgroup,task/affinity,task/mine, and")


def test_a_default_for_memory_may_stand_at_the_partition() -> None:
    evidence = look(DefMemPerNode="UNLIMITED")
    evidence.site.partitions = [replace(part, default_memory=True) for part in evidence.site.partitions]
    assert [] == apply_rules(evidence)

    assert [] == apply_rules(look(DefMemPerNode="UNLIMITED", JobDefaults="DefMemPerGPU=64000"))


def test_nodes_that_take_no_work() -> None:
    evidence = look()
    evidence.site = site.read_saved_site(RECORDED)
    evidence.site.config |= WELL
    evidence.site.partitions = look().site.partitions
    evidence.site.nodes[0] = replace(
        evidence.site.nodes[0], state="DOWN*", reason="gres/gpu count reported lower"
    )

    found = {each.seen: each for each in apply_rules(evidence) if each.code == "node"}

    assert "node n4 is idle+drain: bad fan, ask Ann, since 3 days" in found
    assert "8 GPUs stand idle" == found["node n4 is idle+drain: bad fan, ask Ann, since 3 days"].why
    assert "gres" in codes(apply_rules(evidence))


def test_this_machine_has_other_gpus_than_slurm_thinks() -> None:
    evidence = look()
    evidence.host, evidence.host_gpus = "n2", 4

    (nvml,) = apply_rules(evidence)

    assert "slurm.conf gives n2 8 GPUs, its driver shows 4" == nvml.seen
    assert "NodeName=n2 … Gres=gpu:a100:4" == nvml.change


def _row(label: str, held: str) -> JobRow:
    return JobRow(
        int(label), label, 0, 0, "x", "ann", "nlp", "normal", "main", "RUNNING", 0, 1, 1, 1, 0, 0,
        parse_tres(held), parse_tres(held), ("n1",),
    )  # fmt: skip


def test_jobs_without_gpus_on_gpu_nodes() -> None:
    evidence = look()
    evidence.queue = [
        _row("1", "cpu=4,node=1"),
        _row("2", "cpu=4,gres/gpu=1,node=1"),
        _row("3", "gres/shard=2,node=1"),
    ]

    (found,) = apply_rules(evidence)

    assert "no-gpu" == found.code
    assert "1 running jobs on GPU nodes asked for no GPU (1), of ann" == found.seen


def test_time_and_memory_that_nobody_uses() -> None:
    evidence = look()
    evidence.used = [Used(str(n), "ann", 100_000, 10_000, 1000, 100) for n in range(12)]

    assert ["over-time", "over-memory"] == codes(apply_rules(evidence))
    evidence.used = evidence.used[:9]
    assert [] == apply_rules(evidence)


def test_what_jobs_used_is_read_from_their_steps() -> None:
    text = (
        "JobIDRaw|JobID|User|State|ElapsedRaw|TimelimitRaw|AllocTRES|MaxRSS\n"
        "7|4_1|ann|COMPLETED|60|10|cpu=2,mem=8G,node=2|\n7.batch|4_1.batch||COMPLETED|60||cpu=1|100M\n"
        "7.0|4_1.0||COMPLETED|60||cpu=1|2048K\n8|8|ann|RUNNING|60|10|mem=8G,node=1|\n"
    )

    found = read_used(text)
    assert ([Used("4_1", "ann", 600_000, 60_000, 4096, 100)], 0) == (found.rows, found.broken)


def test_rows_that_nobody_can_read_are_counted_and_the_rest_is_used() -> None:
    text = (
        "JobIDRaw|JobID|User|State|ElapsedRaw|TimelimitRaw|AllocTRES|MaxRSS\n"
        "7|7|ann|COMPLETED|60|10|gres/gpu:a100_1g.10gb=1,gres/gpu:a100_2g.20gb=1,node=1|\n"
        "8|8|ann|COMPLETED|60|10|mem=8G,node=1|\n8.batch|8.batch||COMPLETED|60||cpu=1|much\n"
        "rubbish\n9|9|ann|COMPLETED|soon|10|mem=8G,node=1|\n"
    )

    found = read_used(text)
    evidence = look()
    evidence.unread["sacct"] = (found.broken, found.broken_named[0])

    assert (["8"], 4) == ([used.label for used in found.rows], found.broken)
    assert any("job 7: mixes MIG slices" in text for text in found.broken_named)
    (unread,) = apply_rules(evidence)
    assert ("unread", Level.ADVICE) == (unread.code, unread.level)
    assert unread.seen.startswith("4 rows of sacct could not be read: line 4")
    assert 1 == read_used("nothing of the kind\n1\n").broken


def test_a_controller_that_does_not_answer() -> None:
    evidence = Evidence(
        controller="Slurmctld(primary) at head is DOWN",
        munge="munge: error",
        conf_file="/etc/slurm/slurm.conf",
        errors={"slurmdbd": "sacctmgr: no\nConnection refused"},
        rest="refused",
        rest_url="http://x",
    )
    evidence.site.config = {"AccountingStorageType": "accounting_storage/slurmdbd"}

    found = codes(apply_rules(evidence))

    assert ["slurmctld", "munge", "slurmrestd", "slurmdbd", "not-enforced"] == found[:5]
