"""The first half of `yard demo`: a real yard on this machine, three teams that want more than there is.

Everything is as in real life (the server, its store, processes, preemption, checkpoints) but for the GPUs, where there
are none, and the length of the jobs. It all happens in a folder that is gone afterwards, with everything that ran.
"""

import shutil
import subprocess
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuyard import interpreter
from gpuyard.cli.commands.foresight.demo_steps import SCRIPT, JobLog, check_steps
from gpuyard.errors import YardError
from gpuyard.quantities import seconds_text

if TYPE_CHECKING:
    from gpuyard.api.client import Client

PATIENCE_S = 90.0
LOOK_S = 2.5

CONFIG = """\
version: 1
clusters:
  here: {{{machine}, allow_root: true}}
tenants:
  research: {{weight: 3, guarantee: {half}}}
  product: {{weight: 2, guarantee: {quarter}}}
  interns: {{weight: 1, limit: {few}}}
classes:
  batch: {{limit: 10m, min_run: 1s, grace: 5s}}
default_class: batch
policy: default
"""

STEPS = {"product": 14, "research": 10, "interns": 8}
"""How far a job of each team counts."""

Say = Callable[[str], None]


def show_yard(say: Say, meanwhile: Callable[[], None]) -> None:
    """Start a yard, let three teams compete, show what happens, take it down. `meanwhile`: done once they compete."""
    print("$ yard up -d", flush=True)
    say("A yard starts: a server, a store and an engine. The first start takes longest.")
    with _yard() as (client, gpus, found):
        say(found)
        sent = _submit(client, gpus)
        meanwhile()
        _watch(client, say, sent)
        jobs = client.history(limit=1000).jobs
        logs = [_log_of(client, job) for job in jobs]
        again = sum([check_steps(log) for log in logs])
        _look_at_one(say, logs)
        say(_summary(jobs, logs, again))


@contextmanager
def _yard() -> "Iterator[tuple[Client, int, str]]":
    """A yard over this machine."""
    real, without = _own_gpus()
    gpus = real or 8
    machine = "engine: local" if real else "gpus: 8 x A100-80GB, emulate: true"
    config = CONFIG.format(machine=machine, half=gpus // 2, quarter=gpus // 4, few=max(1, gpus // 4))
    kind = f"its {gpus} GPUs" if real else f"{gpus} emulated GPUs, for {without}"
    with open_yard(config) as client:
        yield client, gpus, f"A yard is up on this machine, with {kind}."


def _own_gpus() -> tuple[int, str]:
    """How many GPUs this machine can show, and if there are none, why."""
    from gpuyard.engines.contract import Transient
    from gpuyard.engines.machine import nvml

    try:
        return len(nvml.read_gpus()), "it has none of its own"
    except Transient as error:
        return 0, f"its own cannot be asked ({error})"


@contextmanager
def open_yard(config: str, *more: object) -> "Iterator[Client]":
    """A yard in a folder of its own; nothing of it is left afterwards. `more`: options of `yard up`."""
    from gpuyard.api.client import Client

    folder = Path(tempfile.mkdtemp(prefix="yard-demo-"))
    try:
        file, data = folder / "yard.yaml", folder / "data"
        file.write_text(config, encoding="utf-8")
        _command("up", "-d", "--data", data, "--port", 0, "--config", file, *more)
        try:
            with Client(data=data) as client:
                yield client
        finally:
            _command("down", "--jobs", "--data", data)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _command(*words: object) -> None:
    done = subprocess.run(
        interpreter.command("-m", "gpuyard.cli", *map(str, words)),
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        env={
            name: value for name, value in interpreter.environment().items() if not name.startswith("YARD_")
        },
    )
    if done.returncode:
        raise YardError(f"`yard {words[0]}` failed: {done.stderr.strip() or done.stdout.strip()}")


def _submit(client: "Client", gpus: int) -> dict[str, int]:
    """Product takes the whole machine; then research wants its guarantee, and interns more than their limit."""
    sent = {"product": 2 * gpus, "research": gpus, "interns": max(2, gpus // 2)}
    print("$ yard submit …")
    for team, user in (("product", "eli"), ("research", "ana"), ("interns", "ivo")):
        for _number in range(sent[team]):
            client.submit(
                script=SCRIPT,
                command=[str(STEPS[team])],
                name=f"{team}-train",
                tenant=f"{team}/{user}",
                gpus=1,
            )
        print(f"{sent[team]:3} jobs of {team}")
        if team == "product":
            # Long enough for its jobs to fill the machine and to have something to lose.
            _until(lambda: client.queue()["running"] >= gpus, 20)
            time.sleep(1.0)
    print(flush=True)
    return sent


def _until(holds: Callable[[], bool], s: float) -> None:
    until_s = time.monotonic() + s
    while not holds() and time.monotonic() < until_s:
        time.sleep(0.05)


def _watch(client: "Client", say: Say, sent: dict[str, int]) -> None:
    """The queue, once in full while it is at its most crowded, then a line now and then until all is done."""
    from gpuyard.cli.commands.jobs.queue import print_queue

    time.sleep(1.5)
    say(
        "Product filled the machine while nobody else asked. Research is promised half of it and takes that back; "
        "interns may have a quarter, and are next in line:"
    )
    print("$ yard queue")
    print_queue({**client.queue(limit=sum(sent.values())), "at_ms": int(time.time() * 1000)})
    print(flush=True)
    until_s = time.monotonic() + PATIENCE_S
    while True:
        queue = client.queue()
        if not queue["rows"]:
            break
        if time.monotonic() > until_s:
            raise YardError(f"{len(queue['rows'])} jobs of the demo did not end within {PATIENCE_S:.0f} s")
        print(_line(queue, sum(sent.values())), flush=True)
        time.sleep(LOOK_S)
    print(flush=True)


def _line(queue: Any, total: int) -> str:
    """`running: 4 research, 2 product, 2 interns; 9 wait; 13 of 28 done`."""
    at = queue["columns"].index
    running = Counter(
        row[at("tenant")].split("/")[0] for row in queue["rows"] if row[at("state")] == "RUNNING"
    )
    said = ", ".join(f"{count} {team}" for team, count in sorted(running.items())) or "nobody"
    waiting = sum(row[at("state")] == "PENDING" for row in queue["rows"])
    return f"running: {said}; {waiting} wait; {total - len(queue['rows'])} of {total} done"


def _log_of(client: "Client", job: Any) -> JobLog:
    """What the job itself wrote, attempt by attempt."""
    texts = [
        b"".join(client.log(job["id"], attempt=number)).decode() for number in range(1, job["attempts"] + 1)
    ]
    team = job["tenant"].split("/")[0]
    return JobLog(job["label"], team, STEPS[team], texts)


def _look_at_one(say: Say, logs: Sequence[JobLog]) -> None:
    """The log of a job that was stopped for others and went on where it was."""
    resumed = [log for log in logs if log.resumed]
    if not resumed:
        return
    log = resumed[-1]
    lines = log.attempts[-1].splitlines()
    say(f"Job {log.label} of {log.team} was stopped for others, had saved its work and went on where it was:")
    print(f"$ yard logs {log.label}")
    print("\n".join([*lines[:3], "…", *lines[-1:]]) + "\n", flush=True)


def _summary(jobs: Sequence[Any], logs: Sequence[JobLog], again: int) -> str:
    by_team: dict[str, list[Any]] = defaultdict(list)
    for job in jobs:
        by_team[job["tenant"].split("/")[0]].append(job)
    said = []
    for team, mine in sorted(by_team.items()):
        waits = [job["waited_ms"] for job in mine]
        stops = sum(job["preemptions"] for job in mine)
        words = f"{team} {len(mine)} jobs, waited {seconds_text(sum(waits) / len(waits))} on average"
        said.append(
            f"{words}, stopped {'once' if stops == 1 else f'{stops} times'} for others" if stops else words
        )
    done = sum(job["state"] == "COMPLETED" for job in jobs)
    return (
        f"All {len(jobs)} jobs have ended, {done} of them COMPLETED: {'; '.join(said)}. "
        f"Their own logs have all {sum([log.wanted for log in logs])} steps that they were to do"
        f"{f', {again} of them twice' if again else ''}. "
        "The yard is down again and left nothing behind."
    )
