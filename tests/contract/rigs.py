"""One rig per engine: how to describe a job to it, how time passes, and what its jobs did, seen from outside.

Nothing here asks the engine what it runs: the jobs themselves write down that they started, and /proc or the simulated
world tell what is alive.
"""

import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gpuyard.engines.contract import AttemptReport, Engine, Launch, Part, Phase, Recipe
from gpuyard.engines.engine_process import EngineApart, Making, fork_spare
from gpuyard.engines.local.engine import LocalEngine
from gpuyard.engines.local.fencing import MEANS
from gpuyard.engines.local.hosts import EmulatedGpus, PretendedNodes, ThisMachine
from gpuyard.engines.local.making import LocalCluster
from gpuyard.engines.local.own_code import OwnCode
from gpuyard.engines.registry import Context
from gpuyard.model import Capability, Node
from gpuyard.testing import Faults, Life, SimEngine
from harness.patience import Patience, patient

EPOCH = 1
GPUS = 8
ONE_NODE = ThisMachine(emulate=EmulatedGpus(count=GPUS, model="A100-80GB"))
SEVERAL_NODES = PretendedNodes(
    (
        *[Node(f"a-{i}", "c", "a", "A100-80GB", GPUS, 64_000, 500_000, GPUS, 2, "sw1") for i in (1, 2)],
        Node("b-1", "c", "b", "H200", 2, 32_000, 250_000, features=("nvme",)),
    )
)


@dataclass(frozen=True)
class Program:
    """A job, described so that every rig can have it run."""

    run_ms: int = 0
    exit_code: int = 0
    ignores_term: bool = False
    ends_well_on_term: bool = False
    output: str = ""
    saves: bool = False
    """It writes a checkpoint when it starts."""
    only_rank: int | None = None
    """Only this task runs so long and ends so; the others run on for a minute."""


class Rig(Protocol):
    """What the suite needs to know of an engine."""

    name: str
    engine: Engine
    node: str
    slack: int
    """How many times as long as on one machine everything may take that is measured."""
    settle_s: float
    """The longest wait for anything."""
    processes: bool
    """Whether its jobs are processes of this machine: a job may then be a script, which runs with what is installed."""

    def recipe(self, key: str, program: Program) -> Recipe: ...
    def starts(self, key: str) -> int:
        """How many tasks have started, as the tasks say."""
        ...

    def gpus_seen(self, key: str) -> list[list[int]]:
        """The GPUs that each task sees, by index, in the order of ranks."""
        ...

    def alive(self, key: str) -> int:
        """How many processes (or simulated tasks) of it live."""
        ...

    def let_pass(self, ms: int) -> None: ...
    def reopen(self) -> Engine:
        """The control plane starts anew: another engine object over the same world."""
        ...

    def close(self) -> None: ...


def launch(
    rig: Rig,
    key: str,
    program: Program | None = None,
    *,
    recipe: Recipe | None = None,
    gpus: tuple[int, ...] = (),
    milli: int = 1000,
    tasks: int = 1,
    limit_ms: int = 0,
    grace_ms: int = 400,
    node: str = "",
    job_id: int = 1,
    restarts: int = 0,
) -> Launch:
    """A launch on the rig's node."""
    return Launch(
        key=key,
        job_id=job_id,
        attempt=1 + restarts,
        label=str(job_id),
        name="a job",
        recipe=recipe or rig.recipe(key, program or Program()),
        parts=(Part(node or rig.node, gpus, milli, 1000, 64, tasks),),
        limit_ms=limit_ms,
        grace_ms=grace_ms,
        restarts=restarts,
    )


def look(rig: Rig, key: str) -> AttemptReport:
    (report,) = rig.engine.status([key])
    return report


def until(rig: Rig, key: str, *phases: Phase) -> AttemptReport:
    """Let time pass until the attempt is in one of these phases."""
    for _ in moments(rig):
        report = look(rig, key)
        if report.phase in phases:
            return report
        rig.let_pass(10)
    raise AssertionError(f"{key} is not {phases} but {report}")


def until_alive(rig: Rig, key: str, count: int = 1) -> None:
    """Let time pass until so many tasks have started, as the tasks say."""
    for _ in moments(rig):
        if rig.starts(key) >= count:
            return
        rig.let_pass(10)
    raise AssertionError(f"{key} has {rig.starts(key)} tasks, not {count}: {look(rig, key)}")


def ended(rig: Rig, key: str) -> AttemptReport:
    return until(rig, key, Phase.ENDED)


def moments(rig: Rig) -> Iterator[None]:
    """As many turns as fit into the longest wait of any test."""
    patience = Patience(rig.settle_s)
    while patience:
        yield


class SimRig:
    """The simulated engine on a clock that only the test moves."""

    name = "sim"
    slack = 1
    settle_s = 20.0
    processes = False

    def __init__(
        self, faults: Faults | None = None, able: frozenset[Capability] = frozenset(Capability)
    ) -> None:
        """`able`: what of all that the engine can do it is to do."""
        self.now_ms = 1_000_000
        self.node = "n1"
        node = Node(self.node, "c", "p", "A100-80GB", GPUS, 64_000, 500_000)
        self.programs: dict[str, Program] = {}
        self.pull_ms = 0
        """How long images are pulled."""
        able &= {
            Capability.GANG,
            Capability.SUSPEND,
            Capability.LIMITS,
            Capability.INDICES,
            Capability.IMAGES,
            Capability.NEW_LIMITS,
        }
        self.engine = SimEngine(lambda: self.now_ms, [node], self._life, faults=faults, capabilities=able)

    def _life(self, launch: Launch) -> Life:
        if launch.recipe.containers:
            return Life(0, pull_ms=50, no_image=f"there is no image {launch.recipe.containers[0].image}")
        program = self.programs[launch.key]
        return Life(
            pull_ms=self.pull_ms,
            run_ms=program.run_ms,
            exit_code=program.exit_code,
            ignores_term=program.ignores_term,
            checkpoint_every_ms=1 if program.saves else 0,
            output=program.output.encode(),
        )

    def recipe(self, key: str, program: Program) -> Recipe:
        self.programs[key] = program
        return Recipe(argv=("program", key))

    def starts(self, key: str) -> int:
        return sum(run.tasks for run in self.engine.world.of(key))

    def gpus_seen(self, key: str) -> list[list[int]]:
        (run,) = self.engine.world.of(key)
        return [list(run.parts[0].gpus) for _ in range(run.tasks)]

    def alive(self, key: str) -> int:
        return sum(run.tasks for run in self.engine.world.live() if run.key == key)

    def let_pass(self, ms: int) -> None:
        self.now_ms += ms

    def reopen(self) -> Engine:
        return self.engine

    def close(self) -> None:
        pass


class LocalRig:
    """Real processes on this machine, with emulated GPUs. Every job appends a line to a file when it starts."""

    name = "local"
    slack = 1
    settle_s = 20.0
    processes = True

    def __init__(
        self,
        folder: Path,
        *,
        use_cgroups: bool = True,
        fence_by: tuple[str, ...] = MEANS,
        nodes: ThisMachine | PretendedNodes = ONE_NODE,
        code: OwnCode | None = None,
    ) -> None:
        self.nodes = nodes
        self.code = code
        self.data = folder.resolve() / "data"
        self.effects = folder / "effects"
        self.effects.mkdir()
        self.use_cgroups = use_cgroups
        self.fence_by = fence_by
        self.engines: list[LocalEngine] = []
        self.keys: set[str] = set()
        self.engine = self.reopen()
        self.node = self.engine.nodes()[0].node.name

    def reopen(self, **options: object) -> LocalEngine:
        engine = LocalEngine(
            self.data,
            nodes=self.nodes,
            use_cgroups=self.use_cgroups,
            fence_by=self.fence_by,
            code=self.code,
            **options,  # type: ignore[arg-type]
        )
        self.engines.append(engine)
        return engine

    def recipe(self, key: str, program: Program) -> Recipe:
        self.keys.add(key)
        return recipe_of(self.effects, key, program)

    def _lines(self, key: str) -> list[str]:
        return seen_lines(self.effects, key)

    def starts(self, key: str) -> int:
        return len(self._lines(key))

    def gpus_seen(self, key: str) -> list[list[int]]:
        # An emulated GPU's identifier ends in its index.
        seen = [line.partition(" ")[2] for line in self._lines(key)]
        return [[int(uuid.rpartition("-")[2]) for uuid in uuids.split(",") if uuid] for uuids in seen]

    def alive(self, key: str) -> int:
        return len(pids_of(self.data, key))

    def let_pass(self, ms: int) -> None:
        time.sleep(ms / 1000)

    def claim(self, key: str) -> Path:
        return self.data / "attempts" / key / "claim.json"

    def _wait_for_supervisors(self) -> None:
        """An end is on disk a moment before its supervisor is gone."""
        patience = Patience(2.0)
        for pid in _claimed_pids(self.data):
            while os.path.exists(f"/proc/{pid}/exe") and patience:
                time.sleep(0.002)

    def close(self) -> None:
        """Kill whatever a failed test left and say so: nothing may be left behind."""
        self._wait_for_supervisors()
        for engine in self.engines:
            engine.close()
        left = {key: pids_of(self.data, key) for key in self.keys}
        for pids in left.values():
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, 9)
        assert {} == {key: pids for key, pids in left.items() if pids}
        groups = {engine._groups.base for engine in self.engines} - {""}
        assert [] == [group for group in groups if os.path.exists(group)]


class ApartRig(LocalRig):
    """The same in a process of its own."""

    name = "apart"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, nodes=ONE_NODE)
        context = Context("", self.data, self.data)
        making = Making("local", LocalCluster(ONE_NODE), context)
        self.engine: Engine = EngineApart(self.engine, making, fork_spare())

    def close(self) -> None:
        self.engine.close()
        super().close()


def recipe_of(effects: Path, key: str, program: Program) -> Recipe:
    """A script that does so, and writes down that it started and which GPUs it sees."""
    lines = ["#!/bin/sh"]
    # What a test does while it runs takes longer on a busy machine.
    run_ms = program.run_ms if program.run_ms >= 10_000 else int(1000 * patient(program.run_ms / 1000))
    if program.ignores_term:
        lines.append("trap '' TERM")
    if program.ends_well_on_term:
        lines.append("trap 'exit 0' TERM")
    if program.output:
        lines.append(f"echo '{program.output}'")
    if program.saves:
        lines.append('echo saved >"$YARD_CHECKPOINT_FILE"')
    lines.append(f"echo \"${{RANK:-0}} $CUDA_VISIBLE_DEVICES\" >>'{effects}/{key}'")
    if program.only_rank is not None:
        lines.append(f'[ "$RANK" = {program.only_rank} ] || sleep 60')
    if run_ms and program.ends_well_on_term:
        # A shell that hears TERM just before it starts a sleep heeds it only when that sleep ends: short ones.
        lines.append(f"n=0; while [ $n -lt {run_ms // 50} ]; do sleep 0.05; n=$((n + 1)); done")
    elif run_ms:
        lines.append(f"sleep {run_ms / 1000}")
    lines.append(f"exit {program.exit_code}")
    return Recipe(script="\n".join(lines) + "\n")


def seen_lines(effects: Path, key: str) -> list[str]:
    """What the tasks of a job wrote down, in the order of ranks."""
    path = effects / key
    return sorted(path.read_text().splitlines()) if path.exists() else []


def _claimed_pids(data: Path) -> Iterator[int]:
    for path in data.glob("*/*/claim.json"):
        # Some tests break a claim on purpose, or write their own number into it.
        with suppress(ValueError):
            pid = json.loads(path.read_text())["pid"]
            if pid not in (0, os.getpid()):
                yield pid


def pids_of(data: Path, key: str) -> list[int]:
    """Every process that carries the attempt's folder in its environment, zombies left out."""
    mark = f"YARD_ATTEMPT_DIR={data}/attempts/{key}\0".encode()
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError):
                if mark in Path(f"/proc/{name}/environ").read_bytes():
                    found.append(int(name))
    return found
