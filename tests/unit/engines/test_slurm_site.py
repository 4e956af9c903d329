"""A site from what its commands printed: recorded with Slurm 22.05.8, and newer shapes written by hand."""

import json
from pathlib import Path

import pytest

from gpuyard.engines.slurm.site import accounting, site
from gpuyard.engines.slurm.site.accounting_json import read_jobs_json
from gpuyard.engines.slurm.words.forms import Unreadable

RECORDED = Path(__file__).parent / "slurm_22_05"

NEWER_NODE = (
    "NodeName=gpu[1] Arch=x86_64 CoresPerSocket=48 CPUAlloc=0 CPUEfctv=192 CPUTot=192 CPULoad=0.01 "
    "AvailableFeatures=h100,ib ActiveFeatures=h100,ib Gres=gpu:h100:8(S:0-1),shard:h100:32(S:0-1) "
    "State=IDLE+DRAIN+NOT_RESPONDING RealMemory=2063000 Partitions=a,b ResumeAfterTime=None "
    "Reason=Kill task failed [root@2026-11-01T00:00:00]"
)
"""After the documented form of 24.05; by hand."""

NEWER_JOB = {
    "account": "nlp", "array": {"job_id": 40, "task_id": {"set": True, "infinite": False, "number": 3}},
    "exit_code": {"status": ["SIGNALED"], "return_code": {"set": True, "infinite": False, "number": 0},
                  "signal": {"id": {"set": True, "infinite": False, "number": 9}, "name": "Killed"}},
    "job_id": 44, "name": "train", "nodes": "n[1-2]", "partition": "main", "qos": "normal",
    "state": {"current": ["OUT_OF_MEMORY"], "reason": "None"},
    "time": {"elapsed": 60, "eligible": 100, "end": 170, "start": 110, "submission": 100,
             "limit": {"set": True, "infinite": False, "number": 5}},
    "tres": {"allocated": [{"type": "cpu", "name": "", "id": 1, "count": 4},
                           {"type": "mem", "name": "", "id": 2, "count": 4096},
                           {"type": "node", "name": "", "id": 4, "count": 2},
                           {"type": "gres", "name": "gpu", "id": 1001, "count": 16}],
             "requested": []},
    "user": "ann",
}  # fmt: skip
"""After the documented form of 23.11, where numbers say whether they are set; by hand."""


@pytest.fixture(scope="module")
def found() -> site.SlurmSite:
    return site.read_saved_site(RECORDED)


def test_the_cluster(found: site.SlurmSite) -> None:
    assert ("yardrig", "22.05.8") == (found.name, found.version)
    assert "priority/multifactor" == found.setting("PriorityType")
    assert "10000" == found.setting("priorityweightfairshare")
    assert "" == found.setting("JobSubmitPlugins")
    assert {} == found.missing


def test_nodes_and_partitions(found: site.SlurmSite) -> None:
    assert [("n1", True), ("n2", True), ("n3", True), ("n4", False)] == [(n.name, n.up) for n in found.nodes]
    sick = found.nodes[3]
    assert ("bad fan, ask Ann", 1_794_738_623_000) == (sick.reason, sick.reason_ms)
    assert [(8, "a100", 64, 512_000)] * 4 == [(*n.gpus, n.cpus, n.memory_mib) for n in found.nodes]
    (main,) = found.partitions
    assert ("main", ("n1", "n2", "n3", "n4"), True, 0) == (main.name, main.nodes, main.default, main.max_ms)
    (kept,) = found.reservations
    assert ("maint1", ("n3",), 3_600_000) == (kept.name, kept.nodes, kept.end_ms - kept.start_ms)


def test_a_node_of_a_newer_release() -> None:
    texts = {
        "config.txt": "ClusterName = x\n",
        "nodes.txt": NEWER_NODE,
        "partitions.txt": "PartitionName=a Nodes=gpu1 TRESBillingWeights=CPU=0.0,GRES/gpu:h100=6.88",
    }

    (node,) = site.read(texts, {}).nodes

    assert (8, "h100") == node.gpus
    assert (False, "Kill task failed", 1_793_491_200_000) == (node.up, node.reason, node.reason_ms)
    assert ("h100", "ib") == node.features
    assert {"cpu": "0.0", "gres/gpu:h100": "6.88"} == site.read(texts, {}).partitions[0].billing


def test_jobs(found: site.SlurmSite) -> None:
    by_label = {}
    for row in found.jobs.rows:
        by_label.setdefault(row.label, []).append(row)

    assert 0 == found.jobs.broken
    (first,) = by_label["1"]
    assert ("train a|b", "nobody", "nlp", 2, ("n1",), 3000) == (
        first.name, first.user, first.account, first.held.gpus, first.nodes, first.end_ms - first.start_ms,
    )  # fmt: skip
    assert 3 == by_label["2"][0].exit_code
    assert ["PREEMPTED", "RUNNING"] == [row.state for row in by_label["6"]]
    assert [False, True] == [row.live for row in by_label["6"]]
    assert "CANCELLED" == by_label["11"][0].state
    assert [(4, 1), (4, 2), (4, 3), (4, 3)] == sorted(
        (row.array_id, row.array_index) for row in found.jobs.rows if row.array_id
    )
    assert [False] == [row.ran for row in by_label["15"]]


def test_the_queue() -> None:
    names = "|".join(accounting.QUEUE_FIELDS)
    line = (
        "13|4|2|ann|nlp|normal|main|FAILED|100|100|110|120|1:00:00|cpu=1,node=1,gres/gpu=1|n1|768|1|10200|"
        "NonZeroExitCode|vision|a|b"
    )
    waits = (
        "9|9|N/A|ann|nlp|normal|main|PENDING|100|200|999|N/A|12:00:00|gres/gpu=1,node=1||0|0|1|Nodes required, x|"
        "(null)|s"
    )

    ended, waiting = accounting.read_queue(f"{names}\n{line}\n{waits}\n").rows

    assert ("4_2", 3, 120_000, "a|b", 1, "", "vision") == (
        ended.label, ended.exit_code, ended.end_ms, ended.name, ended.restarts, ended.reason, ended.wckey,
    )  # fmt: skip
    assert ("9", 0, 0, "Nodes required, x", False, "") == (
        waiting.label, waiting.start_ms, waiting.end_ms, waiting.reason, waiting.ran, waiting.wckey,
    )  # fmt: skip
    assert 1 == accounting.read_queue(f"{names}\nrubbish\n").broken


@pytest.mark.parametrize("state", ["STOPPED", "SIGNALING"])
def test_a_job_that_its_user_stops_still_holds_its_gpus(state: str) -> None:
    """`scancel --signal=STOP` gives it a state of its own, with the end of its time limit as its end."""
    names = "|".join(accounting.QUEUE_FIELDS)
    line = f"9|9|N/A|ann|nlp|normal|main|{state}|100|100|110|999|1:00|gres/gpu=1,node=1|n1|0|0|1|None|*|x"

    (row,) = accounting.read_queue(f"{names}\n{line}\n").rows

    assert (True, True, 0) == (row.live, row.ran, row.end_ms)


@pytest.mark.parametrize("state", ["SPECIAL_EXIT", "REQUEUE_HOLD"])
def test_a_job_that_is_put_back_waits(state: str) -> None:
    """It may be let go later, under the same id and time of submission."""
    names = "|".join(accounting.QUEUE_FIELDS)
    line = f"9|9|N/A|ann|nlp|normal|main|{state}|100|N/A|110|999|1:00|gres/gpu=1,node=1||0|1|1|held|*home|x"

    (row,) = accounting.read_queue(f"{names}\n{line}\n").rows

    assert ("PENDING", True, False, 0) == (row.state, row.live, row.ran, row.end_ms)


WCKEYS = (
    # As Slurm 22.05 prints them: squeue, sacct, and what is meant.
    ("(null)", "", ""),
    ("*", "*", ""),
    ("*home", "*home", "home"),
    ("vision", "vision", "vision"),
    ("a|b c", "a|b c", "a b c"),
    ("x\ny", "x\ny", "x y"),
    ("x\n\ty\n", "x\n\ty\n", "x ?y"),
)


@pytest.mark.parametrize(("queued", "accounted", "meant"), WCKEYS)
def test_workload_keys_are_read_alike_from_both(queued: str, accounted: str, meant: str) -> None:
    """Without TrackWCKey Slurm has a key only for a job that was given one; with it, a star marks a default."""
    mark = accounting.make_mark()
    fields = accounting.QUEUE_FIELDS
    line = ["9", "9", "N/A", "ann", "nlp", "normal", "main", "RUNNING", "100", "100", "110", "N/A", "1:00",
            "gres/gpu=1,node=1", "n1", "0", "0", "1", "None", queued, "a\nb"]  # fmt: skip
    after = ["10", *line[1:]]
    live = accounting.remove_mark("".join([f"{mark.join(row)}\n" for row in (fields, line, after)]), mark)
    header = ("JobIDRaw", "JobID", "State", "Submit", "Start", "End", "WCKey", "JobName")
    cells = ("COMPLETED", "10", "20", "30", accounted, "a\nb")
    past = "".join([f"{mark.join(row)}\n" for row in (header, ("9", "9", *cells), ("10", "10", *cells))])

    for found in (accounting.read_queue(live), accounting.read_jobs(accounting.remove_mark(past, mark))):
        assert (0, [(9, meant, "a"), (10, meant, "a")]) == (
            found.broken,
            [(row.id, row.wckey, row.name) for row in found.rows],
        )


def test_a_component_of_a_job_has_one_name_in_both() -> None:
    header = "JobIDRaw|JobID|State|Submit|Start|End"

    rows = accounting.read_jobs(f"{header}\n12|12+0|COMPLETED|10|20|30\n13|12+1|COMPLETED|10|20|30\n").rows

    assert ["12", "13"] == [row.label for row in rows]


def test_accounts_and_qos(found: site.SlurmSite) -> None:
    nlp = next(each for each in found.associations if each.account == "nlp" and not each.user)
    assert ("research", 20, {"gres/gpu": "16"}) == (nlp.parent, nlp.share, nlp.group_tres)
    high = next(each for each in found.qos if each.name == "high")
    assert (100, 30_000, ("normal", "scav"), None) == (
        high.priority, high.grace_ms, high.preempts, high.exempt_ms,
    )  # fmt: skip


def test_both_forms_of_the_history_say_the_same(found: site.SlurmSite) -> None:
    """But for what 22.05's JSON gets wrong: it says that every job ended with 0."""
    theirs = read_jobs_json(json.loads((RECORDED / "jobs.json").read_text()))
    ours = {(row.label, row.submit_ms): row for row in found.jobs.rows}

    assert (7, 0) == (len(theirs.rows), theirs.broken)
    for row in theirs.rows:
        same = ours[row.label, row.submit_ms]
        for name in (
            "id",
            "user",
            "account",
            "qos",
            "state",
            "start_ms",
            "end_ms",
            "limit_ms",
            "nodes",
            "name",
            "held",
        ):
            assert getattr(same, name) == getattr(row, name), (row.label, name)


def test_the_history_of_a_newer_release() -> None:
    (row,) = read_jobs_json({"jobs": [NEWER_JOB]}).rows

    assert ("40_3", "OUT_OF_MEMORY", 137, 300_000, 16, 2) == (
        row.label, row.state, row.exit_code, row.limit_ms, row.held.gpus, row.held.nodes,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("file", "text", "complaint"),
    [
        ("config.txt", "\0\x01rubbish", "config.txt: has no ClusterName"),
        ("nodes.txt", "hello", "nodes.txt: should hold lines that begin with NodeName="),
        ("partitions.txt", "", "partitions.txt: should hold lines"),
        ("associations.txt", "a|b\n1|2\n", "associations.txt: line 2 has no account"),
        ("jobs.txt", "what\n", "jobs.txt: the first line has no column"),
        ("qos.txt", "Name|Priority\nx|many\n", "qos.txt: Priority is 'many', not a number"),
    ],
)
def test_rubbish_in_a_saved_file_is_named(tmp_path: Path, file: str, text: str, complaint: str) -> None:
    for each in RECORDED.glob("*.txt"):
        (tmp_path / each.name).write_text(text if each.name == file else each.read_text())

    with pytest.raises(Unreadable) as refused:
        site.read_saved_site(tmp_path)

    assert complaint in str(refused.value)


def test_a_broken_row_of_the_history_is_passed_over_and_named() -> None:
    header = "JobIDRaw|JobID|State|Submit|Start|End"
    jobs = accounting.read_jobs(f"{header}\n1|1|COMPLETED|10|20|30\nx|y\n2|2|COMPLETED|soon|20|30\n")

    assert ["1"] == [row.label for row in jobs.rows]
    assert (2, ["line 3", "line 4"]) == (jobs.broken, [text.split(":")[0] for text in jobs.broken_named])
