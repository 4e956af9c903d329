#!/usr/bin/env python3
"""Train a tiny model so that it can be stopped at any moment and go on where it was.

    yard submit -g 1 --signal USR1@60 -- python3 examples/train.py --steps 10000

Three things make a job one that can be preempted, requeued and moved:

1. It saves its state to $YARD_CHECKPOINT_FILE now and then, and loads it when it starts. The file is replaced in one
   step, so it is whole whatever happens. The yard reads the file's time as the time of the last checkpoint.
2. When the warning (SIGUSR1) or SIGTERM comes, it finishes the step, saves and ends. It ends with 0: the yard knows
   that it asked for this, and puts the job back in the queue if it made room for another.
3. It needs nothing else to remember: $YARD_RESTART_COUNT only says how often it was started before.

With PyTorch it fits a line on the GPU it was given (or on the CPU); without, it does the same in plain Python.
"""

import argparse
import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

try:
    import torch
except ImportError:
    torch = None

SLOPE, OFFSET = 3.0, -1.0
"""What the model has to find out."""


class Model(Protocol):
    """What the loop below needs of a model."""

    def step(self, step: int) -> float:
        """Learn from one batch; the loss."""
        ...

    def state(self) -> Any: ...
    def load(self, state: Any) -> None: ...


class PlainModel:
    """A line, fitted by gradient descent in plain Python."""

    def __init__(self) -> None:
        self.slope = self.offset = 0.0

    def step(self, step: int) -> float:
        # The data of a step depend on the step alone, so that a resumed run sees what an unbroken one would.
        x = random.Random(step).uniform(-1.0, 1.0)
        error = self.slope * x + self.offset - (SLOPE * x + OFFSET)
        self.slope -= 0.1 * error * x
        self.offset -= 0.1 * error
        return error * error

    def state(self) -> Any:
        return {"slope": self.slope, "offset": self.offset}

    def load(self, state: Any) -> None:
        self.slope, self.offset = state["slope"], state["offset"]


class TorchModel:
    """The same line as a PyTorch module, with its optimizer in the checkpoint."""

    def __init__(self) -> None:
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        torch.manual_seed(0)
        self.line = torch.nn.Linear(1, 1).to(self.device)
        self.optimizer = torch.optim.SGD(self.line.parameters(), lr=0.1, momentum=0.5)

    def step(self, step: int) -> float:
        generator = torch.Generator().manual_seed(step)
        x = (torch.rand(64, 1, generator=generator) * 2 - 1).to(self.device)
        loss = torch.nn.functional.mse_loss(self.line(x), SLOPE * x + OFFSET)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return float(loss)

    def state(self) -> Any:
        tensors = {name: value.tolist() for name, value in self.line.state_dict().items()}
        momenta = [self.optimizer.state[weight].get("momentum_buffer") for weight in self.line.parameters()]
        return {
            "line": tensors,
            "momenta": [None if each is None else each.tolist() for each in momenta],
        }

    def load(self, state: Any) -> None:
        tensors = {name: torch.tensor(value, device=self.device) for name, value in state["line"].items()}
        self.line.load_state_dict(tensors)
        for weight, momentum in zip(self.line.parameters(), state["momenta"], strict=True):
            if momentum is not None:
                self.optimizer.state[weight]["momentum_buffer"] = torch.tensor(momentum, device=self.device)


def save(path: Path, step: int, model: Model) -> None:
    """Replace the checkpoint in one step."""
    draft = path.with_name(path.name + ".new")
    with draft.open("w") as file:
        json.dump({"step": step, "kind": type(model).__name__, "model": model.state()}, file)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def load(path: Path, model: Model) -> int:
    """Go on from the checkpoint; the step to begin with."""
    if not path.exists():
        return 0
    saved = json.loads(path.read_text())
    if saved["kind"] != type(model).__name__:
        sys.exit(f"{path} was saved by {saved['kind']}, this is {type(model).__name__}")
    model.load(saved["model"])
    step: int = saved["step"]
    return step


class Wish:
    """Set by a signal, looked at between steps: nothing is saved in the middle of a step."""

    def __init__(self) -> None:
        self.name = ""
        for number in (signal.SIGUSR1, signal.SIGTERM):
            signal.signal(number, self._hear)

    def _hear(self, number: int, _: FrameType | None) -> None:
        self.name = signal.Signals(number).name


def say(line: str) -> None:
    """Write a line at once, so that it is in the log when the job is stopped."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a tiny model that survives preemption.")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--save-every", type=int, default=100, metavar="STEPS")
    parser.add_argument("--step-s", type=float, default=0.01, help="how long a step takes at least")
    parser.add_argument("--plain", action="store_true", help="plain Python even where there is PyTorch")
    options = parser.parse_args()

    path = Path(os.environ.get("YARD_CHECKPOINT_FILE", "checkpoint.json"))
    model: Model = PlainModel() if options.plain or torch is None else TorchModel()
    wish = Wish()
    first = load(path, model)
    restarts = os.environ.get("YARD_RESTART_COUNT", "0")
    say(f"start {restarts}: from step {first} with {type(model).__name__}")
    loss = 0.0
    for step in range(first, options.steps):
        loss = model.step(step)
        time.sleep(options.step_s)
        done = step + 1
        if wish.name or done % options.save_every == 0 or done == options.steps:
            save(path, done, model)
        if wish.name:
            say(f"{wish.name}: saved at step {done}")
            return
    say(f"done: {options.steps} steps, loss {loss:.2e}")


if __name__ == "__main__":
    main()
