"""Simulations at once: each policy on each study in a process of its own, as many at a time as there are cores.

A simulation takes one core, and several of them have nothing to do with each other. What decides is the same in one
process and in many, so the results are equal, in whatever order they come. Ctrl-C ends all of them; what they had
measured by then is a result too. Results of simulations that came to their end may be kept in a folder, from which the
same question is answered without a simulation: so a comparison that was stopped goes on where it was.
"""

import os
import pickle
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, NamedTuple

from gpuyard import interpreter
from gpuyard.errors import YardError
from gpuyard.model import PolicySpec
from gpuyard.sim.result import Result
from gpuyard.sim.runs.kept_results import KeptResults
from gpuyard.sim.simulate import Progress
from gpuyard.sim.study import Study

TOLD_EVERY_S = 0.2
"""How often a process says how far it is."""


JOBS_MIN = 5000
"""With fewer jobs in all simulations, starting processes would take longer than they save."""


class Comparison(NamedTuple):
    """A study, and the policies to compare on it."""

    study: Study
    policies: Sequence[PolicySpec]


class Run(NamedTuple):
    """One simulation."""

    comparison: int
    policy: int


def run_all(
    comparisons: Sequence[Comparison],
    progress: Progress | None = None,
    *,
    cores: int | None = None,
    kept: KeptResults | None = None,
) -> bool:
    """Run every policy on its study; `results` of the studies are in the order of the policies.

    Until done or Ctrl-C; False if it was Ctrl-C. `progress` is told how many jobs of all simulations have ended.
    `cores`: how many simulations at a time; None: as many as this process may use cores, or one where there are few
    jobs.
    """
    runs = [Run(at, number) for at, each in enumerate(comparisons) for number in range(len(each.policies))]
    found: dict[Run, Result] = {}
    for run in runs:
        result = None if kept is None else kept.find(*_parts(comparisons, run))
        if result is not None:
            found[run] = result
    left = deque([run for run in runs if run not in found])

    def take(run: Run, result: Result) -> None:
        found[run] = result
        if kept is not None and not result.interrupted:
            kept.keep(*_parts(comparisons, run), result)

    told = _Total(comparisons, runs, found, progress)
    if cores is None:
        cores = len(os.sched_getaffinity(0)) if told.jobs >= JOBS_MIN else 1
    count = min(len(left), cores)
    with suppress(KeyboardInterrupt):
        # Between two simulations, while one is set up, or for the second time: what has ended is complete.
        if count > 1:
            _run_beside(comparisons, left, count, told, take)
        else:
            _run_here(comparisons, left, told, take)
    for run in runs:
        if run in found:
            comparisons[run.comparison].study.add(found[run])
    return len(found) == len(runs) and not any([result.interrupted for result in found.values()])


def _parts(comparisons: Sequence[Comparison], run: Run) -> tuple[Study, PolicySpec]:
    study, policies = comparisons[run.comparison]
    return study, policies[run.policy]


class _Total:
    """How far all simulations are together."""

    def __init__(
        self,
        comparisons: Sequence[Comparison],
        runs: Sequence[Run],
        ended: Iterable[Run],
        progress: Progress | None,
    ) -> None:
        jobs = {run: len(comparisons[run.comparison].study.trace) for run in runs}
        self.jobs = sum(jobs.values())
        self._done = {run: jobs[run] for run in ended}
        self.progress = progress

    def of(self, run: Run, done: int) -> None:
        """So many jobs of one simulation have ended."""
        self._done[run] = done
        if self.progress is not None:
            self.progress(sum(self._done.values()), self.jobs)


def _run_here(
    comparisons: Sequence[Comparison],
    left: deque[Run],
    told: _Total,
    take: Callable[[Run, Result], None],
) -> None:
    """One after the other, in this process."""
    for run in left:
        study, spec = _parts(comparisons, run)

        def progress(done: int, _jobs: int, run: Run = run) -> None:
            told.of(run, done)

        result = study.simulate(spec, progress if told.progress is not None else None)
        take(run, result)
        if result.interrupted:
            return


# ----------------------------------------------------------------------
# Many at once

STOP = "stop"
"""Said to a worker instead of a run."""


class _Worker:
    """A process that simulates, one run after the other."""

    def __init__(self, comparisons: bytes) -> None:
        here, there = Pipe()
        self.line: Connection = here
        self.run = Run(0, 0)
        """What it simulates."""
        # A group of its own: Ctrl-C is for this process, which tells them.
        self._process = subprocess.Popen(
            interpreter.command("-m", "gpuyard.sim.runs.at_once", str(there.fileno())),
            pass_fds=[there.fileno()],
            process_group=0,
            stdin=subprocess.DEVNULL,
        )
        there.close()
        # Of a process that is gone already, what hears it tells.
        with suppress(ConnectionError):
            self.line.send_bytes(comparisons)

    def begin(self, run: Run) -> None:
        """Simulate this next."""
        self.run = run
        with suppress(ConnectionError):
            self.line.send(run)

    def stop(self) -> None:
        """Stop the simulation; its result so far comes."""
        with suppress(ConnectionError):
            self.line.send(STOP)

    def end(self) -> None:
        """End the process, if it has not ended."""
        self.line.close()
        self._process.kill()
        self._process.wait()


def _run_beside(
    comparisons: Sequence[Comparison],
    left: deque[Run],
    count: int,
    told: _Total,
    take: Callable[[Run, Result], None],
) -> None:
    """In processes beside this one."""
    bare = pickle.dumps([(each.study.bare(), list(each.policies)) for each in comparisons])
    busy: dict[Any, _Worker] = {}
    with _ctrl_c() as stopped, ExitStack() as ends:
        while left and len(busy) < count and not stopped:
            worker = _Worker(bare)
            ends.callback(worker.end)
            busy[worker.line] = worker
            worker.begin(left.popleft())
        while busy:
            for line in wait(list(busy), TOLD_EVERY_S):
                worker = busy[line]
                result = _hear(worker, told, _parts(comparisons, worker.run)[1].name, bool(stopped))
                if result is not None:
                    take(worker.run, result)
                    if not result.interrupted:
                        told.of(worker.run, result.jobs)
                    if left and not stopped:
                        worker.begin(left.popleft())
                        continue
                if result is not None or worker.line.closed:
                    del busy[line]
            if len(stopped) == 1:
                stopped.append(True)
                for worker in busy.values():
                    worker.stop()


def _hear(worker: _Worker, told: _Total, name: str, stopped: bool) -> Result | None:
    """What a worker says next: a result, or None. The line of one that is gone without one is closed."""
    try:
        what, about = worker.line.recv()
    except (EOFError, ConnectionError):
        if not stopped:
            raise YardError(
                f"the process that simulated {name} ended without a result",
                "Was there too little memory? --cores 1 simulates one policy after the other.",
            ) from None
        worker.line.close()
        return None
    match what:
        case "result":
            result: Result = about
            return result
        case "failed":
            raise about
        case _:
            told.of(worker.run, about)
            return None


@contextmanager
def _ctrl_c() -> Iterator[list[bool]]:
    """Not empty once Ctrl-C came; a second one raises."""
    stopped: list[bool] = []

    def stop(_number: int, _frame: object) -> None:
        if stopped:
            raise KeyboardInterrupt
        stopped.append(True)

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield stopped
    finally:
        signal.signal(signal.SIGINT, before)


def main(number: int) -> None:
    """A worker: studies come over a connection, then runs; each is answered by its result."""
    line = Connection(number)
    # The process that asks is gone, or asks no more.
    with suppress(EOFError, ConnectionError):
        comparisons = [Comparison(*each) for each in pickle.loads(line.recv_bytes())]
        while (run := line.recv()) != STOP:
            _answer(line, *_parts(comparisons, run))


def _answer(line: Connection, study: Study, spec: PolicySpec) -> None:
    told_s = 0.0

    def progress(done: int, _jobs: int) -> None:
        nonlocal told_s
        if line.poll():
            line.recv()
            # It ends the simulation as Ctrl-C would.
            raise KeyboardInterrupt
        if time.monotonic() - told_s >= TOLD_EVERY_S:
            told_s = time.monotonic()
            line.send(("progress", done))

    try:
        line.send(("result", study.simulate(spec, progress)))
    except (EOFError, ConnectionError):
        raise
    except Exception as error:
        line.send(("failed", error))


if __name__ == "__main__":
    import sys

    main(int(sys.argv[1]))
