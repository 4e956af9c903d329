"""The contract suite's rig for the world of `world.py`: nothing of it is a process or a file of this machine."""

import json
from pathlib import Path

from contract.rigs import GPUS, Program
from gpuyard.engines.contract import Recipe
from gpuyard.engines.registry import Context
from rigs.outside.kind import KIND, Driver, Keys
from rigs.outside.world import World


class OutsideRig:
    """Orders that do what their plan says, on a clock that a test may set ahead."""

    name = "outside"
    slack = 1
    settle_s = 20.0
    processes = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.world = World("quay", berths=2, gpus=GPUS)
        self.node = "quay-1"
        self.engines: list[Driver] = []
        self.engine = self.reopen()

    def reopen(self) -> Driver:
        keys = Keys.model_validate({"address": self.world.address})
        made = KIND.made(keys, Context("there", self.folder, self.folder))
        assert isinstance(made, Driver)
        self.engines.append(made)
        return made

    def recipe(self, key: str, program: Program) -> Recipe:
        # The first of a crew that fails ends it.
        plan = {
            "run_ms": program.run_ms,
            "code": program.exit_code,
            "deaf": program.ignores_term,
            "saves": program.saves,
            # Word by word: a stream of pieces.
            "says": [f"{word} " for word in program.output.split()],
        }
        return Recipe(argv=("do", json.dumps(plan)))

    def starts(self, key: str) -> int:
        return self.world.loads.count(key)

    def gpus_seen(self, key: str) -> list[list[int]]:
        order = self.world.orders[key]
        return [[slot for slots in order.slots.values() for slot in slots]] * order.plan.crew

    def alive(self, key: str) -> int:
        return self.world.crew(key)

    def let_pass(self, ms: int) -> None:
        self.world.skipped_ms += ms

    def close(self) -> None:
        for each in self.engines:
            each.close()
        self.world.close()
