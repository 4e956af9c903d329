"""The nodes of this engine: the machine that it runs on, or any number of nodes that the machine pretends to be.

An emulated node has the name, GPUs, cores, memory and wiring that its description says. Its jobs are still processes
of this machine, so its cores and memory are counted, and held only as far as the machine has them. What the machine
has are CPUs and memory within the bounds set on this process, and its GPUs.
"""

import hashlib
import os
import socket
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from gpuyard.engines.local import translate
from gpuyard.engines.local.attempt import cgroups
from gpuyard.engines.local.translate import MachineReading
from gpuyard.engines.machine import nvml
from gpuyard.engines.machine.nvml import GpuReading
from gpuyard.model import CATALOGUE, Node
from gpuyard.model.mig import MIG_MODELS, MigGeometry
from gpuyard.model.stand_in import STAND_IN_CLUSTERS, STAND_IN_GPUS, STAND_IN_MODEL, clusters_text
from gpuyard.model.units import MILLI
from gpuyard.quantities import memory_gib


@dataclass(frozen=True, slots=True)
class EmulatedGpus:
    """Emulated GPUs: everything about them is real but the computing."""

    count: int
    model: str


STAND_IN = EmulatedGpus(STAND_IN_GPUS, STAND_IN_MODEL)
"""What a machine without GPUs pretends to have by default, so that a first job runs anywhere."""


def hostname() -> str:
    """The name of this machine, without its domain."""
    return socket.gethostname().split(".")[0] or "localhost"


def emulated(gpus: EmulatedGpus, node: str) -> list[GpuReading]:
    """Readings of emulated GPUs, the same ones every time."""
    known = CATALOGUE.get(gpus.model)
    linked = known is not None and known.nvlink
    return [
        GpuReading(
            uuid=f"GPU-emulated-{hashlib.sha256(f'{node}/{i}'.encode()).hexdigest()[:12]}-{i}",
            name=gpus.model,
            memory_mib=known.memory_mib if known else 0,
            linked=tuple(j for j in range(gpus.count) if j != i) if linked else (),
        )
        for i in range(gpus.count)
    ]


def read_gpus(emulate: EmulatedGpus | None, node: str) -> list[GpuReading]:
    """The GPUs of this machine, or the emulated ones in their place."""
    return emulated(emulate, node) if emulate is not None else nvml.read_gpus()


def read_machine(name: str) -> MachineReading:
    """CPUs and memory that this process, and so its jobs, may use."""
    cpu_milli = len(os.sched_getaffinity(0)) * 1000
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for cpu_bound, memory_bound in _bounds():
        cpu_milli = min(cpu_milli, cpu_bound or cpu_milli)
        memory_bytes = min(memory_bytes, memory_bound or memory_bytes)
    return MachineReading(name=name, cpu_milli=cpu_milli, memory_mib=memory_bytes >> 20)


def _bounds() -> list[tuple[int, int]]:
    """(CPU in thousandths, memory in bytes) of every group around this process; 0: no bound."""
    found = []
    path = (cgroups.mount() or "") + cgroups.own_path().rstrip("/")
    while len(path) > 1:
        cpu = memory = 0
        with suppress(OSError, ValueError), open(f"{path}/cpu.max", encoding="ascii") as file:
            quota, period = file.read().split()
            cpu = int(quota) * 1000 // int(period)
        with suppress(OSError, ValueError), open(f"{path}/memory.max", encoding="ascii") as file:
            memory = int(file.read())
        found.append((cpu, memory))
        path = os.path.dirname(path)
    return found


def free_port() -> int:
    """A port that no process listens on now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


EMULATED = "the GPUs are emulated"
"""A note for people."""


@dataclass(frozen=True, slots=True)
class Host:
    """A node, and the GPUs that it consists of."""

    node: Node
    readings: list[GpuReading]

    @property
    def emulated_mib(self) -> int:
        """The memory of each of its GPUs, which are emulated and alike."""
        return max([each.memory_mib for each in self.readings], default=0)

    @property
    def geometry(self) -> MigGeometry | None:
        """How its GPUs can be cut; None: they cannot."""
        return MIG_MODELS.get(self.node.gpu_model)

    @staticmethod
    def geometries(hosts: Collection["Host"]) -> Callable[[str], MigGeometry | None]:
        """How each GPU can be cut. One that is no longer found is taken to be like the others, if all are alike."""
        found = [host.geometry for host in hosts]
        if len(found) == 1:
            return lambda _gpu: found[0]
        return {gpu.uuid: host.geometry for host in hosts for gpu in host.readings}.get


@dataclass(frozen=True, slots=True)
class MachineReader:
    """How a machine is looked at."""

    name: Callable[[], str] = hostname
    gpus: Callable[[EmulatedGpus | None, str], list[GpuReading]] = read_gpus
    machine: Callable[[str], MachineReading] = read_machine


READER = MachineReader()


@dataclass(frozen=True, slots=True)
class ThisMachine:
    """This machine as one node."""

    name: str = ""
    """Empty: the machine's own."""
    cluster: str = "local"
    pool: str = "local"
    features: tuple[str, ...] = ()
    emulate: EmulatedGpus | None = None
    """The GPUs that it pretends to have; None: those that are found."""
    described: Node | None = None
    """The machine as its pool describes it: no more cores and memory than that are handed out."""
    reader: MachineReader = READER

    def words(self) -> str:
        """A description for people."""
        gpus = self.emulate
        return f"{gpus.count} x {gpus.model} emulated" if gpus else "the GPUs that are found"

    @property
    def emulated(self) -> bool:
        """Whether its GPUs are only pretended to be there."""
        return self.emulate is not None

    def read(self) -> list[Host]:
        """The node as it is found now."""
        name = self.name or self.reader.name()
        gpus = self.reader.gpus(self.emulate, name)
        readings = [gpus[place] for place in translate.find_alike(gpus)]
        found = translate.make_node(self.reader.machine(name), readings, self.cluster, self.pool)
        found = replace(found, features=self.features)
        if (said := self.described) is not None:
            found = replace(
                found,
                cpu_milli=min(found.cpu_milli, said.cpu_milli),
                memory_mib=min(found.memory_mib, said.memory_mib),
                switch=said.switch,
                rack=said.rack,
                fabric=said.fabric,
            )
        return [Host(found, readings)]

    def notes(self, hosts: Collection[Host]) -> tuple[str, ...]:
        """What people should know about this node as it was found, in sentences."""
        told = [EMULATED] if self.emulated else []
        (found,) = [host.node for host in hosts]
        if (said := self.described) is not None:
            here = f"pool {self.pool} has {{}} in yard.yaml, and this machine has {{}}: that is what counts"
            if (said.gpus, said.gpu_model) != (found.gpus, found.gpu_model):
                told.append(here.format(_gpus_text(said), _gpus_text(found)))
            if said.cpu_milli > found.cpu_milli:
                told.append(here.format(f"{said.cpu_milli / MILLI:g} cores", f"{found.cpu_milli / MILLI:g}"))
            if said.memory_mib > found.memory_mib:
                told.append(here.format(memory_gib(said.memory_mib), memory_gib(found.memory_mib)))
        if not self.emulated and not found.gpus and (said is None or said.gpus):
            told.append(
                f"no GPUs were found: the yard has 0. It pretends to have some with {self._pretending()}"
            )
        return tuple(told)

    def _pretending(self) -> str:
        """What a file says of this machine so that it pretends to have the GPUs that it lacks."""
        said = self.described
        (cluster,) = STAND_IN_CLUSTERS.values()
        if said is not None:
            pool = {"nodes": 1, "gpus": f"{said.gpus} x {said.gpu_model}", "emulate": True}
            cluster = {"engine": "local", "pools": {said.pool: pool}}
        return f"`{clusters_text({self.cluster: cluster})}` in yard.yaml"


THIS_MACHINE = ThisMachine()


def _gpus_text(node: Node) -> str:
    return f"{node.gpus} x {node.gpu_model}" if node.gpus else "no GPUs"


@dataclass(frozen=True, slots=True)
class PretendedNodes:
    """Nodes that do not exist, as described in the file."""

    nodes: tuple[Node, ...]
    memory_mib: Mapping[str, int] = field(default_factory=dict)
    """Memory of a GPU by model, for models that the catalogue does not have."""

    @property
    def emulated(self) -> bool:
        """They are not there."""
        return True

    def words(self) -> str:
        """A description for people."""
        pools = Counter([(node.pool, node.gpus, node.gpu_model) for node in self.nodes])
        texts = []
        for (pool, gpus, model), count in pools.items():
            nodes = "1 node" if count == 1 else f"{count} nodes"
            texts.append(f"{nodes} of {gpus} x {model} in pool {pool}" if gpus else f"{nodes} in pool {pool}")
        return f"{' and '.join(texts)}, emulated"

    def read(self) -> list[Host]:
        """The nodes, the same every time."""
        return [Host(node, self._gpus(node)) for node in self.nodes]

    def _gpus(self, node: Node) -> list[GpuReading]:
        known_mib = self.memory_mib.get(node.gpu_model, 0)
        made = emulated(EmulatedGpus(node.gpus, node.gpu_model), node.name)
        return [
            replace(
                each, memory_mib=each.memory_mib or known_mib, numa=place * node.numa_domains // node.gpus
            )
            for place, each in enumerate(made)
        ]

    def notes(self, _hosts: Collection[Host]) -> tuple[str, ...]:
        """What people should know about emulated nodes, in sentences."""
        gpus = sum([node.gpus for node in self.nodes])
        are = "1 node is" if len(self.nodes) == 1 else f"{len(self.nodes)} nodes are"
        text = (
            f"{are} emulated on this machine, with {gpus} GPUs: jobs are real processes; cores and memory are "
            "counted as yard.yaml has them, and held only as far as this machine has them"
        )
        return (text,)
