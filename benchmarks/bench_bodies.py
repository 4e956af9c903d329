"""The memory of a server while bodies at their limits come to every endpoint that takes one, and a minute later.

    python benchmarks/bench_bodies.py [--seconds 20 | --minutes 10]

Root's yard with 8 GPUs that are not there. Four connections of an administrator, whom no throttle holds back, send what
costs most to read: scripts and environments as long as may be, texts of a megabyte that are half a million values,
configurations of thousands of tenants, twenty thousand ids. Nearly all of it is refused, after it was read. What is
measured is the memory of the server's own process, and of all that help it together.
"""

import argparse
import itertools
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from figures import Row, publish, table
from load_clients import Caller
from load_yard import YardProcess

HANDS = 4
MEMORY_MIB_MAX = 512
LEFT_MIB_MAX = 64
"""What may be there a minute later beyond what was there in the beginning."""
SETTLED_S = 60.0
MIB = 1 << 20
CONFIG = """\
version: 1
clusters:
  here: {engine: local, gpus: 8 x A100-80GB, emulate: true, allow_root: true}
"""

# -- what is sent ------------------------------------------------------------------------------------------------------

_JOB: dict[str, Any] = {
    "script": "#!/bin/sh\n# " + "x" * (MIB - 100),
    "env": {f"NAME_{n}": "v" * 8 for n in range(9_000)},
    "gpus": 10_000,
}
_VALUES = "command: [" + "1," * (MIB // 2 - 10) + "]\n"
TEXTS = {
    "values": "kind: [" + "1," * (MIB // 2 - 10) + "]\n",
    "list": "kind:\n" + "- 1\n" * (MIB // 4 - 10),
    "names": "env:\n" + "".join([f" k{n}: 1\n" for n in range(80_000)]),
    "jobs": "---\n".join([f"name: j{n}\ncommand: ['true']\n" for n in range(9_000)]),
    "manifests": "---\n".join(
        [
            f"apiVersion: v1\nkind: Pod\nmetadata: {{name: j{n}}}\n"
            f"spec: {{containers: [{{name: a, image: b, command: [x, '{'y' * 9_000}']}}]}}\n"
            for n in range(100)
        ]
    ),
    "script": "#!/bin/sh\n" + "#SBATCH --job-name=x\n" * 49_000,
}
"""Of a megabyte each, or of as many jobs as a file may have."""
_TENANTS = CONFIG + "tenants:\n" + "".join([f"  team-{n}: {{limit: 8, weight: 3}}\n" for n in range(25_000)])
_LONG = "x" * (2 * MIB - 1_000)
_MANY: list[Any] = [[]] * 29_000
_MOMENTS = 400
_SAMPLES = {
    "sent_ms": 10**12,
    "steady_ms": 10**6,
    "at_ms": [10**12 - 1_000 * n for n in range(_MOMENTS, 0, -1)],
    "series": {f"attempt/yard-{n:x}-1-1/memory": [10**9] * _MOMENTS for n in range(140)},
}
BODIES: tuple[tuple[str, str, Any], ...] = (
    ("POST", "/jobs", _JOB),
    ("POST", "/jobs", {"command": ["true"], "labels": _MANY}),
    ("POST", "/jobs/dry-run", _JOB),
    ("POST", "/jobs/dry-run", _JOB | {"gpus": 1, "array": "0-9999"}),
    *[("POST", "/jobs/read", {"text": text}) for text in TEXTS.values()],
    ("POST", "/jobs/{verb}", {"ids": list(range(10**9, 10**9 + 20_000))}),
    ("POST", "/jobs/update", {"ids": list(range(10**9, 10**9 + 20_000)), "name": "x"}),
    ("POST", "/jobs/{id}/update/dry-run", {"name": _LONG, "labels": _MANY}),
    ("POST", "/jobs/{id}/checkpoint", {"saved_at_ms": 1, "more": _LONG}),
    ("POST", "/config/diff", {"yaml": _TENANTS}),
    ("POST", "/config/diff", {"yaml": _VALUES}),
    ("POST", "/config/preview", {"yaml": TEXTS["list"]}),
    ("PUT", "/config", {"yaml": TEXTS["names"]}),
    ("PUT", "/config", {"yaml": _TENANTS, "against": 10**6}),
    ("POST", "/config/rollback", {"version": 10**6, "more": _MANY}),
    ("POST", "/nodes/{name}/drain", {"why": _LONG}),
    ("POST", "/nodes/marks", {"nodes": ["{name}"] * 5_000, "labels": _MANY}),
    ("POST", "/nodes/{name}/samples", {"frames": _MANY}),
    ("POST", "/nodes/{name}/samples", {"batch": _LONG}),
    ("POST", "/nodes/{name}/samples", _SAMPLES),
    ("POST", "/nodes/{name}/mig", {"layouts": [{"layout": "whole"}] * 5_000}),
    ("POST", "/nodes/{name}/mig", {"layouts": [{"layout": "7x1g.18gb", "gpus": [8]}] * 1_024}),
    ("POST", "/nodes/{name}/mig/release", {"gpus": list(range(50_000))}),
    ("POST", "/mig/plan", {"node": "{name}", "layouts": [{"layout": "whole"}] * 5_000}),
    ("POST", "/mig/plan", {"node": "{name}", "layouts": [{"layout": "whole", "gpus": [0]}] * 1_024}),
    ("POST", "/prune", {"next": _LONG}),
    ("POST", "/tokens", {"user": _LONG}),
    ("POST", "/login/oidc", {"id_token": "x" * 63_000, "nonce": "n" * 100}),
    ("POST", "/login/oidc/code", {"code": "x" * 60_000}),
    ("POST", "/login/browser", {"code": "x" * 60_000}),
)
"""The endpoints by their paths, and what is sent to each of them."""


def requests(node: str) -> list[tuple[str, str, bytes]]:
    """Every request once; `node`: one that there is."""
    named = {"{verb}": "cancel", "{id}": "1", "{name}": node}
    found = []
    for method, path, body in BODIES:
        words = [named.get(word, word) for word in path.split("/")]
        text = json.dumps(body).replace("{name}", node)
        found.append((method, f"/api/v1{'/'.join(words)}", text.encode()))
    return found


# -- what is measured --------------------------------------------------------------------------------------------------


def _mib(pid: int, file: str, field: str) -> float:
    try:
        for line in Path(f"/proc/{pid}/{file}").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    return 0.0


def _family(pid: int) -> Iterator[int]:
    yield pid
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = file.read_text(encoding="ascii").split()
        except OSError:
            continue
        for child in children:
            yield from _family(int(child))


def server_mib(yard: YardProcess) -> float:
    """What the server's own process has."""
    return _mib(yard.pids()[0], "status", "VmRSS")


def together_mib(yard: YardProcess) -> float:
    """What it and all that help it have together, pages that they share counted once."""
    return sum([_mib(pid, "smaps_rollup", "Pss") for pid in _family(yard.pids()[0])])


@dataclass
class Seen:
    """The figures of one run."""

    start_mib: float = 0.0
    start_together_mib: float = 0.0
    peak_mib: float = 0.0
    peak_together_mib: float = 0.0
    left_mib: float = 0.0
    left_together_mib: float = 0.0
    statuses: dict[str, int] = field(default_factory=dict)

    @property
    def broken(self) -> list[str]:
        """The limits that it does not keep."""
        found = []
        if self.peak_together_mib > MEMORY_MIB_MAX:
            found.append(f"{self.peak_together_mib:.0f} MiB")
        if self.left_together_mib > self.start_together_mib + LEFT_MIB_MAX:
            found.append(f"{self.left_together_mib:.0f} MiB a minute later")
        if any([status.endswith(" 500") for status in self.statuses]):
            found.append("an error of the server's own")
        return found


def measured(seconds: float, settled_s: float = SETTLED_S) -> Seen:
    """Send for so long, then wait."""
    seen = Seen()
    with tempfile.TemporaryDirectory(prefix="yard-bodies-", ignore_cleanup_errors=True) as folder:
        yard = YardProcess(Path(folder), CONFIG)
        try:
            everything = requests(json.loads(yard.ask("GET", "/api/v1/nodes"))["nodes"][0]["name"])
            # What answers questions beside the server stays for a while, and is there before and after.
            yard.ask("POST", "/api/v1/jobs/dry-run", b'{"command": ["true"]}')
            seen.start_mib, seen.start_together_mib = server_mib(yard), together_mib(yard)
            until_s = time.monotonic() + seconds
            hands = [
                threading.Thread(target=_send, args=(yard, everything, turn, seen, until_s))
                for turn in range(HANDS)
            ]
            for hand in hands:
                hand.start()
            while any([hand.is_alive() for hand in hands]):
                time.sleep(0.2)
                seen.peak_mib = max(seen.peak_mib, server_mib(yard))
                seen.peak_together_mib = max(seen.peak_together_mib, together_mib(yard))
            _settle(yard, seen, settled_s)
        finally:
            yard.stop()
    return seen


def _settle(yard: YardProcess, seen: Seen, settled_s: float) -> None:
    """Wait until it is as it was, and no longer than it may take."""
    until_s = time.monotonic() + settled_s
    while True:
        seen.left_mib, seen.left_together_mib = server_mib(yard), together_mib(yard)
        back = seen.left_together_mib <= seen.start_together_mib + LEFT_MIB_MAX / 2
        if back or time.monotonic() > until_s:
            return
        time.sleep(1)


def _send(
    yard: YardProcess, everything: list[tuple[str, str, bytes]], hand: int, seen: Seen, until_s: float
) -> None:
    """A hand's part of all requests, however long that takes, and then all of them until the time is over."""
    own = everything[hand::HANDS]
    caller: Caller | None = None
    for turn, (method, path, body) in enumerate(
        itertools.chain(own, itertools.cycle(everything[hand:] + everything))
    ):
        if turn >= len(own) and time.monotonic() > until_s:
            break
        try:
            caller = caller or Caller(yard.port, {"Authorization": f"Bearer {yard.token}"}, most_s=300)
            status = str(caller.ask(method, path, body).status)
        except OSError as error:
            # Refused before all of it was read: the server hangs up.
            status = type(error).__name__
            if caller is not None:
                caller.close()
            caller = None
        key = f"{method} {path} {status}"
        seen.statuses[key] = seen.statuses.get(key, 0) + 1
    if caller is not None:
        caller.close()


def text_of(seen: Seen, seconds: float) -> str:
    """The table, and what goes with it."""
    rows = [
        ["the server's process", seen.start_mib, seen.peak_mib, seen.left_mib],
        ["with all that help it", seen.start_together_mib, seen.peak_together_mib, seen.left_together_mib],
    ]
    sent = sum(seen.statuses.values())
    return f"{sent:,} bodies in {seconds:g} s on {HANDS} connections.\n\n" + table(
        ["MiB", "before", "most", "within a minute after"], rows
    )


def main() -> int:
    """Measure and print. The exit code says whether a limit was broken."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--minutes", type=float, help="the same in minutes")
    parser.add_argument("--write", action="store_true", help="put the table into docs/benchmarks.md")
    options = parser.parse_args()
    if os.geteuid() != 0:
        print("Bodies are not measured: only root sees the memory of root's yard.", file=sys.stderr)
        return 0
    seconds = 60 * options.minutes if options.minutes else options.seconds
    seen = measured(seconds)
    for key, count in sorted(seen.statuses.items()):
        print(f"{count:8} {key}", file=sys.stderr)
    row: Row = {"broken": seen.broken, "statuses": seen.statuses}
    publish("bodies", text_of(seen, seconds), [row], write=options.write)
    print(f"beyond the limits: {', '.join(seen.broken) or 'nothing'}", file=sys.stderr)
    return 1 if seen.broken else 0


if __name__ == "__main__":
    sys.exit(main())
