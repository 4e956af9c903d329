"""How soon a shell is there, and what terminals cost at which nothing happens. `python benchmarks/bench_terminals.py`.

A yard of its own with emulated GPUs, commands as processes at terminals of their own. From the start of `yard run` to
the prompt of its shell; then many shells that nobody types at, and the CPU time of the server meanwhile.
"""

import os
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from e2e.conftest import Box
from rigs.terminal import Pseudo

CONFIG = """\
version: 1
clusters:
  here: {gpus: 64 x A100-80GB, emulate: true, allow_root: true}
"""
SHELLS = 20
IDLE = 20
IDLE_S = 20.0


def main() -> None:
    """Measure."""
    with tempfile.TemporaryDirectory() as folder:
        box = Box(Path(folder) / "yard", CONFIG)
        box.up()
        try:
            measure(box)
        finally:
            box("down", "--jobs")


def shell(box: Box) -> Pseudo:
    """A shell on a GPU, with a prompt that nothing else prints."""
    words = box.command("run", "-q", "-g", 1, "--env", "PS1=ready> ", "--", "bash", "--norc", "--noprofile")
    return Pseudo(words, box.environment, box.data.parent)


def measure(box: Box) -> None:
    """Print the times."""
    took_ms = []
    for _ in range(SHELLS):
        began_s = time.monotonic()
        with shell(box) as one:
            one.until("ready> ")
            took_ms.append(1000 * (time.monotonic() - began_s))
            one.type("exit\r")
            one.code()
    took_ms.sort()
    print(
        f"shell on a GPU: median {statistics.median(took_ms):.0f} ms, p90 {took_ms[SHELLS * 9 // 10]:.0f} ms"
    )
    pid = box.note()["pid"]
    time.sleep(2)
    without_ms = _cpu_ms(pid)
    time.sleep(IDLE_S)
    without_ms = _cpu_ms(pid) - without_ms
    with ExitStack() as stack:
        for one in [stack.enter_context(shell(box)) for _ in range(IDLE)]:
            one.until("ready> ")
        time.sleep(2)
        before_ms = _cpu_ms(pid)
        time.sleep(IDLE_S)
        taken_ms = _cpu_ms(pid) - before_ms
    print(
        f"server CPU in {IDLE_S:.0f} s: {without_ms} ms without terminals, {taken_ms} ms with {IDLE} idle ones"
    )


def _cpu_ms(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1000 // os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
