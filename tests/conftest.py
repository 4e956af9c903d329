"""Parts of the world that tests of several packages need."""

import gc
import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from harness.answering import AnsweringYard, Answers, answering
from rigs.accounts import hide_people

pytest_plugins = ("rigs.postgres", "rigs.slurm.cluster", "rigs.oidc.provider", "rigs.images.rig")

_CLUSTERS = {"slurm_cluster", "slurm_of_eight"}
_SERVERS = {"postgres_server", "issuer", "images"}
_SERVER_PARAMETERS = {"postgresql", "slurm"}
"""Parameters of a test that make a fixture start a server only then."""

# On a busy machine an example that takes 10 ms may take 300: time is for benchmarks.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

_HERE = Path(__file__).parent
_LONGEST = {name: place for place, name in enumerate((_HERE / "longest.txt").read_text().splitlines())}
"""Files that take long, the longest first: at the end one worker would wait for the other's last file."""


def pytest_configure(config: pytest.Config) -> None:
    """Start from the same signals and the same users, whoever else works here: `nohup make test &` must pass, too."""
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        # Not where workers are started from: each has a view of its own, and knows the way out of it.
        hide_people()
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        if signal.getsignal(number) is signal.SIG_IGN and number not in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL)

    # The alarm is that of the limit of each test.
    heeded = signal.valid_signals() - {signal.SIGALRM}
    _AT_START.update({number: signal.getsignal(number) for number in heeded})


_AT_START: dict[int, Any] = {}
"""What is done about each signal; None: something that Python does not know."""


def pytest_runtest_setup() -> None:
    """Begin as the first test does: an account that somebody has made since is hidden, and a signal that a test or a
    library has heeded since does again what it does to programs (a child of a test inherits what is done about it)."""
    hide_people()
    for number, handler in _AT_START.items():
        if handler is not None and signal.getsignal(number) is not handler:
            signal.signal(number, handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests over real servers, `make test-rigs`, and among them those over Slurm, `make test-slurm`."""
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        parameters = set(map(str, getattr(getattr(item, "callspec", None), "params", {}).values()))
        if _CLUSTERS & fixtures or item.path.parts[-3:-1] == ("tests", "slurm") or "slurm" in parameters:
            item.add_marker(pytest.mark.slurm)
            item.add_marker(pytest.mark.rig)
        elif _SERVERS & fixtures or _SERVER_PARAMETERS & parameters:
            item.add_marker(pytest.mark.rig)
    items.sort(key=lambda item: _place(item.path))
    if seed := os.environ.get("GPUYARD_ORDER"):
        files = list(dict.fromkeys(item.path for item in items))
        random.Random(seed).shuffle(files)
        places = {file: place for place, file in enumerate(files)}
        items.sort(key=lambda item: places[item.path])


def pytest_collection_finish() -> None:
    """What was imported and collected by now stays: the garbage collector need not look at it again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def answering_yard(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Answers], AnsweringYard]]:
    """Makes a yard that gives these answers, and lets commands find it as people do: by `YARD_URL`."""
    with ExitStack() as open_yards:

        def made(answers: Answers) -> AnsweringYard:
            yard = open_yards.enter_context(answering(answers))
            monkeypatch.setenv("YARD_URL", yard.url)
            return yard

        yield made


@cache
def _place(path: Path) -> int:
    """Where a file comes; those that are not long keep their order."""
    return _LONGEST.get(path.relative_to(_HERE).as_posix(), len(_LONGEST))
