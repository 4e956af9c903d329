"""Questions that a process beside the server answers: the same answers, nothing changed, and nobody left behind."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuyard.control.commands.wishes import BATCH
from gpuyard.control.refusals import Overloaded, Unacceptable
from gpuyard.control.replica.follower import Follower
from gpuyard.control.replica.labels import parse_label
from gpuyard.control.replica.questions import QuestionContext, QuestionRunner, StatePassed
from gpuyard.control.views.explanations import Explained
from gpuyard.control.views.views import Views
from gpuyard.core.state.dump import canonical
from gpuyard.model import Verb
from gpuyard.model.units import HOUR_MS
from harness.patience import until
from rigs.request_service import ANA, ROOT, Rig, granted, rig


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """A full node, and jobs of two people that wait for different reasons."""
    with rig(tmp_path_factory.mktemp("follower")) as found:
        found.start(found.submit(gpus=8, limit_ms=HOUR_MS), gpus=0xFF)
        found.submit(ANA, gpus=8, limit_ms=HOUR_MS, array=tuple(range(BATCH + 50)))
        found.submit(gpus=2, limit_ms=HOUR_MS)
        found.submit(hold=True)
        yield found


@pytest.fixture(scope="module", autouse=True)
def importable() -> Iterator[None]:
    """The questions of this file can be found by another process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([*sys.path, str(Path(__file__).parents[3])]))
        yield


@pytest.fixture(scope="module")
def process(service: Rig) -> Iterator[Follower]:
    found = Follower(service.replica.store.place, ("gpuyard.control.views.views",))
    yield found
    found.close()


def still(service: Rig) -> int:
    """The time, which stands still: answers of two ways are compared."""
    return service.replica.state.now_ms


def state_of(own: QuestionContext) -> str:
    return canonical(own.state)


def pid_of(_own: QuestionContext) -> int:
    return os.getpid()


def wasteful(own: QuestionContext, _more: int) -> int:
    own.state.jobs.clear()
    return len(own.state.jobs)


def slow(_own: QuestionContext) -> None:
    time.sleep(60)


def refuses(_own: QuestionContext) -> None:
    raise Unacceptable("it cannot be", "Ask otherwise.")


def breaks(_own: QuestionContext) -> None:
    raise ZeroDivisionError("in the answer")


def ask(process: Follower, service: Rig, work: Any, *args: Any, exact: bool = False) -> Any:
    service.replica.catch_up()
    return process.ask(service.replica.seq, exact, work, args)


def test_it_says_why_as_a_copy_does(service: Rig, process: Follower) -> None:
    service.replica.catch_up()
    now_ms = lambda: still(service)  # noqa: E731
    near, far = (
        Explained(service.replica, now_ms),
        Explained(service.replica, now_ms, think=QuestionRunner(service.replica, process, copied_max=0)),
    )
    labels = [str(record.job.label) for record in service.replica.state.jobs.values()]
    for label in [labels[0], labels[1], labels[60], labels[BATCH + 40], *labels[-2:]]:
        assert near.why(parse_label(label)) == far.why(parse_label(label)), label
    assert near.share() == far.share()
    views = [
        Views(service.replica, now_ms, think=think)
        for think in (None, QuestionRunner(service.replica, process))
    ]
    near_view, far_view = [view.job(parse_label(labels[60]), explained=True) for view in views]
    assert near_view["why"]
    assert near_view == far_view
    then = still(service)
    assert near.why(parse_label(labels[3]), then) == far.why(parse_label(labels[3]), then)


def test_it_follows_the_log_and_keeps_nothing_that_an_answer_did(service: Rig, process: Follower) -> None:
    service.replica.catch_up()
    assert canonical(service.replica.state) == ask(process, service, state_of)
    assert 0 == ask(process, service, wasteful, 1)
    service.submit(ANA)
    granted(service.requests, service.requests.wish(ROOT, Verb.HOLD, ["3"]))
    found = ask(process, service, state_of)
    assert canonical(service.replica.state) == found


def test_a_question_about_a_state_that_is_past_is_asked_anew(service: Rig, process: Follower) -> None:
    before = service.replica.seq
    service.submit()
    ask(process, service, pid_of)
    with pytest.raises(StatePassed):
        process.ask(before, True, pid_of, ())
    assert ask(process, service, pid_of, exact=True)


def test_what_goes_wrong_in_an_answer_is_said_to_whoever_asked(service: Rig, process: Follower) -> None:
    with pytest.raises(Unacceptable) as caught:
        ask(process, service, refuses)
    assert ("it cannot be", "Ask otherwise.") == (caught.value.message, caught.value.hint)
    with pytest.raises(RuntimeError, match="ZeroDivisionError: in the answer"):
        ask(process, service, breaks)


def test_an_answer_that_takes_too_long_is_given_up(service: Rig) -> None:
    short = Follower(service.replica.store.place, answer_s_max=1)
    try:
        with pytest.raises(Overloaded):
            ask(short, service, slow)
    finally:
        short.close()


def test_it_is_started_again_when_it_is_gone_and_ends_with_the_server(service: Rig, tmp_path: Path) -> None:
    process = Follower(service.replica.store.place)
    fork = ask(process, service, pid_of)
    first = process.process.pid
    os.kill(first, signal.SIGKILL)
    until(lambda: not process.process.pid)
    assert fork != ask(process, service, pid_of)
    last = process.process.pid
    assert last not in (0, first)
    process.close()
    assert 0 == process.process.pid
    with pytest.raises(Overloaded):
        ask(process, service, pid_of)
