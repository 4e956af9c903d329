"""What Slurm prints, as rows. Lines are recorded from a real 22.05; states it did not show are put in by hand."""

import pytest

from gpuyard.engines.slurm.fleet import node_of
from gpuyard.engines.slurm.words.queue import SlurmJob, queue_format, read_queue
from gpuyard.engines.slurm.words.rows import read_nodes, read_partitions, read_reservations
from gpuyard.engines.slurm.words.states import LIVES, WAITS, find_outcome
from gpuyard.model import Node, Outcome
from gpuyard.model.units import MINUTE_MS

NODE = (
    "NodeName=n1 Arch=aarch64 CoresPerSocket=32  CPUAlloc=0 CPUEfctv=64 CPUTot=64 CPULoad=3.12 "
    "AvailableFeatures=nvme,ib ActiveFeatures=nvme,ib Gres=gpu:a100:8(S:0-1) "
    "NodeAddr=10.0.0.1 NodeHostName=head Port=50573 Version=22.05.8 OS=Linux 6.1.0 #1 SMP PREEMPT_DYNAMIC @0  "
    "RealMemory=512000 AllocMem=0 FreeMem=18341 Sockets=2 "
    "Boards=1 MemSpecLimit=2000 State={state} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A "
    "Partitions=main  BootTime=1794705443 SlurmdStartTime=1794738713 "
    "LastBusyTime=1794738713 "
    "CfgTRES=cpu=64,mem=500G,billing=64,gres/gpu=8,gres/gpu:a100=8 AllocTRES= CapWatts=n/a{reason}"
)
PARTITION = (
    "PartitionName=main AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=YES QoS=N/A "
    "DefaultTime=NONE DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO MaxNodes=UNLIMITED "
    "MaxTime=1-02:30:00 MinNodes=0 LLN=NO "
    "MaxCPUsPerNode=UNLIMITED Nodes=n[1-3,07-08] PriorityJobFactor=1 PriorityTier=1 State=UP TotalCPUs=512 TotalNodes=8"
)
RESERVATION = (
    "ReservationName=m1 StartTime=1794742925 EndTime=1794743525 Duration=00:10:00 Nodes=n7 NodeCnt=1 CoreCnt=64 "
    "Features=(null) PartitionName=(null) Flags=MAINT,SPEC_NODES TRES=cpu=64 Users=root Groups=(null) Accounts=(null) "
    "Licenses=(null) State=INACTIVE BurstBuffer=(null) Watts=n/a MaxStartDelay=(null)"
)


def queue_line(*fields: str, nonce: str = "n0") -> str:
    first, *others = fields
    return "\x1f".join([first, nonce, *others, ""])


def test_the_queue() -> None:
    tres = "cpu=2,mem=128M,node=2,billing=2,gres/gpu=4,gres/gpu:a100=4"
    text = "\n".join(
        [
            queue_line("2", "2", "RUNNING", "None", "0", "1794738725", "n[2-3]", tres, "main", "y-2-1@ab"),
            queue_line(
                "25", "N/A", "PENDING", "Resources", "1000", "1794739325", "", "cpu=1", "main", "evil"
            ),
            "line two|x\x1f",
        ]
    )
    first, second = read_queue(text, "n0")

    assert (
        SlurmJob(2, 2, "RUNNING", "None", 0, 1794738725, ("n2", "n3"), 4, 2, 128, "main", "y-2-1@ab") == first
    )
    assert (True, False, 2) == (first.lives, first.waits, first.first_id)
    assert ("Resources", 1000, True) == (second.reason, second.uid, second.waits)


def test_a_comment_cannot_pass_for_a_line_of_its_own() -> None:
    forged = queue_line("7", "N/A", "CANCELLED", "None", "0", "1", "", "", "main", "y-1-1@ab", nonce="guess")

    assert [] == read_queue(f"{forged}\n", "secret")
    assert "\x1fsecret\x1f" in queue_format("secret")


def test_a_node() -> None:
    (node,) = read_nodes(NODE.format(state="IDLE", reason="") + "\n")

    assert ("10.0.0.1", 64, 510_000, ("nvme", "ib"), ("main",)) == (
        node.address,
        node.cpus,
        node.memory_mib,
        node.features,
        node.partitions,
    )
    assert "" == node.trouble()
    assert Node(
        "n1", "hpc", "main", "A100-80GB", 8, 64_000, 510_000, nvlink_group_size=8, features=("nvme", "ib")
    ) == node_of(node, "hpc", "main", {"a100": "A100-80GB"})


@pytest.mark.parametrize(
    ("state", "reason", "trouble"),
    [
        ("MIXED", "", ""),
        ("ALLOCATED+CLOUD", "", ""),
        ("IDLE+DRAIN", " Reason=bad fan, ask Ann [root@1794738623]", "drained in Slurm: bad fan, ask Ann"),
        ("DOWN", " Reason=State=IDLE [root@1]", "Slurm calls it down: State=IDLE"),
        ("DOWN*+CLOUD", "", "Slurm calls it down"),
        ("IDLE*", "", "does not respond in Slurm"),
        ("IDLE+MAINT", "", "in maintenance in Slurm"),
        ("MIXED+RESERVED", "", "in a reservation of Slurm"),
        ("INVAL", "", "Slurm calls it inval"),
    ],
)
def test_why_a_node_takes_nothing_new(state: str, reason: str, trouble: str) -> None:
    (node,) = read_nodes(NODE.format(state=state, reason=reason))

    assert trouble == node.trouble()


def test_a_reservation_of_our_own_is_no_trouble() -> None:
    (node,) = read_nodes(NODE.format(state="IDLE+RESERVED", reason=""))

    assert "" == node.trouble(reserved=True)


@pytest.mark.parametrize(
    ("text", "number", "kind"),
    [
        ("(null)", 0, ""),
        ("gpu:8", 8, ""),
        ("gpu", 1, ""),
        ("gpu:a100:8(S:0-1),shard:32,lustre:no_consume:4G", 8, "a100"),
        ("gpu:a100:4,gpu:a100:4", 8, "a100"),
        # Of several types the one there is most of, with its own number; of as many the first by name.
        ("gpu:a100:2,gpu:v100:6", 6, "v100"),
        ("gpu:a100:4,gpu:v100:4", 4, "a100"),
        ("gpu:v100:4,gpu:a100:4", 4, "a100"),
        # Slices count where there is nothing else.
        ("gpu:a100:4,gpu:1g.18gb:7(S:0)", 4, "a100"),
        ("gpu:1g.18gb:7(S:0)", 7, "1g.18gb"),
    ],
)
def test_the_gpus_of_a_node_that_count(text: str, number: int, kind: str) -> None:
    (node,) = read_nodes(NODE.format(state="IDLE", reason="").replace("gpu:a100:8(S:0-1)", text))

    assert (number, kind) == node.gpus


def test_partitions_and_reservations() -> None:
    (partition,) = read_partitions(PARTITION)
    assert ("main", ("n1", "n2", "n3", "n07", "n08"), True, True, 1590 * MINUTE_MS) == (
        partition.name, partition.nodes, partition.default, partition.up, partition.max_ms,
    )  # fmt: skip
    (kept,) = read_reservations(RESERVATION)
    assert ("m1", ("n7",), 1794742925000, 1794743525000, ("MAINT", "SPEC_NODES")) == (
        kept.name, kept.nodes, kept.start_ms, kept.end_ms, kept.flags,
    )  # fmt: skip
    assert [] == read_reservations("No reservations in the system\n")


def test_every_state_is_waiting_living_or_an_end() -> None:
    assert [None, None, None] == [find_outcome(state) for state in ("PENDING", "COMPLETING", "SUSPENDED")]
    assert Outcome.NODE_FAIL is find_outcome("BOOT_FAIL")
    assert Outcome.FAILED is find_outcome("A_STATE_OF_TOMORROW")
    assert not WAITS & LIVES
