"""A Slurm that is only told of: tries of jobs with their true times, a queue that forgets, an accounting that lags."""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from gpuyard.control.loop.observing import FIRST_MS, Recorder
from gpuyard.control.replica.replica import Replica
from gpuyard.engines.contract import NodeReport
from gpuyard.engines.observer import ForeignJobs, OwnScheduler
from gpuyard.engines.slurm.calls.commands import OutOfReach
from gpuyard.engines.slurm.foreign import read_foreign_jobs, report_nodes
from gpuyard.engines.slurm.observed import SLURM
from gpuyard.engines.slurm.site.accounting import JobRow, Jobs
from gpuyard.engines.slurm.site.gpu_types import GpuTypes
from gpuyard.engines.slurm.site.site import SlurmSite, read
from gpuyard.engines.slurm.words.forms import parse_tres
from gpuyard.model import ConfigSet, Settings, Tenant
from gpuyard.policies.registry import PRESETS
from gpuyard.store import open_store

T0_MS = 1_794_738_600_000
NODES = ("n1", "n2")
MIN_JOB_AGE_MS = 60_000
SETTINGS = Settings(tenants=(Tenant("research"), Tenant("research/nlp")), policy=PRESETS["fifo"])


def attempt(
    label: str,
    submit_s: int,
    start_s: int | None = None,
    end_s: int | None = None,
    state: str = "COMPLETED",
    *,
    gpus: int = 1,
    nodes: Sequence[str] = ("n1",),
    account: str = "nlp",
    exit_code: int = 0,
    eligible_s: int | None = -1,
    wckey: str = "",
) -> JobRow:
    """A try, by seconds after the beginning; as the accounting tells it once it has ended."""
    array, _, index = label.partition("_")
    text = f"cpu=1,mem=1G,node={max(1, len(nodes))},gres/gpu={gpus}"

    def at(second: int | None) -> int:
        return 0 if second is None else T0_MS + 1000 * second

    return JobRow(
        id=int(array),
        label=label,
        array_id=int(array) if index else 0,
        array_index=int(index or 0),
        name="train",
        user="ann",
        account=account,
        qos="normal",
        partition="main",
        state=state,
        exit_code=exit_code,
        submit_ms=at(submit_s),
        eligible_ms=at(submit_s if eligible_s == -1 else eligible_s),
        start_ms=at(start_s),
        end_ms=at(end_s),
        limit_ms=3_600_000,
        held=parse_tres(text),
        asked=parse_tres(text),
        nodes=tuple(nodes) if start_s is not None else (),
        wckey=wckey,
    )


@dataclass
class World:
    """What `ObservedSlurm` asks a real one. Times are simulated, and calls fail where they are told to."""

    tries: list[JobRow] = field(default_factory=list)
    now_ms: int = T0_MS
    cluster: str = "rig"
    gpu_types: dict[str, str] = field(default_factory=lambda: {"a100": "A100-80GB"})
    names: dict[str, str] = field(default_factory=dict)
    name: str = "slurm"
    scheduler: OwnScheduler = SLURM
    lag_ms: Callable[[JobRow], int] = lambda _row: 0
    """How much later the accounting tells of an end."""
    silent: set[str] = field(default_factory=set)
    """Which questions find nobody to answer: queue, history, nodes."""
    states: dict[str, str] = field(default_factory=dict)
    """Of nodes; idle unless told."""
    shuffle: random.Random | None = None
    asked: list[str] = field(default_factory=list)
    queue_told: Jobs | None = None
    """What the queue is said to be, whatever is in it."""
    nodes_told: tuple[NodeReport, ...] | None = None
    """The same of the nodes."""

    def _ask(self, what: str) -> None:
        self.asked.append(what)
        if what in self.silent:
            raise OutOfReach(f"{what}: nobody answers")

    def nodes(self) -> tuple[NodeReport, ...]:
        if self.nodes_told is not None:
            return self.nodes_told
        return report_nodes(self.site(), self.cluster, GpuTypes(self.gpu_types))

    def jobs(self) -> ForeignJobs:
        return read_foreign_jobs(self.queue(), self.names)

    def ended(self, from_ms: int) -> ForeignJobs:
        return read_foreign_jobs(self.history(from_ms), self.names)

    def close(self) -> None:
        pass

    def queue(self) -> Jobs:
        self._ask("queue")
        if self.queue_told is not None:
            return self.queue_told
        found = []
        for row in self.tries:
            if row.submit_ms > self.now_ms or (row.end_ms and row.end_ms + MIN_JOB_AGE_MS < self.now_ms):
                continue
            found.append(self._as_now(row))
        return Jobs(self._mixed(found))

    def _as_now(self, row: JobRow) -> JobRow:
        if row.end_ms and row.end_ms <= self.now_ms:
            return row
        if row.start_ms and row.start_ms <= self.now_ms:
            return replace(row, state="SUSPENDED" if row.state == "SUSPENDED" else "RUNNING", end_ms=0)
        return replace(row, state="PENDING", start_ms=0, end_ms=0, nodes=(), reason=row.reason or "Priority")

    def history(self, from_ms: int) -> Jobs:
        self._ask("history")
        told = [
            row
            for row in self.tries
            if row.end_ms and from_ms <= row.end_ms and row.end_ms + self.lag_ms(row) <= self.now_ms
        ]
        return Jobs(self._mixed(told))

    def _mixed(self, rows: Iterable[JobRow]) -> list[JobRow]:
        found = list(rows)
        if self.shuffle is not None:
            found += self.shuffle.choices(found, k=len(found) // 2) if found else []
            self.shuffle.shuffle(found)
        return found

    def site(self) -> SlurmSite:
        self._ask("nodes")
        lines = [
            f"NodeName={name} CPUTot=64 RealMemory=512000 Gres=gpu:a100:8 State={self.states.get(name, 'IDLE')} "
            "Partitions=main Reason=bad fan [root@5]"
            for name in NODES
        ]
        texts = {
            "nodes.txt": "\n".join(lines),
            "partitions.txt": f"PartitionName=main Nodes={','.join(NODES)}",
        }
        return read(texts, {})


class Watched:
    """A watcher over a store, with a clock that the test moves. `restart` begins it anew on what is on disk."""

    def __init__(self, world: World, path: object, settings: Settings = SETTINGS) -> None:
        self.world = world
        self._path = path
        self.store = open_store(path, durable=False)  # type: ignore[arg-type]
        self.replica = Replica(self.store)
        self.replica.commit(None, lambda draft: draft.add(ConfigSet(T0_MS - FIRST_MS, settings)))
        self._begin()

    def _begin(self) -> None:
        self.lease = self.store.elect("test")
        assert self.lease is not None
        self.watcher = Recorder(self.replica, self.world.cluster, self.world, self.lease.epoch)

    def restart(self) -> None:
        assert self.lease is not None
        self.lease.release()
        self.replica = Replica(self.store)
        self._begin()

    def look(self, after_s: float = 6.0) -> list[str]:
        """Let time pass and look until nothing is left to write; what went wrong."""
        self.world.now_ms += int(after_s * 1000)
        errors = self.watcher.step(self.world.now_ms).errors
        while self.watcher._moments:
            errors += self.watcher.step(self.world.now_ms).errors
        return errors

    def ended(self) -> list[tuple[str, str, int, int, int]]:
        """Key, state, start, end and GPUs of everything in the history, in order."""
        rows, before = [], None
        while page := self.store.history.ended_since(0, before):
            rows += [self.store.history.find(row[0]) for row in page]
            before = (page[-1][4], page[-1][0])
        return sorted(
            (row.detail["spec"]["origin"], row.state, row.started_ms, row.ended_ms, row.gpus_milli // 1000)
            for row in rows
            if row is not None
        )

    def close(self) -> None:
        self.store.close()
